//! A value of a setting as a layer gives it: a file, or a variable.

use std::str::FromStr;

use super::Setting;

/// A value as a layer gives it.
pub trait Given {
    type Error;

    fn key(&self) -> &str;

    /// A text.
    fn one<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// A whole number in decimal digits.
    fn number<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// A number, or a text such as `2GiB` or `none`.
    fn amount<T: FromStr>(&self, wanted: &'static str) -> Result<Setting<T>, Self::Error>;

    /// Texts, each of which is good.
    fn list(&self, good: fn(&str) -> bool, wanted: &'static str)
    -> Result<Vec<Setting<String>>, Self::Error>;

    /// A key that is no setting.
    fn unread(&self) -> Self::Error;
}
