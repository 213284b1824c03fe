//! Directories none of which is in another one.

use std::collections::BTreeSet;
use std::ops::Bound;

use avfs_types::path::TreePath;

/// Finds the directory above a path in a few comparisons, however deep the path is.
#[derive(Debug, Default)]
pub struct TopDirs(BTreeSet<Vec<u8>>);

/// The start of all paths in a directory.
fn start(dir: &TreePath) -> Vec<u8> {
    let slash: &[u8] = if dir.is_root() { b"" } else { b"/" };
    [dir.as_bytes(), slash].concat()
}

impl TopDirs {
    /// Adds a directory, unless it is in one of them. Directories are added before those in them.
    pub fn insert(&mut self, dir: &TreePath) {
        if !self.has_above(dir) {
            self.0.insert(start(dir));
        }
    }

    /// Whether it is one of them.
    pub fn contains(&self, dir: &TreePath) -> bool {
        self.0.contains(&start(dir))
    }

    /// Whether a path is in one of them.
    pub fn has_above(&self, path: &TreePath) -> bool {
        self.above_bytes(path.as_bytes()).is_some()
    }

    /// The directory that a path is in.
    pub fn above(&self, path: &TreePath) -> Option<TreePath> {
        let start = self.above_bytes(path.as_bytes())?;
        Some(TreePath::root().join(start.strip_suffix(b"/").unwrap_or(start)))
    }

    fn above_bytes(&self, path: &[u8]) -> Option<&[u8]> {
        if path.is_empty() {
            return None;
        }
        // Everything between the start of a directory and a path in it begins with the same bytes, and would be in it.
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(path))).next_back()?;
        path.starts_with(before).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_in_a_directory_have_it_above() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let mut dirs = TopDirs::default();
        for dir in ["a", "a-b/c", "a/in", "b"] {
            dirs.insert(&path(dir));
        }
        assert!(dirs.contains(&path("a")) && !dirs.contains(&path("a/in")));
        for (below, above) in [
            ("a/x", Some("a")),
            ("a/in/deep", Some("a")),
            ("a-b/c/d/e", Some("a-b/c")),
            ("b/0", Some("b")),
            ("a", None),
            ("a-b", None),
            ("a-b/x", None),
            ("ab/x", None),
            ("c", None),
        ] {
            assert_eq!(dirs.above(&path(below)), above.map(path), "{below}");
            assert_eq!(dirs.has_above(&path(below)), above.is_some(), "{below}");
        }
        assert_eq!(dirs.above(&TreePath::root()), None);
        let mut all = TopDirs::default();
        all.insert(&TreePath::root());
        assert_eq!(all.above(&path("a/b")), Some(TreePath::root()));
    }
}
