//! What the runtime asks of whoever starts processes, in plain values: the sandbox to make, the command to
//! run in it, and how it ended.
//!
//! Nothing here talks to the kernel; `avfs-run` has the launcher that does.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use avfs_hostfs::held::FileId;
use avfs_request::{Confined, EnforcedLimit, ExecutionRequest, LimitKind, RefusedCall, Streams};
use avfs_types::diagnose::Diagnose;

use crate::output::Output;

/// Layers beneath one overlay: the cost of a lookup grows with each.
pub const LOWERS_MAX: usize = 16;

/// Everything about one launch, decided before the first process is made.
pub struct LaunchPlan {
    /// An empty directory that the new root is mounted on; only in the new mount namespace.
    pub mountpoint: PathBuf,
    /// How the new root comes to be, in order: what lies above comes before what lies beneath.
    pub view: Vec<ViewStep>,
    /// What was asked for: limits, network and confinement are the launcher's to enforce.
    pub request: ExecutionRequest,
    /// The command's words; the first is looked for in PATH unless it has a slash.
    pub command: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub cwd: PathBuf,
    pub input: Input,
    /// What the host is called inside, and the mask; the caller's own if nothing is said.
    pub hostname: Option<&'static str>,
    pub umask: Option<u32>,
    pub streams: Streams,
}

/// One step in making the root; paths are as the command will see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewStep {
    /// A directory, unless something is there already.
    Dir {
        path: PathBuf,
        mode: u32,
    },
    Symlink {
        path: PathBuf,
        target: PathBuf,
    },
    /// A file with this content, for its owner to read and write, unless something is there already.
    File {
        path: PathBuf,
        bytes: Vec<u8>,
    },
    /// Files of the host, everything mounted beneath included.
    Bind {
        source: PathBuf,
        path: PathBuf,
        access: Access,
        lookup: Lookup,
    },
    /// This directory of the host, named without links, through a read-only overlay: sockets and named pipes beneath
    /// it do not answer.
    Overlaid {
        source: PathBuf,
        path: PathBuf,
        file: FileId,
    },
    /// An empty file system in memory.
    Tmpfs {
        path: PathBuf,
        mode: u32,
        size: TmpfsSize,
    },
    Proc {
        path: PathBuf,
    },
    /// The few devices every program may use, a pseudo terminal file system and shared memory.
    Devices {
        path: PathBuf,
    },
    /// The workspace.
    Workspace(WorkspaceMount),
    /// Nothing is to be seen of what is there.
    Hide {
        path: PathBuf,
    },
    /// A directory in the workspace to mount something on; its parent keeps its time.
    MountPoint {
        path: PathBuf,
    },
    /// The secrets that are files, in memory, for the command's user alone.
    Secrets {
        path: PathBuf,
    },
    /// From here on nothing can be made in the root itself.
    SealRoot,
}

/// How the path of what is shown is looked up when it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    FollowLinks,
    /// A link anywhere in it is refused.
    NoLinks,
    /// The path was resolved and judged before. A link in it is refused, and so is any other file than this one.
    Same {
        file: FileId,
        is_dir: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
    /// A device file: usable as one.
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TmpfsSize {
    /// The kernel's default: half of the memory.
    Default,
    Bytes(u64),
}

/// How the workspace is made writable without touching what lies beneath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkspaceMount {
    /// Layers, topmost first, and a fresh upper.
    Overlay { path: PathBuf, lowers: Vec<PathBuf>, upper: UpperPlace },
    /// Layers, topmost first; nothing can be written.
    ReadOnly { path: PathBuf, lowers: Vec<PathBuf> },
    /// A copy that is the command's alone.
    Copy { path: PathBuf, source: PathBuf },
}

/// Where what the command writes goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpperPlace {
    /// Beneath a directory that has `upper` and `work`.
    Disk { dir: PathBuf },
    /// In a file system in memory, mounted on a directory for the time of the run. `root` is what the
    /// workspace's own directory is to look like.
    Memory { at: PathBuf, size_bytes: u64, inodes: u64, root: UpperRoot },
}

/// The upper's own directory is the workspace's: its metadata, and what is hidden in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpperRoot {
    pub mode: u32,
    pub mtime: avfs_types::clock::FileTime,
    /// Names as overlayfs stores them, and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names that are to look deleted from the start.
    pub whiteouts: Vec<Vec<u8>>,
}

/// What the command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// What avfs-run reads itself.
    Passed,
    Empty,
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

/// A command that was run: that it failed is no failure of the launch.
#[derive(Debug)]
pub struct Completion {
    pub exit: Exit,
    pub timed_out: bool,
    /// Nothing where it was not kept.
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
    /// Both streams as one, if they share a pipe or terminal and the output is kept.
    pub merged: Option<Output>,
    pub usage: Usage,
    /// Until the command's first instruction, and from there to its end.
    pub mounting: Duration,
    pub executing: Duration,
    /// The file system in memory that holds `upper`, where that was asked for.
    pub memory: Option<OwnedFd>,
    /// Why some of its output did not reach our own streams.
    pub undelivered: Option<std::io::Error>,
    pub confined: Confined,
    pub limits: Vec<EnforcedLimit>,
    /// The limit it was ended for.
    pub stopped_by: Option<LimitKind>,
    /// Limits that some process came up against, and the command went on.
    pub limits_reached: Vec<LimitKind>,
    /// Somebody sent it a signal from outside.
    pub signalled: bool,
    /// What it asked of the network, where that goes through a proxy.
    pub connections: Connections,
    /// System calls it was refused, as far as the kernel tells.
    pub refused_calls: Vec<RefusedCall>,
    /// Directories that were there before it, and that it could not rename.
    pub dirs_not_renamed: u64,
    /// What it left in its private home and in /tmp.
    pub outside_writes: OutsideWrites,
}

impl Completion {
    /// A command that ended like this, and of which nothing else is known.
    #[must_use]
    pub fn of(exit: Exit) -> Self {
        Self {
            exit,
            timed_out: false,
            stdout: None,
            stderr: None,
            merged: None,
            usage: Usage::default(),
            mounting: Duration::ZERO,
            executing: Duration::ZERO,
            memory: None,
            undelivered: None,
            confined: Confined::NOTHING,
            limits: Vec::new(),
            stopped_by: None,
            limits_reached: Vec::new(),
            signalled: false,
            connections: Connections::default(),
            refused_calls: Vec::new(),
            dirs_not_renamed: 0,
            outside_writes: OutsideWrites::default(),
        }
    }
}

/// What a command left outside of the workspace, in directories that go with the sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideWrites {
    /// Everything that is not a directory.
    pub files: u64,
    pub dirs: u64,
    /// The sizes of the files together.
    pub bytes: u64,
    /// The first paths, nearest to the top first.
    pub paths: Vec<OutsideWrite>,
    /// Paths that are not listed.
    pub left_off: u64,
    /// Whether everything was looked at.
    pub is_complete: bool,
}

impl Default for OutsideWrites {
    fn default() -> Self {
        Self { files: 0, dirs: 0, bytes: 0, paths: Vec::new(), left_off: 0, is_complete: true }
    }
}

impl OutsideWrites {
    /// Whether the command left anything there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files == 0 && self.dirs == 0
    }
}

/// One path outside of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideWrite {
    /// As the command saw it.
    pub path: PathBuf,
    /// `None` of a directory that could not be looked into.
    pub size: Option<u64>,
}

/// Connections in the order in which they began, up to a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    pub list: Vec<Connection>,
    /// Those that are not listed.
    pub left_off: u64,
}

/// One connection that the command asked the proxy for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// As it was asked for.
    pub host: String,
    pub port: u16,
    /// The address that was dialled, or that it was refused for.
    pub address: Option<IpAddr>,
    pub verdict: ConnectionVerdict,
    /// From the command, and to it.
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Since the command began.
    pub began: Duration,
    pub lasted: Duration,
}

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionVerdict {
    Allowed,
    /// Against the list; why.
    Refused(String),
    /// It was let through, and came to nothing; why.
    Failed(String),
}

impl ConnectionVerdict {
    /// One word for it, and why where it is not `allowed`.
    #[must_use]
    pub fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Allowed => ("allowed", None),
            Self::Refused(reason) => ("refused", Some(reason)),
            Self::Failed(reason) => ("failed", Some(reason)),
        }
    }
}

/// A piece of the sandbox that the host refused, as far as there is another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Overlay,
    /// The file system in memory.
    Memory,
    Proc,
    /// A read-only directory of the host as an overlay.
    Shown,
    /// Nothing can keep the command to it.
    Limit(LimitKind),
    /// There is no other way.
    Other,
}

/// Why a command was not started.
#[derive(Debug)]
pub struct LaunchError {
    /// What the host refused: there may be another way.
    pub refused: Refused,
    /// How a program that runs commands for others exits then.
    pub exit_code: u8,
    /// What the owner of the host can do about it.
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

/// Starts commands in sandboxes.
pub trait Launcher {
    /// Runs a command to its end: nobody who could write is left when this returns. There is nothing else to do
    /// while its sandbox is made, when `meanwhile` is called; `started` is called once the command runs, for
    /// work that may go on beside it.
    fn launch(
        &self,
        plan: &LaunchPlan,
        meanwhile: &mut dyn FnMut(),
        started: &mut dyn FnMut(),
    ) -> Result<Completion, LaunchError>;

    /// Waits until the sandbox of the last launch is taken down, which goes on beside what is done with the
    /// changes. Before this its mounts may still be there.
    fn wait_until_gone(&self);

    /// What the command left is kept, or lies where it can be recovered: signals may end the process again.
    fn take_signals(&self);
}
