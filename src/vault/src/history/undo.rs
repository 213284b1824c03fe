//! Undo and redo: a fork moves back along its history, and forward again. Nothing is rewritten.
//!
//! Both add a version with two parents: the previous head, and the version that the new one equals. So the history
//! itself shows the position of a fork, without a separate table. Any other new version ends what can be redone,
//! and no undo goes back before the start of a fork.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, VersionId};

use super::version::{full_root_of_either, own_ancestor};
use crate::backend::{ForkRecord, Reader, RunRecord, VersionRecord};
use crate::{Advance, Committed, Result, Transaction, Vault, VaultError, When, require_version};

/// An undone version, and the version that undid it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The new version.
    pub committed: Committed,
    /// The version whose changes were undone.
    pub undone: VersionRecord,
}

/// A redone version, and the version that redid it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redone {
    /// The new version.
    pub committed: Committed,
    /// The version whose changes were redone.
    pub redone: VersionRecord,
}

impl Vault {
    /// Undoes the last run of a fork, or its last version if that was not created by a run; repeated, the one
    /// before it.
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

    /// Reverts the last undo.
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

/// The newest version in effect on a fork: the one that an undo reverts.
pub fn newest_in_effect(reader: &dyn Reader, fork: &ForkRecord) -> Result<VersionRecord> {
    Line::of(reader, fork).stands_at(&fork.head)
}

/// The versions that the state of a fork consists of: those since its start that were not undone, or were redone.
pub fn versions_in_effect(reader: &dyn Reader, fork: &ForkRecord) -> Result<HashSet<VersionId>> {
    let line = Line::of(reader, fork);
    let mut found = HashSet::new();
    let mut next = Some(line.stands_at(&fork.head)?);
    while let Some(version) = next {
        next = line.before(&version)?;
        found.insert(version.id);
    }
    Ok(found)
}

/// The fork that an undo or a redo moved last; `None` if every fork has changed since its last one.
pub fn moved_last(reader: &dyn Reader) -> Result<Option<ForkName>> {
    let mut last: Option<(Timestamp, ForkName)> = None;
    for fork in reader.forks()? {
        let head = require_version(reader, &fork.head)?;
        let is_newest = last.as_ref().is_none_or(|(at, _)| *at <= head.at);
        if is_newest && Line::of(reader, &fork).went_to(&head)?.is_some() {
            last = Some((head.at, fork.name));
        }
    }
    Ok(last.map(|(_, name)| name))
}

/// Finds out which runs were undone. Walks each fork back once, and only as far as the runs that were asked about.
#[derive(Default)]
pub struct InEffect(HashMap<ForkName, Option<Walked>>);

/// The versions in effect from the head of a fork back to `next`.
struct Walked {
    began: VersionId,
    passed: Passed,
    found: HashSet<VersionId>,
    next: Option<VersionRecord>,
}

impl InEffect {
    /// Whether a run's version was undone on its fork, and not redone. The readers of several calls may differ.
    pub fn is_undone(&mut self, reader: &dyn Reader, run: &RunRecord) -> Result<bool> {
        let Some(after) = run.version_after else { return Ok(false) };
        if !self.0.contains_key(&run.fork) {
            let fork = reader.fork(&run.fork)?;
            let walked = fork.map(|fork| Walked::of(reader, &fork)).transpose()?;
            self.0.insert(run.fork.clone(), walked);
        }
        match self.0.get_mut(&run.fork) {
            Some(Some(walked)) => walked.passes_over(reader, &after),
            Some(None) | None => Ok(false),
        }
    }
}

/// Whether a run was undone when its fork was at the version `head`.
pub(super) fn is_undone_at(reader: &dyn Reader, head: &VersionId, run: &RunRecord) -> Result<bool> {
    let (Some(fork), Some(after)) = (reader.fork(&run.fork)?, run.version_after) else { return Ok(false) };
    Walked::of(reader, &ForkRecord { head: *head, ..fork })?.passes_over(reader, &after)
}

impl Walked {
    fn of(reader: &dyn Reader, fork: &ForkRecord) -> Result<Self> {
        let line = Line::of(reader, fork);
        let next = Some(line.stands_at(&fork.head)?);
        Ok(Self { began: line.began, passed: line.passed.into_inner(), found: HashSet::new(), next })
    }

    /// Whether a version belongs to the fork, but not to its state.
    fn passes_over(&mut self, reader: &dyn Reader, id: &VersionId) -> Result<bool> {
        let line = Line { reader, began: self.began, passed: std::mem::take(&mut self.passed).into() };
        let walked = self.walk_to(&line, id);
        self.passed = line.passed.into_inner();
        Ok(walked? && !self.found.contains(id))
    }

    /// Walks back to a version; false if it does not belong to the fork, but to an earlier one of the same name.
    fn walk_to(&mut self, line: &Line<'_>, id: &VersionId) -> Result<bool> {
        let Some(place) = line.place(id)? else { return Ok(false) };
        while let Some(version) = &self.next
            && line.place(&version.id)?.is_some_and(|here| here <= place)
        {
            self.found.insert(version.id);
            self.next = line.before(version)?;
        }
        Ok(true)
    }
}

fn message(verb: &str, version: &VersionRecord) -> String {
    let what = version.message.lines().next().unwrap_or_default();
    format!("{verb} {}: {what}", version.id.short())
}

/// Always adds a version, even if the content is the same, because the position of the fork changes.
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

/// The versions of a fork since its start, without undos and redos.
pub(super) struct Line<'a> {
    reader: &'a dyn Reader,
    /// The base of the fork; earlier versions belong to its parent.
    began: VersionId,
    passed: RefCell<Passed>,
}

/// The part of the way back from a fork's head that was already walked.
#[derive(Default)]
struct Passed {
    /// The distance of each version from the head.
    places: HashMap<VersionId, usize>,
    /// The version after those.
    next: Option<VersionId>,
}

impl<'a> Line<'a> {
    pub(super) fn of(reader: &'a dyn Reader, fork: &ForkRecord) -> Self {
        let passed = Passed { places: HashMap::new(), next: Some(fork.head) };
        Self { reader, began: fork.base, passed: RefCell::new(passed) }
    }

    /// The distance of a version from the head; `None` if it is not between the head and the base of the fork.
    fn place(&self, id: &VersionId) -> Result<Option<usize>> {
        let mut passed = self.passed.borrow_mut();
        let Passed { places, next } = &mut *passed;
        while !places.contains_key(id) && !places.contains_key(&self.began) {
            let Some(here) = *next else { break };
            if places.contains_key(&here) {
                return Err(own_ancestor(&here));
            }
            *next = require_version(self.reader, &here)?.parents.first().copied();
            places.insert(here, places.len());
        }
        Ok(places.get(id).copied())
    }

    /// The version that an undo or redo moved to; `None` for any other version.
    fn went_to(&self, version: &VersionRecord) -> Result<Option<VersionRecord>> {
        let [_, target] = version.parents.as_slice() else { return Ok(None) };
        if version.id == self.began || version.run.is_some() {
            return Ok(None);
        }
        let target = require_version(self.reader, target)?;
        // A join in which one side has everything looks the same, but that side was never an earlier state of the
        // fork.
        let is_one = target.root == version.root && self.has_been_at(version, &target.id)?;
        Ok(is_one.then_some(target))
    }

    /// Whether a fork at a version of this line was at another version before.
    fn has_been_at(&self, version: &VersionRecord, other: &VersionId) -> Result<bool> {
        Ok(self.place(&version.id)?.zip(self.place(other)?).is_some_and(|(here, there)| here < there))
    }

    /// The version on the line whose state a version of the fork has.
    pub(super) fn stands_at(&self, id: &VersionId) -> Result<VersionRecord> {
        let version = require_version(self.reader, id)?;
        Ok(match self.went_to(&version)? {
            // The target may be pruned, but this version has the same tree and keeps it.
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

    /// The previous version on the line; `None` at the start of the fork.
    pub(super) fn before(&self, version: &VersionRecord) -> Result<Option<VersionRecord>> {
        match version.parents.first() {
            Some(parent) if version.id != self.began => self.stands_at(parent).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// The next version on the line after the state of `head`; `None` at its end.
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

    /// The last version that was not created by undo or redo.
    fn end(&self, head: &VersionId) -> Result<VersionRecord> {
        let mut version = require_version(self.reader, head)?;
        while self.went_to(&version)?.is_some() {
            let [parent, _] = version.parents.as_slice() else { break };
            version = require_version(self.reader, parent)?;
        }
        Ok(version)
    }
}
