//! The decision about a request before anything is executed.

use avfs_request::{ExecutionTimeout, Limits, NetMode};
use avfs_types::words;

use crate::category::{Categories, Category};

words!(
    /// The possible actions, least strict first.
    Action, "action", {
        Allow = "allow",
        AllowWithCheckpoint = "allow_with_checkpoint",
        RequireApproval = "require_approval",
        Deny = "deny",
    }
);

words!(
    /// What to do with a run that was classified as read-only and wrote.
    OnViolation, "reaction to a violation", {
        /// The violation is reported, and the changes are kept.
        Keep = "keep",
        /// The violation is reported, and the changes are dropped.
        Discard = "discard",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionDecision {
    pub action: Action,
    pub categories: Categories,
    /// The rule that decided, if any.
    pub rule: Option<String>,
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// Rules in TOML that would allow a denied request, for the user's own policy file.
    pub allow_rule: Option<String>,
    pub on_violation: OnViolation,
    /// The maximum timeout of the command.
    pub timeout_max: ExecutionTimeout,
    /// The maximum resource limits of the command.
    pub limits_max: Limits,
    /// How long an approval is valid, both pending and approved.
    pub approval_seconds: i64,
    /// The network that replaces the requested one: by a rule, or by the approver.
    pub net: Option<NetMode>,
}

impl ExecutionDecision {
    /// The default validity of an approval.
    pub const APPROVAL_SECONDS: i64 = 24 * 60 * 60;

    /// True if the command is classified as read-only.
    #[must_use]
    pub fn looks_only(&self) -> bool {
        self.categories.contains(Category::ReadOnly)
    }

    /// The decision on one line, for the audit log.
    #[must_use]
    pub fn audit_text(&self) -> String {
        let categories: Vec<&str> = self.categories.iter().map(|category| category.word()).collect();
        let rule = self.rule.as_deref().unwrap_or("none");
        format!("{} [{}] rule={rule}", self.action, categories.join(" "))
    }
}
