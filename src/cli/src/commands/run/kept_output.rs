//! `avfs runs show --output`

use avfs_engine::journal;
use avfs_engine::{Output, OutputBuffer};
use avfs_ops::{OpError, VerbError, of_copy};
use avfs_terminal::ErrorText;
use avfs_types::ids::BlobId;
use avfs_vault::Vault;
use avfs_vault::backend::{MemoRecord, RunRecord};
use avfs_vault::kept_output::find_kept_output;
use avfs_vault::stored_output::copy_output;
use avfs_wire::{KeptOutputObject, OmittedObject, RunOutput};

use crate::context::CommandContext;
use crate::ui::{Format, Outcome};

/// Prints the output of a run: stdout verbatim, like `avfs cat`, and stderr escaped.
pub fn show(ctx: &CommandContext, vault: &Vault, run: &RunRecord) -> Outcome {
    let reader = vault.backend().read_unmapped().map_err(avfs_vault::VaultError::from)?;
    let kept = find_kept_output(&*reader, &run.id)?;
    let kept = kept.ok_or_else(|| VerbError::NoOutput { run: run.id.clone() })?;
    let journaled = journal::result_of(run).and_then(|result| result.kept_output).unwrap_or_default();
    for (stream, omitted) in [("stdout", journaled.stdout_omitted), ("stderr", journaled.stderr_omitted)] {
        if let Some(OmittedObject { offset, bytes }) = omitted {
            ctx.ui.note(format_args!("note: {bytes} bytes of {stream} were not kept, at offset {offset}"));
        }
    }
    let result = match ctx.ui.format {
        Format::Json => Some(answer(vault, run, &kept, journaled)?),
        Format::Human => None,
    };
    ctx.ui.answer(&result, |out| {
        out.content(|to| copy_output(&*reader, &kept.stdout, to).map_err(of_copy))?;
        let mut stderr = ErrorText::default();
        copy_output(&*reader, &kept.stderr, &mut stderr)?;
        stderr.finish();
        Ok(())
    })
}

fn answer(
    vault: &Vault,
    run: &RunRecord,
    kept: &MemoRecord,
    journaled: KeptOutputObject,
) -> Result<RunOutput, OpError> {
    let (stdout, stdout_encoding) = avfs_present::stream(Some(&output(vault, &kept.stdout)?));
    let (stderr, stderr_encoding) = avfs_present::stream(Some(&output(vault, &kept.stderr)?));
    Ok(RunOutput {
        id: run.id.to_string(),
        merged: journaled.merged,
        stdout,
        stderr,
        stdout_encoding: stdout_encoding.into(),
        stderr_encoding: stderr_encoding.into(),
        stdout_omitted: journaled.stdout_omitted,
        stderr_omitted: journaled.stderr_omitted,
    })
}

/// The output of a stream, beyond a few MiB in a temporary file: its encoding is known only at its end.
fn output(vault: &Vault, id: &BlobId) -> Result<Output, OpError> {
    let mut buffer = OutputBuffer::new(usize::MAX, vault.temporary_dir());
    let reader = vault.backend().read_unmapped().map_err(avfs_vault::VaultError::from)?;
    copy_output(&*reader, id, &mut buffer)?;
    Ok(buffer.finish())
}
