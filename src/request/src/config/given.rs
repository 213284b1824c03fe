//! The value of a setting in one layer: a file, or a variable.

use std::str::FromStr;

use super::Setting;

/// The value of a setting in one layer.
pub trait Given {
    type Error;

    fn key(&self) -> &str;

    /// Parses a string.
    fn one<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// Parses a whole number in decimal digits.
    fn number<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// Parses a number, or a string such as `2GiB` or `none`.
    fn amount<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// Returns a list of strings, each of which satisfies `good`.
    fn list(&self, good: fn(&str) -> bool, wanted: &'static str)
    -> Result<Vec<Setting<String>>, Self::Error>;

    /// The error for a key that is not a setting.
    fn unread(&self) -> Self::Error;
}
