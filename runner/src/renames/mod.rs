//! Lets a command rename directories of the lower layers.
//!
//! overlayfs refuses that (EXDEV), because it would have to copy the whole directory. The filter notifies the
//! supervisor of every rename before the kernel executes it. If a directory of a lower layer is renamed, a helper
//! first replaces it with a directory in the upper with the same entries; then, as for every other rename, the kernel
//! executes the call. So the call has its normal effects and errors. The arguments read from the caller are only a
//! hint: a caller that changes the path in the meantime causes another directory of its workspace to be copied up, or
//! none. If a path cannot be resolved, nothing is copied, and overlayfs refuses a directory.

mod helper;
mod mover;
mod names;
mod place;

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use rustix::time::{ClockId, Timespec, clock_gettime};

use avfs_engine::{SandboxPlan, ViewStep, WorkspaceMount};
use avfs_hostfs::beneath;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_request::NestedUserns;
use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;

use self::mover::Threads;
use self::place::{Place, Unresolved, device_of, open_in};
use crate::sys::{Notification, Result, continue_notification};

pub use helper::{WORD, run as help};

/// The workspace whose directories can be renamed.
#[derive(Debug)]
struct Workspace {
    /// The path inside.
    path: PathBuf,
    lowers: Vec<OwnedFd>,
    /// A time before the command started.
    since: Timespec,
    device: OnceLock<u64>,
}

/// The renames in one sandbox, by all its commands: only one helper runs at a time.
#[derive(Debug, Default)]
pub struct Renames(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Taken by the threads, which the first rename starts.
    workspace: Option<Workspace>,
    /// The program that starts as the helper.
    helper: PathBuf,
    threads: Option<Threads>,
    failed: u64,
}

/// The result of the renames in a sandbox.
#[derive(Debug, Default)]
pub struct Renamed {
    /// Number of directories that could not be moved, and of renames whose paths could not be resolved.
    pub dirs_failed: u64,
    /// Names that a rename gave to another file, and the directories that were copied for that.
    pub names: RenamedNames,
}

/// Whether the filter reports renames: only with a writable overlay. A nested namespace could have another view at
/// the same paths.
pub fn are_watched(plan: &SandboxPlan) -> bool {
    overlay_of(plan).is_some()
}

/// The path of the workspace inside, and the paths of its lower layers outside.
fn overlay_of(plan: &SandboxPlan) -> Option<(&PathBuf, &Vec<PathBuf>)> {
    if plan.confinement.userns == NestedUserns::Allowed {
        return None;
    }
    plan.view.iter().find_map(|step| match step {
        ViewStep::Workspace(WorkspaceMount::Overlay { path, lowers, .. }) => Some((path, lowers)),
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
        | ViewStep::Pin { .. }
        | ViewStep::Secrets { .. }
        | ViewStep::Seal { .. } => None,
    })
}

impl Renames {
    pub fn new(plan: &SandboxPlan, helper: &Path) -> Self {
        let workspace = overlay_of(plan).and_then(Workspace::open);
        Self(Mutex::new(State { workspace, helper: helper.to_owned(), ..State::default() }))
    }

    /// Passes a rename to the threads, which let the kernel execute it.
    pub fn answer(&self, listener: &Arc<OwnedFd>, call: &Notification) -> Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workspace) = state.workspace.take() {
            state.threads = Threads::start(workspace, state.helper.clone());
        }
        if state.threads.as_ref().is_some_and(|threads| threads.take(*call, listener)) {
            return Ok(());
        }
        state.failed += 1;
        continue_notification(listener.as_fd(), call.id)
    }

    /// Accepts no more calls, and waits until no helper writes any more. A helper is never interrupted, which would
    /// leave a directory in two parts. A thread that still resolves a path is left alone.
    #[must_use]
    pub fn finish(&self) -> Renamed {
        let state = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let (failed, names) = state.threads.map(Threads::finish).unwrap_or_default();
        Renamed { dirs_failed: state.failed + failed, names }
    }
}

impl Workspace {
    /// `None` if a layer cannot be opened.
    fn open((path, lowers): (&PathBuf, &Vec<PathBuf>)) -> Option<Self> {
        let since = clock_gettime(ClockId::RealtimeCoarse);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lowers: Result<_> = lowers.iter().map(|lower| open(lower, flags, Mode::empty())).collect();
        match lowers {
            Ok(lowers) => Some(Self { path: path.clone(), lowers, since, device: OnceLock::new() }),
            Err(error) => {
                tracing::warn!(%error, "cannot open a layer; directories of it cannot be renamed");
                None
            }
        }
    }

    /// The number of its file system.
    fn device(&self, root: &OwnedFd) -> std::result::Result<u64, Unresolved> {
        use std::os::unix::ffi::OsStrExt;
        if let Some(device) = self.device.get() {
            return Ok(*device);
        }
        let opened = open_in(root, self.path.as_os_str().as_bytes());
        let device = opened.ok().and_then(|dir| device_of(&dir)).ok_or(Unresolved::Unknown)?;
        Ok(*self.device.get_or_init(|| device))
    }

    /// The path in the workspace.
    fn path_of(&self, place: &Place) -> Option<TreePath> {
        place.below(&self.path)
    }

    /// True if a lower layer has a directory at the same path, even if the command has replaced it.
    fn is_in_lower(&self, place: &Place) -> bool {
        self.path_of(place).is_some_and(|path| self.has(&path, |stat| stat.kind == HostKind::Dir))
    }

    /// True for a directory of a lower layer, and for a file in it with several names.
    fn is_known(&self, path: &TreePath) -> bool {
        self.has(path, |stat| match stat.kind {
            HostKind::Dir => true,
            HostKind::File => stat.links > 1,
            HostKind::Symlink | HostKind::Fifo | HostKind::Whiteout | HostKind::Special(_) => false,
        })
    }

    /// Whether a lower layer has such a file at a path, through no symlink: the command can have replaced a symlink of
    /// the layer with a directory.
    fn has(&self, path: &TreePath, is_wanted: impl Fn(&HostStat) -> bool) -> bool {
        let Some((above, name)) = path.split() else { return false };
        self.lowers.iter().any(|lower| {
            let parent = beneath::open(lower.as_fd(), above.as_bytes(), OFlags::PATH | OFlags::DIRECTORY);
            parent.and_then(|parent| beneath::stat(parent.as_fd(), name)).is_ok_and(|stat| is_wanted(&stat))
        })
    }
}
