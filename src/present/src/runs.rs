//! Runs as wire types: shown, undone, applied.

use avfs_changes::{Applied, Conflict, Inherited, RunsOnHost, Subject};
use avfs_engine::UnfinishedRun;
use avfs_engine::journal;
use avfs_engine::journal::{Recorded, RunRequest};
use avfs_request::spec::CommandText;
use avfs_request::{BaseChoice, Explanation};
use avfs_types::clock::{Timestamp, time_text};
use avfs_types::path::TreePath;
use avfs_vault::application::InDirectory;
use avfs_vault::backend::RunRecord;
use avfs_vault::discard::Discarded;
use avfs_vault::undo::{Redone, Undone};
use avfs_wire::RunObject;
use avfs_wire::{
    Apply, ApplyConflict, ChangeObject, ChangeTotals, DenialObject, Discard, InheritedChanges, LongList,
    PathText, Redo, RunsShow, Undo, UnsettledRun,
};

#[must_use]
pub fn unsettled_run(run: &UnfinishedRun) -> UnsettledRun {
    UnsettledRun {
        id: run.record.run.clone(),
        fork: run.record.fork.clone(),
        life: run.life.word().into(),
        stands: run.stands.word().into(),
        started_at: time_text(run.record.started_at()),
        scratch: run.dir.display().to_string(),
        request: Recorded::parse(&run.record.request),
        decision: Recorded::parse(&run.record.decision),
    }
}

#[must_use]
pub fn run_shown(
    run: &RunRecord,
    changes: Option<(LongList<ChangeObject>, ChangeTotals)>,
    kept_until: Option<Timestamp>,
) -> RunsShow {
    let (changes, change_counts) = changes.unzip();
    let row = journal::read(run);
    RunsShow {
        run: crate::run(run),
        request: row.request,
        decision: row.decision,
        result: row.outcome,
        base_kind: base_kind_of_run(run).map(Into::into),
        changes,
        change_counts,
        kept_until: kept_until.map(time_text),
    }
}

/// The extent of a run's versions: `full` or `touched`; `None` if it had no base version.
#[must_use]
pub fn base_kind_of_run(run: &RunRecord) -> Option<&'static str> {
    let request = Recorded::<RunRequest>::parse(&run.request);
    match request.read().is_some_and(|request| request.base == BaseChoice::Touched.word()) {
        true => Some(BaseChoice::Touched.word()),
        false => run.version_before.map(|_| "full"),
    }
}

/// The command in the text of a request; `None` if it has none that can be read.
#[must_use]
pub fn command_of(request: &str) -> Option<CommandText> {
    let request = Recorded::<RunRequest>::parse(request).into_read().ok()?;
    // The default of an absent key, which no run has.
    Some(request.command).filter(|command| *command != CommandText::Argv(Vec::new()))
}

#[must_use]
pub fn denial(explanation: Explanation) -> DenialObject {
    let Explanation { layer, by, name, calls, all_but, which, answer, reported, why, relax } = explanation;
    let words = |words: &[&'static str]| words.iter().map(|word| (*word).into()).collect();
    DenialObject {
        layer: layer.into(),
        by: words(by),
        name: name.into(),
        calls: words(calls),
        all_but: words(all_but),
        which: which.map(Into::into),
        answer: answer.into(),
        told: reported,
        why: why.into(),
        relax: relax.into(),
    }
}

#[must_use]
pub fn discard(discarded: &Discarded) -> Discard {
    Discard {
        fork: discarded.fork.as_ref().map(crate::fork),
        runs: discarded.runs.iter().map(crate::run).collect(),
    }
}

#[must_use]
pub fn undo(fork: &avfs_types::ids::ForkName, undone: &Undone) -> Undo {
    Undo { edited: crate::edited(fork, &undone.committed), undone: crate::version(&undone.undone) }
}

#[must_use]
pub fn redo(fork: &avfs_types::ids::ForkName, redone: &Redone) -> Redo {
    Redo { edited: crate::edited(fork, &redone.committed), redone: crate::version(&redone.redone) }
}

#[must_use]
pub fn apply(subject: &Subject, dir: &std::path::Path, dry_run: bool, runs_on_host: &[RunsOnHost]) -> Apply {
    Apply {
        fork: subject.fork.to_string(),
        runs: subject.runs.iter().map(ToString::to_string).collect(),
        dir: dir.to_string_lossy().into_owned(),
        version_before: subject.before.id.to_hex(),
        version_after: subject.after.id.to_hex(),
        dry_run,
        changes: LongList::default(),
        change_counts: ChangeTotals::default(),
        already: 0,
        left_out: 0,
        kept_dirs: Vec::new(),
        set_ids_stripped: Vec::new(),
        conflicts: Vec::new(),
        runs_on_host: runs_on_host.iter().map(crate::runs_on_host).collect(),
        inherited: Vec::new(),
    }
}

#[must_use]
pub fn applied(
    whole: Apply,
    applied: &Applied,
    changes: LongList<ChangeObject>,
    change_counts: ChangeTotals,
) -> Apply {
    let (kept_dirs, set_ids_stripped) = (path_texts(&applied.kept_dirs), path_texts(&applied.stripped));
    let (already, left_out) = (applied.already, applied.left_out);
    let inherited = inherited(&applied.inherited);
    Apply { changes, change_counts, already, left_out, kept_dirs, set_ids_stripped, inherited, ..whole }
}

#[must_use]
pub fn apply_refused(whole: Apply, refused: &[Conflict], lacking: &[Inherited]) -> Apply {
    Apply { conflicts: conflicts(refused), inherited: inherited(lacking), ..whole }
}

#[must_use]
pub fn inherited(all: &[Inherited]) -> Vec<InheritedChanges> {
    let listed = all.iter().map(|of| InheritedChanges {
        fork: of.fork.as_ref().map(ToString::to_string),
        version_before: of.before.to_hex(),
        version_after: of.after.to_hex(),
        runs: of.runs.iter().map(ToString::to_string).collect(),
        changes: of.changes,
        message: of.text(),
    });
    listed.collect()
}

#[must_use]
pub fn conflicts(all: &[Conflict]) -> Vec<ApplyConflict> {
    let listed = all.iter().map(|conflict| ApplyConflict {
        path: PathText::of(&conflict.path),
        reason: conflict.reason.clone().into_owned(),
    });
    listed.collect()
}

/// A run with the state of its changes in the bound directory and on its fork.
#[must_use]
pub fn in_effect(run: RunObject, state: Option<InDirectory>, undone: bool) -> RunObject {
    RunObject { in_directory: state.map(|state| state.word().to_owned()), undone: Some(undone), ..run }
}

#[must_use]
pub fn path_texts(paths: &[TreePath]) -> Vec<PathText> {
    paths.iter().map(PathText::of).collect()
}
