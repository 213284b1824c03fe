//! The `result` of the verbs about runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::{ChangeObject, ChangeTotals};
use crate::records::{ForkObject, RunObject, VersionObject};
use crate::result_object::RunsOnHostObject;
use crate::results::Edited;
use crate::text::PathText;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunsList {
    /// Those that the journal does not have as they stand: that run now, or died on the way.
    pub unsettled: Vec<UnsettledRun>,
    /// Newest first.
    pub runs: Vec<RunObject>,
    /// True if there are older ones.
    pub more: bool,
}

/// A run that is not in the journal as it stands.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UnsettledRun {
    pub id: String,
    pub fork: String,
    /// `running`, `dead` or `recoverable`.
    pub life: &'static str,
    /// The state it is in, or was in when its process went.
    pub stands: &'static str,
    pub started_at: String,
    pub scratch: String,
    pub request: Value,
    pub decision: Value,
}

/// One run, in the journal or on its way there.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RunShown {
    Settled(Box<RunsShow>),
    Unsettled(UnsettledRun),
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunsShow {
    #[serde(flatten)]
    pub run: RunObject,
    pub request: Value,
    pub decision: Value,
    pub result: Value,
    /// What it changed; nothing if its versions are no longer kept.
    pub changes: Option<Vec<ChangeObject>>,
    pub change_counts: Option<ChangeTotals>,
}

/// Whether avfs-run works on this host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Doctor {
    pub ready: bool,
    pub checks: Vec<DoctorCheck>,
    /// What a confined command is refused, with `--explain-denials`.
    pub denials: Option<Vec<DenialObject>>,
}

/// Something that is refused, and why.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DenialObject {
    /// `seccomp`, `landlock` or `kernel`.
    pub layer: &'static str,
    /// The profiles or modes that refuse it.
    pub by: &'static [&'static str],
    pub name: &'static str,
    pub calls: &'static [&'static str],
    /// Calls that are let through, where every other one is refused.
    pub all_but: &'static [&'static str],
    /// Which uses of the calls; nothing if all of them.
    pub which: Option<&'static str>,
    /// What the program sees: an errno, or a signal.
    pub answer: &'static str,
    /// Whether it is counted in `refused_calls`.
    pub told: bool,
    pub why: &'static str,
    /// What lets it through.
    pub relax: &'static str,
}

/// One thing that was tried.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DoctorCheck {
    pub name: String,
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
    #[must_use]
    pub fn passed(name: &str, required: bool) -> Self {
        Self { name: name.to_owned(), ok: true, required, code: None, detail: None, hint: None }
    }

    #[must_use]
    pub fn failed(name: &str, required: bool, code: &str, detail: String, hint: Option<String>) -> Self {
        let (name, code) = (name.to_owned(), Some(code.to_owned()));
        Self { name, ok: false, required, code, detail: Some(detail), hint }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Recover {
    pub runs: Vec<RecoverOne>,
    /// Runs that cannot be recovered, since it cannot be read how their commands ended.
    pub unreadable: Vec<RecoverUnreadable>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecoverUnreadable {
    pub run_id: String,
    pub problem: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RecoverOne {
    pub run_id: String,
    /// Where its changes are, or were, kept.
    pub scratch: String,
    /// `listed`, `captured` or `discarded`.
    pub action: &'static str,
    /// Where the changes are now; nothing if there are none.
    pub fork: Option<String>,
    pub version_after: Option<String>,
    /// Paths that no version can hold, or should not.
    pub left_out: usize,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Discard {
    /// The fork that went; nothing for a run whose changes never were in the vault.
    pub fork: Option<ForkObject>,
    pub runs: Vec<RunObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Undo {
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was taken back.
    pub undone: VersionObject,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Redo {
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was brought back.
    pub redone: VersionObject,
}

/// What was written to the bound directory, or (`dry_run`) would be; or, with `apply.conflict`, what is in the way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Apply {
    pub fork: String,
    pub runs: Vec<String>,
    pub dir: String,
    pub version_before: String,
    pub version_after: String,
    pub dry_run: bool,
    /// The changes that were asked for, those of nothing but a time left out.
    pub changes: Vec<ChangeObject>,
    pub change_counts: ChangeTotals,
    /// Changes that the directory had already, times included.
    pub already: u64,
    /// Changes that --include and --exclude left out.
    pub left_out: u64,
    /// Directories that should have gone, but hold files that are not versioned.
    pub kept_dirs: Vec<PathText>,
    /// Files of which setuid and setgid bits are not applied.
    pub set_ids_stripped: Vec<PathText>,
    pub conflicts: Vec<ApplyConflict>,
    /// Those of the changes that tools of the host execute by themselves.
    pub runs_on_host: Vec<RunsOnHostObject>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ApplyConflict {
    #[serde(flatten)]
    pub path: PathText,
    pub reason: String,
}
