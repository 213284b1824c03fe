//! From a command that has ended to a run that is kept: captured once, journaled, or left for a recovery.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use crate::backend::{Life, RunRecord, RunState};
use crate::ids::{CheckpointName, VersionId};
use crate::vault::capture::{CaptureOptions, LeftOut, UpperKind};
use crate::vault::chunk::FILE_BYTES_MAX;
use crate::vault::edit::Edits;
use crate::vault::gc::Trial;
use crate::vault::import::{ImportOptions, Imported, OnTrouble};
use crate::vault::page::DirRef;
use crate::vault::run::{Landed, LandedRun, Landing, RunLanding};
use crate::vault::version::{full_root_of, root_of};
use crate::vault::{Batch, Vault, VaultError, require_version};

use super::apply::{ApplyOptions, Filter, Subject, apply};
use super::change_summary::{ChangeSummary, Shown};
use super::error::ExecuteError;
use super::journal;
use super::launcher::{Completion, Exit, Launcher};
use super::mount_session::{MountSession, SessionError};
use super::proxy::{Ended, Ground, Outcome, ProxyRuntime, Run};
use super::request::{CheckpointMode, ForkChoice, Retention, Writing};
use super::result::{Backend, BaseUsed, Enforcement, ExecutionResult, Phases};
use super::room::Scratch;
use super::session_record::SessionOutcome;
use crate::vault::layers::{Footprint, Made};

/// Characters of a command in the message of its version.
const MESSAGE_CHARS: usize = 200;

/// The version a run's changes are changes of.
pub(super) struct Before {
    version: VersionId,
    root: DirRef,
}

/// What was captured and where it went.
struct Kept {
    landed: LandedRun,
    changes: ChangeSummary,
    left_out: Vec<LeftOut>,
}

impl<L: Launcher> ProxyRuntime<'_, L> {
    pub(super) fn conclude(
        &self,
        mut run: Run<'_>,
        session: MountSession,
        mut ended: Ended<'_>,
    ) -> Outcome<ExecutionResult, L> {
        let imported = ended.imported.take();
        let kept = self
            .before(&mut run, ended.ground, imported)
            .and_then(|before| self.keep(&mut run, &session, &ended, before));
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => return Err(self.give_to_recovery(&run, session, &ended.completion, error)),
        };
        self.note_room(&mut run, &ended);
        session.captured()?;
        let LandedRun { landed, record, checkpoint_before, checkpoint_after } = kept.landed;
        let applied = self.apply_if_asked(&mut run, &ended.completion, &record, &landed)?;
        let Completion { exit, timed_out, stdout, stderr, usage, .. } = ended.completion;
        let environment = &run.request.environment;
        let scrub = |mut output: super::launcher::Output| {
            output.bytes = match output.truncated {
                true => environment.scrub_cut(output.bytes),
                false => environment.scrub(output.bytes),
            };
            output
        };
        Ok(ExecutionResult {
            fork: landed.version().map(|_| record.fork.clone()),
            version_before: record.version_before,
            version_after: record.version_after,
            checkpoint_before,
            checkpoint_after,
            exit,
            timed_out,
            started_at: run.started_at,
            duration: run.begun.elapsed(),
            stdout: scrub(stdout),
            stderr: scrub(stderr),
            changes: kept.changes,
            left_out: kept.left_out,
            landed,
            applied,
            usage,
            phases: run.phases,
            enforcement: enforcement(&run, ended.ground, ended.room),
            notes: run.notes,
            run_id: run.id,
        })
    }

    /// The version the changes are changes of; nothing if there is none and none is needed.
    fn before(
        &self,
        run: &mut Run<'_>,
        ground: &Ground,
        imported: Option<crate::vault::Result<Imported>>,
    ) -> crate::vault::Result<Option<Before>> {
        match (ground, imported) {
            (Ground::Live(_), None) => Ok(None),
            (Ground::Live(_), Some(imported)) => {
                let imported = imported?;
                run.note_import(&imported);
                let version = imported.committed.version;
                let root = full_root_of(&*self.site.vault.read()?, &version)?;
                Ok(Some(Before { version: version.id, root }))
            }
            (Ground::Stacked { version, root, .. } | Ground::Copied { version, root }, _) => {
                Ok(Some(Before { version: version.id, root: *root }))
            }
        }
    }

    /// Captures and journals, in one transaction.
    fn keep(
        &self,
        run: &mut Run<'_>,
        session: &MountSession,
        ended: &Ended<'_>,
        before: Option<Before>,
    ) -> crate::vault::Result<Kept> {
        let (vault, request) = (self.site.vault, run.request);
        let begun = Instant::now();
        let wanted = request.retention != Retention::Discard && request.writing == Writing::Allowed;
        let modes_journal = session.modes_journal();
        let captured = match &before {
            Some(before) if wanted => {
                let upper = self.open_upper(session, ended)?;
                if ended.completion.memory.is_none() {
                    self.outcome(&ended.completion, Some(before.version))
                        .write(session, &run.id)
                        .map_err(as_input)?;
                }
                let options = CaptureOptions {
                    kind: match ended.ground {
                        Ground::Copied { .. } => UpperKind::Whole,
                        Ground::Live(_) | Ground::Stacked { .. } => UpperKind::Layer,
                    },
                    exclude: &self.site.exclude,
                    hidden: &ended.hidden,
                    file_bytes_max: FILE_BYTES_MAX,
                    modes_journal: &modes_journal,
                    meter: self.site.meter,
                };
                Some(vault.capture(upper.as_fd(), &before.root, &options)?)
            }
            Some(_) | None => None,
        };
        run.phases.capture = begun.elapsed();
        let committing = Instant::now();
        // A vault that was moved away would take the changes with it without anybody noticing.
        ended.identity.check(vault)?;
        let none = Edits::new();
        let bytes_written = captured.as_ref().map_or(0, |captured| captured.bytes_read);
        let entries = captured.as_ref().map_or(0, |captured| captured.edits.len() as u64);
        let size = Footprint { entries, bytes: bytes_written };
        let record = self.record(run, ended, before.as_ref(), bytes_written);
        let (landed, left_out) = match captured {
            Some(captured) => {
                let left_out = captured.left_out.clone();
                let landing = self.landing(run, &captured.edits, before.as_ref());
                (
                    vault
                        .land_run(self.run_landing(run, landing, &captured.edits, record), captured.batch)?,
                    left_out,
                )
            }
            None => {
                let landing = self.run_landing(run, Landing::RecordOnly, &none, record);
                (vault.land_run(landing, Batch::new(vault)?)?, Vec::new())
            }
        };
        run.phases.commit = committing.elapsed();
        let changes = self.changes(before.as_ref(), &landed)?;
        self.note_landing(run, &landed);
        if let (Some(before), true) = (&before, landed.landed.version().is_some()) {
            self.look_at_host(run, ended.ground, before)?;
            self.keep_layer(session, ended, &landed, &left_out, size)?;
        }
        Ok(Kept { landed, changes, left_out })
    }

    fn open_upper(&self, session: &MountSession, ended: &Ended<'_>) -> crate::vault::Result<OwnedFd> {
        let opened = match ended.ground {
            Ground::Copied { .. } => session.open_copy(),
            Ground::Live(_) | Ground::Stacked { .. } => session.open_upper(ended.completion.memory.as_ref()),
        };
        opened.map_err(as_input)
    }

    fn landing<'l>(&self, run: &'l Run<'_>, edits: &Edits, before: Option<&Before>) -> Landing<'l> {
        let Some(before) = before.filter(|_| !edits.is_empty()) else { return Landing::RecordOnly };
        let base = before.version;
        match &run.request.fork {
            ForkChoice::Persistent { .. } => Landing::Fork { name: &run.fork, base },
            ForkChoice::Ephemeral => {
                let expires_at = self.site.vault.now().plus_seconds(self.site.expires_seconds);
                Landing::NewFork {
                    name: &run.fork,
                    base,
                    parent: &run.parent,
                    life: Life::Ephemeral { expires_at },
                }
            }
        }
    }

    fn run_landing<'l>(
        &self,
        run: &'l Run<'_>,
        landing: Landing<'l>,
        edits: &'l Edits,
        record: RunRecord,
    ) -> RunLanding<'l> {
        let persistent = matches!(run.request.fork, ForkChoice::Persistent { .. });
        let (before, after) = match run.request.checkpoint {
            CheckpointMode::Always => (true, true),
            CheckpointMode::Auto => (false, persistent),
            CheckpointMode::Never => (false, false),
        };
        RunLanding {
            landing,
            edits,
            message: &run.message,
            checkpoint_before: before.then(|| CheckpointName::of_run("before", &run.id)),
            checkpoint_after: after.then(|| CheckpointName::of_run("run", &run.id)),
            record,
        }
    }

    fn record(
        &self,
        run: &Run<'_>,
        ended: &Ended<'_>,
        before: Option<&Before>,
        bytes_written: u64,
    ) -> RunRecord {
        let (exit_code, signal) = match ended.completion.exit {
            Exit::Code(code) => (Some(i32::from(code)), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        RunRecord {
            seq: 0,
            id: run.id.clone(),
            fork: run.fork.clone(),
            state: RunState::Completed,
            version_before: before.map(|before| before.version),
            version_after: None,
            started_at: run.started_at,
            ended_at: Some(self.site.vault.now()),
            exit_code,
            signal,
            applied_at: None,
            discarded_at: None,
            request: journal::request(run.request, self.site.vault.path()),
            decision: journal::decision(run.decision),
            result: journal::result(&ended.completion, &run.phases, bytes_written),
        }
    }

    /// What changed, as people are told.
    fn changes(&self, before: Option<&Before>, landed: &LandedRun) -> crate::vault::Result<ChangeSummary> {
        let (Some(before), Some(version)) = (before, landed.landed.version()) else {
            return Ok(ChangeSummary::default());
        };
        let reader = self.site.vault.read()?;
        let root = |id: &VersionId| root_of(&require_version(&*reader, id)?);
        let from = match &landed.landed {
            // What others changed meanwhile is not this run's doing.
            Landed::Rebased { onto, .. } => root(onto)?,
            Landed::Nothing | Landed::Advanced { .. } | Landed::Diverted { .. } => before.root,
        };
        ChangeSummary::compare(&&*reader, &from, &root(&version)?, &[], Shown::WithoutTimes)
    }

    fn note_landing(&self, run: &mut Run<'_>, landed: &LandedRun) {
        match &landed.landed {
            Landed::Nothing | Landed::Advanced { .. } => {}
            Landed::Rebased { .. } => run.note(
                "fork.rebased",
                format!("fork {} had moved meanwhile; the changes were made of its new head", run.fork),
            ),
            Landed::Diverted { fork, paths, .. } => {
                let why = match paths.first() {
                    Some(path) => format!("others changed {path} too"),
                    None => format!("fork {} was deleted", run.fork),
                };
                run.note("fork.diverted", format!("{why}: the changes are on fork {fork}"));
            }
        }
    }

    /// The host's directory lay beneath the command: if somebody changed it, what the command saw is not
    /// quite what the version says.
    fn look_at_host(&self, run: &mut Run<'_>, ground: &Ground, before: &Before) -> crate::vault::Result<()> {
        let Ground::Live(dir) = ground else { return Ok(()) };
        let options = ImportOptions {
            on_trouble: OnTrouble::KeepGoing,
            stat_cache: self.site.stat_cache.as_deref(),
            meter: self.site.meter,
        };
        let (root, _, _) = self.site.vault.survey(dir, &options)?;
        if root.tree != before.root.tree {
            run.note(
                "host.changed",
                format!(
                    "{} was changed by others during the run; look at the changes with care",
                    dir.display()
                ),
            );
        }
        Ok(())
    }

    /// What was written becomes the topmost layer for the next run on the fork.
    fn keep_layer(
        &self,
        session: &MountSession,
        ended: &Ended<'_>,
        landed: &LandedRun,
        left_out: &[LeftOut],
        size: Footprint,
    ) -> crate::vault::Result<()> {
        let (Ground::Stacked { stack, .. }, Landed::Advanced { version }) = (ended.ground, &landed.landed)
        else {
            return Ok(());
        };
        let site = self.site;
        let root = {
            let reader = site.vault.read()?;
            full_root_of(&*reader, &require_version(&*reader, version)?)?
        };
        match ended.completion.memory {
            None => site.layers.keep_upper(stack, &session.upper_dir(), left_out, size, &root).map(drop),
            // Memory goes with the run: the layer is written from what the vault has now.
            Some(_) => site.vault.stack(&root, &site.layers, site.meter).map(drop),
        }
    }

    /// A scratch that is full is told as such: the command has only seen "no space left on device".
    fn note_room(&self, run: &mut Run<'_>, ended: &Ended<'_>) {
        let full = |fs: rustix::fs::StatVfs| fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0);
        match (&ended.completion.memory, ended.room) {
            (Some(memory), Scratch::Memory { size_bytes, .. }) => {
                if rustix::fs::fstatvfs(memory).is_ok_and(full) {
                    let size = super::units::show_bytes_size(size_bytes);
                    run.note(
                        "scratch.full",
                        format!("the scratch in memory ({size}) was full; run it again with: --scratch disk"),
                    );
                }
            }
            (None, _) | (Some(_), Scratch::Disk) => {
                if rustix::fs::statvfs(self.site.cache_dir.as_path()).is_ok_and(full) {
                    let dir = self.site.cache_dir.display();
                    run.note("scratch.full", format!("the file system of {dir} is full; free some space"));
                }
            }
        }
    }

    /// The number of paths that were written to the host's directory, if that was asked for.
    fn apply_if_asked(
        &self,
        run: &mut Run<'_>,
        completion: &Completion,
        record: &RunRecord,
        landed: &Landed,
    ) -> Outcome<Option<u64>, L> {
        let Some(dir) = self.site.bound.as_deref().filter(|_| run.request.retention == Retention::Apply)
        else {
            return Ok(None);
        };
        if landed.version().is_none() {
            return Ok(None);
        }
        if completion.exit != Exit::Code(0) || completion.timed_out {
            run.note(
                "apply.skipped",
                "the command failed, so nothing was written to the directory".to_owned(),
            );
            return Ok(None);
        }
        let not_applied =
            |source| ExecuteError::NotApplied { id: record.id.clone(), source: Box::new(source) };
        let subject = {
            let reader = self.site.vault.read()?;
            Subject::of_run(&*reader, record)?
        };
        let options = ApplyOptions { filter: &Filter::default(), trial: Trial::Real, meter: self.site.meter };
        let applied = apply(self.site.vault, &subject, dir, &options).map_err(not_applied)?;
        for dir in &applied.kept_dirs {
            run.note(
                "apply.kept_dir",
                format!("{dir} was not removed: it holds files that are not versioned"),
            );
        }
        Ok(Some(applied.changes.len() as u64 - applied.already))
    }

    fn outcome(&self, completion: &Completion, version_before: Option<VersionId>) -> SessionOutcome {
        let (exit_code, signal) = match completion.exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        SessionOutcome {
            exit_code,
            signal,
            ended_at: self.site.vault.now().0,
            version_before: version_before.map(|version| version.to_hex()),
            result: journal::result(completion, &Phases::default(), 0),
        }
    }

    /// The changes cannot be kept now; whoever calls `avfs recover` keeps them later.
    fn give_to_recovery(
        &self,
        run: &Run<'_>,
        session: MountSession,
        completion: &Completion,
        source: VaultError,
    ) -> ExecuteError<L::Error> {
        let dir = session.dir().to_owned();
        let saved = match &completion.memory {
            Some(memory) => session.spill(memory),
            None => Ok(()),
        };
        let saved = saved.and_then(|()| match session.read_outcome()? {
            Some(_) => Ok(()),
            None => self.outcome(completion, None).write(&session, &run.id),
        });
        let (id, source) = (run.id.clone(), Box::new(source));
        match saved.and_then(|()| session.keep()) {
            Ok(_) => ExecuteError::CaptureFailed { id, dir, exit: completion.exit, source },
            Err(lost) => ExecuteError::CaptureLost { id, lost: Box::new(lost), source },
        }
    }
}

fn enforcement(run: &Run<'_>, ground: &Ground, room: Scratch) -> Enforcement {
    let (backend, base) = match ground {
        Ground::Live(_) => (Backend::Overlay, BaseUsed::Live),
        Ground::Stacked { stack, .. } => (
            Backend::Overlay,
            match stack.made {
                Made::Reused => BaseUsed::Reused,
                Made::Layered => BaseUsed::Layered,
                Made::Materialized => BaseUsed::Materialized,
            },
        ),
        Ground::Copied { .. } => (Backend::Copy, BaseUsed::Materialized),
    };
    Enforcement { backend, base, net: run.request.net, scratch: room, degraded: run.degraded.clone() }
}

/// The file a vault was opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VaultIdentity(Option<(u64, u64)>);

impl VaultIdentity {
    pub fn of(vault: &Vault) -> Self {
        Self(vault.path().and_then(file_at))
    }

    /// Fails unless the path still names that file.
    fn check(self, vault: &Vault) -> crate::vault::Result<()> {
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

/// One line about a command, for the version it makes.
pub(super) fn message(command: &str) -> String {
    let mut message: String = command.chars().take(MESSAGE_CHARS).collect();
    if message.len() < command.len() {
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_cut() {
        assert_eq!(message("make test"), "make test");
        let long = message(&"x".repeat(500));
        assert_eq!(long.chars().count(), MESSAGE_CHARS + 1);
    }
}
