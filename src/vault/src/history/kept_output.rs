//! The output of a run, kept for later readers.
//!
//! Kept outputs are rows in the table of cached results, so gc and fsck know their blobs. They are found only
//! by run, never by command, so that no run reuses one as its result. A run whose result is cached needs no
//! second row.

use std::io::Read;
use std::sync::Arc;

use avfs_types::clock::Timestamp;
use avfs_types::ids::{DigestKind, PartDigest, RunId};

use super::audit::Event;
use super::memo::MemoParts;
use super::run::LandedRun;
use super::stored_output::StoredOutput;
use crate::backend::{Guard, MemoRecord, Reader};
use crate::{Result, Transaction, Vault};

/// The only part of such a row: the run.
const RUN_PART: &str = "kept-output-of-run";
/// The command of such a row; no real command has this value.
const NO_COMMAND: &[u8] = b"kept output";

/// The output of a run, to be stored with it.
#[derive(Clone, Debug)]
pub struct KeptOutput {
    stdout: StoredOutput,
    stderr: StoredOutput,
    /// How long it is kept if the run changed nothing.
    expires_seconds: i64,
}

impl KeptOutput {
    /// Hashes and compresses: before the transaction, never in it. The output of a run that changed nothing is kept
    /// for `expires_seconds`, that of any other run as long as its changes.
    pub fn new(
        vault: &Vault,
        [stdout, stderr]: [&mut (dyn Read + Send); 2],
        expires_seconds: i64,
    ) -> Result<Self> {
        let (stdout, stderr) = (StoredOutput::of(vault, stdout)?, StoredOutput::of(vault, stderr)?);
        Ok(Self { stdout, stderr, expires_seconds })
    }

    /// Prevents a sweep of blobs that are stored already; held until the row is committed.
    pub(crate) fn pins(&self) -> [Option<Arc<Guard>>; 2] {
        [self.stdout.pin.clone(), self.stderr.pin.clone()]
    }
}

fn no_command() -> PartDigest {
    PartDigest(DigestKind::MemoPart.digest(NO_COMMAND))
}

fn parts_of(run: &RunId) -> MemoParts {
    let mut parts = MemoParts::default();
    parts.set(RUN_PART, run.as_str().as_bytes());
    parts
}

/// Whether a row is the kept output of a run rather than a cached result.
#[must_use]
pub(crate) fn is_kept_output(memo: &MemoRecord) -> bool {
    memo.command == no_command()
}

/// Stores the output of a run in the transaction that lands it.
pub(crate) fn keep(transaction: &mut Transaction<'_>, kept: KeptOutput, landed: &LandedRun) -> Result<()> {
    let KeptOutput { stdout, stderr, expires_seconds } = kept;
    transaction.put_blobs(&stdout.blobs)?;
    transaction.put_blobs(&stderr.blobs)?;
    let run = &landed.record;
    let expires_at = match (landed.expires_at, run.version_after) {
        (Some(expires_at), _) => expires_at,
        // As long as its version exists.
        (None, Some(_)) => Timestamp(i64::MAX),
        (None, None) => transaction.now().plus_seconds(expires_seconds),
    };
    let parts = parts_of(&run.id);
    let record = MemoRecord {
        seq: 0,
        key: parts.key(),
        command: no_command(),
        parts: parts.to_json(),
        run: run.id.clone(),
        exit_code: run.exit_code.unwrap_or_default(),
        stdout: stdout.id,
        stderr: stderr.id,
        stdout_digest: stdout.digest,
        stderr_digest: stderr.digest,
        // The output does not need the version that the run started from, so that may be deleted.
        version_before: None,
        version_after: run.version_after,
        created_at: transaction.now(),
        expires_at,
    };
    transaction.writer.put_memo(&record)?;
    let detail = format!("run={}", run.id);
    transaction.record(&Event {
        action: "run.keep_output",
        subject: run.fork.as_str(),
        before: None,
        after: Some(record.key.0),
        detail: &detail,
    })
}

/// The row with the output of a run; `None` if it was not kept, or is no longer kept.
pub fn find_kept_output(reader: &dyn Reader, run: &RunId) -> Result<Option<MemoRecord>> {
    Ok(reader.memo_of_run(run)?)
}
