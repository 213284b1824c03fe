//! Starts a command in its sandbox. All decisions are made before the clone. An error inside is returned as a step
//! and an errno, and becomes one error message with a remedy.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::io::Errno;

use avfs_engine::{Completion, LaunchError, LaunchPlan, Launcher, Lookup, Refused, ViewStep, WorkspaceMount};
use avfs_types::diagnose::Diagnose;
use avfs_types::{exit_code, pause};

use crate::confine::{LandlockGap, RefusedCalls};
use crate::control::{Channel, Message};
use crate::idmap::MapError;
use crate::init::Inherited;
use crate::limits::{Keeper, LimitError};
use crate::prepare::Prepared;
use crate::remedy::Piece;
use crate::renames::Renames;
use crate::stage::{CARRIAGE_RETURN, Failed, NO_INTERPRETER, REPLACED, REPORT_BYTES, Stage};
use crate::stdio::Streams;
use crate::supervisor::{Leaving, Supervised};
use crate::{control, idmap, init, prepare, remedy, supervisor, sys};

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("{text:?} contains a NUL byte")]
    Nul { text: String },
    #[error("cannot show {} inside the sandbox", path.display())]
    Source {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} was moved or replaced after the policy check", path.display())]
    Replaced { path: PathBuf },
    #[error("cannot create the sandbox's namespaces")]
    Namespaces(#[source] std::io::Error),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("{what}")]
    Setup {
        piece: Piece,
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("Landlock is required, but {}", match gap {
        LandlockGap::Missing => "this kernel does not support it, or it is not enabled",
        LandlockGap::TooOld => "this kernel's version of it would forbid moving files between directories",
    })]
    Landlock { gap: LandlockGap },
    #[error("{command} was not found")]
    NotFound {
        command: String,
        /// The `PATH` that the request gave the command, if it is not the caller's.
        path: Option<OsString>,
    },
    #[error("{command} cannot be executed")]
    NotExecutable {
        command: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{command} cannot be executed: {}", match interpreter {
        Interpreter::Missing => "its interpreter was not found",
        Interpreter::CarriageReturn => "its first line ends with a carriage return, which is part of the interpreter's name",
    })]
    NoInterpreter { command: String, interpreter: Interpreter },
    #[error("the working directory {} does not exist inside the sandbox", cwd.display())]
    NoCwd { cwd: PathBuf },
    #[error("the sandbox's first process ended before the command began")]
    Vanished,
    #[error("interrupted before the command began")]
    Interrupted { signal: i32 },
    #[error("cannot {operation}")]
    Host {
        operation: &'static str,
        #[source]
        source: std::io::Error,
    },
}

/// Why a program has no interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpreter {
    Missing,
    CarriageReturn,
}

impl SandboxError {
    pub fn host(operation: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Host { operation, source: errno.into() }
    }
}

impl Diagnose for SandboxError {
    fn code(&self) -> &'static str {
        match self {
            Self::Nul { .. } => "request.nul",
            Self::Source { .. } => "sandbox.source",
            Self::Replaced { .. } => "sandbox.replaced",
            Self::Namespaces(_) => "sandbox.namespaces",
            Self::Map(_) => "sandbox.id_map",
            Self::Limit(error) => error.code(),
            Self::Setup { piece, .. } => piece.code(),
            Self::Landlock { .. } => "sandbox.landlock",
            Self::NotFound { .. } | Self::NoInterpreter { .. } => "command.not_found",
            Self::NotExecutable { .. } => "command.not_executable",
            Self::NoCwd { .. } => "command.no_cwd",
            Self::Vanished => "sandbox.vanished",
            Self::Interrupted { .. } => "interrupted",
            Self::Host { .. } => "run.host",
        }
    }
}

impl SandboxError {
    /// What the administrator of the host can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Namespaces(_) | Self::Map(_) => Some(remedy::for_namespaces()),
            Self::Limit(error) => error.remedy(),
            Self::Setup { piece, source, .. } => piece.remedy(source),
            Self::Landlock { .. } => Some(
                "use --landlock auto, or Linux 5.19 or later with landlock in the lsm= boot parameter (see: avfs doctor)"
                    .into(),
            ),
            Self::NotFound { command, path } => Some(match path.as_deref().and_then(|path| left_out(command, path)) {
                Some(dir) => format!("the given PATH does not contain it: add {}, or omit PATH", dir.display()),
                None => hint_for_missing(command).into(),
            }),
            Self::NotExecutable { source, .. } if source.raw_os_error() == Some(libc::ENOEXEC) => {
                Some("it is built for another architecture, or damaged: use one built for this machine".into())
            }
            Self::NotExecutable { .. } => Some("make it executable, or run it with its interpreter".into()),
            Self::NoInterpreter { command, interpreter } => Some(match interpreter {
                Interpreter::Missing => {
                    "only the system and toolchains on PATH are visible inside: show it with --ro PATH".into()
                }
                Interpreter::CarriageReturn => {
                    format!("it has the line ends of Windows, convert them: sed -i 's/\\r$//' {command}")
                }
            }),
            Self::NoCwd { .. } => Some("choose another one with: --cwd DIR".into()),
            Self::Replaced { .. } => Some("if the replacement was intended, run the command again".into()),
            Self::Source { .. } => Some("omit it, or make it readable".into()),
            Self::Vanished => {
                Some("if there is a memory limit, raise it: a number without a unit is in bytes, so 512 is not 512MiB".into())
            }
            Self::Nul { .. } | Self::Interrupted { .. } | Self::Host { .. } => None,
        }
    }

    /// The refused feature, if there may be an alternative to it.
    fn refused(&self) -> Refused {
        if let Self::Limit(error) = self {
            return error.lacking().map_or(Refused::Other, Refused::Limit);
        }
        let Self::Setup { piece, .. } = self else { return Refused::Other };
        match piece {
            Piece::Overlay => Refused::Overlay,
            Piece::Memory => Refused::Memory,
            Piece::Proc => Refused::Proc,
            Piece::Shown => Refused::Shown,
            Piece::Mounts
            | Piece::Layers
            | Piece::Net
            | Piece::Process
            | Piece::Userns
            | Piece::Landlock
            | Piece::Seccomp => Refused::Other,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NoInterpreter { .. } => exit_code::RUN_NOT_FOUND,
            Self::NotExecutable { .. } => exit_code::RUN_NOT_EXECUTABLE,
            Self::Nul { .. } | Self::NoCwd { .. } | Self::Host { .. } => exit_code::RUN_OWN,
            Self::Interrupted { signal } => {
                exit_code::RUN_SIGNALLED.saturating_add(u8::try_from(*signal).unwrap_or(0))
            }
            Self::Source { .. }
            | Self::Replaced { .. }
            | Self::Namespaces(_)
            | Self::Map(_)
            | Self::Limit(_)
            | Self::Setup { .. }
            | Self::Landlock { .. }
            | Self::Vanished => exit_code::RUN_SETUP,
        }
    }
}

impl From<SandboxError> for LaunchError {
    fn from(error: SandboxError) -> Self {
        Self {
            refused: error.refused(),
            exit_code: error.exit_code(),
            remedy: error.remedy(),
            error: Box::new(error),
        }
    }
}

/// Builtins that exist only in a shell, not as programs.
const BUILTINS: [&str; 12] =
    [".", "alias", "cd", "eval", "exec", "export", "set", "shift", "source", "trap", "ulimit", "unset"];

/// What the caller of a missing command may have intended.
fn hint_for_missing(command: &str) -> &'static str {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if command.split_once('=').is_some_and(|(name, _)| is_name(name)) {
        "set a variable for the command with: --env NAME=VALUE"
    } else if BUILTINS.contains(&command) || command.contains(|c: char| " \t\n|&;<>()$`".contains(c)) {
        "run a shell line with: avfs-run --shell 'LINE'"
    } else if is_on_host(command) {
        "it exists on the host, but only the system and toolchains on PATH are visible inside: show it with --ro PATH"
    } else if command.parse::<avfs_request::FixedClock>().is_ok() {
        "write the value of an option with an equals sign: --clock-fixed=TIME"
    } else if command.contains('/') {
        "there is no such file in the sandbox, nor on the host: check the path"
    } else {
        "it is not on this host's PATH either: check the spelling"
    }
}

/// The directory of a program that is on the caller's `PATH` and not on the one given to the command.
fn left_out(command: &str, given: &OsStr) -> Option<PathBuf> {
    let has = |dir: &PathBuf| dir.join(command).is_file();
    if command.contains('/') || std::env::split_paths(given).any(|dir| has(&dir)) {
        return None;
    }
    std::env::split_paths(&std::env::var_os("PATH")?).find(has)
}

/// True if the program exists on the host.
fn is_on_host(command: &str) -> bool {
    if command.contains('/') {
        return std::path::Path::new(command).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(command).is_file())
}

/// Starts commands in namespaces on this host.
pub struct SandboxLauncher {
    umask: u32,
    /// The init process of the last sandbox, if it is still exiting.
    leaving: Cell<Option<Leaving>>,
}

impl SandboxLauncher {
    #[must_use]
    pub fn new(umask: u32) -> Self {
        Self { umask, leaving: Cell::new(None) }
    }

    fn run(
        &self,
        plan: &LaunchPlan,
        meanwhile: &mut dyn FnMut(),
        started: &mut dyn FnMut(),
    ) -> Result<Completion, SandboxError> {
        let begun = Instant::now();
        let keeper = Keeper::prepare(plan)?;
        let prepared = prepare::prepare(plan, &keeper, plan.umask.unwrap_or(self.umask))?;
        let streams = Streams::prepare(plan.input, plan.streams, plan.mountpoint.parent())
            .map_err(SandboxError::host("set up the streams"))?;
        let signals = supervisor::hold_signals().map_err(SandboxError::host("block signals"))?;
        pause::point("launching");
        let started_up = start(&prepared, &keeper, streams).and_then(|sandbox| {
            pause::point("launched");
            meanwhile();
            sandbox.wait_for_the_command(plan)
        });
        let sandbox = match started_up {
            Ok(sandbox) => sandbox,
            Err(error) => {
                // The fallback can be interrupted again.
                sys::unblock_all().map_err(SandboxError::host("unblock signals"))?;
                return Err(error);
            }
        };
        let mounting = begun.elapsed();
        started();
        let (mut completion, leaving) = supervisor::watch(sandbox, &signals, plan, keeper)?;
        self.leaving.set(Some(leaving));
        completion.mounting = mounting;
        completion.confined = prepared.confined;
        Ok(completion)
    }
}

impl Launcher for SandboxLauncher {
    fn launch(
        &self,
        plan: &LaunchPlan,
        meanwhile: &mut dyn FnMut(),
        started: &mut dyn FnMut(),
    ) -> Result<Completion, LaunchError> {
        Ok(self.run(plan, meanwhile, started)?)
    }

    fn wait_until_gone(&self) {
        drop(self.leaving.take());
    }

    fn take_signals(&self) {
        supervisor::heed_signals();
    }

    fn asked_to_end(&self) -> Option<i32> {
        supervisor::asked_to_end()
    }
}

/// A sandbox whose command has not started yet.
struct Starting {
    pid: sys::Pid,
    control: OwnedFd,
    report: OwnedFd,
    streams: Streams,
    /// The number of messages that arrive before the command runs.
    expected: usize,
}

fn start(prepared: &Prepared, keeper: &Keeper, mut streams: Streams) -> Result<Starting, SandboxError> {
    let (control, init_control) = control::pair().map_err(SandboxError::host("create a socket"))?;
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (report, init_report) = pipe.map_err(SandboxError::host("create a pipe"))?;
    let inherited = Inherited {
        prepared,
        control: Channel(init_control.as_fd()),
        report: init_report.as_fd(),
        stdio: streams.inner(),
    };
    let supervisor_end = control.as_fd();
    let cloned = sys::clone_process(prepared.namespaces, || {
        // An open copy in the child would prevent end of file.
        sys::close_in_child(supervisor_end);
        init::run(&inherited)
    });
    let pid = cloned.map_err(|errno| SandboxError::Namespaces(errno.into()))?;
    streams.close_inner();
    let wanted = [
        prepared.layers.as_ref().is_some_and(|layers| layers.upper.is_memory()),
        streams.wants_terminal(),
        streams.wants_input(),
        prepared.wants_listener,
        prepared.filter.is_some(),
        prepared.shows_proc,
    ];
    let expected = wanted.into_iter().filter(|wanted| *wanted).count();
    let starting = Starting { pid, control, report, streams, expected };
    // Before the process may do anything: all its work counts against its limits.
    let taken = idmap::write(pid).map_err(SandboxError::from).and_then(|()| Ok(keeper.take_in(pid)?));
    if let Err(error) = taken {
        starting.abandon();
        return Err(error);
    }
    match Channel(starting.control.as_fd()).go() {
        // If init has already exited, its report has the reason.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(starting),
        Err(errno) => {
            starting.abandon();
            Err(SandboxError::host("start the sandbox")(errno))
        }
    }
}

impl Starting {
    /// Ends an unusable sandbox; its processes die with its first process.
    fn abandon(self) {
        let Self { pid, control, report, .. } = self;
        drop((control, report));
        supervisor::kill_and_reap(pid);
    }

    fn wait_for_the_command(self, plan: &LaunchPlan) -> Result<Supervised, SandboxError> {
        let refused = match supervisor::wait_readable(self.report.as_fd()) {
            Ok(Ok(())) => None,
            Ok(Err(signal)) => Some(SandboxError::Interrupted { signal }),
            Err(errno) => Some(SandboxError::host("wait for the command")(errno)),
        };
        if let Some(error) = refused {
            self.abandon();
            return Err(error);
        }
        // Read before reaping: if init has died, its status would hide the cause.
        let mut bytes = Vec::new();
        let mut report = std::fs::File::from(self.report);
        let read = report.read_to_end(&mut bytes);
        let failed = match <[u8; REPORT_BYTES]>::try_from(bytes.as_slice()) {
            Ok(bytes) => Failed::from_bytes(bytes),
            Err(_) => None,
        };
        if let Some(failed) = failed {
            drop(self.control);
            supervisor::kill_and_reap(self.pid);
            return Err(explain(failed, plan));
        }
        read.map_err(|source| SandboxError::Host { operation: "read the sandbox's report", source })?;
        let mut sandbox = Supervised {
            pid: self.pid,
            control: self.control,
            memory: None,
            terminal: None,
            input: None,
            listener: None,
            proc: None,
            streams: self.streams,
            refused: RefusedCalls::default(),
        };
        for _ in 0..self.expected {
            match Channel(sandbox.control.as_fd()).next_message() {
                Ok(Some(Message::Memory(fd))) => sandbox.memory = Some(fd),
                Ok(Some(Message::Terminal(fd))) => sandbox.terminal = Some(fd),
                Ok(Some(Message::Input(fd))) => sandbox.input = fd,
                Ok(Some(Message::Listener(fd))) => sandbox.listener = Some(fd),
                Ok(Some(Message::Notifier(fd))) => {
                    sandbox.refused = RefusedCalls::new(fd, Renames::new(plan))
                }
                Ok(Some(Message::Proc(fd))) => sandbox.proc = Some(fd),
                Ok(Some(Message::End(_) | Message::Written(..) | Message::Stopped) | None) => {
                    supervisor::kill_and_reap(sandbox.pid);
                    return Err(SandboxError::Vanished);
                }
                Err(errno) => {
                    supervisor::kill_and_reap(sandbox.pid);
                    return Err(SandboxError::host("receive from the sandbox")(errno));
                }
            }
        }
        Ok(sandbox)
    }
}

/// The error message for a failure inside.
fn explain(failed: Failed, plan: &LaunchPlan) -> SandboxError {
    let Failed { stage, errno } = failed;
    if let (Stage::View(number), REPLACED) = (stage, errno)
        && let Some(path) = judged(plan, number)
    {
        return SandboxError::Replaced { path: path.to_owned() };
    }
    let command = || plan.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    match stage {
        Stage::Exec if errno == Errno::NOENT || errno == Errno::NOTDIR => {
            let path = plan.environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
            let path = path.filter(|path| Some(path) != std::env::var_os("PATH").as_ref());
            SandboxError::NotFound { command: command(), path }
        }
        Stage::Exec if errno == NO_INTERPRETER => {
            SandboxError::NoInterpreter { command: command(), interpreter: Interpreter::Missing }
        }
        Stage::Exec if errno == CARRIAGE_RETURN => {
            SandboxError::NoInterpreter { command: command(), interpreter: Interpreter::CarriageReturn }
        }
        Stage::Exec => SandboxError::NotExecutable { command: command(), source: errno.into() },
        Stage::Cwd => SandboxError::NoCwd { cwd: plan.cwd.clone() },
        Stage::Start
        | Stage::Hostname
        | Stage::Private
        | Stage::Memory
        | Stage::Layers
        | Stage::Root
        | Stage::View(_)
        | Stage::Pivot
        | Stage::Loopback
        | Stage::Listener
        | Stage::Terminal
        | Stage::Limits
        | Stage::Fork
        | Stage::Session
        | Stage::Confine
        | Stage::Userns
        | Stage::Landlock
        | Stage::Seccomp => {
            let (piece, what) = what(stage, plan);
            SandboxError::Setup { piece, what, source: errno.into() }
        }
    }
}

/// The path of a step that shows a file which the policy has checked.
fn judged(plan: &LaunchPlan, step: u16) -> Option<&Path> {
    match plan.view.get(usize::from(step))? {
        ViewStep::Overlaid { source, .. } | ViewStep::Bind { source, lookup: Lookup::Same { .. }, .. } => {
            Some(source)
        }
        ViewStep::Bind { lookup: Lookup::FollowLinks | Lookup::NoLinks, .. }
        | ViewStep::Dir { .. }
        | ViewStep::File { .. }
        | ViewStep::Symlink { .. }
        | ViewStep::Tmpfs { .. }
        | ViewStep::Proc { .. }
        | ViewStep::Devices { .. }
        | ViewStep::Workspace(_)
        | ViewStep::Hide { .. }
        | ViewStep::MountPoint { .. }
        | ViewStep::Pin { .. }
        | ViewStep::Secrets { .. }
        | ViewStep::Seal { .. } => None,
    }
}

/// The feature of the sandbox that a stage sets up, and the error text.
fn what(stage: Stage, plan: &LaunchPlan) -> (Piece, String) {
    let (piece, what) = match stage {
        Stage::Start => (Piece::Process, "cannot start the sandbox's first process"),
        Stage::Hostname => (Piece::Process, "cannot set the sandbox's host name"),
        Stage::Private => (Piece::Mounts, "cannot make the sandbox's mounts private"),
        Stage::Memory => (Piece::Memory, "cannot create a file system in memory for the command's writes"),
        Stage::Layers => (Piece::Layers, "cannot open the layers of the workspace"),
        Stage::Root => (Piece::Mounts, "cannot mount the sandbox's root"),
        Stage::View(number) => match plan.view.get(usize::from(number)) {
            Some(step) => return what_of_step(step),
            None => (Piece::Mounts, "cannot set up the sandbox's root"),
        },
        Stage::Pivot => (Piece::Mounts, "cannot enter the sandbox's root"),
        Stage::Loopback => (Piece::Net, "cannot bring up the sandbox's loopback interface"),
        Stage::Listener => (Piece::Net, "cannot listen inside the sandbox for the command's connections"),
        Stage::Terminal => (Piece::Process, "cannot open a pseudo terminal"),
        Stage::Limits => (Piece::Proc, "cannot inspect the sandbox's processes"),
        Stage::Fork => (Piece::Process, "cannot create the command's process"),
        Stage::Session => (Piece::Process, "cannot create the command's session"),
        Stage::Confine => (Piece::Process, "cannot drop the command's privileges"),
        Stage::Userns => (Piece::Userns, "cannot forbid nested user namespaces"),
        Stage::Landlock => (Piece::Landlock, "cannot apply the Landlock rules"),
        Stage::Seccomp => (Piece::Seccomp, "cannot install the seccomp filter"),
        Stage::Cwd => (Piece::Process, "cannot enter the working directory"),
        Stage::Exec => (Piece::Process, "cannot execute the command"),
    };
    (piece, what.to_owned())
}

fn what_of_step(step: &ViewStep) -> (Piece, String) {
    let at = |what: &str, path: &std::path::Path| format!("cannot {what} {}", path.display());
    match step {
        ViewStep::Dir { path, .. } | ViewStep::MountPoint { path } => {
            (Piece::Mounts, at("create the directory", path))
        }
        ViewStep::File { path, .. } => (Piece::Mounts, at("write", path)),
        ViewStep::Symlink { path, .. } => (Piece::Mounts, at("create the symlink", path)),
        ViewStep::Bind { source, .. } => (Piece::Mounts, at("show inside the sandbox", source)),
        ViewStep::Overlaid { source, .. } => (Piece::Shown, at("show inside the sandbox", source)),
        ViewStep::Tmpfs { path, .. } => (Piece::Mounts, at("mount a private", path)),
        ViewStep::Proc { path } => (Piece::Proc, at("mount", path)),
        ViewStep::Devices { path } => (Piece::Mounts, at("set up", path)),
        ViewStep::Workspace(WorkspaceMount::Copy { path, .. }) => {
            (Piece::Mounts, at("show the workspace at", path))
        }
        ViewStep::Workspace(WorkspaceMount::Overlay { path, .. } | WorkspaceMount::ReadOnly { path, .. }) => {
            (Piece::Overlay, at("mount the workspace as an overlay at", path))
        }
        ViewStep::Hide { path } => (Piece::Mounts, at("hide", path)),
        ViewStep::Pin { path } => (Piece::Mounts, at("mount over itself", path)),
        ViewStep::Secrets { path } => (Piece::Mounts, at("write the secrets to", path)),
        ViewStep::Seal { path } => (Piece::Mounts, format!("cannot make {} read-only", path.display())),
    }
}
