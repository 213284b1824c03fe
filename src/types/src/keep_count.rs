//! The number of automatic checkpoints to keep.

/// The number of automatic checkpoints that a fork keeps: at least the two that one run may save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepCount(usize);

impl KeepCount {
    /// The default: 50.
    pub const DEFAULT: Self = Self(50);
    const LEAST: usize = 2;

    /// The count as a number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

impl std::str::FromStr for KeepCount {
    type Err = KeepCountError;

    fn from_str(text: &str) -> std::result::Result<Self, KeepCountError> {
        let number = text.parse().ok().filter(|number| *number >= Self::LEAST);
        number.map(Self).ok_or_else(|| KeepCountError(text.chars().take(40).collect()))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("invalid number of checkpoints {0:?}: expected at least 2")]
pub struct KeepCountError(String);

impl std::fmt::Display for KeepCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
