//! The command's process, from its clone to its exec: drops all privileges, then executes the command.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Rlimit;
use rustix::termios::tcsetpgrp;
use rustix::thread::{CapabilitySet, CapabilitySets};

use avfs_engine::Commands;

use super::Command;
use crate::confine::Filter;
use crate::control::{Channel, Role, StreamKind};
use crate::prepare::{self, Prepared};
use crate::stage::{At, Failed, Stage};
use crate::{confine, control, limits, sys};

pub fn run(prepared: &Prepared, command: &Command) -> u8 {
    let failed = match confine_self(prepared, command) {
        Ok(()) => Failed { stage: Stage::Exec, errno: command.image.run() },
        Err(failed) => failed,
    };
    command.report(failed);
    1
}

/// If the report has no reader, the error cannot be reported at all.
pub fn report(report: Option<BorrowedFd<'_>>, failed: Failed) {
    if let Some(report) = report {
        let _ = rustix::io::write(report, &failed.to_bytes());
    }
}

impl Command {
    pub fn report(&self, failed: Failed) {
        report(self.received.descriptor(Role::Report), failed);
    }
}

fn confine_self(prepared: &Prepared, command: &Command) -> Result<(), Failed> {
    begin_session(prepared, command)?;
    connect_streams(command)?;
    let umask = u32::try_from(command.image.number(prepare::UMASK)).unwrap_or(0);
    rustix::process::umask(Mode::from_raw_mode(umask));
    sys::keep_only_low_fds().at(Stage::Confine)?;
    sys::join_new_session_keyring().at(Stage::Confine)?;
    rustix::process::chdir(command.image.cwd()).at(Stage::Cwd)?;
    drop_capabilities(prepared.kept_capability).at(Stage::Confine)?;
    rustix::thread::set_no_new_privs(true).at(Stage::Confine)?;
    sys::restore_callers().at(Stage::Confine)?;
    let file_size = Some(command.image.number(prepare::FILE_SIZE)).filter(|bytes| *bytes != u64::MAX);
    if file_size.is_some() {
        let limit = Rlimit { current: file_size, maximum: file_size };
        limits::bound_file_size(limit).at(Stage::Confine)?;
    }
    if let Some(landlock) = &prepared.landlock {
        landlock.enforce().at(Stage::Landlock)?;
    }
    if prepared.pinned {
        confine::pin().at(Stage::Seccomp)?;
    }
    // Last: the steps before may need calls that the filter refuses.
    match &prepared.filter {
        Some(filter) => install(filter, &command.channel()?).at(Stage::Seccomp),
        None => Ok(()),
    }
}

/// The only command is a process group in init's session, in the foreground of the terminal. Others have a session
/// each, because a session has only one terminal.
fn begin_session(prepared: &Prepared, command: &Command) -> Result<(), Failed> {
    let terminal = &command.opened.terminal;
    match prepared.commands {
        Commands::One => {
            rustix::process::setpgid(None, None).at(Stage::Session)?;
            if let Some(terminal) = terminal {
                // tcsetpgrp(3) stops a background process with SIGTTOU unless that is blocked, as all signals are.
                tcsetpgrp(terminal, rustix::process::getpid()).at(Stage::Session)?;
            }
        }
        Commands::Many => {
            rustix::process::setsid().at(Stage::Session)?;
            if let Some(terminal) = terminal {
                rustix::process::ioctl_tiocsctty(terminal).at(Stage::Session)?;
            }
        }
    }
    Ok(())
}

fn connect_streams(command: &Command) -> Result<(), Failed> {
    let opened = &command.opened;
    for ((number, role), kind) in
        (0..).zip([Role::Stdin, Role::Stdout, Role::Stderr]).zip(command.received.streams)
    {
        let root;
        let given = command.received.descriptor(role);
        let fd = match kind {
            StreamKind::Fd => given,
            StreamKind::File => opened.input.as_ref().map(OwnedFd::as_fd).or(given),
            StreamKind::Terminal => opened.terminal.as_ref().map(OwnedFd::as_fd),
            StreamKind::Null => opened.null.as_ref().map(OwnedFd::as_fd),
            StreamKind::Dir => {
                root = open(c"/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).at(Stage::Session)?;
                Some(root.as_fd())
            }
        };
        let fd = fd.ok_or(sys::Errno::BADF).at(Stage::Session)?;
        sys::dup_to(fd, number).at(Stage::Session)?;
    }
    Ok(())
}

/// Sends the listener to the supervisor before the command's first call.
fn install(filter: &Filter, channel: &Channel<'_>) -> sys::Result<()> {
    match filter.install()? {
        Some(listener) => channel.send_fd(control::NOTIFIER, listener.as_fd()),
        None => channel.send_no_notifier(),
    }
}

/// Empties every capability set except for `kept`: with uid 0, an exec would restore all capabilities from the
/// bounding set.
///
/// Does not use the `caps` crate: its sets and errors allocate, and it leaves capabilities of newer kernels in place.
fn drop_capabilities(kept: CapabilitySet) -> sys::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    for number in 0..64 {
        let Some(bit) = 1_u64.checked_shl(number) else { break };
        if kept.bits() & bit != 0 {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(bit)) {
            // Past the last capability this kernel knows.
            Err(sys::Errno::INVAL) => break,
            other => other?,
        }
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
