//! The states of an execution, the allowed transitions, and the state of each value of the pipeline.
//!
//! A step enters the state of the value that it makes. A transition that the table does not have does not compile.

use avfs_request::ExecutionRequest;
use avfs_types::words;

use crate::error::ExecuteError;
use crate::mount_session::MountSession;

words!(
    /// The state of an execution. Each step is executed once and in this order; any step may fail.
    ProxyExecutionState, "state of an execution", {
        /// Checking that the request is well-formed.
        Validating = "validating",
        /// Finding the vault, fork and directory.
        Resolving = "resolving",
        /// Applying the policy, and asking a person if required.
        Deciding = "deciding",
        /// Saving the base of the command as a version.
        Checkpointing = "checkpointing",
        Mounting = "mounting",
        Executing = "executing",
        /// Turning the changes into a version.
        Capturing = "capturing",
        Completed = "completed",
        Failed = "failed",
    }
);

impl ProxyExecutionState {
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Validating, Self::Resolving)
            | (Self::Resolving, Self::Deciding)
            | (Self::Deciding, Self::Checkpointing)
            | (Self::Checkpointing, Self::Mounting)
            // A cached result is kept without executing the command.
            | (Self::Checkpointing, Self::Capturing)
            | (Self::Mounting, Self::Executing)
            | (Self::Executing, Self::Capturing)
            | (Self::Capturing, Self::Completed) => true,
            (Self::Completed | Self::Failed, _) => false,
            (
                Self::Validating
                | Self::Resolving
                | Self::Deciding
                | Self::Checkpointing
                | Self::Mounting
                | Self::Executing
                | Self::Capturing,
                next,
            ) => matches!(next, Self::Failed),
        }
    }
}

/// A value of the pipeline. A run is in this state while the value is made.
pub(crate) trait Stage {
    const STATE: ProxyExecutionState;
}

/// The request itself is checked first.
impl Stage for ExecutionRequest {
    const STATE: ProxyExecutionState = ProxyExecutionState::Validating;
}

/// Enters the state of `To`.
pub(crate) fn enter<From: Stage, To: Stage>() {
    const { assert!(From::STATE.may_become(To::STATE)) };
    entered(To::STATE);
}

/// Enters the state of `To` and records it. The record is only informational, so an error does not fail the command.
pub(crate) fn enter_in<From: Stage, To: Stage>(session: &MountSession) {
    enter::<From, To>();
    if let Err(error) = session.note_state(To::STATE.word()) {
        tracing::warn!(%error, "cannot record the state of the run");
    }
}

fn entered(state: ProxyExecutionState) {
    tracing::debug!(state = state.word(), "entered");
    avfs_types::pause::point(state.word());
}

/// An error that ended a run, and the state that the run had reached.
#[derive(Debug)]
pub(crate) struct Failure {
    pub reached: ProxyExecutionState,
    pub error: ExecuteError,
}

impl Failure {
    /// An error while a value of the type `S` was made.
    pub fn at<S: Stage>(error: impl Into<ExecuteError>) -> Self {
        Self { reached: S::STATE, error: error.into() }
    }

    /// Enters the state Failed.
    pub fn enter(&self) {
        entered(ProxyExecutionState::Failed);
    }
}

#[cfg(test)]
mod tests {
    use super::ProxyExecutionState as State;
    use super::ProxyExecutionState::*;

    const ALL: [State; 9] =
        [Validating, Resolving, Deciding, Checkpointing, Mounting, Executing, Capturing, Completed, Failed];

    #[test]
    fn states_follow_in_order_or_fail() {
        for (number, from) in ALL.into_iter().enumerate() {
            for to in ALL {
                let next = number + 1 < 8 && to == ALL[number + 1];
                let fails = number < 7 && to == Failed;
                let recalls = (from, to) == (Checkpointing, Capturing);
                assert_eq!(from.may_become(to), next || fails || recalls, "{from:?} to {to:?}");
            }
        }
    }
}
