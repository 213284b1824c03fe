//! The kept output of a run.

use std::io::Write;

use avfs_engine::{Output, OutputBuffer, journal};
use avfs_types::ids::{BlobId, RunId};
use avfs_vault::VaultError;
use avfs_vault::backend::{MemoRecord, Reader, RunRecord};
use avfs_vault::kept_output::find_kept_output;
use avfs_vault::stored_output::copy_output;
use avfs_wire::{KeptOutputObject, OmittedObject, RunOutput};
use avfs_workplace::{OpError, Workplace};

use crate::error::{VerbError, of_copy};

/// The output of a run, which is read when it is copied.
pub struct KeptOutput<'w> {
    workplace: &'w Workplace,
    reader: Box<dyn Reader + 'w>,
    run: RunId,
    kept: MemoRecord,
    journaled: KeptOutputObject,
}

impl<'w> KeptOutput<'w> {
    /// Notes the parts that are missing.
    pub(super) fn of(workplace: &'w Workplace, run: &RunRecord) -> Result<Self, OpError> {
        let reader = workplace.vault.backend().read_unmapped().map_err(VaultError::from)?;
        let kept = find_kept_output(&*reader, &run.id)?;
        let kept = kept.ok_or_else(|| VerbError::NoOutput { run: run.id.clone() })?;
        let journaled = journal::result_of(run).and_then(|result| result.kept_output).unwrap_or_default();
        for (stream, omitted) in [("stdout", journaled.stdout_omitted), ("stderr", journaled.stderr_omitted)]
        {
            if let Some(OmittedObject { offset, bytes }) = omitted {
                workplace
                    .note(format_args!("note: {bytes} bytes of {stream} were not kept, at offset {offset}"));
            }
        }
        Ok(Self { workplace, reader, run: run.id.clone(), kept, journaled })
    }

    /// Copies both streams.
    pub fn copy(&self, stdout: &mut dyn Write, stderr: &mut dyn Write) -> Result<(), OpError> {
        copy_output(&*self.reader, &self.kept.stdout, stdout).map_err(of_copy)?;
        Ok(copy_output(&*self.reader, &self.kept.stderr, stderr)?)
    }

    pub fn answer(&self) -> Result<RunOutput, OpError> {
        let (stdout, stdout_encoding) = avfs_present::stream(Some(&self.buffered(&self.kept.stdout)?));
        let (stderr, stderr_encoding) = avfs_present::stream(Some(&self.buffered(&self.kept.stderr)?));
        Ok(RunOutput {
            id: self.run.to_string(),
            merged: self.journaled.merged,
            stdout,
            stderr,
            stdout_encoding: stdout_encoding.into(),
            stderr_encoding: stderr_encoding.into(),
            stdout_omitted: self.journaled.stdout_omitted,
            stderr_omitted: self.journaled.stderr_omitted,
        })
    }

    /// One stream, beyond a few MiB in a temporary file: its encoding is known only at its end.
    fn buffered(&self, stream: &BlobId) -> Result<Output, OpError> {
        let mut buffer = OutputBuffer::new(usize::MAX, self.workplace.vault.temporary_dir());
        copy_output(&*self.reader, stream, &mut buffer)?;
        Ok(buffer.finish())
    }
}
