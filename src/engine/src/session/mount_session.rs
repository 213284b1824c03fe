//! The scratch of one run: created, mounted, released, and then captured, discarded or kept for a recovery.
//!
//! ```text
//! CACHE/run/ID/           locked by the run while it is alive
//! CACHE/run/ID/record     the state of the run, and the data to finish it without its process
//! CACHE/run/ID/outcome    how the command ended: once it exists, the run can be recovered
//! CACHE/run/ID/upper      the files the command wrote, unless they are in memory
//! CACHE/run/ID/work       used by overlayfs
//! CACHE/run/ID/veil       hides unversioned files of the host directory from a run on a fork
//! CACHE/mnt               an empty directory on which every run mounts its root
//! ```
//!
//! No other module removes or renames its contents. Never changes the workspace.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode as FileMode, OFlags, Timespec, Timestamps, UTIME_NOW};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::remove::remove_tree;
use avfs_hostfs::stat::file_clock;
use avfs_hostfs::{beneath, copy, make, overlay, xattr};
use avfs_types::clock::FileTime;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{DIGEST_BYTES, RunId, VersionId};
use avfs_types::pause;
use avfs_vault::capture::{UpperKind, open_closed_root, open_for_copying};

use crate::launcher::{UpperPlace, UpperRoot};

/// A line with the state of the run, followed by the data for a recovery.
pub(crate) const RECORD: &str = "record";
pub(crate) const OUTCOME: &str = "outcome";
/// The temporary name of the outcome. The file exists from the start, so that there is room for the outcome
/// even if the command fills the disk.
const OUTCOME_UNFINISHED: &str = "outcome.new";
const OUTCOME_RESERVED_BYTES: usize = 4096;
/// Long enough for the longest state.
const STATE_BYTES: usize = 16;
const BASE_BYTES: usize = 2 * DIGEST_BYTES;
const MAKING_TRIES_MAX: usize = 5000;
pub const UPPER: &str = "upper";
const WORK: &str = "work";
const COPY: &str = "copy";
const VEIL: &str = "veil";
/// The file in which a capture records the modes it changed to read files.
const MODES: &str = "modes";

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("cannot {operation} {}", path.display())]
    Host {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("a mount session cannot change from {from:?} to {to:?}")]
    State { from: MountState, to: MountState },
    #[error("cannot read the record of run {id}: {reason}")]
    BadRecord { id: String, reason: String },
}

impl SessionError {
    pub(crate) fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Host { operation, path, source }
    }
}

impl Diagnose for SessionError {
    fn code(&self) -> &'static str {
        match self {
            Self::Host { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "scratch.disk_full"
            }
            Self::Host { .. } => "scratch.io",
            Self::State { .. } => "scratch.state",
            Self::BadRecord { .. } => "scratch.bad_record",
        }
    }
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountState {
    /// The scratch exists; nothing is mounted.
    Prepared,
    /// The sandbox uses it; no other process accesses it.
    Mounted,
    /// All processes in the sandbox have exited: the upper no longer changes.
    Released,
    /// Its changes are in the vault.
    Captured,
    /// Its changes are dropped.
    Discarded,
    /// It is left for a recovery.
    Kept,
}

impl MountState {
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Prepared, Self::Mounted | Self::Discarded)
            | (Self::Mounted, Self::Released)
            | (Self::Released, Self::Captured | Self::Discarded | Self::Kept) => true,
            (
                Self::Prepared
                | Self::Mounted
                | Self::Released
                | Self::Captured
                | Self::Discarded
                | Self::Kept,
                Self::Prepared
                | Self::Mounted
                | Self::Released
                | Self::Captured
                | Self::Discarded
                | Self::Kept,
            ) => false,
        }
    }
}

/// The directory that contains all scratches of a user.
#[derive(Clone, Debug)]
pub struct ScratchDir {
    cache: PathBuf,
}

impl ScratchDir {
    #[must_use]
    pub fn new(cache_dir: &Path) -> Self {
        Self { cache: cache_dir.to_owned() }
    }

    fn runs(&self) -> PathBuf {
        self.cache.join("run")
    }

    /// The empty directory on which roots are mounted.
    pub fn mountpoint(&self) -> Result<PathBuf, SessionError> {
        let path = self.cache.join("mnt");
        make_private(&path)?;
        Ok(path)
    }

    /// Creates a scratch for a run.
    pub fn prepare(&self, id: &RunId) -> Result<MountSession, SessionError> {
        let runs = self.runs();
        make_private(&runs)?;
        let dir = runs.join(id.as_str());
        let lock = make_locked(&dir)?;
        pause::point("session-Made");
        forget_lists(&dir).map_err(SessionError::host("prepare", &dir))?;
        let record = dir.join(RECORD);
        let record = File::create(&record).map_err(SessionError::host("create", &record))?;
        pause::point("session-Prepared");
        Ok(MountSession { dir, state: MountState::Prepared, record: Some(record), _lock: Some(lock) })
    }

    /// All existing scratches.
    pub fn dirs(&self) -> Result<Vec<PathBuf>, SessionError> {
        let runs = self.runs();
        match std::fs::read_dir(&runs) {
            Ok(listing) => Ok(listing.flatten().map(|entry| entry.path()).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(SessionError::host("list", &runs)(error)),
        }
    }

    /// Scratches of dead runs, each locked by the caller.
    pub fn dead(&self) -> Result<Vec<(String, MountSession)>, SessionError> {
        let mut dead = Vec::new();
        for dir in self.dirs()? {
            let Some(name) = dir.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
                continue;
            };
            // Another process may already be sweeping it.
            if let Ok(Some(lock)) = FileLock::try_existing(&dir, Mode::Exclusive) {
                let state = MountState::Released;
                dead.push((name, MountSession { dir, state, record: None, _lock: Some(lock) }));
            }
        }
        dead.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(dead)
    }
}

/// A fixed-length line, so that a new state can overwrite the old one.
fn state_line(word: &str) -> String {
    format!("{word:<STATE_BYTES$}\n")
}

/// A line with room for a version id, which becomes known later.
fn base_line(id: &str) -> String {
    format!("{id:<BASE_BYTES$}\n")
}

/// The contents of the record file: a line for the state, one for the base, and the data for a recovery.
pub(crate) struct Written {
    /// The state of the run.
    pub state: String,
    /// The version that its changes are relative to, in hexadecimal; empty while unknown.
    pub base: String,
    pub record: String,
}

pub(crate) fn read_record_in(dir: &Path) -> Result<Written, SessionError> {
    let path = dir.join(RECORD);
    let text = std::fs::read_to_string(&path).map_err(SessionError::host("read", &path))?;
    let (state, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let (base, record) = rest.split_once('\n').unwrap_or(("", rest));
    Ok(Written {
        state: state.trim_end().to_owned(),
        base: base.trim_end().to_owned(),
        record: record.to_owned(),
    })
}

fn make_private(path: &Path) -> Result<(), SessionError> {
    if path.is_dir() {
        return Ok(());
    }
    make::private_dirs(path).map_err(SessionError::host("create", path))
}

/// Creates a directory and locks it. Before it is locked, a sweep may remove it as the scratch of a dead run;
/// then it is created again.
fn make_locked(dir: &Path) -> Result<FileLock, SessionError> {
    for _ in 0..MAKING_TRIES_MAX {
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(SessionError::host("create", dir)(error));
            }
            Ok(()) | Err(_) => {}
        }
        match FileLock::try_existing(dir, Mode::Exclusive).map_err(SessionError::host("lock", dir))? {
            Some(lock) => return Ok(lock),
            None => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    Err(SessionError::host("lock", dir)(std::io::ErrorKind::WouldBlock.into()))
}

/// The scratch of one run. Dropping it only releases the lock; the contents stay.
#[derive(Debug)]
pub struct MountSession {
    dir: PathBuf,
    state: MountState,
    /// The file in which the run's own process records its state.
    record: Option<File>,
    _lock: Option<FileLock>,
}

impl MountSession {
    #[must_use]
    pub fn state(&self) -> MountState {
        self.state
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    #[must_use]
    pub fn upper_dir(&self) -> PathBuf {
        self.dir.join(UPPER)
    }

    #[must_use]
    pub fn copy_dir(&self) -> PathBuf {
        self.dir.join(COPY)
    }

    #[must_use]
    pub fn veil_dir(&self) -> PathBuf {
        self.dir.join(VEIL)
    }

    #[must_use]
    pub fn modes_journal(&self) -> PathBuf {
        self.dir.join(MODES)
    }

    fn become_next(&mut self, next: MountState) -> Result<(), SessionError> {
        if !self.state.may_become(next) {
            return Err(SessionError::State { from: self.state, to: next });
        }
        self.state = next;
        pause::point(format_args!("session-{next:?}"));
        Ok(())
    }

    /// Reserves disk space for the outcome: the command may fill the disk.
    pub fn reserve_outcome(&self) -> Result<(), SessionError> {
        let reserved = self.dir.join(OUTCOME_UNFINISHED);
        std::fs::write(&reserved, [0; OUTCOME_RESERVED_BYTES]).map_err(SessionError::host("write", &reserved))
    }

    /// An upper on disk with the metadata of the workspace directory.
    pub fn disk_upper(&self, root: &UpperRoot) -> Result<UpperPlace, SessionError> {
        self.reserve_outcome()?;
        let (upper, work) = (self.upper_dir(), self.dir.join(WORK));
        for dir in [&work, &upper] {
            let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
            made.map_err(SessionError::host("create", dir))?;
        }
        dress(&upper, root).map_err(SessionError::host("prepare", &upper))?;
        Ok(UpperPlace::Disk { dir: self.dir.clone() })
    }

    /// Writes the data for a recovery, before anything runs.
    pub fn write_record(&self, record: &str) -> Result<(), SessionError> {
        let Some(file) = &self.record else { return Ok(()) };
        let text = format!("{}{}{record}", state_line(""), base_line(""));
        file.write_all_at(text.as_bytes(), 0).map_err(SessionError::host("write", &self.dir.join(RECORD)))
    }

    pub fn read_record(&self) -> Result<String, SessionError> {
        Ok(read_record_in(&self.dir)?.record)
    }

    /// Records the version that the run uses: while it is in the scratch, gc does not remove it.
    pub fn note_base(&self, version: &VersionId) -> Result<(), SessionError> {
        let Some(file) = &self.record else { return Ok(()) };
        let line = base_line(&version.to_hex());
        let at = state_line("").len() as u64;
        file.write_all_at(line.as_bytes(), at).map_err(SessionError::host("write", &self.dir.join(RECORD)))
    }

    /// Records the state of the run.
    pub fn note_state(&self, word: &str) -> Result<(), SessionError> {
        let Some(file) = &self.record else { return Ok(()) };
        let line = state_line(word);
        file.write_all_at(line.as_bytes(), 0).map_err(SessionError::host("write", &self.dir.join(RECORD)))
    }

    /// The present in the clock of file times: files changed before this call have this ctime or an earlier one.
    ///
    /// Since Linux 6.13 file times can be ahead of `file_clock`, so the time is taken from a file that is changed now.
    #[must_use]
    pub fn file_time(&self) -> FileTime {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let touched = self.record.as_ref().and_then(|file| {
            rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now }).ok()?;
            beneath::fstat(file.as_fd()).ok()
        });
        touched.map_or_else(file_clock, |stat| stat.ctime)
    }

    /// Records how the command ended: from here on the upper is complete and can be recovered.
    pub fn write_outcome(&self, outcome: &str) -> Result<(), SessionError> {
        let (path, unfinished) = (self.dir.join(OUTCOME), self.dir.join(OUTCOME_UNFINISHED));
        overwrite(&unfinished, outcome.as_bytes()).map_err(SessionError::host("write", &unfinished))?;
        pause::point("outcome");
        std::fs::rename(&unfinished, &path).map_err(SessionError::host("write", &path))
    }

    /// How the command ended; `None` if the run ended before the command did.
    pub fn read_outcome(&self) -> Result<Option<String>, SessionError> {
        let path = self.dir.join(OUTCOME);
        match std::fs::read(&path) {
            Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SessionError::host("read", &path)(error)),
        }
    }

    pub fn mounted(&mut self) -> Result<(), SessionError> {
        self.become_next(MountState::Mounted)
    }

    /// Marks the session as released, after all processes in the sandbox have exited.
    pub fn released(&mut self) -> Result<(), SessionError> {
        self.become_next(MountState::Released)
    }

    /// Opens the upper of a released session.
    pub fn open_upper(&self, memory: Option<&OwnedFd>) -> Result<OwnedFd, SessionError> {
        match memory {
            Some(memory) => self.open_workspace(memory, UPPER),
            None => beneath::open_root(&self.dir).and_then(|dir| self.open_workspace(&dir, UPPER)),
        }
        .map_err(SessionError::host("open", &self.upper_dir()))
    }

    /// Opens the copy that the command changed.
    pub fn open_copy(&self) -> Result<OwnedFd, SessionError> {
        let opened = beneath::open_root(&self.dir).and_then(|dir| self.open_workspace(&dir, COPY));
        opened.map_err(SessionError::host("open", &self.copy_dir()))
    }

    /// Opens the former workspace directory, even if the command removed its permissions.
    fn open_workspace(&self, parent: &OwnedFd, name: &str) -> std::io::Result<OwnedFd> {
        let open = |flags| beneath::open(parent.as_fd(), name.as_bytes(), flags);
        match open(beneath::DIR) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let closed = open(OFlags::PATH)?;
                open_closed_root(closed.as_fd(), &self.modes_journal()).map_err(std::io::Error::other)?;
                open(beneath::DIR)
            }
            other => other,
        }
    }

    /// Opens the changes that a dead run left.
    pub fn open_changes(&self) -> Result<(OwnedFd, UpperKind), SessionError> {
        if self.copy_dir().is_dir() {
            return Ok((self.open_copy()?, UpperKind::Whole));
        }
        Ok((self.open_upper(None)?, UpperKind::Layer))
    }

    /// Copies an upper from memory to disk, for a recovery: memory does not outlive this process.
    pub fn spill(&self, memory: &OwnedFd) -> Result<(), SessionError> {
        let to = self.upper_dir();
        let upper = self.open_upper(Some(memory))?;
        open_for_copying(upper.as_fd(), &self.modes_journal())
            .map_err(|error| SessionError::host("copy to", &to)(std::io::Error::other(error)))?;
        let copied = std::fs::DirBuilder::new().mode(0o700).create(&to).and_then(|()| {
            let copy = beneath::open_root(&to)?;
            copy::layer(upper.as_fd(), copy.as_fd())
        });
        copied.map_err(SessionError::host("copy to", &to))
    }

    /// Removes the scratch, whose changes are in the vault.
    pub fn captured(mut self) -> Result<(), SessionError> {
        self.become_next(MountState::Captured)?;
        self.remove()
    }

    pub fn discard(mut self) -> Result<(), SessionError> {
        self.become_next(MountState::Discarded)?;
        self.remove()
    }

    /// Removes the files that the command of a dead run wrote; keeps the data needed to journal the run.
    pub(crate) fn strip(&self) -> Result<(), SessionError> {
        for entry in std::fs::read_dir(&self.dir).map_err(SessionError::host("list", &self.dir))? {
            let path = entry.map_err(SessionError::host("list", &self.dir))?.path();
            if path.ends_with(RECORD) {
                continue;
            }
            let is_dir = path.is_dir() && !path.is_symlink();
            let removed = if is_dir { remove_tree(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(SessionError::host("remove", &path))?;
        }
        Ok(())
    }

    /// Keeps everything for a recovery.
    pub fn keep(mut self) -> Result<PathBuf, SessionError> {
        self.become_next(MountState::Kept)?;
        Ok(self.dir.clone())
    }

    fn remove(&self) -> Result<(), SessionError> {
        remove_tree(&self.dir).map_err(SessionError::host("remove", &self.dir))
    }
}

/// Overwrites a file without releasing its disk space.
fn overwrite(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)
}

/// Removes ACLs that a new directory inherits from its parent: every file created in it would inherit them.
fn forget_lists(dir: &Path) -> std::io::Result<()> {
    for name in ["system.posix_acl_default", "system.posix_acl_access"] {
        match rustix::fs::removexattr(dir, name) {
            Ok(()) | Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Gives the root of an upper the metadata of the workspace directory.
fn dress(upper: &Path, root: &UpperRoot) -> std::io::Result<()> {
    let fd = beneath::open_root(upper)?;
    xattr::write(fd.as_fd(), &root.xattrs)?;
    for name in &root.whiteouts {
        overlay::whiteout(fd.as_fd(), name)?;
    }
    let file = File::from(fd);
    rustix::fs::fchmod(&file, FileMode::from_raw_mode(root.mode))?;
    let mtime = avfs_hostfs::stat::timespec(root.mtime);
    let times = rustix::fs::Timestamps { last_access: mtime, last_modification: mtime };
    Ok(rustix::fs::futimens(&file, &times)?)
}

#[cfg(test)]
mod tests {
    use super::MountState::*;
    use super::{MountState as State, *};

    #[test]
    fn run_is_captured_once() {
        const ALL: [State; 6] = [Prepared, Mounted, Released, Captured, Discarded, Kept];
        let allowed = [
            (Prepared, Mounted),
            (Prepared, Discarded),
            (Mounted, Released),
            (Released, Captured),
            (Released, Discarded),
            (Released, Kept),
        ];
        for from in ALL {
            for to in ALL {
                assert_eq!(from.may_become(to), allowed.contains(&(from, to)), "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn scratch_removed_by_a_sweep_during_creation_is_created_again() {
        use rustix::fs::inotify;
        let dir = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(dir.path());
        let id = RunId::parse("0123456789").unwrap();
        drop(scratch.prepare(&id).unwrap());
        let (_, swept) = scratch.dead().unwrap().pop().unwrap();
        let opened = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&opened, &swept.dir, inotify::WatchFlags::OPEN).unwrap();
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| scratch.prepare(&id).and_then(|made| made.discard()));
            // It opens the directory a second time after the sweep prevented the first lock.
            let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
            let mut events = inotify::Reader::new(&opened, &mut buffer);
            for _ in 0..2 {
                events.next().unwrap();
            }
            swept.discard().unwrap();
            maker.join().unwrap().unwrap();
        });
        assert!(scratch.dirs().unwrap().is_empty());
    }

    #[test]
    fn live_run_is_not_listed_as_dead() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(dir.path());
        let id = RunId::parse("0123456789").unwrap();
        let session = scratch.prepare(&id).unwrap();
        assert!(scratch.dead().unwrap().is_empty());
        assert_eq!(session.read_outcome().unwrap(), None);
        session.write_outcome("x").unwrap();
        drop(session);
        let dead = scratch.dead().unwrap();
        assert_eq!(dead[0].1.read_outcome().unwrap().as_deref(), Some("x"));
        assert_eq!(dead.len(), 1);
    }
}
