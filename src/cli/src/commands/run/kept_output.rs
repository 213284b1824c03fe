//! `avfs runs show --output`

use avfs_engine::journal::{JournalOmitted, kept_output_of};
use avfs_types::base64::base64;
use avfs_types::printable::text_of;
use avfs_vault::Vault;
use avfs_vault::backend::RunRecord;
use avfs_vault::kept_output::read_kept_output;
use avfs_wire::{OmittedObject, RunOutput};

use crate::context::CommandContext;
use crate::error::EdgeError;
use crate::ui::{Failure, Outcome, error_line};

/// Prints the output of a run: stdout verbatim, like `avfs cat`, and stderr escaped.
pub fn show(ctx: &CommandContext, vault: &Vault, run: &RunRecord) -> Outcome {
    let kept = read_kept_output(&*vault.read()?, &run.id)?;
    let [stdout, stderr] = kept.ok_or_else(|| EdgeError::NoOutput { run: run.id.clone() })?;
    let journaled = kept_output_of(&run.result).unwrap_or_default();
    for (stream, omitted) in [("stdout", journaled.stdout_omitted), ("stderr", journaled.stderr_omitted)] {
        if let Some(JournalOmitted { offset, bytes }) = omitted {
            ctx.ui.note(format_args!("note: {bytes} bytes of {stream} were not kept, at offset {offset}"));
        }
    }
    let result = answer(
        run,
        journaled.merged,
        (&stdout, journaled.stdout_omitted),
        (&stderr, journaled.stderr_omitted),
    );
    ctx.ui.answer(&result, |out| {
        out.content(|to| to.write_all(&stdout).map_err(Failure::output))?;
        for line in text_of(&stderr).lines() {
            error_line(format_args!("{line}"));
        }
        Ok(())
    })
}

type Stream<'a> = (&'a [u8], Option<JournalOmitted>);

fn answer(run: &RunRecord, merged: bool, stdout: Stream<'_>, stderr: Stream<'_>) -> RunOutput {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (base64(bytes), "base64"),
    };
    let omitted = |omitted: Option<JournalOmitted>| {
        omitted.map(|JournalOmitted { offset, bytes }| OmittedObject { offset, bytes })
    };
    let ((out, out_encoding), (err, err_encoding)) = (text(stdout.0), text(stderr.0));
    RunOutput {
        id: run.id.to_string(),
        merged,
        stdout: out,
        stderr: err,
        stdout_encoding: out_encoding,
        stderr_encoding: err_encoding,
        stdout_omitted: omitted(stdout.1),
        stderr_omitted: omitted(stderr.1),
    }
}
