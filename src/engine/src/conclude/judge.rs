//! Decides whether captured changes become a version: checks read-only commands, and ignores bookkeeping.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use avfs_changes::{bookkeeping, read_only_check};
use avfs_policy::OnViolation;
use avfs_request::CheckpointMode;
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;
use avfs_vault::capture::{Captured, Times};
use avfs_vault::edit::Edit;

use super::{Before, earliest_time, times};
use crate::proxy::ProxyRuntime;
use crate::run::Run;

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

impl ProxyRuntime<'_> {
    /// Decides whether the captured changes become a version.
    pub(super) fn judge(
        &self,
        run: &mut Run,
        before: &Before,
        captured: &Captured<'_>,
        upper: BorrowedFd<'_>,
    ) -> avfs_vault::Result<Judged> {
        let vault = self.site.vault;
        let drops_bookkeeping = run.decision.looks_only() && run.request.checkpoint != CheckpointMode::Always;
        let may_be_trace = may_be_trace(run, captured);
        if !run.decision.looks_only() && !may_be_trace {
            return Ok(Judged { violation: None, capture: CaptureFate::Kept });
        }
        let mut touched = read_only_check::touched(vault, &before.root, captured)?;
        if drops_bookkeeping {
            touched = bookkeeping::changed_content(vault, &before.root, captured, upper, touched)?;
        }
        let violation = Self::violation(run, &touched);
        let capture = match run.decision.on_violation {
            OnViolation::Discard if violation.is_some() => CaptureFate::DroppedByPolicy,
            OnViolation::Keep | OnViolation::Discard => match touched.is_empty() {
                true if drops_bookkeeping || may_be_trace => CaptureFate::WithoutContent,
                true | false => CaptureFate::Kept,
            },
        };
        Ok(Judged { violation, capture })
    }

    /// Reports the changes of a command that was classified read-only.
    fn violation(run: &mut Run, touched: &[TreePath]) -> Option<String> {
        let what = read_only_check::violation(touched).filter(|_| run.decision.looks_only())?;
        let kept = match run.decision.on_violation {
            OnViolation::Keep => "",
            OnViolation::Discard => "; the policy discards the changes",
        };
        run.note(
            "classification_violated",
            format!("the command was classified read-only, but it modified {what}{kept}"),
        );
        Some(what)
    }
}

/// True if a run without a fork may have changed only directory times: of directories in which it created files
/// that are not versioned, or that it removed again. A time from before the run was set explicitly.
fn may_be_trace(run: &Run, captured: &Captured<'_>) -> bool {
    if !run.request.fork.is_ephemeral() {
        return false;
    }
    let parents: HashSet<TreePath> =
        captured.left_out.iter().filter_map(|left| Some(left.path.split()?.0)).collect();
    let is_of_run = |mtime: FileTime| match times(run.request.clock, run.started_at) {
        Times::Fixed { to, .. } => mtime == to,
        Times::AsWritten => mtime >= earliest_time(run.started_at),
    };
    captured.edits.iter().all(|(path, edit)| match edit {
        Edit::Dir(meta) => parents.contains(path) || is_of_run(meta.mtime),
        Edit::Put(_) | Edit::Remove => false,
    })
}
