//! Threads that copy the data of a stream.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use avfs_engine::{Output, OutputBuffer};

/// The output of a command, from a pipe or a pseudo terminal.
#[derive(Debug)]
pub struct Source {
    pub from: File,
    /// Closed when the command has ended, if other processes can still write.
    cut: Option<OwnedFd>,
    /// The number of bytes to read after that.
    left: Option<usize>,
}

impl Source {
    pub fn new(from: OwnedFd, cut: Option<OwnedFd>) -> Self {
        Self { from: from.into(), cut, left: None }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Self { from, cut: Some(cut), left } = self else { return self.from.read(buffer) };
        let left = match left {
            Some(left) => left,
            None => {
                let mut fds = [PollFd::new(&*from, PollFlags::IN), PollFd::new(&*cut, PollFlags::IN)];
                poll(&mut fds, None)?;
                if fds[1].revents().is_empty() {
                    return from.read(buffer);
                }
                let unread = rustix::io::ioctl_fionread(&*from).unwrap_or(0);
                left.insert(usize::try_from(unread).unwrap_or(usize::MAX))
            }
        };
        let room = buffer.len().min(*left);
        if room == 0 {
            return Ok(0);
        }
        let length = from.read(&mut buffer[..room])?;
        *left -= length;
        Ok(length)
    }
}

pub const PUMP_BYTES: usize = 64 * 1024;

/// The captured output of a stream, if known, and why some of it was not passed on.
pub type KeptOutput = (Option<Output>, std::io::Result<()>);

/// Copies our input until it ends, the command is gone, or `stopped` is closed.
pub fn feed(from: OwnedFd, into: OwnedFd, stopped: &OwnedFd) {
    let mut into = File::from(into);
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        match rustix::io::read(&from, &mut buffer) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) | Err(_) => return,
            // The command accepts no more input.
            Ok(length) => {
                if into.write_all(&buffer[..length]).is_err() {
                    return;
                }
            }
        }
    }
}

/// Copies the command's output until it ends. If writing fails, the command gets EPIPE, unless it has already ended,
/// so the failure is returned. A reader that closes the pipe is not an error.
pub fn drain(mut from: impl Read, into: OwnedFd) -> std::io::Result<()> {
    let mut into = File::from(into);
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A pseudo terminal ends with an error.
            Ok(0) | Err(_) => return Ok(()),
            Ok(length) => match deliver(&mut into, &buffer[..length]) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                other => other?,
            },
        }
    }
}

/// Captures the command's output until it ends, after passing it on: a reader of our stream sets the pace. If passing
/// it on fails, the command gets EPIPE, as in [`drain`], and the amount captured by then is arbitrary, so no output
/// is returned.
pub fn keep(mut from: impl Read, into: Option<OwnedFd>, mut output: OutputBuffer) -> KeptOutput {
    let mut into = into.map(File::from);
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return (Some(output.finish()), Ok(())),
            Ok(length) => {
                let bytes = &buffer[..length];
                match into.as_mut().map_or(Ok(()), |into| deliver(into, bytes)) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return (None, Ok(())),
                    Err(error) => return (None, Err(error)),
                }
                output.add(bytes);
            }
        }
    }
}

/// Writes all bytes, even to a stream that is non-blocking.
fn deliver(into: &mut File, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match into.write(bytes) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                match poll(&mut [PollFd::from_borrowed_fd(into.as_fd(), PollFlags::OUT)], None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
