//! Keeps the output of a command with its run (`--keep-output`).

use std::io::Read;

use avfs_request::{ExecutionRequest, OutputRetention};
use avfs_vault::VaultError;
use avfs_vault::kept_output::KeptOutput;
use avfs_vault::stored_output::is_full;

use super::result::Notes;
use super::site::Site;
use crate::launcher::Completion;
use crate::output::Output;

/// The note of a run whose output is not kept although it was requested.
const OUTPUT_NOT_KEPT: &str = "output.not_kept";
const NO_ROOM: &str = "the quota of the vault leaves no room for the output";

/// The output of the command, if it is requested to be kept and the vault has room for it. `bytes_written` is the
/// size of the changes, which the vault needs room for too.
pub(crate) fn kept_output(
    site: &Site<'_>,
    request: &ExecutionRequest,
    completion: &Completion,
    bytes_written: u64,
    notes: &mut Notes,
) -> avfs_vault::Result<Option<KeptOutput>> {
    if request.output == OutputRetention::Dropped {
        return Ok(None);
    }
    let (stdout, stderr) = match (&completion.merged, &completion.stdout, &completion.stderr) {
        (Some(merged), _, _) => (Some(merged), None),
        (None, None, None) => {
            notes.add(OUTPUT_NOT_KEPT, "the output of the command is not known");
            return Ok(None);
        }
        (None, stdout, stderr) => (stdout.as_ref(), stderr.as_ref()),
    };
    let vault = site.vault;
    let length = |output: Option<&Output>| output.map_or(0, Output::length);
    if is_full(&*vault.read()?, [length(stdout), length(stderr)], bytes_written)? {
        notes.add(OUTPUT_NOT_KEPT, NO_ROOM);
        return Ok(None);
    }
    let none = Output::default();
    let (mut stdout, mut stderr) = (stdout.unwrap_or(&none).reader(), stderr.unwrap_or(&none).reader());
    let sources: [&mut (dyn Read + Send); 2] = [&mut stdout, &mut stderr];
    match KeptOutput::new(vault, sources, site.expires_seconds) {
        Ok(kept) => Ok(Some(kept)),
        // The run must not fail because of its output.
        Err(VaultError::Quota { .. }) => {
            notes.add(OUTPUT_NOT_KEPT, NO_ROOM);
            Ok(None)
        }
        Err(VaultError::Input(error)) => {
            notes.add(OUTPUT_NOT_KEPT, format!("cannot read the output: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
