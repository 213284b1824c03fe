//! A tree after changes, with its pages that are not stored yet.
//!
//! Memory does not depend on the number of changes: pages are spilled, and the changes are found by comparing the two
//! trees.

use std::path::PathBuf;

use super::changes::Changes;
use super::delta::delta;
use super::diff::{Change, collect};
use super::edit::{self, Edits, Manner};
use super::expansion::Expansion;
use super::links;
use super::page::DirRef;
use super::pages::NewPages;
use super::tree::Pages;
use crate::spill::SpilledPages;
use crate::{Result, Transaction};

/// Pages that are stored together.
const STORED_AT_ONCE: usize = 1000;

/// A tree, the one it was made from, and the pages that only the former has.
#[derive(Debug)]
pub struct EditedTree {
    before: DirRef,
    after: DirRef,
    new: SpilledPages,
}

impl EditedTree {
    /// The tree after these edits.
    pub fn new(pages: &dyn Pages, before: &DirRef, edits: &Edits) -> Result<Self> {
        let mut new = NewPages::default();
        let after = links::apply_settled(pages, before, edits, Manner::Exact, &mut new)?;
        let mut spilled = SpilledPages::default();
        spilled.push(new);
        Ok(Self { before: *before, after, new: spilled })
    }

    pub(crate) fn of(before: DirRef, after: DirRef, new: SpilledPages) -> Self {
        Self { before, after, new }
    }

    /// The root before the changes.
    #[must_use]
    pub fn before(&self) -> &DirRef {
        &self.before
    }

    /// The root after the changes.
    #[must_use]
    pub fn after(&self) -> &DirRef {
        &self.after
    }

    /// True if nothing changed.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.before.tree == self.after.tree
    }

    /// A lookup in the new pages, then in those of `under`.
    pub(crate) fn over<'a>(&'a self, under: &'a dyn Pages) -> impl Pages + 'a {
        self.new.over(under)
    }

    /// The changes, sorted by path. `places` are directories for the temporary file of a long list.
    pub fn changes(&self, pages: &dyn Pages, places: Vec<PathBuf>) -> Result<Changes> {
        Changes::between(&self.over(pages), (&self.before, &self.after), places, |_| true)
    }

    /// Whether anything but the metadata of directories changed.
    pub(crate) fn changes_files(&self, pages: &dyn Pages) -> Result<bool> {
        let mut files = false;
        let mut note = |change: Change| files |= !change.is_of_dir();
        collect(&self.over(pages), &self.before, &self.after, &mut Expansion::default(), &mut note)?;
        Ok(files)
    }

    /// The edits that turn the tree before into the one after. All of them are held in memory.
    pub fn edits(&self, pages: &dyn Pages) -> Result<Edits> {
        delta(&self.over(pages), &self.before, &self.after)
    }

    /// Applies further edits. Link groups are not settled.
    pub(crate) fn amend(&mut self, pages: &dyn Pages, edits: &Edits) -> Result<()> {
        let mut more = NewPages::default();
        let after = edit::apply(&self.over(pages), &self.after, edits, Manner::Exact, &mut more)?;
        self.after = after;
        self.new.push(more);
        Ok(())
    }

    /// Derives the ids of all link groups from the paths after the changes.
    pub(crate) fn settle(&mut self, pages: &dyn Pages) -> Result<()> {
        let mut more = NewPages::default();
        let after = links::settle(&self.over(pages), &self.after, &mut more)?;
        self.after = after;
        self.new.push(more);
        Ok(())
    }

    /// Stores the new pages.
    pub(crate) fn store(&self, transaction: &mut Transaction<'_>) -> Result<()> {
        let mut pages = self.new.all();
        loop {
            let some = pages.by_ref().take(STORED_AT_ONCE).collect::<Result<Vec<_>>>()?;
            if some.is_empty() {
                return Ok(());
            }
            transaction.put_pages(&NewPages { pages: some })?;
        }
    }
}
