//! How long a command may run.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionTimeout {
    None,
    Millis(u64),
}

impl ExecutionTimeout {
    pub const DEFAULT: Self = Self::Millis(300_000);

    #[must_use]
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Millis(millis) => Some(Duration::from_millis(millis)),
        }
    }

    #[must_use]
    pub fn millis(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Millis(millis) => Some(millis),
        }
    }
}
