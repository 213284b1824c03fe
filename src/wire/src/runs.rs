//! The `result` of the verbs about runs.

use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use serde_json::Value;

use avfs_request::spec::RequestObject;
use avfs_types::Word;

use crate::entry::{ChangeObject, ChangeTotals};
use crate::execution::DecisionObject;
use crate::journal::{Recorded, RunOutcome};
use crate::records::{ForkObject, RunObject, VersionObject};
use crate::result_object::{OmittedObject, RunsOnHostObject};
use crate::results::Edited;
use crate::text::{LongList, LongText, PathText};

/// The result of `avfs runs list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsList {
    /// Runs whose end is not in the journal: they are still running, or died.
    pub unsettled: Vec<UnsettledRun>,
    /// Newest first.
    pub runs: Vec<RunObject>,
    /// True if there are older ones.
    pub more: bool,
}

/// A run whose end is not in the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnsettledRun {
    /// The id of the run: 10 hex digits.
    pub id: String,
    /// The fork that it runs on.
    pub fork: String,
    /// `running`, `dead` or `recoverable`.
    pub life: Word,
    /// The state of the run, or its last state if its process died.
    pub stands: Word,
    /// When it started, RFC 3339 in UTC.
    pub started_at: String,
    /// The directory with its changes.
    pub scratch: String,
    /// The request.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub request: Recorded<RequestObject>,
    /// The decision of the policy.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub decision: Recorded<DecisionObject>,
}

/// One run, settled or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RunShown {
    /// Its end is in the journal.
    Settled(Box<RunsShow>),
    /// It is still running, or it died.
    Unsettled(Box<UnsettledRun>),
    /// Its output, with `--output`.
    Output(RunOutput),
}

/// The output of a run, as far as kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunOutput {
    /// The id of the run: 10 hex digits.
    pub id: String,
    /// Both streams are in `stdout`, in the order in which they were written.
    pub merged: bool,
    /// Standard output.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stdout: LongText,
    /// Standard error.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stderr: LongText,
    /// `utf-8` or `base64`.
    pub stdout_encoding: Word,
    /// `utf-8` or `base64`.
    pub stderr_encoding: Word,
    /// The part of the output that `stdout` lacks; null if it is complete.
    pub stdout_omitted: Option<OmittedObject>,
    /// The part of the output that `stderr` lacks; null if it is complete.
    pub stderr_omitted: Option<OmittedObject>,
}

/// A run that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsShow {
    /// The row of the journal; its fields are part of this object.
    #[serde(flatten)]
    pub run: RunObject,
    /// The request.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub request: Recorded<RequestObject>,
    /// The decision of the policy.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub decision: Recorded<DecisionObject>,
    /// The result; null if the command did not run.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub result: Recorded<RunOutcome>,
    /// The extent of its versions: `full` for the whole directory, `touched` for the paths that it changed; null if it
    /// did not start from a version.
    pub base_kind: Option<Word>,
    /// The changes of the run; null if its versions are no longer kept.
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<ChangeObject>>"))]
    pub changes: Option<LongList<ChangeObject>>,
    /// The changes by kind; null where `changes` is.
    pub change_counts: Option<ChangeTotals>,
    /// When changes that are not applied are dropped, RFC 3339 in UTC; null if they do not expire.
    pub kept_until: Option<String>,
}

/// Whether avfs-run works on this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doctor {
    /// True if everything that a run needs works.
    pub ready: bool,
    /// All checks.
    pub checks: Vec<DoctorCheck>,
    /// The operations that a confined command is refused, with `--explain-denials`.
    pub denials: Option<Vec<DenialObject>>,
}

/// A refused operation, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DenialObject {
    /// `seccomp`, `landlock` or `kernel`.
    pub layer: Word,
    /// The profiles or modes that refuse it.
    pub by: Vec<Word>,
    /// The name of the refusal.
    pub name: Word,
    /// The system calls that are refused.
    pub calls: Vec<Word>,
    /// The only calls that are allowed, if all other calls are refused.
    pub all_but: Vec<Word>,
    /// Which uses of the calls are refused; null for all of them.
    pub which: Option<Word>,
    /// The error or signal that the program gets.
    pub answer: Word,
    /// Whether it is counted in `refused_calls`.
    pub told: bool,
    /// Why it is refused.
    pub why: Word,
    /// The option that allows it.
    pub relax: Word,
}

/// One check of the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorCheck {
    /// The name of the check.
    pub name: String,
    /// Whether the check passed.
    pub ok: bool,
    /// Whether a run needs it.
    pub required: bool,
    /// A stable code; never renamed.
    pub code: Option<String>,
    /// What failed.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl DoctorCheck {
    /// A check that passed.
    #[must_use]
    pub fn passed(name: &str, required: bool) -> Self {
        Self { name: name.to_owned(), ok: true, required, code: None, detail: None, hint: None }
    }

    /// A check that failed, with the code, the cause and a hint.
    #[must_use]
    pub fn failed(name: &str, required: bool, code: &str, detail: String, hint: Option<String>) -> Self {
        let (name, code) = (name.to_owned(), Some(code.to_owned()));
        Self { name, ok: false, required, code, detail: Some(detail), hint }
    }
}

/// The result of `avfs recover`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recover {
    /// The runs that died, with the action performed on each.
    pub runs: Vec<RecoverOne>,
    /// Runs that cannot be recovered, because the state of their command cannot be read.
    pub unreadable: Vec<RecoverUnreadable>,
}

/// A dead run that cannot be recovered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecoverUnreadable {
    /// The id of the run: 10 hex digits.
    pub run_id: String,
    /// Why its state cannot be read.
    pub problem: String,
}

/// A dead run and the action performed on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecoverOne {
    /// The id of the run: 10 hex digits.
    pub run_id: String,
    /// Where its changes are, or were, kept.
    pub scratch: String,
    /// `listed`, `captured` or `discarded`.
    pub action: Word,
    /// The fork with the changes; null without changes.
    pub fork: Option<String>,
    /// The version with the recovered changes; null without changes.
    pub version_after: Option<String>,
    /// Paths that a version cannot, or should not, contain.
    pub left_out: usize,
}

/// The result of `avfs discard`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Discard {
    /// The deleted fork; null for a run whose changes were never in the vault.
    pub fork: Option<ForkObject>,
    /// The runs whose changes were discarded.
    pub runs: Vec<RunObject>,
}

/// The result of `avfs undo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Undo {
    /// The version that was added; its fields are part of this object.
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was undone.
    pub undone: VersionObject,
}

/// The result of `avfs redo`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Redo {
    /// The version that was added; its fields are part of this object.
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was restored.
    pub redone: VersionObject,
}

/// The changes written to the bound directory, or to be written (`dry_run`); or the conflicts, with `apply.conflict`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Apply {
    /// The fork whose changes are applied.
    pub fork: String,
    /// The runs that made the changes.
    pub runs: Vec<String>,
    /// The directory that is written to.
    pub dir: String,
    /// The version that the changes start from.
    pub version_before: String,
    /// The version that has the changes.
    pub version_after: String,
    /// True if nothing was written.
    pub dry_run: bool,
    /// The requested changes, without those of a modification time only.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<ChangeObject>"))]
    pub changes: LongList<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Changes that the directory already had, including times.
    pub already: u64,
    /// Changes that --include and --exclude left out, without those of a modification time only.
    pub left_out: u64,
    /// Directories that should have been deleted, but contain files that are not versioned.
    pub kept_dirs: Vec<PathText>,
    /// Files whose setuid and setgid bits were not applied.
    pub set_ids_stripped: Vec<PathText>,
    /// Conflicts; if there are any, nothing was written.
    pub conflicts: Vec<ApplyConflict>,
    /// Changes that tools on the host execute or read automatically.
    pub runs_on_host: Vec<RunsOnHostObject>,
    /// Changes that the fork or run was made on top of, and that the directory lacks. They are not part of `changes`.
    /// With conflicts: those that cause some of them.
    pub inherited: Vec<InheritedChanges>,
}

/// Changes of one fork that another fork, or a later run, was made on top of.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InheritedChanges {
    /// The fork that they are from; null if it is unknown.
    pub fork: Option<String>,
    /// The version before them.
    pub version_before: String,
    /// The version with all of them.
    pub version_after: String,
    /// The runs that made them, oldest first; empty if something else made some of them.
    pub runs: Vec<String>,
    /// How many of them the directory lacks; with conflicts, how many conflicts they cause.
    pub changes: u64,
    /// The changes and what to apply for them, in words.
    pub message: String,
}

/// The changes reverted in the bound directory, or to be reverted (`dry_run`); or the conflicts, with
/// `unapply.conflict`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unapply {
    /// The runs that made the changes.
    pub runs: Vec<String>,
    /// The directory that is written to.
    pub dir: String,
    /// True if nothing was written.
    pub dry_run: bool,
    /// The changes to the directory, without those of a modification time only.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<ChangeObject>"))]
    pub changes: LongList<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Changes that were already reverted in the directory.
    pub already: u64,
    /// Directories that should have been deleted, but contain files that are not versioned.
    pub kept_dirs: Vec<PathText>,
    /// Conflicts; if there are any, nothing was written.
    pub conflicts: Vec<ApplyConflict>,
}

/// The changes that a sync merged into a fork; or, with `sync.conflict`, the paths that both sides changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sync {
    /// The fork.
    pub fork: String,
    /// The directory.
    pub dir: String,
    /// The current state of the directory, as a version of main.
    pub directory_version: String,
    /// The head of the fork.
    pub version: String,
    /// True if a version was added to the fork.
    pub merged: bool,
    /// The changes to the fork, without those of a modification time only.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<ChangeObject>"))]
    pub changes: LongList<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Paths that both sides changed in different ways; if there are any, nothing was merged.
    pub conflicts: Vec<PathText>,
}

/// A path that also changed in the directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApplyConflict {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// The cause of the conflict.
    pub reason: String,
}
