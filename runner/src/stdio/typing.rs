//! The thread that copies the input of the real terminal to the pseudo terminal.
//!
//! The terminal is taken only in the foreground. A shell that brings a job to the foreground sends a signal only if the
//! job was stopped, so in the background the thread looks from time to time who has the terminal.
//!
//! If stdout is not a terminal, its reader may be a program that uses the terminal, such as a pager. Then the terminal
//! is shared: it keeps its modes, edits and echoes the lines, and sends the signals. Lines are copied unless another
//! program has switched line mode off. The terminal is raw only while the command's own modes are not those of lines
//! with echo, for a password or a full-screen program.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr, tcsetwinsize,
};

use super::pump::{PUMP_BYTES, Source};
use super::thread;
use crate::sys::{self, Result};

/// The interval for checking who has the terminal while we do not, and which modes it needs while it is shared.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long the thread may take to end.
const STOPPING: Duration = Duration::from_millis(500);

/// Whether we are in the foreground: in the background, the terminal belongs to another process group.
pub fn is_foreground(terminal: &OwnedFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Sets the size of the pseudo terminal to that of the real one.
pub fn resize(host: impl AsFd, main: impl AsFd) {
    if let Ok(size) = tcgetwinsize(host) {
        let _ = tcsetwinsize(main, size);
    }
}

/// The echo of copied lines that the pseudo terminal has not written yet. The real terminal has echoed them already.
pub type Echo = Arc<Mutex<VecDeque<u8>>>;

/// The keyboard, while a shared terminal is read.
pub type Seat = Arc<Mutex<Option<Arc<Keyboard>>>>;

/// The output of the pseudo terminal, without this echo.
pub struct Screened {
    pub main: Source,
    pub echo: Echo,
    pub seat: Seat,
}

impl Read for Screened {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let length = self.main.read(buffer)?;
            // A program switches the echo off before its prompt, so the terminal follows before it shows the prompt.
            if let Some(keyboard) = &*self.seat.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = keyboard.look();
            }
            let mut echo = self.echo.lock().unwrap_or_else(PoisonError::into_inner);
            let same = buffer.iter().take(length).zip(&*echo).take_while(|(byte, echo)| byte == echo).count();
            // Output of the command, which may have switched the echo off.
            if same < length {
                echo.clear();
            } else {
                echo.drain(..same);
            }
            if length == 0 || same < length {
                buffer.copy_within(same..length, 0);
                return Ok(length - same);
            }
        }
    }
}

/// Whether the command has switched off the editing or the echo of lines.
fn needs_keys(main: &File) -> bool {
    let lines = LocalModes::ICANON | LocalModes::ECHO;
    tcgetattr(main).is_ok_and(|modes| !modes.local_modes.contains(lines))
}

/// The running thread. When this is dropped, it ends, and the terminal gets its modes back.
pub struct Typing {
    keyboard: Arc<Keyboard>,
    seat: Seat,
    /// Closed to stop the thread.
    stop: Option<OwnedFd>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// The real terminal and the pseudo terminal.
pub struct Keyboard {
    host: OwnedFd,
    main: File,
    /// The terminal whose size the pseudo terminal has.
    shown_on: OwnedFd,
    /// The modes of the real terminal before we set it to raw mode.
    before: Mutex<Option<Termios>>,
    /// Given if the terminal is shared.
    echo: Option<Echo>,
}

/// Who reads from the real terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// We read every key; the terminal is in raw mode.
    Keys,
    /// We read lines; the terminal is in the modes that it had.
    Lines,
    Other,
}

impl Typing {
    pub fn start(
        host: OwnedFd,
        main: OwnedFd,
        shown_on: OwnedFd,
        (echo, seat): (Option<Echo>, Seat),
    ) -> Result<Self> {
        // Another program may be faster to read a line, and then reading must not block.
        let again = || {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(format!("/proc/self/fd/{}", host.as_raw_fd()), flags, Mode::empty()).ok()
        };
        let host = echo.as_ref().and_then(|_| again()).unwrap_or(host);
        let keyboard = Keyboard { host, main: main.into(), shown_on, before: Mutex::new(None), echo };
        let keyboard = Arc::new(keyboard);
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let (end, ended) = channel();
        // Created first, so that the modes are restored if the thread cannot be started.
        let typing = Self { keyboard: Arc::clone(&keyboard), seat, stop: Some(stop), ended };
        let reader = keyboard.look();
        let is_shared = keyboard.echo.is_some();
        *typing.seat.lock().unwrap_or_else(PoisonError::into_inner) =
            is_shared.then(|| Arc::clone(&keyboard));
        thread(move || {
            let _end: Sender<()> = end;
            if let Ok(reader) = reader {
                keyboard.copy(reader, &stopped);
            }
        })?;
        Ok(typing)
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        self.stop = None;
        *self.seat.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // Two readers would take input from each other. A thread that is blocked by a command that does not read is
        // left alone.
        let _ = self.ended.recv_timeout(STOPPING);
        self.keyboard.restore();
    }
}

impl Keyboard {
    fn copy(&self, mut reader: Reader, stopped: &OwnedFd) {
        let mut buffer = vec![0; PUMP_BYTES];
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN)];
            let wait = match reader {
                Reader::Keys if self.echo.is_none() => None,
                Reader::Keys | Reader::Lines | Reader::Other => Some(&LOOK),
            };
            if reader != Reader::Other {
                fds.push(PollFd::from_borrowed_fd(self.host.as_fd(), PollFlags::IN));
            }
            if poll(&mut fds, wait).is_err() {
                continue;
            }
            let came = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (is_stopped, is_typed) = (came(0), came(1));
            if is_stopped {
                return;
            }
            let before = reader;
            match self.look() {
                Ok(now) => reader = now,
                // The terminal is gone.
                Err(_) => return,
            }
            if before == Reader::Other && reader != before {
                // In the background, no signal reports a new size.
                resize(&self.shown_on, &self.main);
            }
            if is_typed && reader == before && !self.copy_once(reader, &mut buffer) {
                return;
            }
        }
    }

    /// False after the last input.
    fn copy_once(&self, reader: Reader, buffer: &mut [u8]) -> bool {
        match (rustix::io::read(&self.host, &mut *buffer), reader) {
            (Err(Errno::INTR | Errno::AGAIN), _) => true,
            (Ok(length), Reader::Lines) => self.copy_line(&buffer[..length]),
            (Ok(0) | Err(_), _) => false,
            (Ok(length), Reader::Keys | Reader::Other) => {
                let typed = &buffer[..length];
                if self.interrupts(typed) {
                    sys::interrupt_was_typed();
                }
                (&self.main).write_all(typed).is_ok()
            }
        }
    }

    /// Whether the pseudo terminal turns one of these bytes into SIGINT.
    fn interrupts(&self, typed: &[u8]) -> bool {
        tcgetattr(&self.main).is_ok_and(|modes| {
            modes.local_modes.contains(LocalModes::ISIG)
                && typed.contains(&modes.special_codes[SpecialCodeIndex::VINTR])
        })
    }

    fn copy_line(&self, typed: &[u8]) -> bool {
        let Ok(modes) = tcgetattr(&self.main) else { return false };
        if let Some(echo) = &self.echo {
            let returns = modes.output_modes.contains(OutputModes::OPOST | OutputModes::ONLCR);
            let line_end: &[u8] = if returns { b"\r\n" } else { b"\n" };
            let mut echo = echo.lock().unwrap_or_else(PoisonError::into_inner);
            for byte in typed {
                echo.extend(if *byte == b'\n' { line_end } else { std::slice::from_ref(byte) });
            }
        }
        let code = |index| modes.special_codes[index];
        let ends = [b'\n', code(SpecialCodeIndex::VEOL), code(SpecialCodeIndex::VEOL2)];
        let mut line = typed.to_vec();
        // Anything else was ended by ^D.
        if typed.last().is_none_or(|last| !ends.contains(last)) {
            line.push(code(SpecialCodeIndex::VEOF));
        }
        (&self.main).write_all(&line).is_ok()
    }

    /// Takes the terminal, if we are in the foreground.
    fn look(&self) -> Result<Reader> {
        if tcgetpgrp(&self.host)? != rustix::process::getpgrp() {
            return Ok(Reader::Other);
        }
        if self.echo.is_some() && !needs_keys(&self.main) {
            self.restore();
            let has_lines = tcgetattr(&self.host)?.local_modes.contains(LocalModes::ICANON);
            return Ok(if has_lines { Reader::Lines } else { Reader::Other });
        }
        self.make_raw();
        Ok(Reader::Keys)
    }

    fn make_raw(&self) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if before.is_some() {
            return;
        }
        let Ok(modes) = tcgetattr(&self.host) else { return };
        let mut raw = modes.clone();
        raw.make_raw();
        if tcsetattr(&self.host, OptionalActions::Drain, &raw).is_ok() {
            *before = Some(modes);
        }
    }

    fn restore(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(before) = before {
            let _ = tcsetattr(&self.host, OptionalActions::Drain, &before);
        }
    }
}
