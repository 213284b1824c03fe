//! A set of paths with fast prefix queries.

use std::collections::BTreeSet;
use std::ops::Bound;

use avfs_types::path::TreePath;

/// A set of paths in which no path is beneath another.
pub(super) struct PathSet(BTreeSet<Vec<u8>>);

impl PathSet {
    pub(crate) fn new<'p>(paths: impl Iterator<Item = &'p TreePath>) -> Self {
        let all = Self(paths.map(|path| path.as_bytes().to_vec()).collect());
        let tops = all.0.iter().filter(|path| !prefixes(path).any(|above| all.0.contains(above)));
        Self(tops.cloned().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the set contains the path.
    pub(crate) fn has(&self, path: &TreePath) -> bool {
        self.0.contains(path.as_bytes())
    }

    /// True if the set contains the path or a directory above it.
    pub(crate) fn covers(&self, path: &TreePath) -> bool {
        self.has(path) || prefixes(path.as_bytes()).any(|above| self.0.contains(above))
    }

    /// True if a path of the set is beneath the directory.
    pub(crate) fn leads_to(&self, dir: &TreePath) -> bool {
        let beneath = if dir.is_root() { Vec::new() } else { [dir.as_bytes(), b"/"].concat() };
        let from = (Bound::Included(beneath.as_slice()), Bound::Unbounded);
        self.0.range::<[u8], _>(from).next().is_some_and(|path| path.starts_with(&beneath))
    }
}

/// The directories above a path, the root first.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let root = (!path.is_empty()).then_some(&[][..]);
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    root.into_iter().chain(slashes.map(|(at, _)| &path[..at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_covers_descendants_and_knows_ancestors() {
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let paths = ["a", "a-b/c", "a/d", "x/y/z"].map(path);
        let set = PathSet::new(paths.iter());
        assert!(set.has(&path("a")) && !set.has(&path("a/d")));
        for (covered, leads, text) in [
            (true, false, "a"),
            (true, false, "a/d/e"),
            (false, true, "a-b"),
            (true, false, "a-b/c/d"),
            (false, false, "a-c"),
            (false, true, "x"),
            (false, true, "x/y"),
            (false, false, "x/yz"),
            (false, true, ""),
        ] {
            assert_eq!((set.covers(&path(text)), set.leads_to(&path(text))), (covered, leads), "{text}");
        }
        let root = [TreePath::root(), path("a")];
        let everything = PathSet::new(root.iter());
        assert!(everything.covers(&path("z")) && !everything.has(&path("a")));
        assert!(PathSet::new([].iter()).is_empty());
    }
}
