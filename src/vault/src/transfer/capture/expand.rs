//! Compares an upper with its base: only differences become edits.

use crate::edit::{Edit, Edits};
use crate::import::build;
use crate::import::build::Groups;
use crate::import::shared::{ScannedDir, ScannedEntry, ScannedTree, What};
use crate::page::{Body, DirMeta, Entry, Node};
use crate::tree::Pages;
use crate::{Result, tree};

/// With this many changed names, reading the whole directory is cheaper than looking up each name.
const NAMES_MANY: usize = 16;

/// The directory of the base beneath a directory of the upper.
enum Below {
    Nothing,
    Some(Body),
    /// Sorted by name.
    Whole(Vec<Entry>),
}

impl Below {
    fn open(pages: &dyn Pages, dir: &ScannedDir) -> Result<(Option<DirMeta>, Self)> {
        let Some(base) = dir.over.base else { return Ok((None, Self::Nothing)) };
        if dir.over.hides_base || dir.entries.len() >= NAMES_MANY {
            let whole = tree::dir(pages, &base.tree)?;
            return Ok((Some(whole.meta), Self::Whole(whole.entries)));
        }
        let (meta, body) = tree::top(pages, &base.tree)?;
        Ok((Some(meta), Self::Some(body)))
    }

    fn entry(&self, pages: &dyn Pages, name: &[u8]) -> Result<Option<Node>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Some(body) => tree::entry_in(pages, body, name),
            Self::Whole(entries) => {
                let found = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
                Ok(found.ok().map(|at| entries[at].node.clone()))
            }
        }
    }
}

/// The edits from the base to the merged view of the overlay.
pub(super) fn edits(pages: &dyn Pages, found: &ScannedTree) -> Result<Edits> {
    let groups = build::link_groups(&found.dirs);
    let mut edits = Edits::new();
    for dir in &found.dirs {
        let (base_meta, below) = Below::open(pages, dir)?;
        let meta = DirMeta { mode: dir.stat.mode, mtime: dir.stat.mtime, xattrs: dir.xattrs };
        if base_meta.as_ref() != Some(&meta) {
            edits.insert(dir.path.clone(), Edit::Dir(meta));
        }
        for entry in &dir.entries {
            let there = below.entry(pages, &entry.name)?;
            if let Some(edit) = edit_of(entry, there.as_ref(), dir.over.hides_base, &groups) {
                edits.insert(dir.path.join(&entry.name), edit);
            }
        }
        if let (true, Below::Whole(entries)) = (dir.over.hides_base, &below) {
            for hidden in entries.iter().filter(|entry| !has(dir, &entry.name)) {
                edits.insert(dir.path.join(&hidden.name), Edit::Remove);
            }
        }
    }
    Ok(edits)
}

fn has(dir: &ScannedDir, name: &[u8]) -> bool {
    dir.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name)).is_ok()
}

fn edit_of(entry: &ScannedEntry, there: Option<&Node>, hides_base: bool, groups: &Groups) -> Option<Edit> {
    match entry.what {
        // Handled in its own iteration.
        What::Dir(_) => None,
        What::Gone if !hides_base => None,
        What::Gone | What::Whiteout => there.map(|_| Edit::Remove),
        What::File { .. } | What::Symlink { .. } | What::Fifo | What::Pending => {
            let node = build::leaf(entry, groups)?;
            (there != Some(&node)).then_some(Edit::Put(node))
        }
    }
}
