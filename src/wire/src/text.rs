//! Bytes and times as JSON can say them.

use serde::Serialize;

use avfs_types::base64::base64;
use avfs_types::path::TreePath;

/// A path: as it is where it is UTF-8; otherwise escaped, with its bytes beside it.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathText {
    /// The path relative to the root, without a leading slash; `.` for the root.
    pub path: String,
    /// Only for a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

impl PathText {
    /// The JSON form of a path.
    #[must_use]
    pub fn of(path: &TreePath) -> Self {
        if path.is_root() {
            return Self { path: ".".to_owned(), path_base64: None };
        }
        match std::str::from_utf8(path.as_bytes()) {
            Ok(text) => Self { path: text.to_owned(), path_base64: None },
            Err(_) => Self { path: path.to_string(), path_base64: Some(base64(path.as_bytes())) },
        }
    }
}

impl From<&TreePath> for PathText {
    fn from(path: &TreePath) -> Self {
        Self::of(path)
    }
}

/// Bytes that are usually text: as text where they are UTF-8, otherwise replaced characters and base64.
#[must_use]
pub(crate) fn text_or_base64(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(base64(bytes))),
    }
}

/// The end of a text: so many bytes at most.
#[must_use]
pub fn tail(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_not_text_keep_their_bytes() {
        let odd = PathText::of(&TreePath::parse(b"a\xff").unwrap());
        assert_eq!((odd.path.as_str(), odd.path_base64.as_deref()), ("a\\xff", Some("Yf8=")));
        assert_eq!(PathText::of(&TreePath::parse(b"a\nb").unwrap()).path, "a\nb");
    }
}
