//! Which names a run gave to other files with rename(2).

use std::collections::BTreeMap;

use crate::path::TreePath;

/// The maximum number of names; further renames are not noted.
const NAMES_MAX: usize = 65_536;

/// The names that belong to another file or directory than in the base, each with the name it has in the base; `None`
/// for one that the base does not have. Names in such a directory follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenamedNames(BTreeMap<TreePath, Option<TreePath>>);

impl RenamedNames {
    /// True if no name belongs to another file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name in the base of what has this name now.
    #[must_use]
    pub fn origin(&self, path: &TreePath) -> Option<TreePath> {
        if self.is_empty() {
            return Some(path.clone());
        }
        let mut names = std::iter::once(path.clone()).chain(path.ancestors());
        match names.find_map(|above| Some((self.0.get(&above)?, above))) {
            Some((origin, above)) => Some(path.below(&above)?.beneath(origin.as_ref()?)),
            None => Some(path.clone()),
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
        let own = (self.origin(path).filter(is_known) != origin).then(|| (path.clone(), origin));
        for (name, origin) in own.into_iter().chain(names) {
            if self.0.len() < NAMES_MAX {
                self.0.insert(name, origin);
            }
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
    fn a_rename_back_leaves_nothing() {
        let mut names = RenamedNames::default();
        for (from, to) in [("d", "e"), ("e", "d"), ("d/a", "d-a"), ("d-a", "d/a")] {
            names.rename(&at(from), &at(to), is_known);
        }
        assert!(names.is_empty(), "{names:?}");
    }
}
