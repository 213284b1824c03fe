//! The earlier work of a resumed batch: finishes interrupted captures, and finds the runs that succeeded.

use avfs_engine::journal;
use avfs_engine::{Doubt, Recovery, ScratchDir};
use avfs_ops::OpError;
use avfs_request::SecretsInFiles;
use avfs_types::ids::BatchId;
use avfs_vault::Vault;
use avfs_vault::backend::{RunRecord, RunState};

use crate::context::CommandContext;

/// Captures the changes of commands whose worker died before the capture, so that they are not run twice. A
/// run that cannot be captured is reported, and stays for `avfs recover`.
pub fn finish_captures(
    ctx: &CommandContext,
    vault: &Vault,
    batch: &BatchId,
    is_meant: impl Fn(u64) -> bool,
) -> Result<(), OpError> {
    for recovery in Recovery::find(&ScratchDir::new(&ctx.client.surroundings.cache_dir()?), vault)?.runs {
        let item = recovery.record.item();
        if !item.is_some_and(|item| item.batch == *batch && is_meant(item.number)) {
            continue;
        }
        let run = recovery.record.run.clone();
        match avfs_ops::runs::finish(&ctx.client, vault, recovery, Doubt::Refused, SecretsInFiles::Refused)? {
            Ok(_) => {}
            Err(error) => ctx.ui.note(format_args!("note: run {run} is not captured: {error}")),
        }
    }
    Ok(())
}

pub fn succeeded(run: &RunRecord) -> bool {
    let timed_out = || journal::result_of(run).is_some_and(|result| result.timed_out);
    run.state == RunState::Completed && run.exit_code == Some(0) && !timed_out()
}

/// The run with which an item succeeded although its worker died before it answered.
pub fn landed(
    ctx: &CommandContext,
    vault: &Vault,
    batch: &BatchId,
    item: u32,
) -> Result<Option<RunRecord>, OpError> {
    let number = u64::from(item);
    finish_captures(ctx, vault, batch, |other| other == number)?;
    Ok(vault.runs_of_item(batch, number)?.into_iter().find(succeeded))
}
