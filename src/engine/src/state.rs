//! The states of an execution, and the allowed transitions.

use avfs_types::words;

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

    /// Enters the next state. A transition that is not allowed is a bug.
    pub fn become_next(&mut self, next: Self) {
        assert!(self.may_become(next), "an execution cannot change from {self:?} to {next:?}");
        tracing::debug!(from = ?self, to = ?next, "execution");
        *self = next;
        avfs_types::pause::point(next.word());
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
