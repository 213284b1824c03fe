//! Which names a run gave to other files with rename(2), and which directories it copied for that.

use std::collections::BTreeMap;

use crate::path::TreePath;

/// The maximum number of names; further renames are not noted.
const NAMES_MAX: usize = 65_536;

/// The names that belong to another file or directory than in the base, or to a copied directory, each with the name it
/// has in the base; `None` for one that the base does not have. Names in such a directory follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenamedNames(BTreeMap<TreePath, Option<TreePath>>);

impl RenamedNames {
    /// True if nothing was noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name in the base of what has this name now.
    #[must_use]
    pub fn origin(&self, path: &TreePath) -> Option<TreePath> {
        match self.noted(path) {
            Some((above, origin)) => Some(path.below(&above)?.beneath(origin?)),
            None => Some(path.clone()),
        }
    }

    /// True if the path, or a directory above it, was noted.
    #[must_use]
    pub fn covers(&self, path: &TreePath) -> bool {
        self.noted(path).is_some()
    }

    /// The innermost noted path at or above a path, with its name in the base.
    fn noted(&self, path: &TreePath) -> Option<(TreePath, Option<&TreePath>)> {
        if self.is_empty() {
            return None;
        }
        let mut names = std::iter::once(path.clone()).chain(path.ancestors());
        names.find_map(|above| {
            let origin = self.0.get(&above)?.as_ref();
            Some((above, origin))
        })
    }

    /// Notes that a directory was replaced with a copy, completely or in part.
    pub fn copy(&mut self, path: &TreePath, is_known: impl Fn(&TreePath) -> bool) {
        let origin = self.origin(path).filter(is_known);
        if origin.is_some() {
            self.insert(path.clone(), origin);
        }
    }

    /// Notes a rename. `is_known` is whether the base has something at a path.
    pub fn rename(&mut self, from: &TreePath, to: &TreePath, is_known: impl Fn(&TreePath) -> bool) {
        let origin = self.origin(from).filter(&is_known);
        let below = self.take(from);
        self.take(to);
        self.set(to, origin, below, is_known);
    }

    /// Notes the exchange of two names.
    pub fn exchange(&mut self, one: &TreePath, other: &TreePath, is_known: impl Fn(&TreePath) -> bool) {
        let origins = [one, other].map(|path| self.origin(path).filter(&is_known));
        let [first, second] = origins;
        let (below_one, below_other) = (self.take(one), self.take(other));
        self.set(other, first, below_one, &is_known);
        self.set(one, second, below_other, &is_known);
    }

    /// Removes the names in a directory, relative to it, and its own name.
    fn take(&mut self, path: &TreePath) -> Vec<(TreePath, Option<TreePath>)> {
        let names = self.0.range(path.clone()..);
        let names = names.take_while(|(name, _)| name.as_bytes().starts_with(path.as_bytes()));
        let names: Vec<_> = names.filter_map(|(name, _)| Some((name.clone(), name.below(path)?))).collect();
        let taken = names.into_iter().filter_map(|(name, below)| Some((below, self.0.remove(&name)?)));
        taken.filter(|(below, _)| !below.is_root()).collect()
    }

    fn set(
        &mut self,
        path: &TreePath,
        origin: Option<TreePath>,
        below: Vec<(TreePath, Option<TreePath>)>,
        is_known: impl Fn(&TreePath) -> bool,
    ) {
        let names = below.into_iter().map(|(name, origin)| (name.beneath(path), origin));
        // A directory that gets its old name back is noted too: it was copied for the rename.
        let is_noted = origin.is_some() || self.origin(path).filter(is_known).is_some();
        let own = is_noted.then(|| (path.clone(), origin));
        for (name, origin) in own.into_iter().chain(names) {
            self.insert(name, origin);
        }
    }

    fn insert(&mut self, path: TreePath, origin: Option<TreePath>) {
        if self.0.len() < NAMES_MAX {
            self.0.insert(path, origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> TreePath {
        TreePath::parse(path.as_bytes()).unwrap()
    }

    /// A base with the directory `d` and the files `d/a`, `d/b` and `f`.
    fn is_known(path: &TreePath) -> bool {
        ["d", "d/a", "d/b", "f"].map(at).contains(path)
    }

    #[test]
    fn files_keep_their_origin_through_several_renames() {
        let mut names = RenamedNames::default();
        names.rename(&at("f"), &at("d/x"), is_known);
        names.rename(&at("d"), &at("e"), is_known);
        assert_eq!(names.origin(&at("e/a")), Some(at("d/a")));
        assert_eq!(names.origin(&at("e/x")), Some(at("f")));
        names.exchange(&at("e/x"), &at("e/a"), is_known);
        assert_eq!(names.origin(&at("e/x")), Some(at("d/a")));
        assert_eq!(names.origin(&at("e/a")), Some(at("f")));
    }

    #[test]
    fn names_of_new_files_are_noted_only_if_the_base_has_them() {
        let mut names = RenamedNames::default();
        names.rename(&at("new"), &at("other"), is_known);
        assert!(names.is_empty());
        names.rename(&at("other"), &at("d/a"), is_known);
        assert_eq!(names.origin(&at("d/a")), None);
        names.rename(&at("new"), &at("d"), is_known);
        assert_eq!(names.origin(&at("d/b")), None);
    }

    #[test]
    fn a_directory_that_gets_its_old_name_back_is_noted_as_a_copy() {
        let mut names = RenamedNames::default();
        for (from, to) in [("d", "e"), ("e", "d")] {
            names.rename(&at(from), &at(to), is_known);
        }
        assert_eq!(names.origin(&at("d/a")), Some(at("d/a")));
        assert_eq!([at("d/a"), at("e/a")].map(|path| names.covers(&path)), [true, false]);
    }

    #[test]
    fn a_copied_directory_keeps_its_origin() {
        let mut names = RenamedNames::default();
        names.copy(&at("new"), is_known);
        assert!(names.is_empty());
        names.copy(&at("d"), is_known);
        assert_eq!((names.covers(&at("d/a")), names.origin(&at("d/a"))), (true, Some(at("d/a"))));
        names.rename(&at("d"), &at("e"), is_known);
        names.copy(&at("e"), is_known);
        assert_eq!((names.covers(&at("d/a")), names.origin(&at("e/a"))), (false, Some(at("d/a"))));
    }
}
