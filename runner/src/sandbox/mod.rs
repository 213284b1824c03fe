//! Sandboxes on this host: namespaces, mounts and confinement around commands.
//!
//! What comes in: a [`SandboxPlan`], then a [`CommandPlan`] for each command. What leaves: how each command ended (a
//! `Completion`), what the sandbox as a whole did ([`Stopped`]), and its changes ([`Upper`]).
//!
//! `open` decides everything about the sandbox, clones init, gives it its id map and limits, and lets it go. Init sets
//! up the root meanwhile, and waits for commands. `exec` sends one, with its streams, and waits until it executes its
//! first instruction. An error inside is returned as a step and an errno, and becomes one error message with a remedy.
//!
//! What must hold: after `stop` no process inside is left, and no helper of ours that could write for it. The only
//! command of a sandbox is watched by the thread that waits for it, and no thread is started for that; each of several
//! commands has a thread, because its calls need answers while nobody waits for it. The signals of this process are
//! touched only if it is `avfs-run`.
//!
//! Open `command.rs` next, then `watch.rs`; `error.rs` and `explain.rs` have the errors. Process 1 inside is `init/`.

mod command;
mod error;
mod explain;
mod watch;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use avfs_engine::{
    CommandPlan, Commands, Exec, LaunchError, OutsideWrites, Sandbox, SandboxPlan, Sandboxes, Stopped, Upper,
    UpperPlace, ViewStep, WorkspaceMount,
};
use avfs_request::{Confined, LimitKind, NetMode};
use avfs_types::pause;

use self::watch::{Init, REAPING};
use crate::control::{Channel, Message};
use crate::egress::Egress;
use crate::init::Inherited;
use crate::limits::Keeper;
use crate::outside_writes::{PRIVATE_DIRS_MAX, private_dirs};
use crate::prepare::Prepared;
use crate::renames::{Renamed, Renames};
use crate::sys::{SignalFd, SignalSet};
use crate::{control, idmap, init, limits, outside_writes, prepare, signals, sys};

pub use error::SandboxError;

/// Sandboxes for a program that embeds this library. `helper` is an `avfs-run`, which starts processes that enter a
/// sandbox. The signals, the umask and the environment of the program are left alone.
#[must_use]
pub fn sandboxes(helper: impl Into<PathBuf>) -> HostSandboxes {
    HostSandboxes { helper: helper.into(), signals: Signals::LeftAlone }
}

/// Opens sandboxes in namespaces of this host.
#[derive(Debug)]
pub struct HostSandboxes {
    helper: PathBuf,
    signals: Signals,
}

/// The signals of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signals {
    LeftAlone,
    /// Blocked while a command runs, and forwarded to it.
    Forwarded,
}

impl HostSandboxes {
    /// For `avfs-run` itself.
    pub(crate) fn of_this_program() -> Self {
        Self { helper: "/proc/self/exe".into(), signals: Signals::Forwarded }
    }

    fn start(&self, plan: &SandboxPlan) -> Result<HostSandbox, SandboxError> {
        let begun = Instant::now();
        let keeper = Keeper::prepare(plan)?;
        let prepared = prepare::prepare(plan, &keeper, &self.helper)?;
        let signals = match self.signals {
            Signals::LeftAlone => None,
            Signals::Forwarded => Some(signals::hold().map_err(SandboxError::host("block signals"))?),
        };
        pause::point("launching");
        let (init, control) = start_init(&prepared, &keeper)?;
        pause::point("launched");
        let is_in_memory = prepared.layers.as_ref().is_some_and(|layers| layers.upper.is_memory());
        let wanted = [is_in_memory, prepared.wants_listener, prepared.shows_proc];
        Ok(HostSandbox(Arc::new(Inside {
            control,
            view: plan.view.clone(),
            net: plan.net.clone(),
            commands: plan.commands,
            confined: prepared.confined,
            expected: wanted.into_iter().filter(|wanted| *wanted).count(),
            is_filtered: prepared.filter.is_some(),
            renames: Arc::new(Renames::new(plan, &self.helper)),
            signals,
            exceeded: Arc::default(),
            life: Mutex::new(Life {
                stage: Stage::Opened,
                begun: Some(begun),
                init,
                keeper,
                limits: None,
                memory: None,
                egress: None,
            }),
        })))
    }
}

impl Sandboxes for HostSandboxes {
    fn open(&self, plan: &SandboxPlan) -> Result<Box<dyn Sandbox>, LaunchError> {
        match self.start(plan) {
            Ok(sandbox) => Ok(Box::new(sandbox)),
            Err(error) => {
                release(self.signals)?;
                Err(error.into())
            }
        }
    }

    fn take_signals(&self) {
        match self.signals {
            Signals::LeftAlone => {}
            Signals::Forwarded => signals::heed(),
        }
    }

    fn asked_to_end(&self) -> Option<i32> {
        match self.signals {
            Signals::LeftAlone => None,
            Signals::Forwarded => signals::asked_to_end(),
        }
    }
}

/// After a failure: the fallback can be interrupted again.
fn release(signals: Signals) -> Result<(), SandboxError> {
    match signals {
        Signals::LeftAlone => Ok(()),
        Signals::Forwarded => sys::unblock_all().map_err(SandboxError::host("unblock signals")),
    }
}

/// Clones init, which sets up the sandbox, and returns it with the channel to it.
fn start_init(prepared: &Prepared, keeper: &Keeper) -> Result<(Init, OwnedFd), SandboxError> {
    let (control, theirs) = control::pair().map_err(SandboxError::host("create a socket"))?;
    let inherited = Inherited { prepared, control: Channel(theirs.as_fd()) };
    // Init inherits the handlers of this program, and must never run one.
    let before = sys::block_also(&SignalSet::all()).map_err(SandboxError::host("block signals"))?;
    let cloned = sys::clone_process(prepared.namespaces, || init::run(&inherited));
    sys::set_blocked(&before).map_err(SandboxError::host("unblock signals"))?;
    let pid = cloned.map_err(|errno| SandboxError::Namespaces(errno.into()))?;
    let mut init = Init(Some(pid));
    // Before the process may do anything: all its work counts against its limits.
    let taken = idmap::write(pid).map_err(SandboxError::from).and_then(|()| Ok(keeper.take_in(pid)?));
    let gone = taken.and_then(|()| match Channel(control.as_fd()).go() {
        // If init has already exited, the first command finds out why.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(SandboxError::host("start the sandbox")(errno)),
    });
    if let Err(error) = gone {
        init.kill();
        return Err(error);
    }
    Ok((init, control))
}

/// A sandbox. Its commands hold the inside as well, but only the sandbox keeps init alive.
struct HostSandbox(Arc<Inside>);

/// What a sandbox and its commands share.
struct Inside {
    control: OwnedFd,
    view: Vec<ViewStep>,
    net: NetMode,
    commands: Commands,
    confined: Confined,
    /// The number of messages that init sends about the sandbox before the first command runs.
    expected: usize,
    /// Whether commands run under a seccomp filter.
    is_filtered: bool,
    renames: Arc<Renames>,
    /// Those of this process, if they are forwarded.
    signals: Option<SignalFd>,
    /// The limit for which the sandbox was stopped, if it has many commands.
    exceeded: Arc<OnceLock<LimitKind>>,
    life: Mutex<Life>,
}

/// What changes from the opening to the end.
struct Life {
    stage: Stage,
    /// When it was opened, until the first command runs.
    begun: Option<Instant>,
    init: Init,
    keeper: Keeper,
    /// The watch over the limits, until the only command takes it.
    limits: Option<limits::Watch>,
    /// The file system that holds the upper, if it is in memory.
    memory: Option<OwnedFd>,
    egress: Option<Egress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opened,
    /// The first command was started.
    Entered,
    Stopped,
}

impl Inside {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> Channel<'_> {
        Channel(self.control.as_fd())
    }

    /// Ends the sandbox without its cooperation: every process dies with init. Returns the signal that killed it.
    fn kill(&self) -> Option<i32> {
        self.life().init.kill()
    }

    /// Receives what init sends about the sandbox, once the first command runs.
    fn enter(&self, life: &mut Life) -> Result<(), SandboxError> {
        let (mut listener, mut proc) = (None, None);
        for _ in 0..self.expected {
            match self.control().next_message() {
                Ok(Some(Message::Memory(fd))) => life.memory = Some(fd),
                Ok(Some(Message::Listener(fd))) => listener = Some(fd),
                Ok(Some(Message::Proc(fd))) => proc = Some(fd),
                Ok(
                    Some(
                        Message::Written(..)
                        | Message::Stopped(_)
                        | Message::Terminal(_)
                        | Message::Notifier(_)
                        | Message::Input(_)
                        | Message::Paused
                        | Message::End(_),
                    )
                    | None,
                ) => return Err(SandboxError::Vanished),
                Err(errno) => return Err(SandboxError::host("receive from the sandbox")(errno)),
            }
        }
        life.egress = start_egress(listener, &self.net).map_err(SandboxError::host("start the proxy"))?;
        // No command may run without the watch over the limits.
        let watch = life.keeper.watch(proc, self.beyond()?);
        life.limits = watch.map_err(|source| SandboxError::Host { operation: "start a thread", source })?;
        life.stage = Stage::Entered;
        Ok(())
    }

    /// What to do when a limit is exceeded: the only command is killed by the one who waits for it; a sandbox with many
    /// commands is stopped.
    fn beyond(&self) -> Result<impl FnOnce(LimitKind) + Send + use<>, SandboxError> {
        let control = match self.commands {
            Commands::One => None,
            Commands::Many => {
                let control = self.control.try_clone();
                Some(
                    control
                        .map_err(|source| SandboxError::Host { operation: "duplicate a socket", source })?,
                )
            }
        };
        let exceeded = Arc::clone(&self.exceeded);
        Ok(move |kind| {
            if let Some(control) = control {
                let _ = exceeded.set(kind);
                // If init is gone, everything is dead already.
                let _ = Channel(control.as_fd()).stop();
            }
        })
    }

    /// Reads the end of the sandbox: private directories that are not empty, and the number of processes that were
    /// killed. `None` if init has died, or does not end in time.
    fn read_end(&self, life: &mut Life, written: &mut Vec<(usize, OwnedFd)>) -> Option<u16> {
        let give_up_at = Instant::now() + REAPING;
        loop {
            let left = give_up_at.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).ok();
            let mut fds = [PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
            match poll(&mut fds, wait.as_ref()) {
                Ok(0) => return None,
                Err(_) => continue,
                Ok(_) => {}
            }
            match self.control().next_message() {
                Ok(Some(Message::Stopped(left_running))) => return Some(left_running),
                Ok(Some(Message::Written(number, dir))) if written.len() < PRIVATE_DIRS_MAX => {
                    written.push((number, dir));
                }
                // Of a sandbox that has executed nothing.
                Ok(Some(Message::Memory(memory))) => life.memory = Some(memory),
                Ok(Some(Message::Proc(_) | Message::Listener(_))) => {}
                Ok(
                    Some(
                        Message::Written(..)
                        | Message::Terminal(_)
                        | Message::Notifier(_)
                        | Message::Input(_)
                        | Message::Paused
                        | Message::End(_),
                    )
                    | None,
                )
                | Err(_) => return None,
            }
        }
    }

    fn stop(&self) -> Stopped {
        let mut life = self.life();
        if std::mem::replace(&mut life.stage, Stage::Stopped) == Stage::Stopped {
            return Stopped::default();
        }
        // With one command, its end has stopped the sandbox. If init is gone, reading the end shows that.
        let _ = self.control().stop();
        let mut written = Vec::new();
        let left_running = self.read_end(&mut life, &mut written);
        let Renamed { dirs_failed: dirs_not_renamed, names: names_renamed } = self.renames.finish();
        let outside_writes = self.outside_writes(written);
        match left_running {
            // Init has reaped all other processes and only exits, which releases all mounts and namespaces.
            Some(_) if !life.keeper.keeps_anything() => {}
            // The control groups of a sandbox can be removed only when they are empty.
            Some(_) => drop(life.init.wait()),
            // Only after it is reaped can no process write.
            None => drop(life.init.kill()),
        }
        drop(life.limits.take().and_then(limits::Watch::finish));
        let connections = life.egress.take().map(Egress::finish).unwrap_or_default();
        // The changes of the command matter more than an immediate reaction to signals.
        if self.signals.is_some() && life.memory.is_none() {
            signals::take();
        }
        Stopped {
            left_running: left_running.unwrap_or(0).into(),
            connections,
            dirs_not_renamed,
            names_renamed,
            outside_writes,
        }
    }

    /// The files that commands left in the directories that init has handed over.
    fn outside_writes(&self, written: Vec<(usize, OwnedFd)>) -> OutsideWrites {
        if written.is_empty() {
            return OutsideWrites::default();
        }
        let paths = private_dirs(&self.view);
        let dirs = written.into_iter().filter_map(|(number, dir)| Some((*paths.get(number)?, dir)));
        outside_writes::look(&dirs.collect::<Vec<_>>(), &self.view)
    }
}

/// Starts the proxy, if the network mode is an allow list.
fn start_egress(listener: Option<OwnedFd>, net: &NetMode) -> sys::Result<Option<Egress>> {
    match (listener, net) {
        (Some(listener), NetMode::Allow(list)) => {
            Egress::start(listener, list.clone(), Instant::now()).map(Some)
        }
        (Some(_), NetMode::None | NetMode::Host) | (None, _) => Ok(None),
    }
}

impl Sandbox for HostSandbox {
    fn exec(&self, plan: &CommandPlan) -> Result<Box<dyn Exec>, LaunchError> {
        let Self(inside) = self;
        if (inside.commands, inside.life().stage) == (Commands::One, Stage::Entered) {
            let source = std::io::ErrorKind::InvalidInput.into();
            let operation = "execute a second command in this sandbox";
            return Err(SandboxError::Host { operation, source }.into());
        }
        match command::start(inside, plan) {
            Ok(exec) => Ok(exec),
            Err(error) => {
                match inside.commands {
                    Commands::One => {
                        inside.kill();
                        release(if inside.signals.is_some() {
                            Signals::Forwarded
                        } else {
                            Signals::LeftAlone
                        })?;
                    }
                    Commands::Many => {}
                }
                Err(error.into())
            }
        }
    }

    fn processes(&self) -> Vec<i32> {
        let init = self.0.life().init.0;
        init.map(descendants).unwrap_or_default()
    }

    fn stop(&self) -> Stopped {
        self.0.stop()
    }

    fn upper(&self) -> Upper {
        let workspace = self.0.view.iter().find_map(|step| match step {
            ViewStep::Workspace(workspace) => Some(workspace),
            ViewStep::Dir { .. }
            | ViewStep::Symlink { .. }
            | ViewStep::File { .. }
            | ViewStep::Bind { .. }
            | ViewStep::Overlaid { .. }
            | ViewStep::Tmpfs { .. }
            | ViewStep::Proc { .. }
            | ViewStep::Devices { .. }
            | ViewStep::Hide { .. }
            | ViewStep::Pin { .. }
            | ViewStep::MountPoint { .. }
            | ViewStep::Secrets { .. }
            | ViewStep::Seal { .. } => None,
        });
        match workspace {
            Some(WorkspaceMount::Overlay { upper: UpperPlace::Disk { dir }, .. }) => {
                Upper::Disk(dir.join("upper"))
            }
            Some(WorkspaceMount::Overlay { upper: UpperPlace::Memory { .. }, .. }) => {
                self.0.life().memory.take().map_or(Upper::None, Upper::Memory)
            }
            Some(WorkspaceMount::Copy { source, .. }) => Upper::Copy(source.clone()),
            Some(WorkspaceMount::ReadOnly { .. }) | None => Upper::None,
        }
    }

    fn close(self: Box<Self>) {
        self.0.stop();
        self.0.life().init.wait();
    }
}

impl Drop for HostSandbox {
    fn drop(&mut self) {
        let stage = self.0.life().stage;
        match stage {
            Stage::Opened | Stage::Entered => drop(self.0.kill()),
            Stage::Stopped => drop(self.0.life().init.wait()),
        }
    }
}

/// The processes that descend from a process.
fn descendants(ancestor: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let stat = pid.and_then(|_| std::fs::read_to_string(entry.path().join("stat")).ok());
        // The name can contain anything; the state and the parent follow it.
        let parent = stat.as_deref().and_then(|stat| {
            let (_, fields) = stat.rsplit_once(')')?;
            fields.split_whitespace().nth(1)?.parse::<i32>().ok()
        });
        parents.extend(pid.zip(parent));
    }
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}
