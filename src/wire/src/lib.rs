//! The JSON of avfs: the output of `avfs --json` and `avfs-run --json`, the input of command lists and workers, and the
//! JSON schema of all of it.
//!
//! The types mirror those of the other crates, so that those can change while the JSON stays the same: fields are only
//! added, and a change of meaning is a new [`SCHEMA_VERSION`]. The doc comments of these types are the descriptions in
//! the schema. Times are RFC 3339 in UTC, digests and ids are hex digits, and a field without a value is null.
//!
//! Every type can be read as well as written. A reader accepts keys and words of later versions: words are
//! [`Word`](avfs_types::Word)s, not enums, where a set may grow.
//!
//! This crate never opens a vault and makes no decisions; `avfs-present` fills in the types.
//!
//! ```
//! use avfs_wire::{Envelope, SCHEMA_VERSION, VaultDelete};
//!
//! let vault = "/home/user/project/.avfs/vault.db".to_owned();
//! let result = VaultDelete { vault, cache_freed_bytes: 0 };
//! let (schema_version, kind) = (SCHEMA_VERSION, "vault.delete".into());
//! let envelope = Envelope { schema_version, kind, success: true, result: Some(result), error: None };
//! let json = serde_json::to_value(&envelope)?;
//! assert_eq!(json["result"]["vault"], "/home/user/project/.avfs/vault.db");
//! // The types that are written can be read.
//! let read: Envelope<VaultDelete> = serde_json::from_value(json)?;
//! assert_eq!(read.result.map(|result| result.cache_freed_bytes), Some(0));
//! # Ok::<(), serde_json::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod answer;
mod approvals;
mod asked_for;
mod attempts;
mod batch;
mod cache;
mod compact;
mod enforcement_object;
mod entry;
mod execution;
mod journal;
mod list;
mod policy;
mod recordings;
mod records;
mod replay;
mod result_object;
mod results;
mod runs;
#[cfg(feature = "schema")]
mod schema;
mod text;
mod upkeep;
mod work_item;

pub use answer::{Envelope, ErrorBody};
pub use approvals::{ApprovalObject, ApprovalStateName, ApprovalsAnswer, ApprovalsList, ApprovalsShow};
pub use asked_for::asked_for;
pub use attempts::{AttemptState, Bisect, BisectProbe, EndedObject, Race, RaceAttempt, VerdictName};
pub use avfs_request::spec::{
    CommandText, REQUEST_BYTES_MAX, RequestObject, RunSpec, SCHEMA_VERSION, SpecError,
};
pub use batch::{
    Batch, BatchAnswer, BatchCounts, BatchItemResult, BatchList, BatchObject, BatchPlan, ItemState,
};
pub use cache::{CacheExplain, CacheForget, CacheList, CacheObject, FoundObject, MemoObject, ReasonObject};
pub use compact::{COMPACT_BYTES_MAX, CompactChanges, CompactDir, CompactEnvelope, CompactError};
pub use enforcement_object::{EnforcementObject, LandlockObject, LimitObject, ScratchObject};
pub use entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject, NodeKind};
pub use execution::{DecisionObject, ExecutionEnvelope, StateName};
pub use journal::{
    KeptOutputObject, LastLinesObject, OutsideWritesSummary, Recorded, RunFailure, RunOutcome, RunResult,
};
pub use list::{LIST_VERSION, ListExpected, ListHeader, ListItem, ListNoise, ListStart, OutputNoise};
pub use policy::{
    LimitMax, PolicyCap, PolicyCheck, PolicyCommand, PolicyDecision, PolicyExplain, PolicyFailure,
    PolicyFile, PolicyFinding, PolicySaid, PolicyTest, PolicyTested, PolicyVerdict, PolicyWord,
};
pub use recordings::{RecordExport, RecordList, RecordOne, RecordStop, RecordingObject};
pub use records::{
    AuditLine, AuditRow, CheckpointObject, ForkObject, LifeName, RunObject, RunStateName, VersionObject,
};
pub use replay::{DifferenceObject, Replay, ReplayCounts, ReplayItemResult, ReplayVerdict};
pub use result_object::{
    CHANGES_MAX, ChangeReportObject, ConnectionObject, LeftOutObject as RunLeftOutObject, NoteObject,
    OmittedObject, OutsideWriteObject, OutsideWritesObject, PhasesObject, RefusedCallObject, ResultObject,
    RunsOnHostObject, UsageObject,
};
pub use results::{
    Cat, CatFile, CheckpointInfo, CheckpointList, CheckpointOne, Diff, DiffTreeLine, Edited, Entries, Export,
    FileStat, ForkList, ForkOne, ForkTree, ForkUseObject, Grep, GrepMatch, Import, Init, LeftOutObject, Log,
    Materialize, Show, Status, TextEncoding, TroubleObject, VaultCopy, VaultDelete, VaultInfo, VaultList,
    VaultListed, VaultTrust,
};
pub use runs::{
    Apply, ApplyConflict, DenialObject, Discard, Doctor, DoctorCheck, InheritedChanges, Recover, RecoverOne,
    RecoverUnreadable, Redo, RunOutput, RunShown, RunsList, RunsShow, Sync, Unapply, Undo, UnsettledRun,
};
#[cfg(feature = "schema")]
pub use schema::{KINDS, Kind, document};
pub use text::{LongList, LongText, PathText, RowError};
pub use upkeep::{
    AuditExport, AuditList, AuditVerify, AuditVerifyHead, Clean, Compact, Completions, ConfigFile,
    ConfigSetting, ConfigShow, ConfigValue, Du, DuCache, DuPart, DuScratch, DuVault, Fsck, FsckFinding,
    FsckHealed, Gc, Man, ManPage, Prune, PruneCheckpoint, QuotaShow, SchemaResult, Stats,
};
pub use work_item::{Inspection, InspectionHit, WorkItem, WorkItemOfBatch};

/// The JSON Schema of all `--json` output, as printed by `avfs schema`. A test compares it with the types.
pub const SCHEMA: &str = include_str!("../schema.json");
