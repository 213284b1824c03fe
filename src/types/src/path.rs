//! A path inside a tree: raw bytes, relative to the root, checked once.

use std::fmt;

use crate::printable::is_hidden;

/// The maximum length of a component in bytes, as on Linux file systems.
pub const NAME_BYTES_MAX: usize = 255;
/// The maximum number of components.
pub const DEPTH_MAX: usize = 10_000;
/// The maximum length in bytes: each parent directory stores its full path, so sizes grow with the square of the depth.
pub const PATH_BYTES_MAX: usize = 32 << 10;

/// A text that is not a path inside a tree. Holds the text shortened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathError {
    /// The path contains a NUL byte.
    #[error("path {0:?} contains a NUL byte")]
    Nul(String),
    /// The path contains a `..` component.
    #[error("path {0:?} contains '..'")]
    Parent(String),
    /// A component has more than [`NAME_BYTES_MAX`] bytes: the path, and the number of bytes.
    #[error("path {0:?} has a name of {1} bytes; at most {NAME_BYTES_MAX} are allowed")]
    NameTooLong(String, usize),
    /// The path has more than [`DEPTH_MAX`] components: the path, and the number of components.
    #[error("path {0:?} is {1} levels deep; at most {DEPTH_MAX} are allowed")]
    TooDeep(String, usize),
    /// The path has more than [`PATH_BYTES_MAX`] bytes: the path, and the number of bytes.
    #[error("path {0:?} has {1} bytes; at most {PATH_BYTES_MAX} are allowed")]
    TooLong(String, usize),
    /// The path of a file ends in a slash.
    #[error("path {0:?} ends in a slash, but must name a file")]
    Slash(String),
}

impl crate::diagnose::Diagnose for PathError {
    fn code(&self) -> &'static str {
        "path.invalid"
    }
}

/// Components joined by `/`, none of them empty, `.` or `..`; empty for the root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(Vec<u8>);

impl TreePath {
    /// The root of the tree: the empty path.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses a path as people type it: leading, double and trailing slashes and `.` are ignored.
    pub fn parse(text: &[u8]) -> Result<Self, PathError> {
        let shown = || shorten(&String::from_utf8_lossy(text));
        if text.contains(&0) {
            return Err(PathError::Nul(shown()));
        }
        let mut path = Self::root();
        let mut depth = 0;
        for name in text.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".") {
            if name == b".." {
                return Err(PathError::Parent(shown()));
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(PathError::NameTooLong(shown(), name.len()));
            }
            path.push(name);
            depth += 1;
        }
        if depth > DEPTH_MAX {
            return Err(PathError::TooDeep(shown(), depth));
        }
        if path.is_too_deep() {
            return Err(PathError::TooLong(shown(), path.0.len()));
        }
        Ok(path)
    }

    /// Parses the path of a file, which must not end in a slash.
    pub fn parse_file(text: &[u8]) -> Result<Self, PathError> {
        if text.ends_with(b"/") {
            return Err(PathError::Slash(shorten(&String::from_utf8_lossy(text))));
        }
        Self::parse(text)
    }

    /// True for a path that no version can contain: too many components, or too many bytes.
    #[must_use]
    pub fn is_too_deep(&self) -> bool {
        self.0.len() > PATH_BYTES_MAX || self.depth() > DEPTH_MAX
    }

    /// The path shortened for a message.
    #[must_use]
    pub fn shortened(&self) -> String {
        shorten(&self.to_string())
    }

    /// True for the empty path.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The components joined by `/`, without a leading or trailing slash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a name that is already checked.
    pub(crate) fn push(&mut self, name: &[u8]) {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name);
    }

    /// The path of `name` in this directory. The caller has checked the name.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut path = Self(Vec::with_capacity(self.0.len() + 1 + name.len()));
        path.0.extend_from_slice(&self.0);
        path.push(name);
        path
    }

    /// This path below `base`.
    #[must_use]
    pub fn beneath(&self, base: &Self) -> Self {
        if self.is_root() { base.clone() } else { base.join(&self.0) }
    }

    /// The parent directory and the name in it; `None` for the root.
    #[must_use]
    pub fn split(&self) -> Option<(Self, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|b| *b == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }

    /// The parent directories, the nearest first, the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<> {
        let above = |path: &Self| path.split().map(|(parent, _)| parent);
        std::iter::successors(above(self), move |path| above(path))
    }

    /// The components from the root down; none for the root.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|name| !name.is_empty())
    }

    /// The number of components; 0 for the root.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// True for the path itself and every path below it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.is_root()
            || other.0.strip_prefix(self.0.as_slice()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// The part of the path after `base`; `None` if the path is not below `base`.
    #[must_use]
    pub fn below(&self, base: &Self) -> Option<Self> {
        if !base.contains(self) {
            return None;
        }
        let rest = &self.0[base.0.len()..];
        Some(Self(rest.strip_prefix(b"/").unwrap_or(rest).to_vec()))
    }
}

/// The first 80 characters, with `…` after them if there are more.
pub fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// A name or symlink target for display. Bytes that are not UTF-8, hidden characters, tabs and backslashes are escaped,
/// so that a hostile name cannot forge a line, a colour or another name.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '\\' || is_hidden(c) {
                    write!(f, "{}", c.escape_default())?;
                } else {
                    write!(f, "{c}")?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str(".") } else { Shown(&self.0).fmt(f) }
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_parsed_as_people_type_them() {
        assert_eq!(TreePath::parse(b"/a//b/./c/").unwrap().as_bytes(), b"a/b/c");
        assert!(TreePath::parse(b"./").unwrap().is_root());
        assert!(matches!(TreePath::parse(b"a/../b"), Err(PathError::Parent(_))));
        assert!(matches!(TreePath::parse(b"a\0"), Err(PathError::Nul(_))));
        assert!(matches!(TreePath::parse(&[b'x'; 300]), Err(PathError::NameTooLong(_, 300))));
        assert!(TreePath::parse(&[b'x'; 255]).is_ok());
    }

    #[test]
    fn containment_is_by_component() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        assert!(path("a").contains(&path("a/b")));
        assert!(path("a").contains(&path("a")));
        assert!(!path("a").contains(&path("ab")));
        assert_eq!(path("a/b/c").below(&path("a")), Some(path("b/c")));
        assert_eq!(path("ab").below(&path("a")), None);
    }

    #[test]
    fn hostile_names_are_shown_on_one_line() {
        assert_eq!(TreePath::parse(b"a\nb\x1b[31m\xff\\").unwrap().to_string(), "a\\nb\\u{1b}[31m\\xff\\\\");
        assert_eq!(Shown("txt\u{202e}exe.\u{200b}é".as_bytes()).to_string(), "txt\\u{202e}exe.\\u{200b}é");
    }
}
