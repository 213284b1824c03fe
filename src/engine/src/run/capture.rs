//! Capture: the version that the changes are relative to, and the upper as a tree over it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use avfs_changes::places_of_host;
use avfs_request::{FixedClock, SecretsInFiles};
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::VersionId;
use avfs_types::secrets::Secrets;
use avfs_vault::capture::{CaptureOptions, Captured as CapturedUpper, Times};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::import::{Imported, TouchedBase, TouchedOptions};
use avfs_vault::page::DirRef;
use avfs_vault::version::full_root_of;
use avfs_vault::{VaultError, transfer};

use super::admit::wants_version;
use super::effective::Effective;
use super::execute::Ended;
use super::left_behind::{Unkept, outcome};
use super::notes::{
    note_foreign_files, note_import, note_left_running, note_limits, note_links, note_room, note_worktree,
};
use super::result::Notes;
use super::site::Site;
use super::state::{ProxyExecutionState, Stage, enter_in};
use super::withheld;
use crate::mount_session::SessionError;
use crate::run_base::RunBase;
use crate::workspace_service::{BASE_LARGE, IMPORT_LARGE};

/// The maximum lag of the kernel's file times behind its clock: one tick at the lowest tick rate.
const CLOCK_TICK_NANOS: i64 = 10_000_000;

/// The version that a run's changes are relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub version: VersionId,
    pub root: DirRef,
}

/// The changes of a command, not yet in the vault.
pub(crate) struct Captured<'v> {
    /// `None` if there is no version and none is needed.
    pub before: Option<Before>,
    /// The upper and its tree; `None` if the changes are not wanted, or the command touched nothing.
    pub upper: Option<(CapturedUpper<'v>, OwnedFd)>,
    /// True if the import beside the command found a file that changed after the launch.
    pub scan_met_change: bool,
    pub capturing: Duration,
}

impl Stage for Captured<'_> {
    const STATE: ProxyExecutionState = ProxyExecutionState::Capturing;
}

/// Reads the changes of an ended command.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn capture<'v>(
    site: &Site<'v>,
    effective: &Effective<'_>,
    ended: &mut Ended<'_>,
    notes: &mut Notes,
) -> Result<Captured<'v>, Unkept> {
    enter_in::<Ended<'_>, Captured<'_>>(&ended.prepared.session);
    let request = &effective.run.request;
    let imported = ended.imported.take();
    let scan_met_change =
        matches!(&imported, Some(Ok(imported)) if imported.scanned.changed_at > ended.launched_at);
    // A live base was imported beside the command, which may have used the terminal.
    site.meter.announce_if_due();
    if let Some(lines) = site.meter.announced().filter(|_| !notes.has(BASE_LARGE)) {
        notes.add(IMPORT_LARGE, lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("; "));
    }
    let before = before(site, effective, ended, imported, notes);
    note_room(site, request, ended, notes);
    note_limits(request, &ended.completion, notes);
    note_worktree(site.bound.as_deref(), effective, &ended.completion, notes);
    note_left_running(&ended.completion, notes);
    withheld::note_of_programs(site, request, notes);
    let before = before.map_err(Unkept::new(None))?;
    let begun = Instant::now();
    let upper = match before {
        Some(before) if wants_version(request) => {
            Some(read_upper(site, effective, ended, before).map_err(Unkept::new(Some(before.version)))?)
        }
        Some(_) | None => None,
    };
    if let Some((captured, _)) = &upper {
        for path in &captured.bad_ignore_files {
            notes.add("ignore.bad_line", format!("{path} has invalid patterns, which were ignored"));
        }
        note_links(&captured.written_links, notes);
    }
    Ok(Captured { before, upper, scan_met_change, capturing: begun.elapsed() })
}

/// The version that the changes are relative to; `None` if there is no version and none is needed.
#[tracing::instrument(level = "debug", skip_all)]
fn before(
    site: &Site<'_>,
    effective: &Effective<'_>,
    ended: &Ended<'_>,
    imported: Option<transfer::Result<Imported>>,
    notes: &mut Notes,
) -> transfer::Result<Option<Before>> {
    let request = &effective.run.request;
    match (&ended.base, imported) {
        (RunBase::Touched(_), _) if !wants_version(request) => Ok(None),
        (RunBase::Touched(_), _) => before_touched(site, ended, notes),
        (RunBase::Live(_), None) => Ok(None),
        (RunBase::Live(_), Some(imported)) => {
            let imported = imported?;
            note_import(&imported.scanned, notes);
            if imported.scanned.foreign.is_any() {
                note_foreign_files(request, notes);
            }
            let version = imported.committed.version;
            let root = full_root_of(&*site.vault.read()?, &version)?;
            Ok(Some(Before { version: version.id, root }))
        }
        (RunBase::Stacked { .. } | RunBase::Copied { .. }, _) => Ok(ended.base.version()),
    }
}

/// The state, before the run, of the paths that it touched; `None` if it touched no path.
fn before_touched(site: &Site<'_>, ended: &Ended<'_>, notes: &mut Notes) -> transfer::Result<Option<Before>> {
    let RunBase::Touched(dir) = &ended.base else { return Ok(None) };
    let session = &ended.prepared.session;
    // A recovery could not find the version in a vault that was moved.
    ended.prepared.identity.check(site.vault)?;
    let upper = open_upper(ended)?;
    let modes_journal = session.modes_journal();
    let links_at = places_of_host();
    let options = TouchedOptions {
        links_at: &links_at,
        exclude: &site.exclude,
        hidden: &ended.prepared.hidden,
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
    note_import(&scanned, notes);
    Ok(Some(Before { version: version.id, root }))
}

#[tracing::instrument(level = "debug", skip_all)]
fn read_upper<'v>(
    site: &Site<'v>,
    effective: &Effective<'_>,
    ended: &Ended<'_>,
    before: Before,
) -> transfer::Result<(CapturedUpper<'v>, OwnedFd)> {
    let (run, session) = (&effective.run, &ended.prepared.session);
    let upper = open_upper(ended)?;
    // Changes in memory end with this process.
    if ended.upper.memory().is_none() {
        let outcome = outcome(site, run, &ended.completion, Some(before.version));
        outcome.write(session, &run.id).map_err(as_input)?;
    }
    let modes_journal = session.modes_journal();
    let secrets = match run.request.secrets_in_files {
        SecretsInFiles::Refused => run.request.secrets(),
        SecretsInFiles::Allowed => Secrets::default(),
    };
    let options = CaptureOptions {
        kind: ended.base.upper_kind(),
        exclude: &site.exclude,
        hidden: &ended.prepared.hidden,
        file_bytes_max: FILE_BYTES_MAX,
        secrets: &secrets,
        times: times(run.request.clock, run.started_at),
        since: ended.launched_at,
        renamed: &ended.completion.names_renamed,
        modes_journal: &modes_journal,
        meter: site.meter,
    };
    Ok((site.vault.capture(upper.as_fd(), &before.root, &options)?, upper))
}

fn open_upper(ended: &Ended<'_>) -> transfer::Result<OwnedFd> {
    let session = &ended.prepared.session;
    let opened = match &ended.base {
        RunBase::Copied { .. } => session.open_copy(),
        RunBase::Live(_) | RunBase::Touched(_) | RunBase::Stacked { .. } => {
            session.open_upper(ended.upper.memory())
        }
    };
    Ok(opened.map_err(as_input)?)
}

fn as_input(error: SessionError) -> VaultError {
    VaultError::Input(std::io::Error::other(error))
}

/// The times of files written by a run that started at `started_at`.
pub(crate) fn times(clock: Option<FixedClock>, started_at: Timestamp) -> Times {
    match clock {
        Some(clock) => Times::Fixed { since: earliest_time(started_at), to: clock.time() },
        None => Times::AsWritten,
    }
}

/// The earliest time that the kernel gives to files written by a run that started at `started_at`.
pub(crate) fn earliest_time(started_at: Timestamp) -> FileTime {
    FileTime::from_nanos(started_at.0.saturating_sub(CLOCK_TICK_NANOS))
}
