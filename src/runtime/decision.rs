//! What was decided about a request before anything was done for it.

use super::words::words;

words!(
    /// What may happen.
    Action, "action", {
        Allow = "allow",
        AllowWithCheckpoint = "allow_with_checkpoint",
        Deny = "deny",
        RequireApproval = "require_approval",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionDecision {
    pub action: Action,
    /// The rule that decided; nothing where none did.
    pub rule: Option<String>,
    pub reason: String,
}

impl ExecutionDecision {
    /// What holds where nobody has written rules: the sandbox itself is the limit.
    #[must_use]
    pub fn without_policy() -> Self {
        Self { action: Action::Allow, rule: None, reason: "no policy is set".to_owned() }
    }
}
