//! The states of one execution, and which may follow which.

use avfs_types::words;

words!(
    /// Where an execution is. Each step is taken once and in this order; anything may fail.
    ProxyExecutionState, "state of an execution", {
        /// Is what is asked for well formed?
        Validating = "validating",
        /// Which vault, fork and directory are meant.
        Resolving = "resolving",
        /// What the rules say, and a person where they ask for one.
        Deciding = "deciding",
        /// What the command will stand on, as a version that can be gone back to.
        Checkpointing = "checkpointing",
        Mounting = "mounting",
        Executing = "executing",
        /// What it changed becomes a version.
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
            // A remembered result is kept without being executed.
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

    /// Goes on to the next state. A step that is not in the table is a mistake in the program.
    pub fn become_next(&mut self, next: Self) {
        assert!(self.may_become(next), "an execution cannot go from {self:?} to {next:?}");
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
