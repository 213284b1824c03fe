//! The checkpoints a run gets by itself, and how many of them stay.

use avfs_policy::Action;
use avfs_request::CheckpointMode;
use avfs_types::KeepCount;
use avfs_types::ids::{CheckpointName, RunId};

/// Gives runs their automatic checkpoints. They are saved in the transaction that keeps the run's changes: where
/// nothing changed there is nothing to go back to.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointService {
    pub mode: CheckpointMode,
    /// The oldest of a fork go when there are more.
    pub keep: KeepCount,
}

/// The names of a run's checkpoints, as far as it gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    pub before: Option<CheckpointName>,
    pub after: Option<CheckpointName>,
}

impl CheckpointService {
    /// What a decision asks for: after every run that changes something, and before those that are not harmless.
    #[must_use]
    pub fn labels(&self, action: Action, run: &RunId) -> Labels {
        let (before, after) = match (self.mode, action) {
            (CheckpointMode::Never, _) => (false, false),
            (CheckpointMode::Always, _) => (true, true),
            (CheckpointMode::Auto, Action::Allow) => (false, true),
            (CheckpointMode::Auto, Action::AllowWithCheckpoint | Action::RequireApproval | Action::Deny) => {
                (true, true)
            }
        };
        Labels {
            before: before.then(|| CheckpointName::of_run("before", run)),
            after: after.then(|| CheckpointName::of_run("run", run)),
        }
    }
}
