//! The automatic checkpoints of a run, and how many of them to keep.

use avfs_policy::Action;
use avfs_request::CheckpointMode;
use avfs_types::KeepCount;
use avfs_types::ids::{CheckpointName, RunId};

/// Creates automatic checkpoints for runs. They are saved in the transaction that keeps the run's changes: if
/// nothing changed, there is nothing to go back to.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointService {
    pub mode: CheckpointMode,
    /// The number to keep per fork; older ones are removed.
    pub keep: KeepCount,
}

/// The names of a run's checkpoints, if it gets any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    pub before: Option<CheckpointName>,
    pub after: Option<CheckpointName>,
}

impl CheckpointService {
    /// The checkpoints that a decision requires: after every run that changes something, and before those that
    /// are not harmless.
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
