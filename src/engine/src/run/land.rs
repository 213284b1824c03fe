//! Land: the row of a run, its changes and its checkpoints enter the vault in one transaction.
//!
//! [`land`] is the only way there, for executed, cached and recovered runs.

use std::os::fd::AsFd;
use std::time::Instant;

use avfs_request::ForkChoice;
use avfs_types::ids::{ForkName, VersionId};
use avfs_vault::backend::{Durability, Life, RunRecord, RunState};
use avfs_vault::capture::{Captured as CapturedUpper, LeftOut, WrittenLinks};
use avfs_vault::edited_tree::EditedTree;
use avfs_vault::layers::Footprint;
use avfs_vault::run::{AuditTexts, LandedRun, Landing, RunLanding};
use avfs_vault::{Batch, Vault};
use avfs_wire::CacheObject;

use super::capture::{Before, Captured};
use super::effective::Effective;
use super::execute::Ended;
use super::judge::{CaptureFate, Judged, judge};
use super::kept_output::kept_output;
use super::record::Run;
use super::result::{Notes, Phases};
use super::site::Site;
use crate::checkpoint::CheckpointService;
use crate::journal;
use crate::journal::RunResult;
use crate::launcher::Exit;
use crate::result_cache::{CacheUse, Ending, memo};
use crate::run_base::RunBase;

/// A run that is in the vault, and what its report still needs.
pub(crate) struct Kept {
    pub landed: LandedRun,
    pub before: Option<Before>,
    pub edited: Option<EditedTree>,
    pub left_out: Vec<LeftOut>,
    /// The size of the upper as a layer.
    pub size: Footprint,
    pub links: WrittenLinks,
    pub scan_met_change: bool,
    /// True if the command was classified read-only and changed content.
    pub violated: bool,
    pub cache: Option<CacheUse>,
    pub phases: Phases,
}

/// Lands a run. Without a change only its row is kept, and no version.
///
/// The caller must hold a pin taken before the first blob was added to `batch`.
#[tracing::instrument(level = "debug", skip_all)]
pub(crate) fn land(vault: &Vault, run: RunLanding<'_>, batch: Batch<'_>) -> avfs_vault::Result<LandedRun> {
    let is_changed = run.edited.is_some_and(|edited| !edited.is_unchanged());
    let landing = if is_changed { run.landing } else { Landing::RecordOnly };
    vault.land_run(RunLanding { landing, ..run }, batch)
}

/// The landing of a run of this process, whose changes are relative to `base`.
pub(crate) fn run_landing<'l>(
    site: &Site<'_>,
    run: &'l Run,
    parent: &'l ForkName,
    base: Option<VersionId>,
    record: RunRecord,
    texts: AuditTexts<'l>,
) -> RunLanding<'l> {
    let (request, name) = (&run.request, &run.fork);
    let checkpoints = CheckpointService { mode: request.checkpoint, keep: site.checkpoints_keep };
    let labels = checkpoints.labels(run.decision.action, &run.id);
    RunLanding {
        landing: match (base, &request.fork) {
            (None, _) => Landing::RecordOnly,
            (Some(base), ForkChoice::Persistent { .. }) => Landing::Fork { name, base },
            (Some(base), ForkChoice::Ephemeral { .. }) => {
                let expires_at = site.vault.now().plus_seconds(site.expires_seconds);
                Landing::NewFork { name, base, parent, life: Life::Ephemeral { expires_at } }
            }
        },
        edited: None,
        message: &run.message,
        checkpoint_before: labels.before,
        checkpoint_after: labels.after,
        checkpoints_keep: checkpoints.keep,
        memo: None,
        kept: None,
        record,
        item: request.item.as_ref(),
        // A batch syncs several of its items at once.
        durability: match request.item {
            Some(_) => Durability::Grouped,
            None => Durability::Synced,
        },
        texts,
    }
}

/// Lands an executed run: decides what of its changes is kept, and stores its result and its output if requested.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn land_captured(
    site: &Site<'_>,
    effective: &Effective<'_>,
    ended: &Ended<'_>,
    captured: Captured<'_>,
    notes: &mut Notes,
) -> avfs_vault::Result<Kept> {
    let committing = Instant::now();
    let (vault, run, completion) = (site.vault, &effective.run, &ended.completion);
    let Captured { before, upper, scan_met_change, capturing } = captured;
    // The changes must not go unnoticed into a vault that was moved.
    ended.prepared.identity.check(vault)?;
    let mut phases = Phases {
        resolve: ended.resolving,
        mount: completion.mounting,
        execute: completion.executing,
        capture: capturing,
        ..Phases::default()
    };
    let Judged { violation, capture } = match &upper {
        Some((upper, dir)) => judge(site, run, upper, dir.as_fd(), notes)?,
        None => Judged { violation: None, capture: CaptureFate::WithoutContent },
    };
    let bytes_written = upper.as_ref().map_or(0, |(upper, _)| upper.bytes_read);
    let size = upper.as_ref().map(|(upper, _)| upper.footprint()).unwrap_or_default();
    let left_out = upper.as_ref().map(|(upper, _)| upper.left_out.clone()).unwrap_or_default();
    let violated = violation.is_some();
    let ending = Ending { completion, left_out: &left_out, violated, degraded: &effective.degraded, notes };
    let (mut cache, memo) = memo(site, run, effective.lookup, before, &ending, bytes_written)?;
    let kept = kept_output(site, &run.request, completion, bytes_written, notes)?;
    let row = run.row(vault, RunState::Completed);
    let (exit_code, signal) = match completion.exit {
        Exit::Code(code) => (Some(i32::from(code)), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let record = RunRecord {
        version_before: match &ended.base {
            // The partial version is recorded only if the run creates a version.
            RunBase::Touched(_) => None,
            RunBase::Live(_) | RunBase::Stacked { .. } | RunBase::Copied { .. } => {
                before.map(|before| before.version)
            }
        },
        exit_code,
        signal,
        discarded_at: row.ended_at.filter(|_| capture == CaptureFate::DroppedByPolicy),
        result: journal::text(&RunResult {
            bytes_written,
            classification_violated: violated,
            cache: cache.as_ref().map(CacheObject::from),
            ..journal::result(&run.request, completion, &phases)
        }),
        ..row
    };
    let decision = run.decision.audit_text();
    let texts = AuditTexts { violation: violation.as_deref(), ..run.audit_texts(&decision) };
    let base = before.map(|before| before.version);
    let landing = run_landing(site, run, &ended.parent, base, record, texts);
    let landing = RunLanding { memo, kept, ..landing };
    let (landed, edited, links) = match upper {
        Some((CapturedUpper { edited, batch, written_links, .. }, _)) => {
            let is_kept = match capture {
                CaptureFate::Kept => true,
                CaptureFate::DroppedByPolicy | CaptureFate::WithoutContent => false,
            };
            let landing = RunLanding { edited: Some(&edited).filter(|_| is_kept), ..landing };
            (land(vault, landing, batch)?, Some(edited), written_links)
        }
        None => (land(vault, landing, Batch::new(vault)?)?, None, WrittenLinks::default()),
    };
    if let Some(cache) = &mut cache {
        cache.remembered = landed.remembered;
    }
    phases.commit = committing.elapsed();
    Ok(Kept { landed, before, edited, left_out, size, links, scan_met_change, violated, cache, phases })
}
