//! Discards the changes of a run: deletes its fork and marks its row; the next gc frees the space.

use std::collections::HashSet;

use avfs_types::ids::{ForkName, RunPrefix, VersionId};
use avfs_types::reference::BadReference;

use super::audit::Event;
use super::fork::{Deletion, refuse_deletion};
use super::run::{Runs, find_run};
use super::version::History;
use crate::backend::{ForkRecord, Life, Reader, RunRecord};
use crate::care::pace::Pace;
use crate::{Result, Transaction, Vault, VaultError};

/// The changes to discard: those of a fork, or of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangesOf {
    /// All runs on a fork.
    Fork(ForkName),
    /// One run.
    Run(RunPrefix),
}

impl std::str::FromStr for ChangesOf {
    type Err = VaultError;

    fn from_str(text: &str) -> Result<Self> {
        let bad =
            |reason| VaultError::from(BadReference { reference: text.chars().take(80).collect(), reason });
        if text.starts_with("run:") || text.starts_with("last~") {
            let run = RunPrefix::parse(text)
                .map_err(|_| bad("expected at least four hex digits of a run id after run:"))?;
            return Ok(Self::Run(run));
        }
        ForkName::parse(text).map(Self::Fork).map_err(|_| bad("it is not the name of a fork or a run"))
    }
}

impl ChangesOf {
    /// Resolves the name: if it is not a fork, it may be a run, by its digits or as `last`.
    pub fn meant(&self, reader: &dyn Reader) -> Result<Self> {
        let Self::Fork(name) = self else { return Ok(self.clone()) };
        if reader.fork(name)?.is_some() {
            return Ok(self.clone());
        }
        let run = match RunPrefix::parse(name.as_str()) {
            Ok(prefix) => find_run(reader, &prefix)?,
            Err(_) => None,
        };
        Ok(run.map_or_else(|| self.clone(), |run| Self::Run(RunPrefix::from(&run.id))))
    }
}

/// The discarded fork and runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// The deleted fork; `None` for a run whose changes were never in the vault.
    pub fork: Option<ForkRecord>,
    /// The runs whose changes were discarded.
    pub runs: Vec<RunRecord>,
}

/// The result of one batch of a discard.
enum Batch {
    /// These runs are marked; the fork has more.
    Some(ForkName, Vec<RunRecord>),
    All(Discarded),
}

impl Vault {
    /// Deletes the ephemeral fork with a run's changes, or drops a run that was never captured. Killed in between, it
    /// continues when it is repeated.
    pub fn discard(&self, what: &ChangesOf) -> Result<Discarded> {
        let (mut pace, mut what, mut marked) = (Pace::of(self), what.clone(), Vec::new());
        loop {
            let batch = pace.batch(|rows| {
                self.transact(|transaction| match what.meant(transaction.view())? {
                    ChangesOf::Fork(name) => {
                        let fork = transaction.fork(&name)?;
                        discard_fork(transaction, fork, rows)
                    }
                    ChangesOf::Run(prefix) => discard_run(transaction, &prefix, rows),
                })
            })?;
            match batch {
                Batch::Some(fork, runs) => {
                    marked.extend(runs);
                    what = ChangesOf::Fork(fork);
                }
                Batch::All(discarded) => {
                    marked.extend(discarded.runs);
                    return Ok(Discarded { fork: discarded.fork, runs: marked });
                }
            }
        }
    }
}

fn discard_run(transaction: &mut Transaction<'_>, prefix: &RunPrefix, runs_max: usize) -> Result<Batch> {
    let run = find_run(transaction.view(), prefix)?;
    let run = run.ok_or_else(|| VaultError::NoRun { id: prefix.clone() })?;
    let nothing = |reason| VaultError::RunWithoutVersion { id: run.id.clone(), reason };
    let fork = transaction.view().fork(&run.fork)?;
    let is_half_done =
        |fork: &ForkRecord| fork.life != Life::Persistent && Some(fork.head) == run.version_after;
    if run.discarded_at.is_some() && !fork.as_ref().is_some_and(is_half_done) {
        return Err(nothing("it was already discarded"));
    }
    let Some(after) = run.version_after else {
        if run.state.is_settled() {
            return Err(nothing("it changed nothing"));
        }
        let runs = mark(transaction, vec![run.clone()])?;
        record(transaction, run.fork.as_str(), None, &runs)?;
        return Ok(Batch::All(Discarded { fork: None, runs }));
    };
    let fork = fork.ok_or_else(|| nothing("its fork no longer exists"))?;
    if fork.head != after && matches!(fork.life, Life::Ephemeral { .. }) {
        return Err(VaultError::ForkMoved { fork: fork.name, expected: after, found: fork.head });
    }
    discard_fork(transaction, fork, runs_max)
}

fn discard_fork(transaction: &mut Transaction<'_>, fork: ForkRecord, runs_max: usize) -> Result<Batch> {
    if fork.life == Life::Persistent {
        return Err(VaultError::PersistentFork { name: fork.name });
    }
    refuse_deletion(transaction.view(), &fork.name, Deletion::Careful)?;
    let mut runs = own_runs(transaction.view(), &fork)?;
    runs.retain(|run| run.discarded_at.is_none());
    if runs.len() > runs_max {
        runs.truncate(runs_max);
        let runs = mark(transaction, runs)?;
        record(transaction, fork.name.as_str(), None, &runs)?;
        return Ok(Batch::Some(fork.name, runs));
    }
    let runs = mark(transaction, runs)?;
    transaction.writer.delete_fork(&fork.name)?;
    record(transaction, fork.name.as_str(), Some(fork.head), &runs)?;
    Ok(Batch::All(Discarded { fork: Some(fork), runs }))
}

/// The runs that led to a fork's head. An earlier fork of the same name may have had other runs.
pub fn own_runs(reader: &dyn Reader, fork: &ForkRecord) -> Result<Vec<RunRecord>> {
    let mut own: HashSet<VersionId> = HashSet::new();
    for version in History::new(reader, fork.head) {
        let version = version?;
        if version.id == fork.base {
            break;
        }
        own.insert(version.id);
    }
    let is_own = |run: &RunRecord| run.version_after.is_some_and(|id| own.contains(&id));
    Runs::of_fork(reader, &fork.name).filter(|run| run.as_ref().map_or(true, is_own)).collect()
}

fn mark(transaction: &mut Transaction<'_>, mut runs: Vec<RunRecord>) -> Result<Vec<RunRecord>> {
    let now = transaction.now();
    for run in &mut runs {
        run.discarded_at = Some(now);
        transaction.writer.put_run(run)?;
    }
    Ok(runs)
}

fn record(
    transaction: &mut Transaction<'_>,
    subject: &str,
    head: Option<VersionId>,
    runs: &[RunRecord],
) -> Result<()> {
    let names: Vec<String> = runs.iter().map(|run| format!("run={}", run.id)).collect();
    let (before, detail) = (head.map(|id| id.0), names.join(" "));
    transaction.record(&Event { action: "run.discard", subject, before, after: None, detail: &detail })
}
