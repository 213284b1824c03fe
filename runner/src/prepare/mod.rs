//! Converts plans to the forms that init executes: C strings and numbers, because nothing is allocated after the clone.
//!
//! A [`SandboxPlan`] becomes [`Prepared`], which init inherits by the clone; a `CommandPlan` becomes an image, which
//! init maps (`command.rs`). What must hold: everything about the sandbox is decided here, before the clone.

mod command;
mod ops;
mod tmpfs;
mod view;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::thread::CapabilitySet;

use avfs_engine::{Commands, SandboxPlan};
use avfs_request::{Confined, Confinement, NestedUserns, NetMode, Profile};

use crate::confine::{Filter, Landlock, Notified, UnixSockets};
use crate::limits::Keeper;
use crate::outside_writes::private_dirs;
use crate::renames;
use crate::sandbox::SandboxError;
use crate::sys::{ArgumentArea, CloneFlags};

pub use command::{FILE_SIZE, INPUT_DEVICE, INPUT_INODE, INPUT_OFFSET, UMASK, image};
pub use ops::{Execution, IfThere, Layers, Op, Otherwise, Upper, UpperFace};

pub struct Prepared {
    pub mountpoint: CString,
    pub ops: Vec<Op>,
    /// For each operation, the index of the step of the view it belongs to.
    pub step_of: Vec<u16>,
    pub layers: Option<Layers>,
    pub namespaces: CloneFlags,
    pub loopback: bool,
    /// Whether a proxy outside accepts connections from inside.
    pub wants_listener: bool,
    /// The supervisor gets a descriptor of /proc.
    pub shows_proc: bool,
    pub commands: Commands,
    /// Inherited by init, which the command can see.
    pub arguments: ArgumentArea,
    pub hostname: Option<&'static str>,
    pub landlock: Option<Landlock>,
    pub filter: Option<Filter>,
    /// Affinity is the processor limit, so the command must not change it.
    pub pinned: bool,
    /// Private directories in memory that the command may write to.
    pub private_dirs: Vec<CString>,
    /// The capability that the command keeps.
    pub kept_capability: CapabilitySet,
    /// The confinement in effect once everything is set up.
    pub confined: Confined,
}

/// The kernel allows mapping a namespace's root in a nested namespace only if the creator of the nested one held
/// CAP_SETFCAP. The capability allows nothing else here: no mount of the sandbox honours file capabilities.
fn kept_capability(userns: NestedUserns) -> CapabilitySet {
    match userns {
        NestedUserns::Allowed if rustix::process::geteuid().is_root() => CapabilitySet::SETFCAP,
        NestedUserns::Allowed | NestedUserns::Refused => CapabilitySet::empty(),
    }
}

fn c_string(bytes: &[u8]) -> Result<CString, SandboxError> {
    CString::new(bytes).map_err(|_| SandboxError::Nul { text: String::from_utf8_lossy(bytes).into_owned() })
}

fn c_path(path: &Path) -> Result<CString, SandboxError> {
    c_string(path.as_os_str().as_bytes())
}

/// A path of the view, relative to the new root.
fn inner(path: &Path) -> Result<CString, SandboxError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.as_os_str().is_empty() { c_string(b".") } else { c_path(relative) }
}

/// `own` is this program's file, which no command may replace.
pub fn prepare(plan: &SandboxPlan, keeper: &Keeper, own: &Path) -> Result<Prepared, SandboxError> {
    let Confinement { seccomp, landlock, userns } = plan.confinement;
    let view = view::compile(plan, keeper.pid_max(), own)?;
    let isolated = [CloneFlags::MOUNT, CloneFlags::PID, CloneFlags::IPC, CloneFlags::UTS, CloneFlags::CGROUP];
    let mut namespaces = isolated.into_iter().fold(CloneFlags::USER, CloneFlags::and);
    if plan.net.is_apart() {
        namespaces = namespaces.and(CloneFlags::NET);
    }
    let landlock = Landlock::choose(landlock, userns, &plan.view);
    let landlock = landlock.map_err(|gap| SandboxError::Landlock { gap })?;
    let renames = if renames::are_watched(plan) { Notified::Yes } else { Notified::No };
    Ok(Prepared {
        mountpoint: c_path(&plan.mountpoint)?,
        ops: view.ops,
        step_of: view.step_of,
        layers: view.layers,
        namespaces,
        loopback: plan.net.is_apart(),
        wants_listener: matches!(plan.net, NetMode::Allow(_)),
        shows_proc: keeper.wants_processes(),
        commands: plan.commands,
        arguments: ArgumentArea::find().map_err(SandboxError::host("find the arguments of this process"))?,
        hostname: plan.hostname,
        kept_capability: kept_capability(userns),
        confined: Confined { seccomp, landlock_abi: landlock.as_ref().map(Landlock::abi), userns },
        landlock,
        filter: Filter::choose(seccomp, unix_sockets(plan), userns, renames),
        pinned: keeper.pins_processors(),
        private_dirs: private_dirs(&plan.view).into_iter().map(c_path).collect::<Result<_, _>>()?,
    })
}

/// Refused if sockets of the host's services are visible and the host's network should not be reachable.
fn unix_sockets(plan: &SandboxPlan) -> UnixSockets {
    match plan.profile {
        Profile::Host if plan.net.is_apart() => UnixSockets::Refused,
        Profile::Host | Profile::Strict => UnixSockets::Allowed,
    }
}
