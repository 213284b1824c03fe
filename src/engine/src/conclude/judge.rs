//! Whether captured changes become a version: what a read-only command changed, and what only looks like a change.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;

use avfs_changes::{bookkeeping, read_only_check};
use avfs_policy::OnViolation;
use avfs_request::CheckpointMode;
use avfs_types::path::TreePath;
use avfs_vault::capture::Captured;

use super::Before;
use crate::proxy::ProxyRuntime;
use crate::run::Run;

/// What becomes of captured changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaptureFate {
    Kept,
    /// A read-only command changed content, and the policy discards that.
    DroppedByPolicy,
    /// Nothing but bookkeeping or the times of directories changed.
    WithoutContent,
}

pub(super) struct Judged {
    /// What a command that was classified read-only changed.
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
        let may_be_trace = Self::may_be_trace(run, captured);
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

    /// True if a run of its own may have done nothing but make files that are not versioned: where it touched
    /// nothing else, all that is left of it is the time of the directories they are in.
    fn may_be_trace(run: &Run, captured: &Captured<'_>) -> bool {
        if !run.request.fork.is_ephemeral() || captured.left_out.is_empty() {
            return false;
        }
        let parents: HashSet<TreePath> =
            captured.left_out.iter().filter_map(|left| Some(left.path.split()?.0)).collect();
        captured.edits.keys().all(|path| parents.contains(path))
    }

    /// What a command changed that was said to look only.
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
