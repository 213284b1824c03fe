//! Process 1 inside the new namespaces: sets up the root, executes commands, reaps.
//!
//! What comes in: the prepared sandbox, inherited by the clone, and the commands, as messages on the control channel.
//! What leaves: descriptors for the supervisor, and the end of each command and of the sandbox.
//!
//! What must hold: this code does not allocate, lock or unwind, because the supervisor may have been cloned while
//! another of its threads held the allocator's lock. Everything it needs is created before the clone, or is in the
//! image of a command. Once it serves, it holds no descriptor of the host except the control channel. Failures are
//! reported as eight bytes, to the first command if the sandbox could not be set up.
//!
//! Open [`run`] first, then `commands.rs`, which serves, and `payload.rs`, the process of one command.

mod commands;
mod listener;
mod payload;
mod private_dirs;
mod rootfs;

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Signal};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use avfs_engine::Commands;
use avfs_hostfs::held::FileId;

use self::private_dirs::PrivateDirs;
use crate::control::{Channel, Received, Request, Role, StreamKind};
use crate::prepare::{self, Prepared};
use crate::stage::{At, Failed, Stage};
use crate::{control, sys};

/// What init inherits from the supervisor.
pub struct Inherited<'a> {
    pub prepared: &'a Prepared,
    pub control: Channel<'a>,
}

/// A command that is about to be started.
pub struct Command {
    received: Received,
    image: sys::MappedCommand,
    opened: Opened,
}

/// The descriptors that init opens for a command's streams.
#[derive(Default)]
struct Opened {
    terminal: Option<OwnedFd>,
    null: Option<OwnedFd>,
    input: Option<OwnedFd>,
}

/// The exit code is not used: the reports and the channels have said everything.
pub fn run(inherited: &Inherited<'_>) -> u8 {
    let (prepared, control) = (inherited.prepared, &inherited.control);
    let made = match begin(inherited) {
        // The supervisor has exited.
        Ok(false) => return 1,
        Ok(true) => set_up(inherited),
        Err(failed) => Err(failed),
    };
    // Before the host's files are gone: its input may be one of them.
    let first = match control.next_request() {
        Some(Request::Exec(first)) => first,
        Some(Request::Stop) => return u8::from(control.send_stopped(0).is_err()),
        None => return 1,
    };
    let report =
        first.descriptor(Role::Report).and_then(|report| rustix::io::fcntl_dupfd_cloexec(report, 3).ok());
    let entered = made.and_then(|()| Command::open(first, Files::OfHost)).and_then(|mut first| {
        let private = enter(inherited)?;
        if let (Some(null), Some(of_view)) = (&mut first.opened.null, rootfs::null_of_view()) {
            *null = of_view;
        }
        Ok((first, private))
    });
    match entered {
        Ok((first, private)) => {
            drop(report);
            commands::serve(prepared, control, &private, first)
        }
        Err(failed) => {
            payload::report(report.as_ref().map(OwnedFd::as_fd), failed);
            1
        }
    }
}

/// False if the supervisor has exited.
fn begin(inherited: &Inherited<'_>) -> Result<bool, Failed> {
    inherited.prepared.arguments.clear();
    // Commands bring their own descriptors.
    sys::keep_only_one(inherited.control.as_fd()).at(Stage::Start)?;
    sys::default_child_signal();
    match inherited.prepared.commands {
        // The supervisor's end of the channel makes sure of this; the signal makes it fast.
        Commands::One => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Stage::Start)?;
        }
        // The signal is sent when the thread ends that has opened the sandbox, which need not be the end of it.
        Commands::Many => {}
    }
    inherited.control.wait_for_go().at(Stage::Start)
}

/// Makes the new root, beside the old one.
fn set_up(inherited: &Inherited<'_>) -> Result<(), Failed> {
    let Inherited { prepared, control } = inherited;
    rustix::process::umask(Mode::empty());
    if let Some(hostname) = prepared.hostname {
        rustix::system::sethostname(hostname.as_bytes()).at(Stage::Hostname)?;
    }
    let rootfs::Made { memory, proc } = rootfs::make(prepared)?;
    if let Some(memory) = memory {
        control.send_fd(control::MEMORY, memory.as_fd()).at(Stage::Memory)?;
    }
    if let Some(proc) = proc {
        // This /proc shows the supervisor exactly the processes inside.
        control.send_fd(control::PROC, proc.as_fd()).at(Stage::Limits)?;
    }
    Ok(())
}

/// Enters the new root and leaves the host behind.
fn enter<'a>(inherited: &Inherited<'a>) -> Result<PrivateDirs<'a>, Failed> {
    let Inherited { prepared, control } = inherited;
    rootfs::enter().at(Stage::Pivot)?;
    let private = PrivateDirs::note(&prepared.private_dirs);
    if prepared.loopback {
        sys::raise_loopback().at(Stage::Loopback)?;
    }
    if prepared.wants_listener {
        let listener = listener::open().at(Stage::Listener)?;
        control.send_fd(control::LISTENER, listener.as_fd()).at(Stage::Listener)?;
    }
    // A command has the same uid: it must not inspect this process, which keeps its capabilities.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Stage::Start)?;
    // A separate session for the sandbox: no signal to a process group reaches the host, and no input can be pushed
    // into a terminal of the host. For the only command this process is the session leader, so that the command's
    // process group has a parent in the session and can be stopped by ^Z.
    rustix::process::setsid().at(Stage::Session)?;
    Ok(private)
}

/// The files that a command's streams can be opened from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    /// Those of the host, whose root is still there.
    OfHost,
    /// Those of the view.
    OfView,
}

impl Command {
    fn open(received: Received, files: Files) -> Result<Self, Failed> {
        let image = received.descriptor(Role::Image).ok_or(sys::Errno::BADF);
        let image = image.and_then(sys::MappedCommand::map).at(Stage::Fork)?;
        let mut command = Self { received, image, opened: Opened::default() };
        command.open_input(files)?;
        if command.received.has(StreamKind::Null) {
            let null = match files {
                Files::OfHost => rootfs::open_null(),
                Files::OfView => rootfs::null_of_view().ok_or(sys::Errno::NXIO),
            };
            command.opened.null = Some(null.at(Stage::Session)?);
        }
        Ok(command)
    }

    fn channel(&self) -> Result<Channel<'_>, Failed> {
        self.received.descriptor(Role::Channel).map(Channel).ok_or(sys::Errno::BADF).at(Stage::Session)
    }

    /// Reopens a regular file that was given as stdin, and sends the descriptor to the supervisor, which reads the
    /// command's offset from it. Without the host's root it cannot be found, and the command reads from a pipe.
    fn open_input(&mut self, files: Files) -> Result<(), Failed> {
        if !self.received.has(StreamKind::File) {
            return Ok(());
        }
        let [device, inode, offset] = [prepare::INPUT_DEVICE, prepare::INPUT_INODE, prepare::INPUT_OFFSET]
            .map(|at| self.image.number(at));
        let again = match files {
            Files::OfHost => rootfs::open_again(self.image.input(), FileId { device, inode }, offset).ok(),
            Files::OfView => None,
        };
        let channel = self.channel()?;
        match &again {
            Some(again) => channel.send_fd(control::INPUT, again.as_fd()),
            None => channel.send_no_input(),
        }
        .at(Stage::Session)?;
        self.opened.input = again;
        Ok(())
    }

    /// Opens a pseudo terminal of the sandbox's devpts, so that its name is valid inside.
    fn open_terminal(&mut self) -> Result<(), Failed> {
        if !self.received.has(StreamKind::Terminal) {
            return Ok(());
        }
        use rustix::fs::open;
        use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let main = open(c"/dev/pts/ptmx", flags, Mode::empty()).at(Stage::Terminal)?;
        unlockpt(&main).at(Stage::Terminal)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let peer = ioctl_tiocgptpeer(&main, flags).at(Stage::Terminal)?;
        // The terminal of the host may be gone.
        if let Some(Ok(modes)) = self.received.take(Role::Modes).map(tcgetattr) {
            tcsetattr(&main, OptionalActions::Now, &modes).at(Stage::Terminal)?;
        }
        if let Some(Ok(size)) = self.received.take(Role::Size).map(tcgetwinsize) {
            tcsetwinsize(&main, size).at(Stage::Terminal)?;
        }
        self.channel()?.send_fd(control::TERMINAL, main.as_fd()).at(Stage::Terminal)?;
        self.opened.terminal = Some(peer);
        Ok(())
    }
}
