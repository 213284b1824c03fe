//! The runs of a vault: those in the journal, and those that are not in it yet.

use avfs_engine::{LocateError, ScratchDir, UnfinishedRun};
use avfs_present::in_effect;
use avfs_types::ids::ForkName;
use avfs_vault::application;
use avfs_vault::application::InDirectory;
use avfs_vault::undo::InEffect;
use avfs_wire::{RunObject, UnsettledRun};
use avfs_workplace::{OpError, Workplace};

use crate::named_run::discards;

/// The number of runs read at once.
const BATCH_ROWS: usize = 200;

/// The runs to list.
pub struct RunsQuery {
    /// Only runs whose changes went to this fork.
    pub fork: Option<ForkName>,
    pub limit: usize,
}

/// A run of the list.
pub struct RunRow {
    pub run: RunObject,
    pub in_directory: Option<InDirectory>,
    /// The request said to drop the changes.
    pub discards: bool,
}

/// Passes on the newest runs of the journal. Returns true if there are older ones.
pub fn each_run(
    workplace: &Workplace,
    query: &RunsQuery,
    receive: &mut dyn FnMut(RunRow) -> Result<(), OpError>,
) -> Result<bool, OpError> {
    let vault = &workplace.vault;
    let (mut left, mut before, mut effects) = (query.limit, i64::MAX, InEffect::default());
    loop {
        // Read one more run than is listed, to know whether there are older ones.
        let limit = left.saturating_add(1).min(BATCH_ROWS);
        let runs = match &query.fork {
            Some(fork) => vault.runs_of_fork(fork, before, limit)?,
            None => vault.runs(before, limit)?,
        };
        let Some(oldest) = runs.last() else { return Ok(false) };
        before = oldest.seq;
        let reader = vault.read()?;
        for run in runs {
            if left == 0 {
                return Ok(true);
            }
            left -= 1;
            let in_directory = application::in_directory(&*reader, &run)?;
            let is_undone = effects.is_undone(&*reader, &run)?;
            let object = in_effect(avfs_present::run(&run), in_directory, is_undone);
            receive(RunRow { run: object, in_directory, discards: discards(&run) })?;
        }
    }
}

/// Runs whose state is not in the journal yet: they still run, died, or can be recovered.
pub fn unsettled_runs(workplace: &Workplace, fork: Option<&ForkName>) -> Result<Vec<UnsettledRun>, OpError> {
    let mut runs = unfinished(workplace)?;
    runs.retain(|run| fork.is_none_or(|fork| run.record.fork == fork.as_str()));
    Ok(runs.iter().map(avfs_present::unsettled_run).collect())
}

/// Empty if there is no cache directory.
pub fn unfinished(workplace: &Workplace) -> Result<Vec<UnfinishedRun>, OpError> {
    let Workplace { client, vault } = workplace;
    match client.surroundings.cache_dir() {
        Ok(cache_dir) => Ok(UnfinishedRun::find(&ScratchDir::new(&cache_dir), &vault.id()?)?),
        Err(LocateError::NoHome { .. }) => Ok(Vec::new()),
        Err(other) => Err(other.into()),
    }
}
