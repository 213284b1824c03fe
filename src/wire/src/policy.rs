//! What `avfs policy` answers with.

use serde::Serialize;

/// The result of `avfs policy check`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCheck {
    /// What the policy decides about the command.
    pub decision: PolicyDecision,
    /// The policy files that were looked for.
    pub files: Vec<PolicyFile>,
}

/// What was decided.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyDecision {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: &'static str,
    /// What the command was found to do: `read_only`, `mutating`, `destructive`, `networked`, `host_escape_risk`.
    pub categories: Vec<&'static str>,
    /// The rule that decided; null for a built-in default.
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// Rules with which your own policy.toml would let a denied request through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_rule: Option<String>,
    /// What becomes of a run that was said to look only, and wrote: `keep` or `discard`.
    pub on_violation: &'static str,
    /// No command may run for longer; null where there is no such cap.
    pub timeout_max_ms: Option<u64>,
    /// No command may use more.
    pub limits_max: Vec<LimitMax>,
    /// How long an approval waits before it expires, in seconds.
    pub approval_seconds: i64,
}

/// The cap of a limit.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitMax {
    /// `memory`, `cpus`, `pids`, `disk`, `files` or `file_size`.
    pub limit: &'static str,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
}

/// A place where a policy may be.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyFile {
    /// `system`, `user` or `vault`.
    pub layer: &'static str,
    /// The path of the file.
    pub path: String,
    /// Whether the file exists.
    pub found: bool,
}

/// The result of `avfs policy explain`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyExplain {
    /// What the policy decides about the whole command.
    pub decision: PolicyDecision,
    /// One for each simple command.
    pub commands: Vec<PolicyCommand>,
    /// Why it cannot be told what will be run.
    pub doubts: Vec<String>,
    /// What was said of the doubts.
    pub in_doubt: Option<PolicyCommand>,
    /// `agent`, `ci`.
    pub profiles: Vec<&'static str>,
    /// What the profiles say of what the request hands over.
    pub handed_over: Vec<PolicyVerdict>,
    /// The caps of all layers, and which of them the request breaks.
    pub caps: Vec<PolicyCap>,
    /// The policy files that were looked for.
    pub files: Vec<PolicyFile>,
}

/// A simple command and how the policy came to its verdict.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCommand {
    /// The words of the command, expanded as far as possible.
    pub words: Vec<PolicyWord>,
    /// What the command was found to do.
    pub categories: Vec<&'static str>,
    /// Why each category holds.
    pub findings: Vec<PolicyFinding>,
    /// What holds where no file says anything.
    pub baseline: PolicyVerdict,
    /// What each matching rule and profile says, in order.
    pub said: Vec<PolicySaid>,
    /// The verdict on this command.
    pub verdict: PolicyVerdict,
}

/// A word of a command.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyWord {
    /// The text of the word.
    pub text: String,
    /// False for a word that only the shell will know.
    pub known: bool,
}

/// Why a category holds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyFinding {
    /// The category, such as `networked`.
    pub category: &'static str,
    /// The reason in words.
    pub why: String,
}

/// An action and where it comes from.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyVerdict {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: &'static str,
    /// The rule, or the name of a built-in default.
    pub rule: String,
    /// Why, in one sentence.
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
}

/// What a rule, or a profile, said of a command.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicySaid {
    /// `system`, `user`, `vault` or `profile`.
    pub layer: &'static str,
    /// The name of the rule.
    pub rule: String,
    /// Null for a profile.
    pub file: Option<String>,
    /// The line of the rule in `file`, from 1.
    pub line: Option<u64>,
    /// The action of the rule.
    pub action: &'static str,
    /// `sure`, or `may` where a word that only the shell knows decides it.
    pub fit: &'static str,
    /// `counts`, `outweighed`, `may_not_loosen` or `unsure`.
    pub effect: &'static str,
}

/// A cap: a bound that no later layer loosens.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyCap {
    /// `system`, `user` or `vault`.
    pub layer: &'static str,
    /// Such as `caps.net`.
    pub cap: &'static str,
    /// The value of the cap, as the file has it.
    pub value: String,
    /// The file that sets the cap.
    pub file: String,
    /// The line of the cap in `file`, from 1.
    pub line: u64,
    /// What is said of a request that goes beyond it.
    pub broken: Option<PolicyVerdict>,
}

/// The result of `avfs policy test`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyTest {
    /// The files whose examples were tried.
    pub files: Vec<PolicyTested>,
    /// The examples that do not do what their rule says.
    pub failures: Vec<PolicyFailure>,
}

/// A file whose examples were tried.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
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
