//! Renamed files: the version has the content under a new name, and the directory of the host has the owner, group, ACL
//! and flags under the old one.

use std::collections::{BTreeMap, HashSet};

use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::renames::pairs;

use super::host::Host;
use super::task::{Act, Decided};
use super::top_dirs::TopDirs;
use crate::apply::error::ApplyError;

type Result<T> = std::result::Result<T, ApplyError>;

/// The renames of a plan. All paths exist on the host under their old names until the new ones are in place.
#[derive(Debug, Default)]
pub struct Moved {
    /// Indexes of new files, in order, each with the index of the deleted file it was before.
    files: Vec<(u32, u32)>,
    /// New directories, each with the removed directory that its entries come from.
    dirs: BTreeMap<TreePath, TreePath>,
}

impl Moved {
    /// Finds the renames in a finished plan. Fails if a file could not be given what it had under its old name.
    /// `going` are the directories that are removed, and `planted` those that are created, without the ones below.
    pub fn find(
        host: &Host<'_>,
        changes: &Changes,
        decided: &[Decided],
        (going, planted): (&HashSet<TreePath>, &TopDirs),
    ) -> Result<Self> {
        let is_in_new = |path: &TreePath| planted.has_above(path);
        let is_new = |path: &TreePath| planted.contains(path) || is_in_new(path);
        let act = |place: u32| decided.get(place as usize).map(|decided| decided.act);
        let mut lookup = changes.lookup();
        let mut path_of =
            |place: u32| lookup.get(place as usize).map(|change| change.map(|c| c.path.clone()));
        let mut moved = Self::default();
        for (new, old) in pairs(changes, &|| host.require_going())? {
            host.require_going()?;
            let (Some(Act::Unlink), Some(to), Some(from)) = (act(old), path_of(new)?, path_of(old)?) else {
                continue;
            };
            if !matches!(act(new), Some(Act::Put(_))) && !is_in_new(&to) {
                continue;
            }
            host.ownership(&from)?;
            moved.files.push((new, old));
            let (mut to, mut from) = (to, from);
            // The directory was renamed if its entries still have their names.
            while let (Some((to_dir, name)), Some((from_dir, same))) = (to.split(), from.split())
                && name == same
                && is_new(&to_dir)
                && going.contains(&from_dir)
                && !moved.dirs.contains_key(&to_dir)
            {
                host.ownership(&from_dir)?;
                moved.dirs.insert(to_dir.clone(), from_dir.clone());
                (to, from) = (to_dir, from_dir);
            }
        }
        Ok(moved)
    }

    /// The indexes of renamed files, each with that of the deleted file it was before.
    pub fn files(&self) -> &[(u32, u32)] {
        &self.files
    }

    /// The renamed directories, with their old names.
    pub fn dirs(&self) -> &BTreeMap<TreePath, TreePath> {
        &self.dirs
    }

    /// The index of the deleted file that a new one was before.
    pub fn origin(&self, place: usize) -> Option<usize> {
        let found = self.files.binary_search_by_key(&place, |(new, _)| *new as usize).ok()?;
        Some(self.files[found].1 as usize)
    }
}
