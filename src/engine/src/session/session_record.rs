//! The record of a run in its scratch, with which another process can finish the run.
//!
//! Written by the run and read by a recovery on the same machine; not part of any contract.

use std::path::Path;

use serde::{Deserialize, Serialize};

use avfs_request::FixedClock;
use avfs_types::KeepCount;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{BatchId, BatchItem, CheckpointName, ForkName, RunId, VersionId, from_hex};
use avfs_vault::run::AuditTexts;

use super::mount_session::{MountSession, SessionError, read_record_in};
use crate::checkpoint::Labels;
use crate::launcher::Exit;

/// Written before the command starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub run: String,
    /// The id of the vault, and its path.
    pub vault_id: String,
    pub vault: Option<String>,
    pub boot_id: String,
    pub fork: String,
    /// True if the fork is created for the run.
    pub ephemeral: bool,
    /// True if only the state of the touched paths is imported, after the command has ended.
    #[serde(default)]
    pub touched: bool,
    /// True if changes should be kept.
    pub wanted: bool,
    pub started_at: i64,
    pub message: String,
    /// The decision for the audit log; missing in scratches of older runs.
    #[serde(default)]
    pub told_decision: String,
    /// Whether the command was classified read-only, and what to do with unexpected changes.
    #[serde(default)]
    pub looks_only: bool,
    #[serde(default)]
    pub drops_violations: bool,
    /// How long a fork created for the run is kept.
    pub expires_seconds: i64,
    pub exclude: Vec<String>,
    /// In hexadecimal: paths may contain any bytes.
    pub hidden: Vec<String>,
    /// Names of the secrets whose values kept files must not contain.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// The batch item that it runs: the batch, and the number of the item.
    #[serde(default)]
    pub item: Option<(String, u64)>,
    /// The checkpoints to create if something changed, and how many the fork keeps.
    #[serde(default)]
    pub checkpoints: (Option<String>, Option<String>),
    #[serde(default)]
    pub checkpoints_keep: String,
    /// The time at which its clock was frozen.
    #[serde(default)]
    pub clock_fixed: Option<String>,
    pub request: String,
    pub decision: String,
}

/// Written when the command has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOutcome {
    pub exit_code: Option<u8>,
    pub signal: Option<i32>,
    pub ended_at: i64,
    /// The version that the changes are relative to, if it was known by then.
    pub version_before: Option<String>,
    pub result: String,
}

impl SessionRecord {
    pub fn write(&self, session: &MountSession) -> Result<(), SessionError> {
        session.write_record(&to_text(self, &self.run)?)
    }

    pub fn read(session: &MountSession, id: &str) -> Result<Self, SessionError> {
        from_text(&session.read_record()?, id)
    }

    /// The record in a scratch of any vault.
    pub fn read_in(dir: &Path) -> Result<Self, SessionError> {
        from_text(&read_record_in(dir)?.record, &dir.display().to_string())
    }

    pub fn run_id(&self) -> Result<RunId, SessionError> {
        RunId::parse(&self.run).map_err(|error| bad(&self.run, &error))
    }

    pub fn fork(&self) -> Result<ForkName, SessionError> {
        ForkName::parse(&self.fork).map_err(|error| bad(&self.run, &error))
    }

    #[must_use]
    pub fn item(&self) -> Option<BatchItem> {
        let (batch, number) = self.item.as_ref()?;
        Some(BatchItem { batch: BatchId::parse(batch).ok()?, number: *number })
    }

    #[must_use]
    pub fn audit_texts(&self) -> AuditTexts<'_> {
        AuditTexts { request: &self.message, decision: &self.told_decision, ..AuditTexts::default() }
    }

    #[must_use]
    pub fn labels(&self) -> Labels {
        let name = |name: &Option<String>| CheckpointName::parse(name.as_deref()?).ok();
        Labels { before: name(&self.checkpoints.0), after: name(&self.checkpoints.1) }
    }

    #[must_use]
    pub fn checkpoints_keep(&self) -> KeepCount {
        self.checkpoints_keep.parse().unwrap_or(KeepCount::DEFAULT)
    }

    #[must_use]
    pub fn clock(&self) -> Option<FixedClock> {
        self.clock_fixed.as_ref()?.parse().ok()
    }

    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        Timestamp(self.started_at)
    }
}

impl SessionOutcome {
    pub fn write(&self, session: &MountSession, id: &RunId) -> Result<(), SessionError> {
        session.write_outcome(&to_text(self, id.as_str())?)
    }

    /// `None` if the command did not end.
    pub fn read(session: &MountSession, id: &str) -> Result<Option<Self>, SessionError> {
        session.read_outcome()?.map(|text| from_text(&text, id)).transpose()
    }

    #[must_use]
    pub fn version_before(&self) -> Option<VersionId> {
        VersionId::from_slice(&from_hex(self.version_before.as_ref()?)?)
    }

    #[must_use]
    pub fn exit(&self) -> Exit {
        match (self.exit_code, self.signal) {
            (_, Some(signal)) => Exit::Signal(signal),
            (code, None) => Exit::Code(code.unwrap_or(u8::MAX)),
        }
    }
}

fn bad(id: &str, error: &dyn std::fmt::Display) -> SessionError {
    SessionError::BadRecord { id: id.to_owned(), reason: error.to_string() }
}

fn to_text<T: Serialize>(value: &T, id: &str) -> Result<String, SessionError> {
    serde_json::to_string(value).map_err(|error| bad(id, &error))
}

fn from_text<'t, T: Deserialize<'t>>(text: &'t str, id: &str) -> Result<T, SessionError> {
    serde_json::from_str(text).map_err(|error| bad(id, &error))
}
