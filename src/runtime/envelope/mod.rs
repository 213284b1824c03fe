//! The wire types of `--json`: mirrors of what the library knows, kept apart so that it can change.
//!
//! Fields are only added; a change of meaning is another [`SCHEMA_VERSION`].

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
mod request_file;
mod request_object;
mod result_object;
mod results;
mod runs;
mod schema;
mod text;
mod upkeep;

pub use answer::{Envelope, ErrorBody, SCHEMA_VERSION};
pub use approvals::{ApprovalObject, ApprovalStateName, ApprovalsAnswer, ApprovalsList, ApprovalsShow};
pub use asked_for::asked_for;
pub use attempts::{AttemptState, Bisect, BisectProbe, EndedObject, Race, RaceAttempt, VerdictName};
pub use batch::{Batch, BatchAnswer, BatchCounts, BatchItemResult, BatchList, BatchObject, ItemState};
pub use cache::{CacheExplain, CacheForget, CacheList, CacheObject, FoundObject, MemoObject, ReasonObject};
pub use entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject, NodeKind};
pub use execution::{DecisionObject, ExecutionEnvelope, StateName, approval_body, denial_body};
pub use list::{LIST_VERSION, ListExpected, ListHeader, ListItem, ListNoise, ListStart, OutputNoise};
pub use order::{Looked, LookedFound, Order, OrderItem};
pub use policy::{
    PolicyCap, PolicyCheck, PolicyCommand, PolicyDecision, PolicyExplain, PolicyFailure, PolicyFile,
    PolicyFinding, PolicySaid, PolicyTest, PolicyTested, PolicyVerdict, PolicyWord,
};
pub use recordings::{RecordExport, RecordList, RecordOne, RecordStop, RecordingObject};
pub use records::{
    AuditLine, AuditRow, CheckpointObject, ForkObject, LifeName, RunObject, RunStateName, VersionObject,
    journal_value,
};
pub use replay::{DifferenceObject, Replay, ReplayCounts, ReplayItemResult};
pub use request_file::{REQUEST_BYTES_MAX, RequestFile, RequestFileError, amount_text};
pub use request_object::RequestObject;
pub use result_object::{ConnectionObject, PhasesObject};
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
pub use schema::{KINDS, document};
pub use text::{PathText, base64, tail, time_of_file, time_text};
pub use upkeep::{
    AuditExport, AuditList, AuditVerify, AuditVerifyHead, Compact, Completions, ConfigFile, ConfigSetting,
    ConfigShow, ConfigValue, Fsck, FsckFinding, FsckHealed, Gc, Man, ManPage, Prune, PruneCheckpoint,
    QuotaShow, SchemaResult, Stats,
};
