//! The `result` of `avfs policy`.

use serde::{Deserialize, Serialize};

use avfs_types::Word;

/// The result of `avfs policy check`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCheck {
    /// The decision of the policy about the command.
    pub decision: PolicyDecision,
    /// The policy files that were searched for.
    pub files: Vec<PolicyFile>,
}

/// A decision of the policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyDecision {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: Word,
    /// The categories of the command: `read_only`, `mutating`, `destructive`, `networked`, `host_escape_risk`.
    pub categories: Vec<Word>,
    /// The rule that decided; null for a built-in default.
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// Rules that would allow a denied request if added to your own policy.toml.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_rule: Option<String>,
    /// What to do with the changes of a run that was classified read-only but wrote: `keep` or `discard`.
    pub on_violation: Word,
    /// The maximum timeout of a command; null without a cap.
    pub timeout_max_ms: Option<u64>,
    /// The maximum limits of a command.
    pub limits_max: Vec<LimitMax>,
    /// How long a request waits for approval before it expires, in seconds.
    pub approval_seconds: i64,
}

/// The cap of a limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitMax {
    /// `memory`, `cpus`, `pids`, `disk`, `files` or `file_size`.
    pub limit: Word,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
}

/// A possible location of a policy file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyFile {
    /// `system`, `user` or `vault`.
    pub layer: Word,
    /// The path of the file.
    pub path: String,
    /// Whether the file exists.
    pub found: bool,
}

/// The result of `avfs policy explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyExplain {
    /// The decision of the policy about the whole command.
    pub decision: PolicyDecision,
    /// The simple commands in it.
    pub commands: Vec<PolicyCommand>,
    /// Why the programs that will run cannot be determined.
    pub doubts: Vec<String>,
    /// The verdict on the doubts; null without doubts.
    pub in_doubt: Option<PolicyCommand>,
    /// The policy profiles in effect: `agent`, `ci`.
    pub profiles: Vec<Word>,
    /// The verdicts of the profiles on what the request hands over.
    pub handed_over: Vec<PolicyVerdict>,
    /// The caps of all layers, and which of them the request exceeds.
    pub caps: Vec<PolicyCap>,
    /// The policy files that were searched for.
    pub files: Vec<PolicyFile>,
}

/// A simple command and how the policy reached its verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCommand {
    /// The words of the command, expanded as far as possible.
    pub words: Vec<PolicyWord>,
    /// The categories of the command.
    pub categories: Vec<Word>,
    /// Why each category applies.
    pub findings: Vec<PolicyFinding>,
    /// The verdict without any policy file.
    pub baseline: PolicyVerdict,
    /// The verdict of each matching rule and profile, in order.
    pub said: Vec<PolicySaid>,
    /// The verdict on this command.
    pub verdict: PolicyVerdict,
}

/// A word of a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyWord {
    /// The text of the word.
    pub text: String,
    /// False for a word that only the shell can expand.
    pub known: bool,
}

/// Why a category applies.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyFinding {
    /// The category, such as `networked`.
    pub category: Word,
    /// The reason in words.
    pub why: String,
}

/// An action and its source.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyVerdict {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: Word,
    /// The rule, or the name of a built-in default.
    pub rule: String,
    /// Why, in one sentence.
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
}

/// The verdict of a rule or a profile on a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicySaid {
    /// `system`, `user`, `vault` or `profile`.
    pub layer: Word,
    /// The name of the rule.
    pub rule: String,
    /// The file of the rule; null for a profile.
    pub file: Option<String>,
    /// The line of the rule in `file`, from 1.
    pub line: Option<u64>,
    /// The action of the rule.
    pub action: Word,
    /// `sure`, or `may` if it depends on a word that only the shell can expand.
    pub fit: Word,
    /// `counts`, `outweighed`, `may_not_loosen` or `unsure`.
    pub effect: Word,
}

/// A cap: a bound that no later layer can loosen.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCap {
    /// `system`, `user` or `vault`.
    pub layer: Word,
    /// The key of the cap, such as `caps.net`.
    pub cap: Word,
    /// The value of the cap, as in the file.
    pub value: String,
    /// The file that sets the cap.
    pub file: String,
    /// The line of the cap in `file`, from 1.
    pub line: u64,
    /// The verdict on the request if it exceeds the cap; null if it does not.
    pub broken: Option<PolicyVerdict>,
}

/// The result of `avfs policy test`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyTest {
    /// The files whose examples were checked.
    pub files: Vec<PolicyTested>,
    /// The examples that contradict their rule.
    pub failures: Vec<PolicyFailure>,
}

/// A file whose examples were checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyTested {
    /// The path of the file.
    pub path: String,
    /// Rules in the file.
    pub rules: u64,
    /// Examples in the file.
    pub examples: u64,
}

/// An example that fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyFailure {
    /// The file of the example.
    pub file: String,
    /// The line of the rule, from 1.
    pub line: u64,
    /// The name of the rule.
    pub rule: String,
    /// The command of the example.
    pub example: String,
    /// `match` or `not_match`.
    pub wanted: String,
    /// What happened instead.
    pub message: String,
}
