//! The wire types of `--json`: mirrors of what the library knows, kept apart so that it can change.
//!
//! Fields are only added; a change of meaning is another [`SCHEMA_VERSION`].

mod answer;
mod entry;
mod execution;
mod records;
mod results;
mod runs;
mod schema;
mod text;

pub use answer::{Envelope, ErrorBody, SCHEMA_VERSION};
pub use entry::{ChangeKindName, ChangeObject, ChangeTotals, EntryObject, NodeKind};
pub use execution::{DecisionObject, ExecutionEnvelope, PhasesObject, RequestObject, StateName};
pub use records::{
    AuditRow, CheckpointObject, ForkObject, LifeName, RunObject, RunStateName, VersionObject, journal_value,
};
pub use results::{
    AuditList, AuditVerify, AuditVerifyHead, Cat, CatFile, CheckpointInfo, CheckpointList, CheckpointOne,
    Compact, Completions, ConfigFile, ConfigSetting, ConfigShow, ConfigValue, Diff, Edited, Entries, Export,
    FileStat, ForkList, ForkOne, ForkTree, ForkTreeNode, Fsck, FsckFinding, Gc, Grep, GrepMatch, Import,
    Init, Log, Man, ManPage, Materialize, Prune, PruneCheckpoint, QuotaShow, SchemaResult, Show, Stats,
    Status, TextEncoding, TroubleObject, VaultDelete, VaultInfo, VaultList, VaultListed,
};
pub use runs::{
    Apply, ApplyConflict, Discard, Doctor, DoctorCheck, Recover, RecoverOne, RunsList, RunsShow, Undo,
};
pub use schema::{KINDS, document};
pub use text::{base64, time_of_file, time_text};
