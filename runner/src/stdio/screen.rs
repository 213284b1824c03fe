//! The terminal of the host while the command uses a pseudo terminal instead.

use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{
    OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};

use avfs_engine::OutputBuffer;

use super::pump::{drain, feed, keep};
use super::{Flow, thread};
use crate::sys::Result;

/// Whether we are in the foreground: in the background, the terminal belongs to another process group.
pub fn is_foreground(terminal: &OwnedFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// How long the pseudo terminal must be idle before the real one is restored.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The interval for checking whether the thread that reads from the terminal has ended.
const STOPPING: Duration = Duration::from_millis(5);
/// The maximum number of checks: a command that is not stopped could write forever.
const QUIET_TRIES_MAX: usize = 100;

/// The real terminal, in raw mode while the command uses a pseudo terminal.
pub struct Screen {
    main: OwnedFd,
    host: OwnedFd,
    /// The terminal for input, if it is our stdin.
    stdin: Option<OwnedFd>,
    before: Option<Termios>,
    /// The thread that copies the input; closing the descriptor stops it.
    typing: Option<(OwnedFd, JoinHandle<()>)>,
}

fn clone(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().map_err(|_| Errno::MFILE)
}

impl Screen {
    pub fn start(
        main: OwnedFd,
        hosts: [Option<OwnedFd>; 3],
        output: Option<OutputBuffer>,
        flow: &mut Flow,
    ) -> Result<Self> {
        let [stdin, stdout, stderr] = hosts;
        // The stream that shows the pseudo terminal's echo and the command's output.
        let shown_on = [&stdout, &stderr, &stdin].into_iter().flatten().next();
        let Some(shown_on) = shown_on else { return Err(Errno::NOTTY) };
        let (from, into, host) = (clone(&main)?, clone(shown_on)?, clone(shown_on)?);
        match (output, &stdout, &stderr) {
            (Some(output), Some(_), Some(_)) => {
                flow.merged = Some(thread(move || keep(from, Some(into), output))?);
            }
            (Some(output), Some(_), None) => {
                flow.kept[0] = Some(thread(move || keep(from, Some(into), output))?);
            }
            (Some(output), None, Some(_)) => {
                flow.kept[1] = Some(thread(move || keep(from, Some(into), output))?);
            }
            (Some(_), None, None) | (None, _, _) => flow.drains.push(thread(move || drain(from, into))?),
        }
        let mut screen = Self { main, host, stdin, before: None, typing: None };
        screen.resize();
        screen.type_on()?;
        Ok(screen)
    }

    /// Sets the terminal to raw mode and copies its input, if we are in the foreground.
    fn type_on(&mut self) -> Result<()> {
        let Some(stdin) = self.stdin.as_ref().filter(|stdin| self.typing.is_none() && is_foreground(stdin))
        else {
            return Ok(());
        };
        let (from, into) = (clone(stdin)?, clone(&self.main)?);
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        self.make_raw(&clone(stdin)?);
        self.typing = Some((stop, thread(move || feed(from, into, &stopped))?));
        Ok(())
    }

    /// Waits until our thread no longer reads from the terminal.
    pub fn stop_typing(&mut self) {
        if let Some((stop, typing)) = self.typing.take() {
            drop(stop);
            let _ = typing.join();
        }
    }

    /// Restores the terminal once all output is written to it.
    pub fn leave(&mut self) {
        for _ in 0..QUIET_TRIES_MAX {
            match poll(&mut [PollFd::new(&self.main, PollFlags::IN)], Some(&QUIET)) {
                Ok(0) => break,
                // The output thread needs time to run.
                Ok(_) | Err(_) => std::thread::yield_now(),
            }
        }
        if let Some((stop, typing)) = self.typing.take() {
            drop(stop);
            // Two readers would take input from each other. A thread that is blocked by a command that does not read
            // is left alone.
            for _ in 0..QUIET_TRIES_MAX {
                if typing.is_finished() {
                    break;
                }
                std::thread::sleep(STOPPING);
            }
        }
        self.restore();
    }

    /// Takes the terminal again.
    pub fn take(&mut self) {
        self.resize();
        if let Err(errno) = self.type_on() {
            tracing::warn!(%errno, "terminal input does not reach the command");
        }
    }

    fn restore(&mut self) {
        if let (Some(before), Some(stdin)) = (self.before.take(), &self.stdin) {
            let _ = tcsetattr(stdin, OptionalActions::Drain, &before);
        }
    }

    fn make_raw(&mut self, terminal: &OwnedFd) {
        let Ok(before) = tcgetattr(terminal) else { return };
        let mut raw = before.clone();
        raw.make_raw();
        if tcsetattr(terminal, OptionalActions::Drain, &raw).is_ok() {
            self.before = Some(before);
        }
    }

    pub fn resize(&self) {
        if let Ok(size) = tcgetwinsize(&self.host) {
            let _ = tcsetwinsize(&self.main, size);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.restore();
    }
}
