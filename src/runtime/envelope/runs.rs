//! The `result` of the verbs about runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backend::RunRecord;
use crate::runtime::{Applied, Conflict, Explanation, RunsOnHost, Subject, Unsettled};
use crate::vault::discard::Discarded;
use crate::vault::path::TreePath;
use crate::vault::undo::{Redone, Undone};

use super::entry::{ChangeObject, ChangeTotals};
use super::records::{ForkObject, RunObject, VersionObject, journal_value};
use super::result_object::RunsOnHostObject;
use super::results::Edited;
use super::text::{PathText, time_text};

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

impl From<&Unsettled> for UnsettledRun {
    fn from(run: &Unsettled) -> Self {
        Self {
            id: run.record.run.clone(),
            fork: run.record.fork.clone(),
            life: run.life.word(),
            stands: run.stands.word(),
            started_at: time_text(run.record.started_at()),
            scratch: run.dir.display().to_string(),
            request: journal_value(&run.record.request),
            decision: journal_value(&run.record.decision),
        }
    }
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

impl RunsShow {
    #[must_use]
    pub fn of(run: &RunRecord, changes: Option<(Vec<ChangeObject>, ChangeTotals)>) -> Self {
        let (changes, change_counts) = changes.unzip();
        Self {
            run: RunObject::from(run),
            request: journal_value(&run.request),
            decision: journal_value(&run.decision),
            result: journal_value(&run.result),
            changes,
            change_counts,
        }
    }
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

impl From<Explanation> for DenialObject {
    fn from(explanation: Explanation) -> Self {
        let Explanation { layer, by, name, calls, all_but, which, answer, told, why, relax } = explanation;
        Self { layer, by, name, calls, all_but, which, answer, told, why, relax }
    }
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

impl From<&Discarded> for Discard {
    fn from(discarded: &Discarded) -> Self {
        Self {
            fork: discarded.fork.as_ref().map(ForkObject::from),
            runs: discarded.runs.iter().map(RunObject::from).collect(),
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Undo {
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was taken back.
    pub undone: VersionObject,
}

impl Undo {
    #[must_use]
    pub fn of(fork: &crate::ids::ForkName, undone: &Undone) -> Self {
        Self { edited: Edited::of(fork, &undone.committed), undone: VersionObject::from(&undone.undone) }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Redo {
    #[serde(flatten)]
    pub edited: Edited,
    /// The version that was brought back.
    pub redone: VersionObject,
}

impl Redo {
    #[must_use]
    pub fn of(fork: &crate::ids::ForkName, redone: &Redone) -> Self {
        Self { edited: Edited::of(fork, &redone.committed), redone: VersionObject::from(&redone.redone) }
    }
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

impl Apply {
    #[must_use]
    pub fn of(subject: &Subject, dir: &std::path::Path, dry_run: bool, runs_on_host: &[RunsOnHost]) -> Self {
        Self {
            fork: subject.fork.to_string(),
            runs: subject.runs.iter().map(ToString::to_string).collect(),
            dir: dir.to_string_lossy().into_owned(),
            version_before: subject.before.id.to_hex(),
            version_after: subject.after.id.to_hex(),
            dry_run,
            changes: Vec::new(),
            change_counts: ChangeTotals::default(),
            already: 0,
            left_out: 0,
            kept_dirs: Vec::new(),
            set_ids_stripped: Vec::new(),
            conflicts: Vec::new(),
            runs_on_host: runs_on_host.iter().map(RunsOnHostObject::from).collect(),
        }
    }

    #[must_use]
    pub fn with(self, applied: &Applied, changes: Vec<ChangeObject>, change_counts: ChangeTotals) -> Self {
        let texts = |paths: &[TreePath]| paths.iter().map(PathText::of).collect();
        let (kept_dirs, set_ids_stripped) = (texts(&applied.kept_dirs), texts(&applied.stripped));
        let (already, left_out) = (applied.already, applied.left_out);
        Self { changes, change_counts, already, left_out, kept_dirs, set_ids_stripped, ..self }
    }

    #[must_use]
    pub fn refused(self, conflicts: &[Conflict]) -> Self {
        let told = conflicts.iter().map(|conflict| ApplyConflict {
            path: PathText::of(&conflict.path),
            reason: conflict.reason.to_owned(),
        });
        Self { conflicts: told.collect(), ..self }
    }
}
