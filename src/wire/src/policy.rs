//! What `avfs policy` answers with.

use schemars::JsonSchema;
use serde::Serialize;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyCheck {
    pub decision: PolicyDecision,
    pub files: Vec<PolicyFile>,
}

/// What was decided.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyDecision {
    /// `allow`, `allow_with_checkpoint`, `require_approval` or `deny`.
    pub action: &'static str,
    pub categories: Vec<&'static str>,
    pub rule: Option<String>,
    pub reason: String,
    pub hint: Option<String>,
    /// What becomes of a run that was said to look only, and wrote: `keep` or `discard`.
    pub on_violation: &'static str,
    /// No command may run for longer; nothing where there is no such cap.
    pub timeout_max_ms: Option<u64>,
    /// No command may use more.
    pub limits_max: Vec<LimitMax>,
    pub approval_seconds: i64,
}

/// The cap of a limit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitMax {
    /// `memory`, `cpus`, `pids`, `disk`, `files` or `file_size`.
    pub limit: &'static str,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
}

/// A place where a policy may be.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyFile {
    /// `system`, `user` or `vault`.
    pub layer: &'static str,
    pub path: String,
    pub found: bool,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyExplain {
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
    pub caps: Vec<PolicyCap>,
    pub files: Vec<PolicyFile>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyCommand {
    pub words: Vec<PolicyWord>,
    pub categories: Vec<&'static str>,
    pub findings: Vec<PolicyFinding>,
    /// What holds where no file says anything.
    pub baseline: PolicyVerdict,
    pub said: Vec<PolicySaid>,
    pub verdict: PolicyVerdict,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyWord {
    pub text: String,
    /// False for a word that only the shell will know.
    pub known: bool,
}

/// Why a category holds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyFinding {
    pub category: &'static str,
    pub why: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyVerdict {
    pub action: &'static str,
    pub rule: String,
    pub reason: String,
    pub hint: Option<String>,
}

/// What a rule, or a profile, said of a command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicySaid {
    pub layer: &'static str,
    pub rule: String,
    /// Nothing for a profile.
    pub file: Option<String>,
    pub line: Option<u64>,
    pub action: &'static str,
    /// `sure`, or `may` where a word that only the shell knows decides it.
    pub fit: &'static str,
    /// `counts`, `outweighed`, `may_not_loosen` or `unsure`.
    pub effect: &'static str,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyCap {
    pub layer: &'static str,
    /// Such as `caps.net`.
    pub cap: &'static str,
    pub value: String,
    pub file: String,
    pub line: u64,
    /// What is said of a request that goes beyond it.
    pub broken: Option<PolicyVerdict>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyTest {
    pub files: Vec<PolicyTested>,
    pub failures: Vec<PolicyFailure>,
}

/// A file whose examples were tried.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyTested {
    pub path: String,
    pub rules: u64,
    pub examples: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PolicyFailure {
    pub file: String,
    pub line: u64,
    pub rule: String,
    pub example: String,
    /// `match` or `not_match`.
    pub wanted: String,
    pub message: String,
}
