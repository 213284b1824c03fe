//! The wire types of `--json`: mirrors of what the library knows, kept apart so that it can change.
//!
//! Fields are only added; a change of meaning is another [`SCHEMA_VERSION`].
#![forbid(unsafe_code)]

mod answer;
mod approvals;
mod asked_for;
mod attempts;
mod batch;
mod cache;
mod enforcement_object;
mod entry;
mod execution;
mod list;
mod order;
mod policy;
mod recordings;
mod records;
mod replay;
mod result_object;
mod results;
mod runs;
mod schema;
mod text;
mod upkeep;

pub use answer::{Envelope, ErrorBody};
pub use approvals::{ApprovalObject, ApprovalStateName, ApprovalsAnswer, ApprovalsList, ApprovalsShow};
pub use asked_for::asked_for;
pub use attempts::{AttemptState, Bisect, BisectProbe, EndedObject, Race, RaceAttempt, VerdictName};
pub use avfs_request::request_file::{
    REQUEST_BYTES_MAX, RequestFile, RequestFileError, SCHEMA_VERSION, amount_text,
};
pub use avfs_request::request_object::{CommandText, RequestObject};
pub use batch::{Batch, BatchAnswer, BatchCounts, BatchItemResult, BatchList, BatchObject, ItemState};
pub use cache::{CacheExplain, CacheForget, CacheList, CacheObject, FoundObject, MemoObject, ReasonObject};
pub use enforcement_object::{EnforcementObject, LandlockObject, LimitObject, ScratchObject};
pub use entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject, NodeKind};
pub use execution::{DecisionObject, ExecutionEnvelope, StateName};
pub use list::{LIST_VERSION, ListExpected, ListHeader, ListItem, ListNoise, ListStart, OutputNoise};
pub use order::{Looked, LookedFound, Order, OrderItem};
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
    PhasesObject, RefusedCallObject, ResultObject, RunsOnHostObject, UsageObject,
};
pub use results::{
    Cat, CatFile, CheckpointInfo, CheckpointList, CheckpointOne, Diff, DiffTreeLine, Edited, Entries, Export,
    FileStat, ForkList, ForkOne, ForkTree, ForkUseObject, Grep, GrepMatch, Import, Init, LeftOutObject, Log,
    Materialize, Show, Status, TextEncoding, TroubleObject, VaultDelete, VaultInfo, VaultList, VaultListed,
    VaultTrust,
};
pub use runs::{
    Apply, ApplyConflict, DenialObject, Discard, Doctor, DoctorCheck, Recover, RecoverOne, RecoverUnreadable,
    Redo, RunShown, RunsList, RunsShow, Undo, UnsettledRun,
};
pub use schema::{KINDS, Kind, document};
pub use text::{PathText, tail};
pub use upkeep::{
    AuditExport, AuditList, AuditVerify, AuditVerifyHead, Compact, Completions, ConfigFile, ConfigSetting,
    ConfigShow, ConfigValue, Fsck, FsckFinding, FsckHealed, Gc, Man, ManPage, Prune, PruneCheckpoint,
    QuotaShow, SchemaResult, Stats,
};
