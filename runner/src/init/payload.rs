//! The command's process, from its clone to its exec: drops all privileges, then executes the command.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::termios::tcsetpgrp;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Inherited, Stream};
use crate::confine::Filter;
use crate::stage::{At, Failed, Stage};
use crate::{confine, control, limits, sys};

/// The descriptors that init has opened for the command's streams.
pub struct Opened<'a> {
    pub terminal: Option<BorrowedFd<'a>>,
    pub null: Option<BorrowedFd<'a>>,
    pub input: Option<BorrowedFd<'a>>,
}

pub fn run(inherited: &Inherited<'_>, opened: &Opened<'_>) -> u8 {
    let failed = match prepare(inherited, opened) {
        Ok(()) => Failed { stage: Stage::Exec, errno: inherited.prepared.exec.run() },
        Err(failed) => failed,
    };
    // If the report has no reader, the error cannot be reported at all.
    let _ = rustix::io::write(inherited.report, &failed.to_bytes());
    1
}

fn prepare(inherited: &Inherited<'_>, opened: &Opened<'_>) -> Result<(), Failed> {
    let prepared = inherited.prepared;
    // A separate process group, in the foreground of the terminal.
    rustix::process::setpgid(None, None).at(Stage::Session)?;
    if let Some(terminal) = opened.terminal {
        // tcsetpgrp(3) stops a background process with SIGTTOU unless it is blocked.
        sys::block(&sys::SignalSet::of(&[libc::SIGTTOU])).at(Stage::Session)?;
        tcsetpgrp(terminal, rustix::process::getpid()).at(Stage::Session)?;
    }
    for (number, stream) in (0..).zip(inherited.stdio.streams) {
        let root;
        let fd = match stream {
            Stream::Fd(fd) => Ok(fd),
            Stream::File(_, pipe) => Ok(opened.input.unwrap_or(pipe)),
            Stream::Terminal => opened.terminal.ok_or(sys::Errno::NOTTY),
            Stream::Null => opened.null.ok_or(sys::Errno::BADF),
            Stream::Dir => {
                root = open(c"/", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).at(Stage::Session)?;
                Ok(root.as_fd())
            }
        };
        sys::dup_to(fd.at(Stage::Session)?, number).at(Stage::Session)?;
    }
    rustix::process::umask(Mode::from_raw_mode(prepared.umask));
    sys::keep_only_low_fds().at(Stage::Confine)?;
    sys::join_new_session_keyring().at(Stage::Confine)?;
    rustix::process::chdir(prepared.cwd.as_c_str()).at(Stage::Cwd)?;
    drop_capabilities(prepared.kept_capability).at(Stage::Confine)?;
    rustix::thread::set_no_new_privs(true).at(Stage::Confine)?;
    sys::restore_callers().at(Stage::Confine)?;
    if let Some(file_size) = prepared.file_size {
        limits::bound_file_size(file_size).at(Stage::Confine)?;
    }
    if let Some(landlock) = &prepared.landlock {
        landlock.enforce().at(Stage::Landlock)?;
    }
    if prepared.pinned {
        confine::pin().at(Stage::Seccomp)?;
    }
    // Last: the steps before may need calls that the filter refuses.
    match &prepared.filter {
        Some(filter) => install(filter, inherited).at(Stage::Seccomp),
        None => Ok(()),
    }
}

/// Sends the listener to the supervisor before the command's first call.
fn install(filter: &Filter, inherited: &Inherited<'_>) -> sys::Result<()> {
    match filter.install()? {
        Some(listener) => inherited.control.send_fd(control::NOTIFIER, listener.as_fd()),
        None => inherited.control.send_no_notifier(),
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
