//! The interface between the engine and the code that starts processes: a sandbox has a life.
//!
//! [`Sandboxes::open`] creates a sandbox from a [`SandboxPlan`]: its namespaces, network, view and policy.
//! [`Sandbox::exec`] executes a [`CommandPlan`] in it: argv, environment, working directory, streams, timeout and
//! narrower limits. Several commands can be alive at once, and each [`Exec`] ends with its first process.
//! [`Sandbox::stop`] ends all processes, [`Sandbox::upper`] then has the changes, and [`Sandbox::close`] waits until
//! nothing is left. A run is open, exec, wait, stop, upper and close.
//!
//! What must hold: after `stop` nothing inside can write. A command that fails is a [`Completion`], not an error.
//!
//! Plain values and traits only: the kernel is the business of `avfs-run`, which implements the traits. Read the traits
//! at the end first.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use avfs_hostfs::held::FileId;
use avfs_request::{
    Confined, Confinement, EnforcedLimit, ExecutionTimeout, LimitKind, Limits, NetMode, Profile, RefusedCall,
    SecretFile, Streams,
};
use avfs_types::diagnose::Diagnose;
use avfs_types::renamed::RenamedNames;
use avfs_vault::backend::sqlite::Placeholders;

use crate::output::Output;

/// Maximum layers of an overlay: the cost of a lookup grows with each layer.
pub const LOWERS_MAX: usize = 16;

/// A sandbox to open, decided before its first process is created.
pub struct SandboxPlan {
    /// An empty directory on which the new root is mounted, only in the new mount namespace.
    pub mountpoint: PathBuf,
    /// The steps that build the new root, in order: parents come first.
    pub view: Vec<ViewStep>,
    /// The files of [`ViewStep::Secrets`].
    pub secret_files: Vec<SecretFile>,
    /// The host name; `None` to keep the caller's.
    pub hostname: Option<&'static str>,
    pub profile: Profile,
    pub net: NetMode,
    pub confinement: Confinement,
    /// The limits of all processes inside together.
    pub limits: Limits,
    pub commands: Commands,
    /// Held while the sandbox is open.
    pub placeholders: Placeholders,
}

/// The commands that a sandbox executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// One, to which every process inside belongs: signals and the timeout apply to all of them, and they die with it.
    One,
    /// Any number. Each has a separate session, and can leave processes running, which only `stop` ends.
    Many,
}

/// A command to execute in a sandbox.
pub struct CommandPlan {
    /// The first word is looked up in PATH unless it contains a slash.
    pub argv: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub umask: u32,
    pub stdio: Stdio,
    /// What happens to the output.
    pub streams: Streams,
    pub timeout: ExecutionTimeout,
    /// The time between SIGTERM and SIGKILL when the timeout has passed.
    pub grace: Duration,
    /// Limits in addition to those of the sandbox. Only the file size can be limited for one command.
    pub limits: Limits,
    /// Where output that does not fit in memory is captured; `None` for the system's directory for temporary files.
    pub spool_dir: Option<PathBuf>,
}

/// The caller's ends of the standard streams; `None` for `/dev/null`.
#[derive(Debug, Default)]
pub struct Stdio {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

impl Stdio {
    /// Duplicates of the streams of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        use rustix::stdio::{stderr, stdin, stdout};
        let [stdin, stdout, stderr] =
            [stdin(), stdout(), stderr()].map(|stream| rustix::io::fcntl_dupfd_cloexec(stream, 3).ok());
        Self { stdin, stdout, stderr }
    }
}

/// One step in building the root. Paths are as seen by the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewStep {
    /// A directory, unless the path exists.
    Dir {
        path: PathBuf,
        mode: u32,
    },
    Symlink {
        path: PathBuf,
        target: PathBuf,
    },
    /// A file with this content, readable and writable by its owner, unless the path exists.
    File {
        path: PathBuf,
        bytes: Vec<u8>,
    },
    /// A recursive bind mount of host files.
    Bind {
        source: PathBuf,
        path: PathBuf,
        access: Access,
        lookup: Lookup,
    },
    /// A directory of the host, by its path without symlinks, through a read-only overlay: sockets and named
    /// pipes beneath it do not work.
    Overlaid {
        source: PathBuf,
        path: PathBuf,
        file: FileId,
    },
    /// An empty tmpfs.
    Tmpfs {
        path: PathBuf,
        mode: u32,
        size: TmpfsSize,
    },
    Proc {
        path: PathBuf,
    },
    /// The few devices that every program may use, devpts and shared memory.
    Devices {
        path: PathBuf,
    },
    /// The workspace.
    Workspace(WorkspaceMount),
    /// Hides the path.
    Hide {
        path: PathBuf,
    },
    /// A directory in the workspace to mount something on; the time of its parent is preserved.
    MountPoint {
        path: PathBuf,
    },
    /// The secrets passed as files, on a tmpfs, accessible only to the command's user.
    Secrets {
        path: PathBuf,
    },
    /// Mounts a directory over itself, as it is at this step: a mount point cannot be renamed.
    Pin {
        path: PathBuf,
    },
    /// Makes the root or a tmpfs read-only. Mounts beneath it keep their access.
    Seal {
        path: PathBuf,
    },
}

/// How to look up a host path when it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    FollowLinks,
    /// Refuse a symlink anywhere in the path.
    NoLinks,
    /// The path was resolved and checked before. Refuse a symlink in it, and any file other than this one.
    Same {
        file: FileId,
        is_dir: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
    /// A device file that is usable as such.
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TmpfsSize {
    /// The kernel's default: half of the memory.
    Default,
    Bytes(u64),
}

/// How to make the workspace writable without changing the lower layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceMount {
    /// Layers, topmost first, and a new upper.
    Overlay { path: PathBuf, lowers: Vec<PathBuf>, upper: UpperPlace },
    /// Layers, topmost first; read-only.
    ReadOnly { path: PathBuf, lowers: Vec<PathBuf> },
    /// A copy that only this command uses.
    Copy { path: PathBuf, source: PathBuf },
}

/// Where the upper is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpperPlace {
    /// In a directory that contains `upper` and `work`.
    Disk { dir: PathBuf },
    /// On a tmpfs, mounted on a directory for the duration of the run. `root` is the metadata of the workspace
    /// directory.
    Memory { at: PathBuf, size_bytes: u64, inodes: u64, root: UpperRoot },
}

/// Metadata of the root of the upper, which is the workspace directory in the sandbox, and the names hidden in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpperRoot {
    pub mode: u32,
    pub mtime: avfs_types::clock::FileTime,
    /// Names as overlayfs stores them, and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names that appear deleted from the start.
    pub whiteouts: Vec<Vec<u8>>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(u8),
    Signal(i32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
    pub max_rss_bytes: u64,
}

/// The result of a command that was started.
///
/// What belongs to the whole sandbox is known once that has stopped, and added by [`Completion::with`].
#[derive(Debug)]
pub struct Completion {
    pub exit: Exit,
    pub timed_out: bool,
    /// `None` if it was not captured.
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Both streams combined, if they share a pipe or terminal and the output is kept.
    pub merged: Option<Output>,
    pub usage: Usage,
    /// Number of processes that it left running at its end, which were killed.
    pub left_running: u64,
    /// Time from the opening of the sandbox to the command's first instruction, and from there to its end.
    pub mounting: Duration,
    pub executing: Duration,
    /// Why part of the output could not be written to our own streams.
    pub undelivered: Option<std::io::Error>,
    /// Why the supervisor could no longer watch it, and killed it.
    pub unwatched: Option<std::io::Error>,
    pub confined: Confined,
    pub limits: Vec<EnforcedLimit>,
    /// The limit for which it was stopped.
    pub stopped_by: Option<LimitKind>,
    /// Limits that a process reached without the command being stopped.
    pub limits_reached: Vec<LimitKind>,
    /// True if it was sent a signal from outside.
    pub signalled: bool,
    /// Its connections, if its network goes through a proxy.
    pub connections: Connections,
    /// System calls that were refused, as far as the kernel reports them.
    pub refused_calls: Vec<RefusedCall>,
    /// Number of directories from before the run that it could not rename.
    pub dirs_not_renamed: u64,
    /// Names that a rename gave to another file, as far as known.
    pub names_renamed: RenamedNames,
    /// Files it left in its private home and in /tmp.
    pub outside_writes: OutsideWrites,
}

impl Completion {
    /// A command that ended with this status, without further information.
    #[must_use]
    pub fn of(exit: Exit) -> Self {
        Self {
            exit,
            timed_out: false,
            stdout: None,
            stderr: None,
            merged: None,
            usage: Usage::default(),
            left_running: 0,
            mounting: Duration::ZERO,
            executing: Duration::ZERO,
            undelivered: None,
            unwatched: None,
            confined: Confined::NOTHING,
            limits: Vec::new(),
            stopped_by: None,
            limits_reached: Vec::new(),
            signalled: false,
            connections: Connections::default(),
            refused_calls: Vec::new(),
            dirs_not_renamed: 0,
            names_renamed: RenamedNames::default(),
            outside_writes: OutsideWrites::default(),
        }
    }

    /// Adds what the end of the sandbox has shown: the record of the only command of a sandbox.
    #[must_use]
    pub fn with(self, stopped: Stopped) -> Self {
        let Stopped { left_running, connections, dirs_not_renamed, names_renamed, outside_writes } = stopped;
        Self { left_running, connections, dirs_not_renamed, names_renamed, outside_writes, ..self }
    }
}

/// The end of a sandbox.
#[derive(Debug, Default)]
pub struct Stopped {
    /// Number of processes that were killed, other than commands.
    pub left_running: u64,
    pub connections: Connections,
    pub dirs_not_renamed: u64,
    pub names_renamed: RenamedNames,
    pub outside_writes: OutsideWrites,
}

/// Where the changes of a stopped sandbox are.
#[derive(Debug)]
pub enum Upper {
    /// Nothing was writable.
    None,
    /// In this directory on disk.
    Disk(PathBuf),
    /// In the directory `upper` of a file system in memory, which lives as long as this descriptor.
    Memory(OwnedFd),
    /// In this copy of the workspace.
    Copy(PathBuf),
}

impl Upper {
    /// The file system in memory, if the changes are there.
    #[must_use]
    pub fn memory(&self) -> Option<&OwnedFd> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::None | Self::Disk(_) | Self::Copy(_) => None,
        }
    }
}

/// Files that a command left outside the workspace, in directories that are removed with the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideWrites {
    /// Number of entries other than directories.
    pub files: u64,
    pub dirs: u64,
    /// Total size of the files.
    pub bytes: u64,
    /// The first paths, nearest to the top first.
    pub paths: Vec<OutsideWrite>,
    /// Number of paths that are not listed.
    pub left_off: u64,
    /// True if everything was scanned.
    pub is_complete: bool,
}

impl Default for OutsideWrites {
    fn default() -> Self {
        Self { files: 0, dirs: 0, bytes: 0, paths: Vec::new(), left_off: 0, is_complete: true }
    }
}

impl OutsideWrites {
    /// Whether the command left nothing there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files == 0 && self.dirs == 0
    }
}

/// One path outside the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideWrite {
    /// The path as the command saw it.
    pub path: PathBuf,
    /// `None` for a directory that could not be read.
    pub size: Option<u64>,
}

/// Connections in the order in which they started, up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    pub list: Vec<Connection>,
    /// Number of connections that are not listed.
    pub left_off: u64,
}

/// One connection that the command requested from the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The host as requested.
    pub host: String,
    pub port: u16,
    /// The address that was dialed, or for which it was refused.
    pub address: Option<IpAddr>,
    pub verdict: ConnectionVerdict,
    /// Bytes from the command, and to the command.
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Since the start of the command.
    pub began: Duration,
    pub lasted: Duration,
}

/// The outcome of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionVerdict {
    Allowed,
    /// Refused because of the allow list, with the reason.
    Refused(String),
    /// Allowed, but failed, with the reason.
    Failed(String),
}

impl ConnectionVerdict {
    /// The verdict in one word, and the reason unless it is `allowed`.
    #[must_use]
    pub fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Allowed => ("allowed", None),
            Self::Refused(reason) => ("refused", Some(reason)),
            Self::Failed(reason) => ("failed", Some(reason)),
        }
    }
}

/// A feature of the sandbox that the host refused, as far as there is an alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Overlay,
    /// A tmpfs.
    Memory,
    Proc,
    /// A read-only directory of the host as an overlay.
    Shown,
    /// A limit that cannot be enforced.
    Limit(LimitKind),
    /// No alternative exists.
    Other,
}

/// Why a command was not started.
#[derive(Debug)]
pub struct LaunchError {
    /// The refused feature: there may be an alternative.
    pub refused: Refused,
    /// The exit status for programs that run commands on behalf of others.
    pub exit_code: u8,
    /// How the owner of the host can fix it.
    pub remedy: Option<String>,
    pub error: Box<dyn Diagnose>,
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for LaunchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl Diagnose for LaunchError {
    fn code(&self) -> &'static str {
        self.error.code()
    }

    fn cause(&self) -> Option<&'static str> {
        Diagnose::cause(&*self.error)
    }
}

/// Opens sandboxes on this host.
pub trait Sandboxes {
    /// Returns at once, while the sandbox is being set up: an error of that is returned by the first [`Sandbox::exec`].
    fn open(&self, plan: &SandboxPlan) -> Result<Box<dyn Sandbox>, LaunchError>;

    /// Lets signals end this process again: the changes of the command are kept, or can be recovered. A library leaves
    /// the signals of its process alone.
    fn take_signals(&self) {}

    /// The signal that asks for the end, if one arrived since the command ended and [`Self::take_signals`] was called.
    fn asked_to_end(&self) -> Option<i32> {
        None
    }
}

/// An open sandbox. Dropping it ends all processes inside.
pub trait Sandbox: Send + Sync {
    /// Starts a command; returns when it executes its first instruction.
    fn exec(&self, plan: &CommandPlan) -> Result<Box<dyn Exec>, LaunchError>;

    /// The processes inside, by their ids outside.
    fn processes(&self) -> Vec<i32>;

    /// Ends all processes inside. When this returns, nothing inside can write. Stopping it again has no effect.
    fn stop(&self) -> Stopped;

    /// The changes, which are complete once the sandbox has stopped.
    fn upper(&self) -> Upper;

    /// Stops it, and waits until its mounts are gone as well.
    fn close(self: Box<Self>);
}

/// A command in a sandbox. It ends with its first process.
pub trait Exec: Send {
    /// Waits for the end. What the command has written by then is delivered. Called once.
    fn wait(&mut self) -> Completion;

    /// Signals the command.
    fn signal(&self, signal: i32) -> std::io::Result<()>;

    /// Sets the size of its terminal; an error if it has none.
    fn resize(&self, rows: u16, columns: u16) -> std::io::Result<()>;
}
