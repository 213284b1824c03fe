//! How a decision was reached: every verdict that contributed.

use avfs_request::choices::PolicyProfile;
use avfs_types::words;

use crate::caps::Cap;
use crate::decision::{Action, ExecutionDecision};
use crate::reading::Judged;
use crate::verdict::{Fit, RulePlace, Tier, Verdict};

words!(
    /// The effect of a verdict.
    Effect, "effect", {
        /// It was the layer's result.
        Counts = "counts",
        /// Another verdict in the same layer was stricter, or earlier and as strict.
        Outweighed = "outweighed",
        /// Its layer may only tighten here, and it is not stricter than the previous verdict.
        MayNotLoosen = "may_not_loosen",
        /// It is only a possible match, and is not stricter than the previous verdict.
        Unsure = "unsure",
    }
);

/// The verdict of one rule or profile on one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub tier: Tier,
    pub rule: String,
    /// `None` for a profile.
    pub place: Option<RulePlace>,
    pub action: Action,
    pub fit: Fit,
    pub effect: Effect,
}

/// One simple command, and all verdicts on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub command: Judged,
    /// The verdict of the defaults.
    pub baseline: Verdict,
    /// In the order of the layers.
    pub said: Vec<Said>,
    pub verdict: Verdict,
}

/// The complete explanation of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// One for each simple command, in the order they are written.
    pub commands: Vec<Explained>,
    pub doubts: Vec<String>,
    /// The verdicts on the doubts, if there are any.
    pub in_doubt: Option<Explained>,
    pub profiles: Vec<PolicyProfile>,
    /// The verdicts of the profiles on the privileges that the request passes to the command.
    pub handed_over: Vec<Verdict>,
    pub caps: Vec<(Tier, Cap)>,
    /// The strictest of all verdicts, the first of equals.
    pub decision: ExecutionDecision,
}
