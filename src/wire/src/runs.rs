//! The `result` of the verbs about runs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::{ChangeObject, ChangeTotals};
use crate::records::{ForkObject, RunObject, VersionObject};
use crate::result_object::{OmittedObject, RunsOnHostObject};
use crate::results::Edited;
use crate::text::PathText;

/// The result of `avfs runs list`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsList {
    /// Those that the journal does not have as they stand: that run now, or died on the way.
    pub unsettled: Vec<UnsettledRun>,
    /// Newest first.
    pub runs: Vec<RunObject>,
    /// True if there are older ones.
    pub more: bool,
}

/// A run that is not in the journal as it stands.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnsettledRun {
    /// The id of the run: 10 hex digits.
    pub id: String,
    /// The fork that it runs on.
    pub fork: String,
    /// `running`, `dead` or `recoverable`.
    pub life: &'static str,
    /// The state it is in, or was in when its process went.
    pub stands: &'static str,
    /// When it started, RFC 3339 in UTC.
    pub started_at: String,
    /// The directory with its changes.
    pub scratch: String,
    /// The request.
    pub request: Value,
    /// The decision of the policy.
    pub decision: Value,
}

/// One run, in the journal or on its way there.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RunShown {
    /// The journal has its end.
    Settled(Box<RunsShow>),
    /// It is running, or it died.
    Unsettled(UnsettledRun),
    /// With `--output`.
    Output(RunOutput),
}

/// What a run wrote, as far as it was kept.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunOutput {
    /// The id of the run: 10 hex digits.
    pub id: String,
    /// Both streams are in `stdout`, in the order in which they were written.
    pub merged: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// `utf-8` or `base64`.
    pub stdout_encoding: &'static str,
    /// `utf-8` or `base64`.
    pub stderr_encoding: &'static str,
    /// The part of the output that `stdout` lacks; null if it is complete.
    pub stdout_omitted: Option<OmittedObject>,
    /// The part of the output that `stderr` lacks; null if it is complete.
    pub stderr_omitted: Option<OmittedObject>,
}

/// A run that has ended.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsShow {
    /// The row of the journal; its fields are part of this object.
    #[serde(flatten)]
    pub run: RunObject,
    /// The request.
    pub request: Value,
    /// The decision of the policy.
    pub decision: Value,
    /// The result; null if the command did not run.
    pub result: Value,
    /// What its versions hold: `full` for the whole directory, `touched` for the paths that it changed; null if it stood on
    /// no version.
    pub base_kind: Option<&'static str>,
    /// What it changed; null if its versions are no longer kept.
    pub changes: Option<Vec<ChangeObject>>,
    /// The changes by kind; null where `changes` is.
    pub change_counts: Option<ChangeTotals>,
    /// When changes that are not applied by then are dropped, RFC 3339 in UTC; null if they do not expire.
    pub kept_until: Option<String>,
}

/// Whether avfs-run works on this host.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Doctor {
    /// True if everything that a run needs works.
    pub ready: bool,
    /// Everything that was tried.
    pub checks: Vec<DoctorCheck>,
    /// What a confined command is refused, with `--explain-denials`.
    pub denials: Option<Vec<DenialObject>>,
}

/// Something that is refused, and why.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DenialObject {
    /// `seccomp`, `landlock` or `kernel`.
    pub layer: &'static str,
    /// The profiles or modes that refuse it.
    pub by: &'static [&'static str],
    /// The name of the refusal.
    pub name: &'static str,
    /// The system calls that are refused.
    pub calls: &'static [&'static str],
    /// Calls that are let through, where every other one is refused.
    pub all_but: &'static [&'static str],
    /// Which uses of the calls; null if all of them.
    pub which: Option<&'static str>,
    /// What the program sees: an errno, or a signal.
    pub answer: &'static str,
    /// Whether it is counted in `refused_calls`.
    pub told: bool,
    /// Why they are refused.
    pub why: &'static str,
    /// What lets it through.
    pub relax: &'static str,
}

/// One thing that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoctorCheck {
    /// The name of the check.
    pub name: String,
    /// Whether it works.
    pub ok: bool,
    /// Whether a run needs it.
    pub required: bool,
    /// Stable: never renamed.
    pub code: Option<String>,
    /// What failed.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl DoctorCheck {
    /// A check that works.
    #[must_use]
    pub fn passed(name: &str, required: bool) -> Self {
        Self { name: name.to_owned(), ok: true, required, code: None, detail: None, hint: None }
    }

    /// A check that does not work, with the code, the cause and a hint.
    #[must_use]
    pub fn failed(name: &str, required: bool, code: &str, detail: String, hint: Option<String>) -> Self {
        let (name, code) = (name.to_owned(), Some(code.to_owned()));
        Self { name, ok: false, required, code, detail: Some(detail), hint }
    }
}

/// The result of `avfs recover`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Recover {
    /// The runs that died, and what was done about them.
    pub runs: Vec<RecoverOne>,
    /// Runs that cannot be recovered, since it cannot be read how their commands ended.
    pub unreadable: Vec<RecoverUnreadable>,
}

/// A dead run that cannot be recovered.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecoverUnreadable {
    /// The id of the run: 10 hex digits.
    pub run_id: String,
    /// Why its state cannot be read.
    pub problem: String,
}

/// A dead run and what was done about it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecoverOne {
    /// The id of the run: 10 hex digits.
    pub run_id: String,
    /// Where its changes are, or were, kept.
    pub scratch: String,
    /// `listed`, `captured` or `discarded`.
    pub action: &'static str,
    /// Where the changes are now; null if there are none.
    pub fork: Option<String>,
    /// The version with the recovered changes; null if there is none.
    pub version_after: Option<String>,
    /// Paths that no version can hold, or should not.
    pub left_out: usize,
}

/// The result of `avfs discard`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Discard {
    /// The fork that went; null for a run whose changes never were in the vault.
    pub fork: Option<ForkObject>,
    /// The runs whose changes were discarded.
    pub runs: Vec<RunObject>,
}

/// The result of `avfs undo`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Undo {
    /// The version that was added; its fields are part of this object.
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was taken back.
    pub undone: VersionObject,
}

/// The result of `avfs redo`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Redo {
    /// The version that was added; its fields are part of this object.
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was brought back.
    pub redone: VersionObject,
}

/// What was written to the bound directory, or (`dry_run`) would be; or, with `apply.conflict`, what is in the way.
#[derive(Clone, Debug, Serialize)]
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
    /// The changes that were asked for, those of nothing but a time left out.
    pub changes: Vec<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Changes that the directory had already, times included.
    pub already: u64,
    /// Changes that --include and --exclude left out.
    pub left_out: u64,
    /// Directories that should have gone, but hold files that are not versioned.
    pub kept_dirs: Vec<PathText>,
    /// Files of which setuid and setgid bits are not applied.
    pub set_ids_stripped: Vec<PathText>,
    /// What is in the way; nothing was written if there are any.
    pub conflicts: Vec<ApplyConflict>,
    /// Those of the changes that tools of the host execute by themselves.
    pub runs_on_host: Vec<RunsOnHostObject>,
}

/// What was taken out of the bound directory, or (`dry_run`) would be; or, with `unapply.conflict`, what is in the way.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unapply {
    /// The runs whose changes they were.
    pub runs: Vec<String>,
    /// The directory that is written to.
    pub dir: String,
    /// True if nothing was written.
    pub dry_run: bool,
    /// What changes in the directory, changes of nothing but a time left out.
    pub changes: Vec<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Changes that were gone from the directory already.
    pub already: u64,
    /// Directories that should have gone, but hold files that are not versioned.
    pub kept_dirs: Vec<PathText>,
    /// What is in the way; nothing was written if there are any.
    pub conflicts: Vec<ApplyConflict>,
}

/// What a sync merged into a fork; or, with `sync.conflict`, the paths that both sides changed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sync {
    /// The fork.
    pub fork: String,
    /// The directory.
    pub dir: String,
    /// The directory's present state, as a version of main.
    pub directory_version: String,
    /// The fork's head.
    pub version: String,
    /// True if a version was added to the fork.
    pub merged: bool,
    /// What the fork gained, changes of nothing but a time left out.
    pub changes: Vec<ChangeObject>,
    /// The changes by kind.
    pub change_counts: ChangeTotals,
    /// Paths that both sides changed in different ways; nothing was merged if there are any.
    pub conflicts: Vec<PathText>,
}

/// A path that was changed in the directory as well.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApplyConflict {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// What is in the way.
    pub reason: String,
}
