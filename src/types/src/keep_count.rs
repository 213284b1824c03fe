//! How many automatic checkpoints are kept.

/// How many automatic checkpoints a fork keeps: enough for the two that one run may save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepCount(usize);

impl KeepCount {
    /// The count where nobody sets one: 50.
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
#[error("{0:?} is not a number of checkpoints, which is 2 or more")]
pub struct KeepCountError(String);

impl std::fmt::Display for KeepCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
