//! The terminal of the host while the command has a pseudo terminal in its place.

use std::os::fd::OwnedFd;

use rustix::termios::{
    OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, tcsetwinsize,
};

use avfs_engine::OutputBuffer;

use super::pump::{drain, feed, keep};
use super::{Flow, thread};
use crate::sys::Result;

/// Whether the terminal is ours: in the background it belongs to somebody else.
pub fn is_foreground(terminal: &OwnedFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// The real terminal, raw while the command has a pseudo terminal in its place.
pub struct Screen {
    main: OwnedFd,
    host: OwnedFd,
    before: Option<Termios>,
}

impl Screen {
    pub fn start(
        main: OwnedFd,
        hosts: [Option<OwnedFd>; 3],
        stopped: OwnedFd,
        output: Option<OutputBuffer>,
        flow: &mut Flow,
    ) -> Result<Self> {
        let clone = |fd: &OwnedFd| fd.try_clone().map_err(|_| rustix::io::Errno::MFILE);
        let [stdin, stdout, stderr] = hosts;
        // Where the pseudo terminal shows what it echoes and what the command writes.
        let shown_on = [&stdout, &stderr, &stdin].into_iter().flatten().next();
        let Some(shown_on) = shown_on else { return Err(rustix::io::Errno::NOTTY) };
        let mut screen = Self { main, host: clone(shown_on)?, before: None };
        screen.resize();
        let (from, into) = (clone(&screen.main)?, clone(shown_on)?);
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
        if let Some(stdin) = stdin
            && is_foreground(&stdin)
        {
            screen.make_raw(&stdin);
            let into = clone(&screen.main)?;
            flow.feeders.push(thread(move || feed(stdin, into, &stopped))?);
        }
        Ok(screen)
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
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.host, OptionalActions::Drain, before);
        }
    }
}
