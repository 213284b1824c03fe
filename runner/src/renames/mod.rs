//! Lets a command rename directories of the lower layers.
//!
//! overlayfs refuses that (EXDEV), because it would have to copy the whole directory. The filter notifies the
//! supervisor of every rename before the kernel executes it. If a directory of a lower layer is renamed, a helper
//! first replaces it with a directory in the upper with the same entries; then, as for every other rename, the kernel
//! executes the call. So the call has its normal effects and errors. The arguments read from the caller are only a
//! hint: a caller that changes the path in the meantime causes another directory of its workspace to be copied up, or
//! none.

mod helper;
mod names;

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags, fstatfs, open, readlinkat};
use rustix::time::{ClockId, Timespec, clock_gettime};

use avfs_engine::{LaunchPlan, ViewStep, WorkspaceMount};
use avfs_request::NestedUserns;
use avfs_types::renamed::RenamedNames;

use self::names::Rename;
use crate::sys::{Notification, Result, continue_notification, is_waiting, read_memory};

pub use helper::{WORD, run as help};

const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: usize = 4096;
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
const RENAME_EXCHANGE: u64 = 2;

/// The workspace whose directories can be renamed.
#[derive(Clone, Debug)]
struct Workspace {
    /// The path inside.
    path: PathBuf,
    /// The paths outside.
    lowers: Vec<PathBuf>,
    /// A time before the command started.
    since: Timespec,
}

/// The renames of one run.
#[derive(Debug, Default)]
pub struct Renames {
    workspace: Option<Workspace>,
    /// Started with the first rename of a directory.
    mover: Option<Mover>,
    failed: u64,
    names: Names,
}

/// The names noted so far, shared with the mover.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<RenamedNames>>);

impl Names {
    fn lock(&self) -> MutexGuard<'_, RenamedNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of the renames of a run.
#[derive(Debug, Default)]
pub struct Renamed {
    /// Number of directories that could not be moved.
    pub dirs_failed: u64,
    /// Names that a rename gave to another file, and the directories that were copied for that.
    pub names: RenamedNames,
}

/// Whether the filter reports renames: only with a writable overlay. A nested namespace could have another view at
/// the same paths.
pub fn are_watched(plan: &LaunchPlan) -> bool {
    workspace_of(plan).is_some()
}

fn workspace_of(plan: &LaunchPlan) -> Option<Workspace> {
    if plan.request.confinement.userns == NestedUserns::Allowed {
        return None;
    }
    plan.view.iter().find_map(|step| match step {
        ViewStep::Workspace(WorkspaceMount::Overlay { path, lowers, .. }) => {
            let since = clock_gettime(ClockId::RealtimeCoarse);
            Some(Workspace { path: path.clone(), lowers: lowers.clone(), since })
        }
        ViewStep::Workspace(WorkspaceMount::ReadOnly { .. } | WorkspaceMount::Copy { .. })
        | ViewStep::Dir { .. }
        | ViewStep::Symlink { .. }
        | ViewStep::File { .. }
        | ViewStep::Bind { .. }
        | ViewStep::Overlaid { .. }
        | ViewStep::Tmpfs { .. }
        | ViewStep::Proc { .. }
        | ViewStep::Devices { .. }
        | ViewStep::Hide { .. }
        | ViewStep::MountPoint { .. }
        | ViewStep::Secrets { .. }
        | ViewStep::SealRoot => None,
    })
}

impl Renames {
    pub fn new(plan: &LaunchPlan) -> Self {
        Self { workspace: workspace_of(plan), ..Self::default() }
    }

    /// Lets the kernel execute a rename, at once or after its directories were made movable.
    pub fn answer(&mut self, listener: BorrowedFd<'_>, call: &Notification) -> Result<()> {
        let Some(workspace) = &self.workspace else { return continue_notification(listener, call.id) };
        let rename = Rename::of(call);
        let may_copy = rename.as_ref().is_none_or(Rename::moves_dirs);
        let dirs = if may_copy { workspace.dirs_of(call) } else { Vec::new() };
        if dirs.is_empty() {
            if let Some(rename) = rename {
                rename.note(&mut self.names.lock(), workspace);
            }
            return continue_notification(listener, call.id);
        }
        // Opened again when it is its turn: until then a rename holds no descriptors.
        drop(dirs);
        if self.mover.is_none() {
            self.mover = Mover::start(workspace, &self.names, listener);
        }
        let calls = self.mover.as_ref().and_then(|mover| mover.calls.as_ref());
        if calls.is_some_and(|calls| calls.send(*call).is_ok()) {
            return Ok(());
        }
        self.failed += 1;
        continue_notification(listener, call.id)
    }

    /// Accepts no more calls: the last copy of the listener is closed after those that wait.
    pub fn close(&mut self) {
        if let Some(mover) = &mut self.mover {
            mover.calls = None;
        }
    }

    /// Waits until no helper writes any more. A helper is never interrupted, which would leave a directory in two
    /// parts.
    #[must_use]
    pub fn finish(self) -> Renamed {
        let failed = self.mover.map_or(0, Mover::finish);
        Renamed { dirs_failed: self.failed + failed, names: std::mem::take(&mut *self.names.lock()) }
    }
}

/// A thread that makes directories movable, in the order of the calls. Only one helper runs at a time: with a
/// directory and one inside it, two would move each other's entries. As many calls can wait as the sandbox has threads.
#[derive(Debug)]
struct Mover {
    calls: Option<Sender<Notification>>,
    /// Returns the number of directories that could not be moved.
    thread: JoinHandle<u64>,
}

impl Mover {
    fn start(workspace: &Workspace, names: &Names, listener: BorrowedFd<'_>) -> Option<Self> {
        let (workspace, names) = (workspace.clone(), names.clone());
        let listener = listener.try_clone_to_owned().ok()?;
        let (calls, waiting) = channel();
        let thread = std::thread::Builder::new();
        let thread = thread.spawn(move || move_all(&workspace, &names, listener.as_fd(), &waiting)).ok()?;
        Some(Self { calls: Some(calls), thread })
    }

    fn finish(self) -> u64 {
        drop(self.calls);
        self.thread.join().unwrap_or_default()
    }
}

fn move_all(
    workspace: &Workspace,
    names: &Names,
    listener: BorrowedFd<'_>,
    calls: &Receiver<Notification>,
) -> u64 {
    let mut failed = 0;
    for call in calls {
        let mut dirs = workspace.dirs_of(&call).into_iter();
        // The caller may be dead, and its id may be that of another thread.
        if is_waiting(listener, call.id) {
            let is_movable = dirs.all(|dir| dir.make_movable(&workspace.path));
            failed += u64::from(!is_movable);
            // Only now: the rename is executed after those that were noted in the meantime.
            if let Some(rename) = Rename::of(&call) {
                let mut names = names.lock();
                rename.note_copies(&mut names, workspace);
                if is_movable {
                    rename.note(&mut names, workspace);
                }
            }
            let _ = continue_notification(listener, call.id);
        }
    }
    failed
}

/// A directory as named by the caller.
struct Named {
    base: OwnedFd,
    path: Vec<u8>,
    user: OwnedFd,
    mount: OwnedFd,
}

impl Workspace {
    /// The directories of a rename that overlayfs would refuse to move.
    fn dirs_of(&self, call: &Notification) -> Vec<Named> {
        let [first, second, third, fourth, flags, _] = call.arguments;
        let number = libc::c_long::from(call.number);
        let names = match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => vec![(None, first)],
            libc::SYS_renameat2 if flags & RENAME_EXCHANGE != 0 => {
                vec![(Some(first), second), (Some(third), fourth)]
            }
            libc::SYS_renameat | libc::SYS_renameat2 => vec![(Some(first), second)],
            _ => Vec::new(),
        };
        names.into_iter().filter_map(|(dir, at)| self.named(call.thread, dir, at)).collect()
    }

    /// `None` for anything except a directory of a lower layer.
    fn named(&self, thread: u32, dir: Option<u64>, at: u64) -> Option<Named> {
        let path = read_path(thread, at)?;
        let base = base_of(thread, dir, &path);
        let only_path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // One open(2) rejects anything that is not a directory. A symlink on the way may be resolved in our root: the
        // result is then not on an overlay of the run, or is only inspected.
        let mut whole = base.clone().into_bytes();
        whole.push(b'/');
        whole.extend_from_slice(&path);
        let found = open(OsStr::from_bytes(&whole), only_path | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let kind = fstatfs(&found).ok()?.f_type;
        if u64::try_from(kind).ok()? != OVERLAYFS_MAGIC || !self.is_in_lower(&found) {
            return None;
        }
        let base = open(base, only_path, Mode::empty()).ok()?;
        let namespace =
            |kind| open(format!("/proc/{thread}/ns/{kind}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Some(Named { base, path, user: namespace("user").ok()?, mount: namespace("mnt").ok()? })
    }

    /// True if a lower layer has a directory at the same path, even if the command has replaced it.
    fn is_in_lower(&self, dir: &OwnedFd) -> bool {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let Ok(seen) = readlinkat(rustix::fs::CWD, link, Vec::new()) else { return false };
        let seen = PathBuf::from(std::ffi::OsString::from_vec(seen.into_bytes()));
        let Ok(below) = seen.strip_prefix(&self.path) else { return false };
        self.lowers.iter().any(|lower| lower.join(below).symlink_metadata().is_ok_and(|meta| meta.is_dir()))
    }
}

impl Named {
    /// True if the directory is in the upper afterwards.
    fn make_movable(self, workspace: &Path) -> bool {
        let Self { base, path, user, mount } = self;
        let helper = Command::new("/proc/self/exe")
            .arg(WORD)
            .arg(workspace)
            .arg(OsStr::from_bytes(&path))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(user))
            .stdout(Stdio::from(mount))
            .stderr(Stdio::from(base))
            .status();
        match helper {
            Ok(status) => status.success(),
            Err(error) => {
                tracing::warn!(%error, "cannot start a helper to move a directory");
                false
            }
        }
    }
}

/// The directory that a path of a thread is relative to.
fn base_of(thread: u32, dir: Option<u64>, path: &[u8]) -> String {
    // The kernel treats the lower half as a signed number.
    let number = dir.map(|dir| {
        let [a, b, c, d, ..] = dir.to_le_bytes();
        i32::from_le_bytes([a, b, c, d])
    });
    match number {
        _ if path.starts_with(b"/") => format!("/proc/{thread}/root"),
        None | Some(libc::AT_FDCWD) => format!("/proc/{thread}/cwd"),
        Some(number) => format!("/proc/{thread}/fd/{number}"),
    }
}

/// Reads a path from the memory of a thread, page by page: the next page may not be mapped.
fn read_path(thread: u32, at: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    while path.len() < PATH_BYTES_MAX {
        let from = at.checked_add(path.len() as u64)?;
        let page = PAGE_BYTES - usize::try_from(from % PAGE_BYTES as u64).ok()?;
        let mut bytes = [0; PAGE_BYTES];
        let read = read_memory(thread, from, &mut bytes[..page]).ok().filter(|read| *read > 0)?;
        match bytes[..read].iter().position(|byte| *byte == 0) {
            Some(end) => {
                path.extend_from_slice(&bytes[..end]);
                return Some(path).filter(|path| !path.is_empty() && path.len() < PATH_BYTES_MAX);
            }
            None => path.extend_from_slice(&bytes[..read]),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_up_to_its_terminating_nul() {
        let text = [&[b'x'; 5000][..], b"/name\0more"].concat();
        let read = |at: usize| read_path(std::process::id(), text[at..].as_ptr() as u64);
        assert_eq!(read(4990).as_deref(), Some(&b"xxxxxxxxxx/name"[..]));
        assert_eq!(read(5005), None, "an empty path");
        assert_eq!(read(0), None, "a path that is too long");
        assert_eq!(read_path(std::process::id(), 8), None);
    }
}
