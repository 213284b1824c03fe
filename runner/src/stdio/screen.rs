//! The terminal of the host while the command uses a pseudo terminal instead.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use avfs_engine::OutputBuffer;

use super::pump::{Source, drain, keep};
use super::typing::{Echo, Screened, Seat, Typing, resize};
use super::{Flow, thread};
use crate::sys::{self, Result};

/// How long the pseudo terminal must be idle before the real one is restored.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The maximum number of checks: a command that is not stopped could write forever.
const QUIET_TRIES_MAX: usize = 100;

/// The real terminal while the command uses a pseudo terminal.
pub struct Screen {
    main: OwnedFd,
    host: OwnedFd,
    /// The terminal for input, if it is our stdin.
    stdin: Option<OwnedFd>,
    /// Given if stdout is not a terminal.
    echo: Option<Echo>,
    /// Set while `typing` shares the terminal.
    seat: Seat,
    /// Dropped to restore the terminal.
    typing: Option<Typing>,
}

fn clone(fd: &OwnedFd) -> Result<OwnedFd> {
    fd.try_clone().map_err(|_| Errno::MFILE)
}

impl Screen {
    pub fn start(
        main: OwnedFd,
        hosts: [Option<OwnedFd>; 3],
        output: Option<OutputBuffer>,
        cut: Option<OwnedFd>,
        flow: &mut Flow,
    ) -> Result<Self> {
        let [stdin, stdout, stderr] = hosts;
        // The stream that shows the pseudo terminal's echo and the command's output.
        let shown_on = [&stdout, &stderr, &stdin].into_iter().flatten().next();
        let Some(shown_on) = shown_on else { return Err(Errno::NOTTY) };
        let (into, host) = (clone(shown_on)?, clone(shown_on)?);
        let (echo, seat) = (Echo::default(), Seat::default());
        let (shown, taken) = (Arc::clone(&echo), Arc::clone(&seat));
        let from = Screened { main: Source::new(clone(&main)?, cut), echo: shown, seat: taken };
        let echo = stdout.is_none().then_some(echo);
        let mut screen = Self { main, host, stdin, echo, seat, typing: None };
        screen.resize();
        // Before output is shown: the first one may be a prompt for a password.
        screen.type_on()?;
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
        Ok(screen)
    }

    /// Copies the input of the terminal, whenever we are in the foreground.
    fn type_on(&mut self) -> Result<()> {
        if let (None, Some(stdin)) = (&self.typing, &self.stdin) {
            let (stdin, main, shown_on) = (clone(stdin)?, clone(&self.main)?, clone(&self.host)?);
            self.typing =
                Some(Typing::start(stdin, main, shown_on, (self.echo.clone(), Arc::clone(&self.seat)))?);
        }
        Ok(())
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
        self.typing = None;
    }

    /// Takes the terminal again.
    pub fn take(&mut self) {
        self.resize();
        if let Err(errno) = self.type_on() {
            tracing::warn!(%errno, "terminal input does not reach the command");
        }
    }

    /// True if the keys that send signals are those of the real terminal, and this signal was passed on.
    pub fn pass_key(&self, signal: i32) -> bool {
        let is_shared = self.stdin.is_some() && self.echo.is_some();
        is_shared && sys::signal_foreground(self.main.as_fd(), signal).is_ok()
    }

    pub fn resize(&self) {
        resize(&self.host, &self.main);
    }
}
