//! Selects runs of the journal.

use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, RecordingName, RunId, RunPrefix};
use avfs_vault::backend::{RecordingRecord, RunRecord};
use avfs_vault::{Vault, VaultError};

const FORK: &str = "fork:";
const RECORDING: &str = "recording:";
const RUN: &str = "run:";
const BETWEEN: &str = "..";

/// A selection of runs of one vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    Fork(ForkName),
    Recording(RecordingRecord),
    /// Between two sequence numbers, inclusive.
    Range {
        first: i64,
        last: i64,
    },
    /// Sorted by position in the journal.
    Runs(Vec<(i64, RunId)>),
}

#[derive(Debug, thiserror::Error)]
pub enum SelectionError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("{name} is both a fork and a recording")]
    Ambiguous { name: String },
    #[error("{text:?} is not a fork, a recording or a run id")]
    Unknown { text: String },
}

impl Diagnose for SelectionError {
    fn code(&self) -> &'static str {
        match self {
            Self::Vault(error) => error.code(),
            Self::Ambiguous { .. } => "record.ambiguous",
            Self::Unknown { .. } => "record.unknown",
        }
    }
}

impl Selection {
    /// Parses a selection: a fork, a recording, a run, or `RUN..RUN`, where either end may be omitted.
    pub fn find(vault: &Vault, text: &str) -> Result<Self, SelectionError> {
        let unknown = || SelectionError::Unknown { text: text.chars().take(80).collect() };
        if let Some((first, last)) = text.split_once(BETWEEN) {
            return Self::range(vault, first, last, &unknown);
        }
        if let Some(name) = text.strip_prefix(FORK) {
            let name = ForkName::parse(name).map_err(|_| unknown())?;
            return Self::of_fork(vault, &name)?.ok_or_else(unknown);
        }
        if let Some(name) = text.strip_prefix(RECORDING) {
            let name = RecordingName::parse(name).map_err(|_| unknown())?;
            return Ok(Self::Recording(vault.recording(&name)?));
        }
        if !text.starts_with(RUN) {
            let fork =
                ForkName::parse(text).ok().map(|name| Self::of_fork(vault, &name)).transpose()?.flatten();
            let recordings = vault.recordings()?;
            let recording = recordings.into_iter().find(|recording| recording.name.as_str() == text);
            match (fork, recording) {
                (Some(_), Some(_)) => return Err(SelectionError::Ambiguous { name: text.to_owned() }),
                (Some(fork), None) => return Ok(fork),
                (None, Some(recording)) => return Ok(Self::Recording(recording)),
                (None, None) => {}
            }
        }
        let prefix = RunPrefix::parse(text).map_err(|_| unknown())?;
        Self::runs(vault, &[prefix])
    }

    /// Runs with these ids.
    pub fn runs(vault: &Vault, ids: &[RunPrefix]) -> Result<Self, SelectionError> {
        let mut runs = Vec::with_capacity(ids.len());
        for id in ids {
            let run = vault.run(id)?;
            runs.push((run.seq, run.id));
        }
        runs.sort_unstable();
        runs.dedup();
        Ok(Self::Runs(runs))
    }

    /// A fork that exists, or existed when something ran on it.
    fn of_fork(vault: &Vault, name: &ForkName) -> Result<Option<Self>, VaultError> {
        let there = vault.read()?.fork(name)?.is_some() || !vault.runs_of_fork(name, i64::MAX, 1)?.is_empty();
        Ok(there.then(|| Self::Fork(name.clone())))
    }

    fn range(
        vault: &Vault,
        first: &str,
        last: &str,
        unknown: &dyn Fn() -> SelectionError,
    ) -> Result<Self, SelectionError> {
        let place = |text: &str, open: i64| match text {
            "" => Ok(open),
            text => {
                let prefix = RunPrefix::parse(text).map_err(|_| unknown())?;
                Ok::<i64, SelectionError>(vault.run(&prefix)?.seq)
            }
        };
        let (one, other) = (place(first, 0)?, place(last, i64::MAX)?);
        Ok(Self::Range { first: one.min(other), last: one.max(other) })
    }

    #[must_use]
    pub fn holds(&self, run: &RunRecord) -> bool {
        match self {
            Self::Fork(name) => run.fork == *name,
            Self::Recording(recording) => recording.holds(run),
            Self::Range { first, last } => (*first..=*last).contains(&run.seq),
            Self::Runs(runs) => runs.binary_search_by_key(&run.seq, |(seq, _)| *seq).is_ok(),
        }
    }

    /// The selected runs after a position in the journal, oldest first; empty at the end.
    pub(super) fn after(
        &self,
        vault: &Vault,
        after: i64,
        limit: usize,
    ) -> Result<Vec<RunRecord>, VaultError> {
        let mut runs = match self {
            Self::Fork(name) => vault.runs_of_fork_after(name, after, limit)?,
            Self::Recording(recording) => {
                let after = after.max(recording.after_run);
                match &recording.fork {
                    Some(fork) => vault.runs_of_fork_after(fork, after, limit)?,
                    None => vault.runs_after(after, limit)?,
                }
            }
            Self::Range { first, .. } => vault.runs_after(after.max(first.saturating_sub(1)), limit)?,
            Self::Runs(runs) => {
                let next = runs.iter().filter(|(seq, _)| *seq > after).take(limit);
                next.map(|(_, id)| vault.run(&RunPrefix::from(id))).collect::<Result<_, _>>()?
            }
        };
        runs.retain(|run| self.holds(run));
        Ok(runs)
    }
}
