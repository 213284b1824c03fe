//! Decides whether captured changes become a version: checks read-only commands, and ignores bookkeeping.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use avfs_changes::bookkeeping::is_bookkeeping;
use avfs_changes::read_only_check::Touched;
use avfs_policy::OnViolation;
use avfs_request::CheckpointMode;
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;
use avfs_vault::capture::{Captured, Times};
use avfs_vault::changes::Changes;
use avfs_vault::write_out::FreshPages;

use super::capture::{earliest_time, times};
use super::record::Run;
use super::result::Notes;
use super::site::Site;

/// What to do with captured changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureFate {
    Kept,
    /// A read-only command changed content, and the policy discards the changes.
    DroppedByPolicy,
    /// Only bookkeeping or directory times changed.
    WithoutContent,
}

pub(super) struct Judged {
    /// The paths that a command changed although it was classified read-only.
    pub violation: Option<String>,
    pub capture: CaptureFate,
}

/// Decides whether the captured changes become a version.
pub(super) fn judge(
    site: &Site<'_>,
    run: &Run,
    captured: &Captured<'_>,
    upper: BorrowedFd<'_>,
    notes: &mut Notes,
) -> avfs_vault::Result<Judged> {
    let vault = site.vault;
    let drops_bookkeeping = run.decision.looks_only() && run.request.checkpoint != CheckpointMode::Always;
    let kept = Judged { violation: None, capture: CaptureFate::Kept };
    let may_be_trace = run.request.fork.is_ephemeral() && !captured.files_changed;
    if !run.decision.looks_only() && !may_be_trace {
        return Ok(kept);
    }
    let changes = captured.edited.changes(&FreshPages::new(vault), vault.temporary_dirs())?;
    let may_be_trace = may_be_trace && is_trace(run, captured, &changes)?;
    if !run.decision.looks_only() && !may_be_trace {
        return Ok(kept);
    }
    let reader = vault.read()?;
    let touched =
        Touched::by(&changes, |change| Ok(drops_bookkeeping && is_bookkeeping(&*reader, upper, change)?))?;
    let violation = violation(run, &touched, notes);
    let capture = match run.decision.on_violation {
        OnViolation::Discard if violation.is_some() => CaptureFate::DroppedByPolicy,
        OnViolation::Keep | OnViolation::Discard => match touched.is_nothing() {
            true if drops_bookkeeping || may_be_trace => CaptureFate::WithoutContent,
            true | false => CaptureFate::Kept,
        },
    };
    Ok(Judged { violation, capture })
}

/// Reports the changes of a command that was classified read-only.
fn violation(run: &Run, touched: &Touched, notes: &mut Notes) -> Option<String> {
    let what = touched.in_words().filter(|_| run.decision.looks_only())?;
    let kept = match run.decision.on_violation {
        OnViolation::Keep => "",
        OnViolation::Discard => "; the policy discards the changes",
    };
    notes.add(
        "classification_violated",
        format!("the command was classified read-only, but it modified {what}{kept}"),
    );
    Some(what)
}

/// True if a run without a fork may have changed only directory times: of directories in which it created files
/// that are not versioned, or that it removed again. A time from before the run was set explicitly.
fn is_trace(run: &Run, captured: &Captured<'_>, changes: &Changes) -> avfs_vault::Result<bool> {
    let parents: HashSet<TreePath> =
        captured.left_out.iter().filter_map(|left| Some(left.path.split()?.0)).collect();
    let is_of_run = |mtime: FileTime| match times(run.request.clock, run.started_at) {
        Times::Fixed { to, .. } => mtime == to,
        Times::AsWritten => mtime >= earliest_time(run.started_at),
    };
    for change in changes {
        let change = change?;
        let meta = change.after.as_ref().and_then(|side| side.dir_meta.as_ref());
        if !meta.is_some_and(|meta| parents.contains(&change.path) || is_of_run(meta.mtime)) {
            return Ok(false);
        }
    }
    Ok(true)
}
