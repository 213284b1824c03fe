//! What was decided about a request before anything was done for it.

use avfs_request::{ExecutionTimeout, Limits, NetMode};
use avfs_types::words;

use crate::category::{Categories, Category};

words!(
    /// What may happen, the laxest first.
    Action, "action", {
        Allow = "allow",
        AllowWithCheckpoint = "allow_with_checkpoint",
        RequireApproval = "require_approval",
        Deny = "deny",
    }
);

words!(
    /// What becomes of a run that was said to look only, and wrote.
    OnViolation, "way to deal with a violation", {
        /// It is told, and the changes are kept.
        Keep = "keep",
        /// It is told, and the changes are dropped.
        Discard = "discard",
    }
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionDecision {
    pub action: Action,
    pub categories: Categories,
    /// The rule that decided; nothing where none did.
    pub rule: Option<String>,
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// Rules in TOML with which the user's own file would let a denied request through.
    pub allow_rule: Option<String>,
    pub on_violation: OnViolation,
    /// No command may run for longer, whatever was asked.
    pub timeout_max: ExecutionTimeout,
    /// Nor may it use more of anything.
    pub limits_max: Limits,
    /// How long an approval may be waited for and used.
    pub approval_seconds: i64,
    /// The network it has in place of the one it asked for: by a rule, or by whoever approved it.
    pub net: Option<NetMode>,
}

impl ExecutionDecision {
    /// How long an approval may be waited for and used where nobody said otherwise.
    pub const APPROVAL_SECONDS: i64 = 24 * 60 * 60;

    /// True if nothing of it is to be changed, as far as can be told.
    #[must_use]
    pub fn looks_only(&self) -> bool {
        self.categories.contains(Category::ReadOnly)
    }

    /// The decision on one line, for the audit log.
    #[must_use]
    pub fn told(&self) -> String {
        let categories: Vec<&str> = self.categories.iter().map(|category| category.word()).collect();
        let rule = self.rule.as_deref().unwrap_or("none");
        format!("{} [{}] rule={rule}", self.action, categories.join(" "))
    }
}
