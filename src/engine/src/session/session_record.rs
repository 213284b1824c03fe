//! What a scratch says about its run, so that somebody else can finish it.
//!
//! Written by the run, read by a recovery of the same machine; not part of any contract.

use std::path::Path;

use serde::{Deserialize, Serialize};

use avfs_request::FixedClock;
use avfs_types::KeepCount;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{BatchId, BatchItem, CheckpointName, ForkName, RunId, VersionId, from_hex};
use avfs_vault::run::Told;

use super::mount_session::{MountSession, SessionError, read_record_in};
use crate::checkpoint::Labels;
use crate::launcher::Exit;

/// Before the command begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub run: String,
    /// The vault's own id and where it lay.
    pub vault_id: String,
    pub vault: Option<String>,
    pub boot_id: String,
    pub fork: String,
    /// Whether the fork is made for the run.
    pub ephemeral: bool,
    /// Whether only the state of the touched paths is imported, when the command has ended.
    #[serde(default)]
    pub touched: bool,
    /// Whether anything is to be kept.
    pub wanted: bool,
    pub started_at: i64,
    pub message: String,
    /// What the audit log tells of the decision; scratches of older runs do not say.
    #[serde(default)]
    pub told_decision: String,
    /// What the command was taken for, and what becomes of changes that it should not make.
    #[serde(default)]
    pub looks_only: bool,
    #[serde(default)]
    pub drops_violations: bool,
    /// How long a fork made for the run is kept.
    pub expires_seconds: i64,
    pub exclude: Vec<String>,
    /// Hex: paths may hold any bytes.
    pub hidden: Vec<String>,
    /// Names of the secrets whose values no file may hold that is kept.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// The item of a batch that it is made for: the batch, and the item's number.
    #[serde(default)]
    pub item: Option<(String, u64)>,
    /// The checkpoints that it gets if it changed something, and how many the fork keeps.
    #[serde(default)]
    pub checkpoints: (Option<String>, Option<String>),
    #[serde(default)]
    pub checkpoints_keep: String,
    /// The time that was the present for it.
    #[serde(default)]
    pub clock_fixed: Option<String>,
    pub request: String,
    pub decision: String,
}

/// When the command has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOutcome {
    pub exit_code: Option<u8>,
    pub signal: Option<i32>,
    pub ended_at: i64,
    /// The version the changes are changes of, if it was known by then.
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

    /// That of a scratch which may be anybody's.
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
    pub fn told(&self) -> Told<'_> {
        Told { request: &self.message, decision: &self.told_decision, ..Told::default() }
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

    /// Nothing if the command had not ended.
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
