//! Builds the merged directories of an overlay: the base's directory with the entries of the upper.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::links::CopySearch;
use super::over::Over;
use crate::edit::Taken;
use crate::links::has_members;
use crate::page::{DirRef, Entry, Node};
use crate::pages::{Changes, NewPages};
use crate::transfer::Result;
use crate::transfer::scan::{BuiltDir, Groups, ScannedDir, What, meta, node};
use crate::tree::CachedPages;
use crate::{Vault, pages, tree};

/// With this many names in the upper, reading the whole directory is cheaper than looking up each name.
const NAMES_MANY: usize = 16;

/// Merges the directories of an upper, and notes what a capture has to know about its changes.
pub(crate) struct Merger<'a> {
    vault: &'a Vault,
    /// `None` if the base has no hard links, or the upper is a copy of it.
    pub(super) copies: Option<CopySearch<'a>>,
    entries_changed: AtomicU64,
    files_changed: AtomicBool,
    links_changed: AtomicBool,
}

impl<'a> Merger<'a> {
    pub(super) fn new(vault: &'a Vault, copies: Option<CopySearch<'a>>) -> Self {
        let (files_changed, links_changed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { vault, copies, entries_changed: AtomicU64::new(0), files_changed, links_changed }
    }

    /// The number of changed entries, including those of new and removed directories that the upper lists.
    pub(super) fn entries_changed(&self) -> u64 {
        self.entries_changed.load(Ordering::Relaxed)
    }

    /// Whether anything but the metadata of directories changed.
    pub(super) fn files_changed(&self) -> bool {
        self.files_changed.load(Ordering::Relaxed)
    }

    /// Whether a link group gained or lost a name.
    pub(super) fn links_changed(&self) -> bool {
        self.links_changed.load(Ordering::Relaxed)
    }

    /// The merged directory. `built` are its merged subdirectories.
    pub(crate) fn merge(
        &self,
        dir: &ScannedDir<Over>,
        built: &HashMap<u32, BuiltDir>,
        groups: &Groups,
        new: &mut NewPages,
    ) -> Result<DirRef> {
        if let Some(copies) = &self.copies {
            copies.search(self.vault, dir, groups)?;
        }
        let meta = meta(dir);
        let Some(base) = dir.own.base else {
            self.note_entry();
            let entries: Vec<Entry> =
                dir.entries.iter().filter_map(|entry| node(entry, built, groups)).collect();
            entries.iter().for_each(|entry| self.note(None, Some(&entry.node)));
            return Ok(pages::build(&meta, entries, new));
        };
        let reader = self.vault.read()?;
        let source = &&*reader;
        let pages = CachedPages::new(source);
        let (base_meta, body) = tree::top(&pages, &base.tree)?;
        let reads_whole = dir.own.hides_base || dir.entries.len() >= NAMES_MANY;
        let whole = reads_whole.then(|| tree::dir(&pages, &base.tree)).transpose()?;
        let mut changes = Changes::new();
        for entry in &dir.entries {
            let old = match &whole {
                Some(whole) => whole.entry(&entry.name).map(|entry| entry.node.clone()),
                None => tree::entry_in(&pages, &body, &entry.name)?,
            };
            let merged = node(entry, built, groups).map(|entry| entry.node);
            // Otherwise the base's entry is visible.
            let hides = merged.is_some() || dir.own.hides_base || entry.what == What::Whiteout;
            if hides && merged != old {
                self.note(old.as_ref(), merged.as_ref());
                changes.insert(entry.name.clone(), merged);
            }
        }
        if let (true, Some(whole)) = (dir.own.hides_base, &whole) {
            for hidden in whole.entries.iter().filter(|hidden| !dir.has(&hidden.name)) {
                self.note(Some(&hidden.node), None);
                changes.insert(hidden.name.clone(), None);
            }
        }
        if meta != base_meta {
            self.note_entry();
        } else if changes.is_empty() {
            return Ok(base);
        }
        Ok(pages::edit(&Taken(&pages), (base_meta, body), Some(meta), &changes, new)?)
    }

    fn note_entry(&self) {
        self.entries_changed.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a change of an entry. Subdirectories note their own changes.
    fn note(&self, old: Option<&Node>, new: Option<&Node>) {
        if let Some(Node::Dir(_)) = new
            && matches!(old, Some(Node::Dir(_)) | None)
        {
            return;
        }
        self.note_entry();
        self.files_changed.store(true, Ordering::Relaxed);
        let is_member = |node: Option<&Node>| node.is_some_and(has_members);
        if is_member(old) || is_member(new) {
            self.links_changed.store(true, Ordering::Relaxed);
        }
    }
}
