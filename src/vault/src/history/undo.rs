//! Undo and redo: a fork goes back along what was done to it, and forward again. Nothing is rewritten.
//!
//! Either adds a version with two parents: the head it was added to, and the version it equals. So the history
//! itself tells where a fork stands, without a table beside it. Every other version ends what can be redone,
//! and no undo goes back before a fork began.

use std::cell::RefCell;
use std::collections::HashMap;

use avfs_types::ids::{ForkName, VersionId};

use super::version::{History, full_root_of_either};
use crate::backend::{ForkRecord, Reader, VersionRecord};
use crate::{Advance, Committed, Result, Transaction, Vault, VaultError, When, require_version};

/// A version that was taken back, and the one that did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The version that was added.
    pub committed: Committed,
    /// The version whose changes were taken back.
    pub undone: VersionRecord,
}

/// A version that was brought back, and the one that did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redone {
    /// The version that was added.
    pub committed: Committed,
    /// The version whose changes were brought back.
    pub redone: VersionRecord,
}

impl Vault {
    /// Takes back the last run of a fork, or the last version where that was not made by a run; done again, the
    /// one before it.
    pub fn undo(&self, fork: &ForkName) -> Result<Undone> {
        self.transact(|transaction| {
            let record = transaction.fork(fork)?;
            let line = Line::of(transaction.view(), &record);
            let undone = line.stands_at(&record.head)?;
            let before = line.before(&undone)?;
            let before = before.ok_or_else(|| VaultError::NothingToUndo { fork: fork.clone() })?;
            let committed = go_to(transaction, &record, &before, "fork.undo", &message("undo", &undone))?;
            Ok(Undone { committed, undone })
        })
    }

    /// Takes the last undo back.
    pub fn redo(&self, fork: &ForkName) -> Result<Redone> {
        self.transact(|transaction| {
            let record = transaction.fork(fork)?;
            let line = Line::of(transaction.view(), &record);
            let redone = line.after(&record.head)?;
            let redone = redone.ok_or_else(|| VaultError::NothingToRedo { fork: fork.clone() })?;
            let committed = go_to(transaction, &record, &redone, "fork.redo", &message("redo", &redone))?;
            Ok(Redone { committed, redone })
        })
    }
}

fn message(verb: &str, version: &VersionRecord) -> String {
    let what = version.message.lines().next().unwrap_or_default();
    format!("{verb} {}: {what}", version.id.short())
}

/// Always a version, also where the content is the same: it is where the fork stands that changes.
fn go_to(
    transaction: &mut Transaction<'_>,
    fork: &ForkRecord,
    to: &VersionRecord,
    action: &'static str,
    message: &str,
) -> Result<Committed> {
    let root = full_root_of_either(transaction.view(), to)?;
    let advance = Advance { action, message, run: None, when: When::Always };
    transaction.advance_to(fork, &root, vec![fork.head, to.id], advance)
}

/// What was done to a fork since it began, without the undos and redos.
pub(super) struct Line<'a> {
    reader: &'a dyn Reader,
    /// What lies before it belongs to the fork it was made from.
    began: VersionId,
    passed: RefCell<Passed<'a>>,
}

/// The way back from a fork's head, as far as it was gone.
struct Passed<'a> {
    /// How many steps back each version is.
    places: HashMap<VersionId, usize>,
    rest: History<'a>,
}

impl<'a> Line<'a> {
    pub(super) fn of(reader: &'a dyn Reader, fork: &ForkRecord) -> Self {
        let passed = Passed { places: HashMap::new(), rest: History::new(reader, fork.head) };
        Self { reader, began: fork.base, passed: RefCell::new(passed) }
    }

    /// How many steps back a version is; nothing if it is not on the way to where the fork began.
    fn place(&self, id: &VersionId) -> Result<Option<usize>> {
        let mut passed = self.passed.borrow_mut();
        let Passed { places, rest } = &mut *passed;
        while !places.contains_key(id) && !places.contains_key(&self.began) {
            let Some(next) = rest.next().transpose()? else { break };
            places.insert(next.id, places.len());
        }
        Ok(places.get(id).copied())
    }

    /// The version that an undo or redo went to; nothing for any other version.
    fn went_to(&self, version: &VersionRecord) -> Result<Option<VersionRecord>> {
        let [_, target] = version.parents.as_slice() else { return Ok(None) };
        if version.id == self.began || version.run.is_some() {
            return Ok(None);
        }
        let target = require_version(self.reader, target)?;
        // A join of which one side has everything looks the same, but that side was never before it.
        let is_one = target.root == version.root && self.has_been_at(version, &target.id)?;
        Ok(is_one.then_some(target))
    }

    /// Whether a fork that is at a version of this line was at another before.
    fn has_been_at(&self, version: &VersionRecord, other: &VersionId) -> Result<bool> {
        Ok(self.place(&version.id)?.zip(self.place(other)?).is_some_and(|(here, there)| here < there))
    }

    /// The version on the line that a version of the fork shows.
    pub(super) fn stands_at(&self, id: &VersionId) -> Result<VersionRecord> {
        let version = require_version(self.reader, id)?;
        Ok(match self.went_to(&version)? {
            // What it went to may be pruned: it has the same tree, and keeps it.
            Some(target) => VersionRecord { pruned_at: target.pruned_at.and(version.pruned_at), ..target },
            None => version,
        })
    }

    /// The version of another fork that a sync merged into this version of the line.
    pub(super) fn merged(&self, version: &VersionRecord) -> Result<Option<VersionId>> {
        let is_own = version.id != self.began && version.run.is_none();
        match version.parents.as_slice() {
            [_, merged] if is_own && self.went_to(version)?.is_none() => Ok(Some(*merged)),
            _ => Ok(None),
        }
    }

    /// The version on the line before this one; nothing where the fork began.
    pub(super) fn before(&self, version: &VersionRecord) -> Result<Option<VersionRecord>> {
        match version.parents.first() {
            Some(parent) if version.id != self.began => self.stands_at(parent).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// The version on the line after the one that `head` shows; nothing at its end.
    fn after(&self, head: &VersionId) -> Result<Option<VersionRecord>> {
        let here = self.stands_at(head)?;
        let mut later = self.end(head)?;
        while later.id != here.id {
            match self.before(&later)? {
                Some(before) if before.id == here.id => return Ok(Some(later)),
                Some(before) => later = before,
                None => break,
            }
        }
        Ok(None)
    }

    /// The last version that neither an undo nor a redo made.
    fn end(&self, head: &VersionId) -> Result<VersionRecord> {
        let mut version = require_version(self.reader, head)?;
        while self.went_to(&version)?.is_some() {
            let [parent, _] = version.parents.as_slice() else { break };
            version = require_version(self.reader, parent)?;
        }
        Ok(version)
    }
}
