//! A run with a cached result: its changes are applied to the current files, in the same transaction that
//! journals it. Nothing is mounted and no process is started.

use std::time::Instant;

use avfs_changes::ChangeSummary;
use avfs_request::{CacheMode, Retention, Streams, Writing};
use avfs_types::ids::BlobId;
use avfs_vault::backend::{MemoRecord, RunRecord, RunState};
use avfs_vault::edited_tree::EditedTree;
use avfs_vault::memo::{Forget, Lost};
use avfs_vault::run::LandedRun;
use avfs_vault::stored_output::copy_output;
use avfs_vault::version::full_root_of;
use avfs_vault::{Batch, VaultError, require_version};
use avfs_wire::CacheObject;

use super::changes::changes_onto;
use super::key::set_base;
use super::look::{Search, find, parts_of};
use super::{CacheUse, reason};
use crate::conclude::{Before, VaultIdentity};
use crate::error::ExecuteError;
use crate::finished::FinishedRun;
use crate::journal;
use crate::journal::RunResult;
use crate::launcher::{Completion, Exit, OutsideWrites};
use crate::output::{Output, OutputBuffer};
use crate::proxy::{ProxyRuntime, Step};
use crate::result::ExecutionResult;
use crate::run::Run;
use crate::state::ProxyExecutionState as State;
use crate::workspace_root::Places;
use crate::workspace_service::WorkspaceService;

/// The data of a cached result that its run needs.
struct Recalled {
    memo: MemoRecord,
    before: Before,
    edited: Option<EditedTree>,
    completion: Completion,
}

impl ProxyRuntime<'_> {
    /// Uses a cached result for the run, if there is one. Otherwise records the reason and the base in the run.
    pub(crate) fn recall(
        &self,
        state: &mut State,
        run: &mut Run,
        places: &Places,
    ) -> Step<Option<ExecutionResult>> {
        let mut cache = CacheUse::new(run.request.cache);
        let refused = reason::of_request(&run.request, run.common_dir.as_ref());
        if !refused.is_empty() {
            if run.request.cache == CacheMode::Write {
                cache.not_remembered.clone_from(&refused);
            }
            cache.missed = refused;
            run.cache = Some(cache);
            return Ok(None);
        }
        let identity = VaultIdentity::of(self.site.vault);
        state.become_next(State::Checkpointing);
        let mut parts = parts_of(self.site, &run.request, places)?;
        let workspaces = WorkspaceService { site: self.site };
        workspaces.announce_first_import::<ExecuteError>(places, run)?;
        let version = workspaces.base(places, run)?;
        set_base(&mut parts, &version.content);
        cache.key = Some(parts.key());
        run.memo = Some(parts.clone());
        run.base = Some(version);
        run.phases.resolve = run.begun.elapsed();
        // Pinned, so that the result is not swept before it has landed.
        let pin = self.site.vault.backend().pin().map_err(VaultError::from)?;
        let search = find(&*self.site.vault.read()?, &parts, self.site.vault.now())?;
        let lost = match search {
            Search::Nothing(reasons) => {
                cache.missed = reasons;
                None
            }
            Search::Lost(memo, why) => Some((memo, why)),
            Search::Found(memo) => match self.recalled(run, memo.clone()) {
                Ok(recalled) => {
                    cache.from = Some(recalled.memo.run.clone());
                    cache.remembered = true;
                    run.cache = Some(cache);
                    state.become_next(State::Capturing);
                    identity.check(self.site.vault)?;
                    let result = self.land_recalled(run.clone(), recalled, pin)?;
                    state.become_next(State::Completed);
                    return Ok(Some(result));
                }
                // Running the command again is better than failing: the result was only kept to save time.
                Err(VaultError::MissingObject { kind, .. } | VaultError::DamagedObject { kind, .. }) => {
                    Some((memo, if kind == "blob" { Lost::Output } else { Lost::Version }))
                }
                Err(error) => return Err(error.into()),
            },
        };
        drop(pin);
        if let Some((memo, why)) = lost {
            self.site.vault.forget(&Forget::Lost(memo.key, why))?;
            cache.missed = vec![reason::lost(&memo, why)];
        }
        run.cache = Some(cache);
        Ok(None)
    }

    /// Reads the data of a result.
    fn recalled(&self, run: &Run, memo: MemoRecord) -> avfs_vault::Result<Recalled> {
        let reader = self.site.vault.read()?;
        let missing = || VaultError::MissingObject { kind: "version", id: memo.run.to_string() };
        let version = run.base.clone().ok_or_else(missing)?;
        let before = Before { version: version.id, root: full_root_of(&*reader, &version)? };
        let wanted = run.request.retention != Retention::Discard && run.request.writing == Writing::Allowed;
        let edited = match (memo.version_before, memo.version_after) {
            (Some(from), Some(to)) if wanted => {
                let root = |id| full_root_of(&*reader, &require_version(&*reader, id)?);
                let edits = changes_onto(&&*reader, &root(&from)?, &root(&to)?, &before.root)?;
                Some(EditedTree::new(&&*reader, &before.root, &edits)?)
            }
            (Some(_) | None, _) => None,
        };
        let output = |id| self.recalled_output(id, run.request.streams);
        let exit = Exit::Code(u8::try_from(memo.exit_code).unwrap_or(u8::MAX));
        let (stdout, stderr) = (Some(output(&memo.stdout)?), Some(output(&memo.stderr)?));
        let completion = Completion { stdout, stderr, ..Completion::of(exit) };
        Ok(Recalled { memo, before, edited, completion })
    }

    /// The output of a stream, limited as requested.
    fn recalled_output(&self, id: &BlobId, streams: Streams) -> avfs_vault::Result<Output> {
        let bytes_max = match streams {
            Streams::Captured { bytes_max } => bytes_max,
            Streams::Passed | Streams::Teed { .. } => usize::MAX,
        };
        let vault = self.site.vault;
        let mut buffer = OutputBuffer::new(bytes_max, vault.temporary_dir());
        copy_output(&*vault.backend().read_unmapped()?, id, &mut buffer)?;
        Ok(buffer.finish())
    }

    /// Keeps the run, and reports it like one that was executed.
    fn land_recalled(
        &self,
        mut run: Run,
        recalled: Recalled,
        pin: avfs_vault::backend::Guard,
    ) -> Step<ExecutionResult> {
        let Recalled { memo, before, edited, completion } = recalled;
        let vault = self.site.vault;
        let committing = Instant::now();
        let record = RunRecord {
            version_before: Some(before.version),
            exit_code: Some(memo.exit_code),
            result: journal::text(&RunResult {
                cache: run.cache.as_ref().map(CacheObject::from),
                ..journal::result(&run.request, &completion, &run.phases)
            }),
            ..self.not_run(&run, RunState::Completed)
        };
        let texts = run.audit_texts();
        // The changes are in the vault already.
        let kept = self.kept_output(&mut run, &completion, 0)?;
        let finished = self.finished(&run, record, edited.as_ref(), Some(&before), texts.as_texts(), None);
        let finished = FinishedRun { kept, ..finished };
        let landed = finished.land(vault, Batch::new(vault)?)?;
        // The following steps may wait for a sweep.
        drop(pin);
        run.phases.commit = committing.elapsed();
        self.note_landing(&mut run, &landed);
        let changes = self.changes(&run, Some(&before), &landed);
        let (changes, change_report) = changes.unwrap_or_else(|error| {
            run.note("changes.unknown", format!("cannot determine the changes: {error}"));
            (ChangeSummary::default(), None)
        });
        let LandedRun { landed, record, checkpoint_before, checkpoint_after, remembered: _, expires_at } =
            landed;
        let applied = self.apply_if_asked(&mut run, &completion, &record, &landed)?;
        let runs_on_host = self.acts_on_host(&run, &landed, &changes).unwrap_or_else(|error| {
            run.note("changes.unknown", format!("cannot determine what the host would execute: {error}"));
            Vec::new()
        });
        let Completion { exit, stdout, stderr, usage, connections, .. } = completion;
        Ok(ExecutionResult {
            fork: landed.version().map(|_| record.fork.clone()),
            version_before: record.version_before,
            version_after: record.version_after,
            checkpoint_before,
            checkpoint_after,
            exit,
            timed_out: false,
            stopped_by: None,
            started_at: run.started_at,
            duration: run.begun.elapsed(),
            stdout,
            stderr,
            changes,
            change_report,
            left_out: Vec::new(),
            caches: Vec::new(),
            landed,
            classification_violated: false,
            runs_on_host,
            connections,
            refused_calls: Vec::new(),
            outside_writes: OutsideWrites::default(),
            is_bound: self.site.bound.is_some(),
            applied,
            kept_until: expires_at.filter(|_| applied.is_none()),
            usage,
            phases: run.phases,
            enforcement: None,
            cache: run.cache,
            notes: run.notes,
            run_id: run.id,
        })
    }
}
