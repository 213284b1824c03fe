//! Process 1 inside the new namespaces: sets up the root, starts the command, reaps.
//!
//! Between the clone and the exit, this code does not allocate, lock or unwind: everything it needs is created before
//! the clone. Failures are reported as eight bytes.

mod listener;
mod payload;
mod private_dirs;
mod reap;
mod rootfs;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Signal};
use rustix::termios::{OptionalActions, Termios, Winsize, tcsetattr, tcsetwinsize};

use self::private_dirs::PrivateDirs;
use crate::control::Channel;
use crate::prepare::Prepared;
use crate::stage::{At, Failed, Stage};
use crate::stdio::InputFile;
use crate::{control, sys};

/// The command's three streams.
pub struct Stdio<'a> {
    pub streams: [Stream<'a>; 3],
    /// Initial size and modes of the pseudo terminal, set before the command can ask for them.
    pub size: Option<Winsize>,
    pub modes: Option<Termios>,
}

#[derive(Clone, Copy)]
pub enum Stream<'a> {
    Fd(BorrowedFd<'a>),
    /// A regular file that init reopens; if that fails, this descriptor.
    File(&'a InputFile, BorrowedFd<'a>),
    /// The pseudo terminal that init opens.
    Terminal,
    /// `/dev/null`, which init opens.
    Null,
    /// The root of the sandbox, in place of a directory of the host.
    Dir,
}

impl Stdio<'_> {
    fn wants_terminal(&self) -> bool {
        self.streams.iter().any(|stream| matches!(stream, Stream::Terminal))
    }

    fn wants_null(&self) -> bool {
        self.streams.iter().any(|stream| matches!(stream, Stream::Null))
    }
}

/// What init inherits from the supervisor.
pub struct Inherited<'a> {
    pub prepared: &'a Prepared,
    pub control: Channel<'a>,
    /// Closed by a successful exec; eight bytes before that mean failure.
    pub report: BorrowedFd<'a>,
    pub stdio: Stdio<'a>,
}

/// The exit code is not used: the report and the control channel have said everything.
pub fn run(inherited: &Inherited<'_>) -> u8 {
    match start(inherited) {
        Ok(Some((payload, private))) => reap::until_the_end(payload, &inherited.control, &private),
        // The supervisor has exited.
        Ok(None) => 1,
        Err(failed) => {
            // If the report has no reader, the error cannot be reported at all.
            let _ = rustix::io::write(inherited.report, &failed.to_bytes());
            1
        }
    }
}

fn start<'a>(inherited: &Inherited<'a>) -> Result<Option<(sys::Pid, PrivateDirs<'a>)>, Failed> {
    let prepared = inherited.prepared;
    prepared.arguments.clear();
    // The supervisor's end of the channel makes sure of this; the signal makes it fast.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).at(Stage::Start)?;
    if !inherited.control.wait_for_go().at(Stage::Start)? {
        return Ok(None);
    }
    rustix::process::umask(rustix::fs::Mode::empty());
    if let Some(hostname) = prepared.hostname {
        rustix::system::sethostname(hostname.as_bytes()).at(Stage::Hostname)?;
    }
    let rootfs::Made { memory, proc } = rootfs::make(prepared)?;
    if let Some(memory) = memory {
        inherited.control.send_fd(control::MEMORY, memory.as_fd()).at(Stage::Memory)?;
    }
    if let Some(proc) = proc {
        // This /proc shows the supervisor exactly the processes inside.
        inherited.control.send_fd(control::PROC, proc.as_fd()).at(Stage::Limits)?;
    }
    let terminal = open_terminal(inherited)?;
    let null =
        if inherited.stdio.wants_null() { Some(rootfs::open_null().at(Stage::Session)?) } else { None };
    let input = open_input(inherited)?;
    rootfs::enter().at(Stage::Pivot)?;
    let null = null.map(|null| rootfs::null_of_view(&null).unwrap_or(null));
    let private = PrivateDirs::note(&prepared.private_dirs);
    if prepared.loopback {
        sys::raise_loopback().at(Stage::Loopback)?;
    }
    if prepared.wants_listener {
        let listener = listener::open().at(Stage::Listener)?;
        inherited.control.send_fd(control::LISTENER, listener.as_fd()).at(Stage::Listener)?;
    }
    // The command has the same uid: it must not inspect this process, which keeps its capabilities.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Stage::Start)?;
    // Blocked before the first child exists, so that no SIGCHLD is missed.
    sys::block(&sys::SignalSet::of(&[libc::SIGCHLD])).at(Stage::Fork)?;
    // A separate session for the sandbox: no signal to a process group reaches the host, and no input can be pushed
    // into a terminal of the host. This process is the session leader, so that the command's process group has a
    // parent in the session and can be stopped by ^Z.
    rustix::process::setsid().at(Stage::Session)?;
    if let Some(terminal) = &terminal {
        rustix::process::ioctl_tiocsctty(terminal).at(Stage::Session)?;
    }
    let payload = sys::clone_process(sys::CloneFlags::default(), || {
        let opened = payload::Opened {
            terminal: terminal.as_ref().map(OwnedFd::as_fd),
            null: null.as_ref().map(OwnedFd::as_fd),
            input: input.as_ref().map(OwnedFd::as_fd),
        };
        payload::run(inherited, &opened)
    })
    .at(Stage::Fork)?;
    // Before all other descriptors are closed by number: closing a descriptor twice aborts a debug build.
    drop((terminal, null, input));
    inherited.control.keep_alone().at(Stage::Fork)?;
    Ok(Some((payload, private)))
}

/// Reopens a regular file that was given as stdin, and sends the descriptor to the supervisor, which reads the
/// command's offset from it.
fn open_input(inherited: &Inherited<'_>) -> Result<Option<OwnedFd>, Failed> {
    let file = inherited.stdio.streams.iter().find_map(|stream| match stream {
        Stream::File(file, _) => Some(file),
        Stream::Fd(_) | Stream::Terminal | Stream::Null | Stream::Dir => None,
    });
    let Some(file) = file else { return Ok(None) };
    let again = rootfs::open_again(file).ok();
    match &again {
        Some(again) => inherited.control.send_fd(control::INPUT, again.as_fd()),
        None => inherited.control.send_no_input(),
    }
    .at(Stage::Session)?;
    Ok(again)
}

/// Opens a pseudo terminal of the sandbox's devpts, so that its name is valid inside.
fn open_terminal(inherited: &Inherited<'_>) -> Result<Option<OwnedFd>, Failed> {
    if !inherited.stdio.wants_terminal() {
        return Ok(None);
    }
    use rustix::fs::open;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let main = open(c"dev/pts/ptmx", flags, Mode::empty()).at(Stage::Terminal)?;
    unlockpt(&main).at(Stage::Terminal)?;
    let peer = ioctl_tiocgptpeer(&main, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
    let peer = peer.at(Stage::Terminal)?;
    if let Some(modes) = &inherited.stdio.modes {
        tcsetattr(&main, OptionalActions::Now, modes).at(Stage::Terminal)?;
    }
    if let Some(size) = inherited.stdio.size {
        tcsetwinsize(&main, size).at(Stage::Terminal)?;
    }
    inherited.control.send_fd(control::TERMINAL, main.as_fd()).at(Stage::Terminal)?;
    Ok(Some(peer))
}
