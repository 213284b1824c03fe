//! Turns an ended command into a kept run: captured once and journaled, or left for a recovery.

mod judge;
mod kept_output;
mod notes;
pub(crate) mod withheld;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Instant;

use avfs_changes::{ChangeReport, ChangeSummary, RunsOnHost, places_of_host};
use avfs_request::confinement::refused_text;
use avfs_request::{FixedClock, ForkChoice, SecretsInFiles};
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::VersionId;
use avfs_types::path::TreePath;
use avfs_types::secrets::Secrets;
use avfs_vault::backend::{Durability, RunRecord, RunState};
use avfs_vault::capture::{CaptureOptions, LeftOut, Times, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::edited_tree::EditedTree;
use avfs_vault::import::{Imported, TouchedBase, TouchedOptions};
use avfs_vault::memo::Memo;
use avfs_vault::page::DirRef;
use avfs_vault::run::{AuditTexts, Landed, LandedRun};
use avfs_vault::version::full_root_of;
use avfs_vault::write_out::FreshPages;
use avfs_vault::{Batch, Vault, VaultError};
use avfs_wire::CacheObject;

use judge::CaptureFate;

use crate::checkpoint::CheckpointService;
use crate::error::ExecuteError;
use crate::finished::{FinishedRun, LandsOn};
use crate::journal;
use crate::journal::RunResult;
use crate::launcher::{Completion, ConnectionVerdict, Exit, Upper};
use crate::mount_session::{MountSession, SessionError};
use crate::post_run::enforcement;
use crate::proxy::{Ended, ProxyRuntime, Step, wants_version};
use crate::recover::leftover;
use crate::result::{ExecutionResult, Phases};
use crate::run::Run;
use crate::session_record::SessionOutcome;
use crate::workspace_service::{BASE_LARGE, IMPORT_LARGE, RunBase};

pub(crate) use notes::note_foreign_files;

/// The version that a run's changes are relative to.
pub(super) struct Before {
    pub version: VersionId,
    pub root: DirRef,
}

/// The captured changes and where they were stored.
struct KeptRun {
    landed: LandedRun,
    changes: ChangeSummary,
    report: Option<ChangeReport>,
    left_out: Vec<LeftOut>,
    runs_on_host: Vec<RunsOnHost>,
    /// True if the command was classified read-only and changed content.
    violated: bool,
}

/// The note of a run whose output could not be delivered completely.
pub const OUTPUT_LOST: &str = "output.lost";
/// The note of a run whose command was killed because it could no longer be watched.
pub const SANDBOX_LOST: &str = "sandbox.lost";

impl ProxyRuntime<'_> {
    pub(super) fn conclude(
        &self,
        mut run: Run,
        session: MountSession,
        mut ended: Ended<'_>,
    ) -> Step<ExecutionResult> {
        let secrets = run.request.secrets();
        scrub(&secrets, &mut ended.completion);
        let imported = ended.imported.take();
        if let Some(Ok(imported)) = &imported {
            ended.scan_met_change = imported.scanned.changed_at > ended.launched_at;
        }
        // A live base was imported beside the command, which may have used the terminal.
        self.site.meter.announce_if_due();
        if let Some(lines) = self.site.meter.announced().filter(|_| !run.has_note(BASE_LARGE)) {
            run.note(IMPORT_LARGE, lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; "));
        }
        let before = self.before(&mut run, &session, &ended, imported);
        // Record the known base, so that a recovery does not have to guess it.
        let base = before.as_ref().ok().and_then(|before| Some(before.as_ref()?.version));
        self.note_room(&mut run, &ended);
        self.note_limits(&mut run, &ended.completion);
        notes::note_worktree(&mut run, self.site.bound.as_deref(), &ended.completion);
        notes::note_left_running(&mut run, &ended.completion);
        withheld::note_of_programs(self.site, &mut run);
        let kept = match before.and_then(|before| self.keep(&mut run, &session, &ended, &secrets, before)) {
            Ok(kept) => kept,
            Err(error) => {
                let given = self.give_to_recovery(&run, session, ended, base, error);
                self.launcher.take_signals();
                return Err(given);
            }
        };
        ended.sandbox.close();
        if let Some(error) = &ended.completion.undelivered {
            run.note(OUTPUT_LOST, format!("cannot deliver the output of the command: {error}"));
        }
        if let Some(error) = &ended.completion.unwatched {
            run.note(
                SANDBOX_LOST,
                format!("lost the connection to the sandbox, and killed the command: {error}"),
            );
        }
        if let Some(text) = refused_text(&ended.completion.refused_calls) {
            run.note("seccomp.refused", text);
        }
        if ended.completion.dirs_not_renamed > 0 {
            notes::note_refused_rename(&mut run);
        }
        run.notes.extend(leftover(run.id.as_str(), session.captured()));
        if let Err(error) = self.note_behind(&mut run, ended.look.take(), &kept.changes) {
            run.note("run.afterwards", format!("the run is kept, but an error occurred afterwards: {error}"));
        }
        self.note_git_settings(&mut run, &kept.changes);
        let LandedRun { landed, record, checkpoint_before, checkpoint_after, remembered, expires_at } =
            kept.landed;
        if let Some(cache) = &mut run.cache {
            cache.remembered = remembered;
        }
        let applied = self.apply_if_asked(&mut run, &ended.completion, &record, &landed)?;
        let enforcement = enforcement(&run, ended.run_base, ended.scratch_place, &ended.completion);
        let Completion { exit, timed_out, stdout, stderr, usage, .. } = ended.completion;
        let Completion { stopped_by, connections, refused_calls, outside_writes, .. } = ended.completion;
        Ok(ExecutionResult {
            fork: landed.version().map(|_| record.fork.clone()),
            version_before: record.version_before,
            version_after: record.version_after,
            checkpoint_before,
            checkpoint_after,
            exit,
            timed_out,
            stopped_by,
            started_at: run.started_at,
            duration: run.begun.elapsed(),
            stdout,
            stderr,
            changes: kept.changes,
            change_report: kept.report,
            left_out: kept.left_out,
            caches: ended.caches,
            landed,
            classification_violated: kept.violated,
            runs_on_host: kept.runs_on_host,
            connections,
            refused_calls,
            outside_writes,
            is_bound: self.site.bound.is_some(),
            applied,
            kept_until: expires_at.filter(|_| applied.is_none()),
            usage,
            phases: run.phases,
            enforcement: Some(enforcement),
            cache: run.cache,
            notes: run.notes,
            run_id: run.id,
        })
    }

    /// The version that the changes are relative to; `None` if there is no version and none is needed.
    fn before(
        &self,
        run: &mut Run,
        session: &MountSession,
        ended: &Ended<'_>,
        imported: Option<avfs_vault::transfer::Result<Imported>>,
    ) -> avfs_vault::transfer::Result<Option<Before>> {
        match (ended.run_base, imported) {
            (RunBase::Touched(_), _) if !wants_version(&run.request) => Ok(None),
            (RunBase::Touched(dir), _) => self.before_touched(run, session, ended, dir),
            (RunBase::Live(_), None) => Ok(None),
            (RunBase::Live(_), Some(imported)) => {
                let imported = imported?;
                run.note_import(&imported.scanned);
                if imported.scanned.foreign.is_any() {
                    notes::note_foreign_files(run);
                }
                let version = imported.committed.version;
                let root = full_root_of(&*self.site.vault.read()?, &version)?;
                Ok(Some(Before { version: version.id, root }))
            }
            (RunBase::Stacked { version, root, .. } | RunBase::Copied { version, root }, _) => {
                Ok(Some(Before { version: version.id, root: *root }))
            }
        }
    }

    /// The state, before the run, of the paths that it touched; `None` if it touched no path.
    fn before_touched(
        &self,
        run: &mut Run,
        session: &MountSession,
        ended: &Ended<'_>,
        dir: &Path,
    ) -> avfs_vault::transfer::Result<Option<Before>> {
        let site = self.site;
        // A recovery could not find the version in a vault that was moved.
        ended.identity.check(site.vault)?;
        let upper = self.open_upper(session, ended)?;
        let modes_journal = session.modes_journal();
        let links_at = places_of_host();
        let options = TouchedOptions {
            links_at: &links_at,
            exclude: &site.exclude,
            hidden: &ended.hidden,
            launched_at: ended.launched_at,
            modes_journal: &modes_journal,
            meter: site.meter,
        };
        avfs_types::pause::point("touched");
        let base = site.meter.waited_for(|| site.vault.import_touched(dir, upper.as_fd(), &options))?;
        let Some(TouchedBase { version, root, scanned, pin }) = base else { return Ok(None) };
        // From here on a gc treats the version as in use.
        session.note_base(&version.id).map_err(as_input)?;
        drop(pin);
        run.note_import(&scanned);
        Ok(Some(Before { version: version.id, root }))
    }

    /// Captures and journals the run in one transaction.
    fn keep(
        &self,
        run: &mut Run,
        session: &MountSession,
        ended: &Ended<'_>,
        secrets: &Secrets,
        before: Option<Before>,
    ) -> avfs_vault::transfer::Result<KeptRun> {
        let vault = self.site.vault;
        let nothing = Secrets::default();
        let begun = Instant::now();
        let wanted = wants_version(&run.request);
        let modes_journal = session.modes_journal();
        let captured = match &before {
            Some(before) if wanted => {
                let upper = self.open_upper(session, ended)?;
                if ended.upper.memory().is_none() {
                    self.outcome(run, &ended.completion, Some(before.version))
                        .write(session, &run.id)
                        .map_err(as_input)?;
                }
                let options = CaptureOptions {
                    kind: match ended.run_base {
                        RunBase::Copied { .. } => UpperKind::Whole,
                        RunBase::Live(_) | RunBase::Touched(_) | RunBase::Stacked { .. } => UpperKind::Layer,
                    },
                    exclude: &self.site.exclude,
                    hidden: &ended.hidden,
                    file_bytes_max: FILE_BYTES_MAX,
                    secrets: match run.request.secrets_in_files {
                        SecretsInFiles::Refused => secrets,
                        SecretsInFiles::Allowed => &nothing,
                    },
                    times: times(run.request.clock, run.started_at),
                    since: ended.launched_at,
                    renamed: &ended.completion.names_renamed,
                    modes_journal: &modes_journal,
                    meter: self.site.meter,
                };
                let captured = vault.capture(upper.as_fd(), &before.root, &options)?;
                Some((captured, upper))
            }
            Some(_) | None => None,
        };
        for path in captured.iter().flat_map(|(captured, _)| &captured.bad_ignore_files) {
            run.note("ignore.bad_line", format!("{path} has invalid patterns, which were ignored"));
        }
        let written_links =
            captured.as_ref().map(|(captured, _)| captured.written_links.clone()).unwrap_or_default();
        notes::note_links(run, &written_links);
        run.phases.capture = begun.elapsed();
        let committing = Instant::now();
        // The changes must not go unnoticed into a vault that was moved.
        ended.identity.check(vault)?;
        let bytes_written = captured.as_ref().map_or(0, |(captured, _)| captured.bytes_read);
        let size = captured.as_ref().map(|(captured, _)| captured.footprint()).unwrap_or_default();
        let mut record = self.record(run, ended, before.as_ref());
        let mut texts = run.audit_texts();
        // Must run after the decision what to keep: the journaled texts depend on it.
        let remember = |run: &mut Run, record: &mut RunRecord, left_out: &[LeftOut], violated| {
            let memo = self.memo(run, ended, before.as_ref(), left_out, violated, bytes_written)?;
            record.result = journal::text(&RunResult {
                bytes_written,
                classification_violated: violated,
                cache: run.cache.as_ref().map(CacheObject::from),
                ..journal::result(&run.request, &ended.completion, &run.phases)
            });
            avfs_vault::Result::Ok(memo)
        };
        let (landed, left_out, edited) = match (captured, before.as_ref()) {
            (Some((captured, upper)), Some(before)) => {
                let left_out = captured.left_out.clone();
                let judged = self.judge(run, &captured, upper.as_fd())?;
                texts.violation = judged.violation;
                record.discarded_at =
                    record.ended_at.filter(|_| judged.capture == CaptureFate::DroppedByPolicy);
                let edited = match judged.capture {
                    CaptureFate::Kept => Some(&captured.edited),
                    CaptureFate::DroppedByPolicy | CaptureFate::WithoutContent => None,
                };
                let memo = remember(run, &mut record, &left_out, texts.violation.is_some())?;
                let kept = self.kept_output(run, &ended.completion, bytes_written)?;
                let finished = self.finished(run, record, edited, Some(before), texts.as_texts(), memo);
                let finished = FinishedRun { kept, ..finished };
                (finished.land(vault, captured.batch)?, left_out, Some(captured.edited))
            }
            (Some(_) | None, _) => {
                let memo = remember(run, &mut record, &[], false)?;
                let kept = self.kept_output(run, &ended.completion, bytes_written)?;
                let finished = self.finished(run, record, None, None, texts.as_texts(), memo);
                let finished = FinishedRun { kept, ..finished };
                (finished.land(vault, Batch::new(vault)?)?, Vec::new(), None)
            }
        };
        run.phases.commit = committing.elapsed();
        // Nothing can be lost anymore, so a signal need not wait for the report.
        self.launcher.take_signals();
        self.note_landing(run, &landed);
        // The run is kept now: later errors become notes and do not fail the run.
        let changes = self.changes(run, before.as_ref(), &landed);
        let (changes, report) = changes.unwrap_or_else(|error| {
            run.note("changes.unknown", format!("cannot determine the changes: {error}"));
            (ChangeSummary::default(), None)
        });
        if let (Some(before), true) = (&before, landed.landed.version().is_some()) {
            let rebased = edited.filter(|_| matches!(landed.landed, Landed::Rebased { .. }));
            let looked =
                match rebased.map(|edited| edited.changes(&FreshPages::new(vault), vault.temporary_dirs())) {
                    Some(own) => own.and_then(|changes| self.look_at_host(run, ended, before, &changes)),
                    None => self.look_at_host(run, ended, before, &changes.changes),
                };
            let layered = looked
                .map_err(avfs_vault::transfer::Error::from)
                .and_then(|()| self.keep_layer(session, ended, &landed, &left_out, size, &written_links));
            if let Err(error) = layered {
                run.note(
                    "run.afterwards",
                    format!("the run is kept, but an error occurred afterwards: {error}"),
                );
            }
        }
        let runs_on_host = self.acts_on_host(run, &landed.landed, &changes).unwrap_or_else(|error| {
            run.note("changes.unknown", format!("cannot determine what the host would execute: {error}"));
            Vec::new()
        });
        let left_out = left_out.into_iter().map(|left| without_secrets(secrets, left)).collect();
        let violated = texts.violation.is_some();
        Ok(KeptRun { landed, changes, report, left_out, runs_on_host, violated })
    }

    fn open_upper(&self, session: &MountSession, ended: &Ended<'_>) -> avfs_vault::Result<OwnedFd> {
        let opened = match ended.run_base {
            RunBase::Copied { .. } => session.open_copy(),
            RunBase::Live(_) | RunBase::Touched(_) | RunBase::Stacked { .. } => {
                session.open_upper(ended.upper.memory())
            }
        };
        opened.map_err(as_input)
    }

    pub(super) fn finished<'l>(
        &self,
        run: &'l Run,
        record: RunRecord,
        edited: Option<&'l EditedTree>,
        before: Option<&Before>,
        texts: AuditTexts<'l>,
        memo: Option<Memo>,
    ) -> FinishedRun<'l> {
        let checkpoints =
            CheckpointService { mode: run.request.checkpoint, keep: self.site.checkpoints_keep };
        FinishedRun {
            record,
            edited,
            base: before.map(|before| before.version),
            lands_on: match &run.request.fork {
                ForkChoice::Persistent { .. } => LandsOn::Fork,
                ForkChoice::Ephemeral { .. } => {
                    LandsOn::NewFork { parent: &run.parent, expires_seconds: self.site.expires_seconds }
                }
            },
            message: &run.message,
            labels: checkpoints.labels(run.decision.action, &run.id),
            checkpoints_keep: checkpoints.keep,
            memo,
            kept: None,
            item: run.request.item.as_ref(),
            // A batch syncs several of its items at once.
            durability: match run.request.item {
                Some(_) => Durability::Grouped,
                None => Durability::Synced,
            },
            texts,
        }
    }

    /// The row without its result, which depends on what is kept.
    fn record(&self, run: &Run, ended: &Ended<'_>, before: Option<&Before>) -> RunRecord {
        let (exit_code, signal) = match ended.completion.exit {
            Exit::Code(code) => (Some(i32::from(code)), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        let version_before = match ended.run_base {
            // The partial version is recorded only if the run creates a version.
            RunBase::Touched(_) => None,
            RunBase::Live(_) | RunBase::Stacked { .. } | RunBase::Copied { .. } => {
                before.map(|before| before.version)
            }
        };
        RunRecord { version_before, exit_code, signal, ..self.not_run(run, RunState::Completed) }
    }

    /// Records on disk that the command has ended, if its changes are there too. An error does not prevent the run.
    pub(super) fn note_end(
        &self,
        run: &Run,
        completion: &mut Completion,
        upper: &Upper,
        session: &MountSession,
    ) {
        if upper.memory().is_some() || !wants_version(&run.request) {
            return;
        }
        scrub(&run.request.secrets(), completion);
        if let Err(error) = self.outcome(run, completion, None).write(session, &run.id) {
            tracing::warn!(%error, "cannot record the end of the command");
        }
    }

    fn outcome(
        &self,
        run: &Run,
        completion: &Completion,
        version_before: Option<VersionId>,
    ) -> SessionOutcome {
        let (exit_code, signal) = match completion.exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        SessionOutcome {
            exit_code,
            signal,
            ended_at: self.site.vault.now().0,
            version_before: version_before.map(|version| version.to_hex()),
            result: journal::text(&journal::result(&run.request, completion, &Phases::default())),
        }
    }

    /// Leaves changes that cannot be kept now to a later `avfs recover`.
    fn give_to_recovery(
        &self,
        run: &Run,
        session: MountSession,
        ended: Ended<'_>,
        base: Option<VersionId>,
        source: avfs_vault::transfer::Error,
    ) -> ExecuteError {
        let Ended { completion, sandbox, upper, .. } = ended;
        sandbox.close();
        let dir = session.dir().to_owned();
        let saved = match upper.memory() {
            Some(memory) => session.spill(memory),
            None => Ok(()),
        };
        let saved = saved.and_then(|()| match session.read_outcome()? {
            Some(_) => Ok(()),
            None => self.outcome(run, &completion, base).write(&session, &run.id),
        });
        let (id, source) = (run.id.clone(), Box::new(source));
        let exit = completion.exit;
        match saved.and_then(|()| session.keep()) {
            Ok(_) => match self.site.meter.stopped_by() {
                Some(signal) => ExecuteError::CaptureInterrupted { id, dir, exit, signal },
                None => ExecuteError::CaptureFailed { id, dir, exit, source },
            },
            Err(lost) => ExecuteError::CaptureLost { id, lost: Box::new(lost), source },
        }
    }
}

/// Removes the values of secrets from everything that is stored or shown.
fn scrub(secrets: &Secrets, completion: &mut Completion) {
    let outputs = [&mut completion.stdout, &mut completion.stderr, &mut completion.merged];
    for output in outputs.into_iter().flatten() {
        *output = std::mem::take(output).scrubbed(secrets);
    }
    for one in &mut completion.outside_writes.paths {
        let path = std::mem::take(&mut one.path).into_os_string().into_vec();
        one.path = OsString::from_vec(secrets.scrub(path)).into();
    }
    // A host name in a request can leak a secret to the network; it must not leak into the record.
    for connection in &mut completion.connections.list {
        let shown = secrets.scrub_host(connection.host.clone());
        let host = std::mem::replace(&mut connection.host, shown);
        match &mut connection.verdict {
            ConnectionVerdict::Allowed => {}
            ConnectionVerdict::Refused(why) | ConnectionVerdict::Failed(why) => {
                *why = secrets.scrub_text(why.replace(&host, &connection.host));
            }
        }
    }
}

/// The path itself may contain the secret for which the file was left out.
fn without_secrets(secrets: &Secrets, left: LeftOut) -> LeftOut {
    let scrubbed = secrets.scrub(left.path.as_bytes().to_vec());
    // Parse only if needed: a path that is left out may be deeper than any path that can be kept.
    if scrubbed == left.path.as_bytes() {
        return left;
    }
    LeftOut { path: TreePath::parse(&scrubbed).unwrap_or_default(), ..left }
}

/// The identity of the file that a vault was opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VaultIdentity(Option<(u64, u64)>);

impl VaultIdentity {
    pub fn of(vault: &Vault) -> Self {
        Self(vault.path().and_then(file_at))
    }

    /// Fails unless the path still refers to that file.
    pub fn check(self, vault: &Vault) -> avfs_vault::Result<()> {
        match vault.path() {
            Some(path) if file_at(path) != self.0 => Err(VaultError::Moved { path: path.to_owned() }),
            Some(_) | None => Ok(()),
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

fn as_input(error: SessionError) -> VaultError {
    VaultError::Input(std::io::Error::other(error))
}

/// The maximum lag of the kernel's file times behind its clock: one tick at the lowest tick rate.
const CLOCK_TICK_NANOS: i64 = 10_000_000;

/// The times of files written by a run that started at `started_at`.
#[must_use]
pub fn times(clock: Option<FixedClock>, started_at: Timestamp) -> Times {
    match clock {
        Some(clock) => Times::Fixed { since: earliest_time(started_at), to: clock.time() },
        None => Times::AsWritten,
    }
}

/// The earliest time that the kernel gives to files written by a run that started at `started_at`.
pub(super) fn earliest_time(started_at: Timestamp) -> FileTime {
    FileTime::from_nanos(started_at.0.saturating_sub(CLOCK_TICK_NANOS))
}
