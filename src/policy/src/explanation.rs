//! How a decision came to be: everything that was said on the way to it.

use avfs_request::choices::PolicyProfile;
use avfs_types::words;

use crate::caps::Cap;
use crate::decision::{Action, ExecutionDecision};
use crate::reading::Judged;
use crate::verdict::{Fit, RulePlace, Tier, Verdict};

words!(
    /// What came of something that was said.
    Effect, "effect", {
        /// It stood when its layer had spoken.
        Counts = "counts",
        /// Something stricter, or earlier and as strict, was said in the same layer.
        Outweighed = "outweighed",
        /// Its layer may only tighten here, and it is no stricter than what stood.
        MayNotLoosen = "may_not_loosen",
        /// It only may be about this command, and is no stricter than what stood.
        Unsure = "unsure",
    }
);

/// What one rule or profile said of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub tier: Tier,
    pub rule: String,
    /// Nothing for what a profile says.
    pub place: Option<RulePlace>,
    pub action: Action,
    pub fit: Fit,
    pub effect: Effect,
}

/// One simple command, and what was said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    pub command: Judged,
    /// What holds where no file says anything.
    pub baseline: Verdict,
    /// In the order of the layers.
    pub said: Vec<Said>,
    pub verdict: Verdict,
}

/// The whole way to a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// One for each simple command, in the order they are written.
    pub commands: Vec<Explained>,
    pub doubts: Vec<String>,
    /// What was said of the doubts, if there are any.
    pub in_doubt: Option<Explained>,
    pub profiles: Vec<PolicyProfile>,
    /// What the profiles say of what the request hands over.
    pub handed_over: Vec<Verdict>,
    pub caps: Vec<(Tier, Cap)>,
    /// The strictest of all of these, the first of equals.
    pub decision: ExecutionDecision,
}
