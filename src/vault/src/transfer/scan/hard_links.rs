//! Hard links among the entries of a scan.
//!
//! The link count of a file includes names outside the scan, as those of a package store. Most of what has several
//! links is therefore not a group, and only a few bytes are held for it.

use std::collections::{BTreeSet, HashMap};

use avfs_types::path::TreePath;

use super::build::Groups;
use super::entry::{ScannedDir, ScannedEntry};
use crate::links;

/// Device and inode.
type FileKey = (u64, u64);

fn key(entry: &ScannedEntry) -> FileKey {
    (entry.stat.device, entry.stat.inode)
}

/// For each name of a file with several hard links: its file, and the number of links.
#[derive(Default)]
pub(crate) struct SharedNames {
    sorted: Vec<(FileKey, u64)>,
}

impl SharedNames {
    pub(super) fn add(&mut self, entries: &[ScannedEntry]) {
        let shared = entries.iter().filter(|entry| entry.is_shared());
        self.sorted.extend(shared.map(|entry| (key(entry), entry.stat.links)));
    }

    pub(super) fn sort(&mut self) {
        self.sorted.sort_unstable();
    }

    /// True if two of the names belong to one file.
    pub(super) fn has_groups(&self) -> bool {
        self.sorted.windows(2).any(|two| two[0].0 == two[1].0)
    }

    fn is_group(&self, file: FileKey) -> bool {
        let at = self.sorted.partition_point(|(other, _)| *other < file);
        self.sorted.get(at + 1).is_some_and(|(next, _)| *next == file)
    }

    /// The number of names of each file that the scan did not find.
    pub(crate) fn missing(&self) -> HashMap<FileKey, u64> {
        let of_one_file = self.sorted.chunk_by(|a, b| a.0 == b.0);
        let missing = of_one_file.map(|names| (names[0].0, names[0].1.saturating_sub(names.len() as u64)));
        missing.filter(|(_, left)| *left > 0).collect()
    }
}

/// The files with several names in the scan.
#[derive(Default)]
pub(super) struct HardLinks {
    files: HashMap<FileKey, HardLinked>,
}

struct HardLinked {
    names: BTreeSet<Vec<u8>>,
    /// The state that was scanned last.
    latest: ScannedEntry,
}

impl HardLinks {
    /// Adds the names in a directory.
    pub(super) fn add(&mut self, dir: &TreePath, entries: &[ScannedEntry], shared: &SharedNames) {
        for entry in entries.iter().filter(|entry| entry.is_shared() && shared.is_group(key(entry))) {
            let file = self.files.entry(key(entry));
            let file = file.or_insert_with(|| HardLinked { names: BTreeSet::new(), latest: entry.clone() });
            file.names.insert(dir.join(&entry.name).as_bytes().to_vec());
            if file.latest.stat.ctime < entry.stat.ctime {
                file.latest = entry.clone();
            }
        }
    }

    pub(super) fn groups(&self) -> Groups {
        let id = |file: &HardLinked| links::group_id(file.names.iter().map(Vec::as_slice));
        self.files.iter().map(|(key, file)| (*key, id(file))).collect()
    }

    /// Gives all names of a file the state that was scanned last: they are scanned one after the other, and the file
    /// may have changed in between.
    pub(super) fn let_names_agree<D>(&self, dir: &mut ScannedDir<D>) {
        for entry in dir.entries.iter_mut().filter(|entry| entry.is_shared()) {
            let Some(HardLinked { latest, .. }) = self.files.get(&key(entry)) else { continue };
            if (&entry.what, entry.stat) != (&latest.what, latest.stat) {
                *entry = ScannedEntry { name: std::mem::take(&mut entry.name), ..latest.clone() };
                dir.clean = false;
            }
        }
    }
}
