//! Garbage collection: deletes expired forks, and versions, trees and blobs that nothing refers to.
//!
//! Objects with a reference count (module `tally`) are in use. Objects are deleted parents first, so that an existing
//! object always has everything it refers to, even if the sweep is killed halfway. Before each step the heads are read
//! again: objects that a new version has started to use are kept.
//!
//! The journal keeps nothing alive: a run's versions live as long as its fork leads to them, its row lives forever.
//! A cached result keeps the output of its command alive, not its versions; without them it is deleted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use avfs_types::clock::Timestamp;
use avfs_types::ids::{CheckpointName, DIGEST_BYTES, ForkName, VersionId};

use super::pace::Pace;
use super::tally::{Root, Stored, Tally};
use crate::audit::Event;
use crate::backend::{Durability, ForkRecord, ObjectKind, Reader, RunRecord, VersionRecord};
use crate::run::Runs;
use crate::{Result, Vault, memo, require_version};

/// Counts of the rows that a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Expired forks.
    pub forks: u64,
    /// Unreachable versions.
    pub versions: u64,
    /// Pages that no version refers to.
    pub trees: u64,
    /// Blobs that no page refers to.
    pub blobs: u64,
    /// Cached results that expired or lost a version.
    pub memos: u64,
}

/// The versions in use, and the roots of everything in use.
#[derive(Default)]
struct Live {
    /// Versions treated as heads.
    in_use: Vec<VersionId>,
    /// The last row of the audit log when heads and checkpoints were read: each of their changes adds a row.
    looked_at: Option<i64>,
    versions: HashSet<VersionId>,
    /// The newest cached result that was read.
    newest_memo: i64,
}

impl Live {
    /// Finds the versions that heads, checkpoints and versions in use lead to. Returns the roots of those that no
    /// earlier call found.
    fn new_versions(&mut self, reader: &dyn Reader) -> Result<Vec<Root>> {
        let newest = reader.audit_before(i64::MAX, 1)?.first().map(|row| row.seq);
        if newest.is_some() && newest == self.looked_at {
            return Ok(Vec::new());
        }
        self.looked_at = newest;
        let heads = reader.forks()?.into_iter().map(|fork| fork.head);
        let mut waiting: Vec<VersionId> = heads.chain(self.in_use.iter().copied()).collect();
        waiting.extend(reader.checkpoints()?.into_iter().map(|saved| saved.version));
        let mut roots = Vec::new();
        while let Some(id) = waiting.pop() {
            if self.versions.insert(id) {
                let version = require_version(reader, &id)?;
                waiting.extend(version.parents);
                roots.extend(version.pruned_at.is_none().then_some(Root::Dir(version.root)));
            }
        }
        Ok(roots)
    }

    /// The command output that cached results keep, without those that an earlier call returned.
    fn new_outputs(&mut self, reader: &dyn Reader) -> Result<Vec<Root>> {
        let memos = memo::newer_than(reader, self.newest_memo)?;
        self.newest_memo = memos.first().map_or(self.newest_memo, |memo| memo.seq);
        Ok(memos.iter().flat_map(|memo| [memo.stdout, memo.stderr]).map(Root::Output).collect())
    }
}

/// A sweep in progress.
struct Sweep<'v> {
    vault: &'v Vault,
    live: Live,
    tally: Tally,
    /// Whether the audit log has a row for this sweep.
    is_recorded: bool,
    swept: Swept,
}

impl Sweep<'_> {
    /// Deletes those of the objects that are not in use, in one transaction. `next` returns them.
    fn step<T>(&mut self, next: impl FnOnce(&dyn Reader) -> Result<(Vec<Stored>, T)>) -> Result<T> {
        avfs_types::pause::point("sweep");
        let Self { vault, live, tally, is_recorded, swept } = self;
        let (unused, rest) = vault.transact_with(Durability::Deferred, |transaction| {
            let mut roots = live.new_versions(transaction.view())?;
            roots.extend(live.new_outputs(transaction.view())?);
            tally.hold(transaction.view(), &roots)?;
            let (mut unused, rest) = next(transaction.view())?;
            unused.retain(|object| !tally.has(object));
            if !unused.is_empty() && !*is_recorded {
                // Recorded with the first deletion, so that a sweep killed halfway is in the log too.
                transaction.record(&sweeping())?;
            }
            transaction.writer.delete_objects(&unused)?;
            Ok((unused, rest))
        })?;
        *is_recorded |= !unused.is_empty();
        let trees = unused.iter().filter(|(kind, _)| *kind == ObjectKind::Tree).count() as u64;
        swept.trees += trees;
        swept.blobs += unused.len() as u64 - trees;
        Ok(rest)
    }
}

impl Vault {
    /// Deletes expired forks and everything that is not in use. Calls `progress` with the number of objects examined.
    pub fn gc(&self, progress: &dyn Fn(u64)) -> Result<Swept> {
        self.gc_since(None, progress)
    }

    /// Like [`Vault::gc`]. Reads the reference counts that the last sweep saved in the file `counts`, so that only the
    /// changes since then have to be counted, and saves new ones there.
    pub fn gc_since(&self, counts: Option<&Path>, progress: &dyn Fn(u64)) -> Result<Swept> {
        // No process may be between storing an object and referring to it.
        let alone = self.backend().sweep_guard()?;
        let mut pace = Pace::of(self);
        let forks = self.expire_all_forks(&mut pace)?;
        let (mut live, mut roots) = (Live::default(), Vec::new());
        {
            let reader = self.read()?;
            live.in_use = self.versions_in_use(&*reader)?;
            roots.extend(live.new_versions(&*reader)?);
        }
        avfs_types::pause::point("marked");
        let versions = self.sweep_versions(&mut live, &mut roots, &mut pace)?;
        // After the versions: only then is it known which results have lost one.
        let memos = self.forget_lost(&mut pace)?;
        let vault_id = self.id()?;
        let (tally, freed, swept_rows) = {
            let reader = self.read()?;
            roots.extend(live.new_outputs(&*reader)?);
            let previous = counts.and_then(|counts| Tally::load(counts, &vault_id));
            let (tally, freed) = Tally::of(previous, &*reader, &roots)?;
            let swept_rows = tally.swept_rows(&*reader)?;
            (tally, freed, swept_rows)
        };
        let swept = Swept { forks, versions, memos, ..Swept::default() };
        let mut sweep = Sweep { vault: self, live, tally, is_recorded: versions > 0, swept };
        let mut looked_at = 0;
        let mut freed = freed.as_slice();
        while !freed.is_empty() {
            let deleted = pace.batch(|rows| {
                let next = &freed[..rows.min(freed.len())];
                sweep.step(|_| Ok((next.to_vec(), next.len())))
            })?;
            freed = &freed[deleted..];
            looked_at += deleted as u64;
            progress(looked_at);
        }
        // Objects stored since the last sweep that nothing has ever referred to.
        for (kind, after) in swept_rows {
            let mut before = Some(i64::MAX);
            while let Some(row) = before {
                let found = pace.batch(|rows| {
                    sweep.step(|reader| {
                        let mut rows = reader.objects_before(kind, row, rows)?;
                        rows.retain(|(row, _)| *row > after);
                        let last = rows.last().map(|(row, _)| *row);
                        let found = (rows.len() as u64, last);
                        Ok((rows.into_iter().map(|(_, digest)| (kind, digest)).collect(), found))
                    })
                })?;
                looked_at += found.0;
                before = found.1;
                progress(looked_at);
            }
        }
        let Sweep { tally, swept, .. } = sweep;
        if swept != Swept::default() {
            let detail = format!(
                "forks={} versions={} trees={} blobs={} results={}",
                swept.forks, swept.versions, swept.trees, swept.blobs, swept.memos
            );
            self.transact(|transaction| {
                let event =
                    Event { action: "vault.gc", subject: "", before: None, after: None, detail: &detail };
                transaction.record(&event)
            })?;
        }
        // Only now that the deletions are on the disk: otherwise objects that come back would never be deleted.
        if let Some(counts) = counts
            && let Err(error) = tally.save(counts, &vault_id, &*self.read()?)
        {
            tracing::warn!(%error, "cannot save the reference counts; the next gc counts everything again");
        }
        // The rest deletes nothing, so others can store objects again.
        drop(alone);
        self.backend().shrink(&|_| {})?;
        Ok(swept)
    }

    /// Deletes expired ephemeral forks, except `spared` ones and those with a checkpoint saved by hand, which a user
    /// wanted to keep. If no fork has expired, this only reads.
    pub fn expire_forks(&self, spared: &[ForkName]) -> Result<Vec<ForkName>> {
        self.expire_some_forks(spared, usize::MAX)
    }

    fn expire_all_forks(&self, pace: &mut Pace<'_>) -> Result<u64> {
        let mut count = 0;
        loop {
            let gone = pace.batch(|rows| self.expire_some_forks(&[], rows))?;
            if gone.is_empty() {
                return Ok(count);
            }
            count += gone.len() as u64;
        }
    }

    fn expire_some_forks(&self, spared: &[ForkName], forks_max: usize) -> Result<Vec<ForkName>> {
        let now = self.now();
        if expired(&*self.read()?, now, spared)?.is_empty() {
            return Ok(Vec::new());
        }
        // A fork that reappears after a power loss expires again.
        self.transact_with(Durability::Deferred, |transaction| {
            let mut gone = expired(transaction.view(), now, spared)?;
            gone.truncate(forks_max);
            for fork in &gone {
                transaction.writer.delete_fork(&fork.name)?;
                transaction.record(&Event {
                    action: "fork.expire",
                    subject: fork.name.as_str(),
                    before: Some(fork.head.0),
                    after: None,
                    detail: "",
                })?;
            }
            Ok(gone.into_iter().map(|fork| fork.name).collect())
        })
    }

    /// Deletes the unused versions, children first: an existing version always has its parents.
    fn sweep_versions(&self, live: &mut Live, roots: &mut Vec<Root>, pace: &mut Pace<'_>) -> Result<u64> {
        let mut waiting = self.read()?.version_ids()?;
        let (mut count, mut is_recorded) = (0, false);
        while !waiting.is_empty() {
            let deleted = pace.batch(|rows| {
                self.transact_with(Durability::Deferred, |transaction| {
                    roots.extend(live.new_versions(transaction.view())?);
                    waiting.retain(|id| !live.versions.contains(id));
                    let unused = &waiting[waiting.len().saturating_sub(rows)..];
                    if !unused.is_empty() && !is_recorded {
                        transaction.record(&sweeping())?;
                    }
                    for id in unused {
                        transaction.writer.delete_version(id)?;
                    }
                    Ok(unused.len())
                })
            })?;
            is_recorded |= deleted > 0;
            waiting.truncate(waiting.len() - deleted);
            count += deleted as u64;
        }
        Ok(count)
    }

    fn forget_lost(&self, pace: &mut Pace<'_>) -> Result<u64> {
        let lost = self.lost_memos()?;
        let (mut lost, mut count) = (lost.as_slice(), 0);
        while !lost.is_empty() {
            let (looked_at, forgotten) = pace.batch(|rows| {
                let next = &lost[..rows.min(lost.len())];
                Ok((next.len(), self.forget_if_lost(next)?))
            })?;
            lost = &lost[looked_at..];
            count += forgotten;
        }
        Ok(count)
    }
}

fn expired(reader: &dyn Reader, now: Timestamp, spared: &[ForkName]) -> Result<Vec<ForkRecord>> {
    let mut found = Vec::new();
    for fork in reader.forks_expired(now)? {
        let by_hand = reader.checkpoints_of_fork(&fork.name)?.iter().any(|checkpoint| !checkpoint.automatic);
        if !by_hand && !spared.contains(&fork.name) {
            found.push(fork);
        }
    }
    Ok(found)
}

fn sweeping() -> Event<'static> {
    Event { action: "vault.gc", subject: "", before: None, after: None, detail: "begins to sweep" }
}

/// The versions a prune keeps, in addition to heads and checkpoints saved by hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The newest N versions of each fork.
    pub last: Option<u64>,
    /// Versions created at or after this time.
    pub since: Option<Timestamp>,
}

/// The versions and checkpoints that a prune removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The versions that lost their content.
    pub versions: Vec<VersionId>,
    /// Automatic checkpoints that pinned them.
    pub checkpoints: Vec<(ForkName, CheckpointName)>,
}

/// Whether a prune is a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Remove the content.
    Real,
    /// Only report what a prune would remove.
    DryRun,
}

impl Vault {
    /// Removes the files of versions that `keep` does not cover; their records, and so the history, stay.
    pub fn prune(&self, keep: &Keep, fork: Option<&ForkName>, trial: Trial) -> Result<Pruned> {
        if trial == Trial::DryRun {
            let reader = self.read()?;
            return plan_prune(&*reader, keep, fork, self.versions_in_use(&*reader)?);
        }
        let planned = {
            let reader = self.read()?;
            plan_prune(&*reader, keep, fork, self.versions_in_use(&*reader)?)?
        };
        let planned: HashSet<VersionId> = planned.versions.into_iter().collect();
        let (mut pace, mut pruned) = (Pace::of(self), Pruned::default());
        let mut are_left = !planned.is_empty();
        while are_left {
            let (some, more) = pace.batch(|rows| self.prune_some(keep, fork, &planned, rows))?;
            pruned.versions.extend(some.versions);
            pruned.checkpoints.extend(some.checkpoints);
            are_left = more;
        }
        Ok(pruned)
    }

    /// Prunes at most `versions_max` of the `planned` versions that `keep` still does not cover. Returns true if more
    /// are left.
    fn prune_some(
        &self,
        keep: &Keep,
        fork: Option<&ForkName>,
        planned: &HashSet<VersionId>,
        versions_max: usize,
    ) -> Result<(Pruned, bool)> {
        self.transact(|transaction| {
            let in_use = self.versions_in_use(transaction.view())?;
            let mut pruned = plan_prune(transaction.view(), keep, fork, in_use)?;
            pruned.versions.retain(|id| planned.contains(id));
            let are_left = pruned.versions.len() > versions_max;
            pruned.versions.truncate(versions_max);
            let chosen: HashSet<VersionId> = pruned.versions.iter().copied().collect();
            let now = transaction.now();
            for id in &pruned.versions {
                transaction.writer.mark_pruned(id, now)?;
            }
            let mut checkpoints = transaction.view().checkpoints()?;
            checkpoints.retain(|checkpoint| checkpoint.automatic && chosen.contains(&checkpoint.version));
            pruned.checkpoints =
                checkpoints.into_iter().map(|checkpoint| (checkpoint.fork, checkpoint.name)).collect();
            for (fork, name) in &pruned.checkpoints {
                transaction.writer.delete_checkpoint(fork, name)?;
            }
            if !pruned.versions.is_empty() {
                let (versions, checkpoints) = (pruned.versions.len(), pruned.checkpoints.len());
                let detail = format!("versions={versions} checkpoints={checkpoints} pruned_at={}", now.0);
                transaction.record(&Event {
                    action: "vault.prune",
                    subject: fork.map_or("", ForkName::as_str),
                    before: None,
                    after: Some(digest_of_versions(pruned.versions.clone())),
                    detail: &detail,
                })?;
            }
            Ok((pruned, are_left))
        })
    }
}

/// The digest of a set of versions for the audit log: BLAKE3 of their sorted ids.
pub(crate) fn digest_of_versions(mut versions: Vec<VersionId>) -> [u8; DIGEST_BYTES] {
    versions.sort_unstable();
    let bytes: Vec<u8> = versions.iter().flat_map(|version| version.0).collect();
    *blake3::hash(&bytes).as_bytes()
}

fn plan_prune(
    reader: &dyn Reader,
    keep: &Keep,
    only: Option<&ForkName>,
    in_use: Vec<VersionId>,
) -> Result<Pruned> {
    let forks = reader.forks()?;
    if let Some(name) = only
        && !forks.iter().any(|fork| fork.name == *name)
    {
        return Err(crate::VaultError::NoFork { name: name.clone() });
    }
    let checkpoints = reader.checkpoints()?;
    let mut kept: HashSet<VersionId> = forks.iter().map(|fork| fork.head).chain(in_use).collect();
    // A fork's changes are computed from the version it started from, or the version last applied. main starts empty.
    for fork in forks.iter().filter(|fork| fork.name != ForkName::main()) {
        kept.insert(fork.base);
        let applied = |run: &Result<RunRecord>| run.as_ref().map_or(true, |run| run.applied_at.is_some());
        let last = Runs::of_fork(reader, &fork.name).find(applied).transpose()?;
        kept.extend(last.and_then(|run| run.version_after));
    }
    let by_hand = checkpoints.iter().filter(|checkpoint| !checkpoint.automatic);
    kept.extend(by_hand.map(|checkpoint| checkpoint.version));
    // The age of a version: its distance to the nearest head. Versions reachable from a fork that was not chosen have
    // no age, and are kept.
    let mut ages: HashMap<VersionId, Option<u64>> = HashMap::new();
    let mut whole: Vec<VersionRecord> = Vec::new();
    let is_chosen = |fork: &&ForkRecord| only.is_none_or(|name| *name == fork.name);
    let (chosen, others): (Vec<&ForkRecord>, Vec<&ForkRecord>) = forks.iter().partition(is_chosen);
    let heads = |forks: Vec<&ForkRecord>, age| forks.into_iter().map(|fork| (fork.head, age)).collect();
    let mut walks: VecDeque<VecDeque<(VersionId, Option<u64>)>> =
        VecDeque::from([heads(others, None), heads(chosen, Some(0))]);
    while let Some(mut waiting) = walks.pop_front() {
        // Breadth first, from the heads: the first visit of a version has the smallest age.
        let mut beside = VecDeque::new();
        while let Some((id, age)) = waiting.pop_front() {
            if ages.contains_key(&id) {
                continue;
            }
            ages.insert(id, age);
            let version = require_version(reader, &id)?;
            let mut parents = version.parents.iter().map(|parent| (*parent, age.map(|age| age + 1)));
            waiting.extend(parents.next());
            // A further parent comes from an undo or redo, which makes it no younger, or from a join, and then its
            // age is that on its own fork. Only if that fork no longer exists does the join decide.
            beside.extend(parents);
            whole.push(version);
        }
        if !beside.is_empty() {
            walks.push_back(beside);
        }
    }
    let mut pruned = Pruned::default();
    for version in whole {
        let Some(age) = ages.get(&version.id).copied().flatten() else { continue };
        let wanted = keep.last.is_some_and(|n| age < n) || keep.since.is_some_and(|at| version.at >= at);
        if version.pruned_at.is_none() && !wanted && !kept.contains(&version.id) {
            pruned.versions.push(version.id);
        }
    }
    let pruned_ids: HashSet<&VersionId> = pruned.versions.iter().collect();
    let automatic = checkpoints.iter().filter(|checkpoint| pruned_ids.contains(&checkpoint.version));
    pruned.checkpoints =
        automatic.map(|checkpoint| (checkpoint.fork.clone(), checkpoint.name.clone())).collect();
    Ok(pruned)
}
