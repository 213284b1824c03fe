//! A regular file as stdin: input that the command does not read stays unread.
//!
//! Init reopens the file through a detached read-only mount, at the caller's offset. After the command has ended, the
//! caller's offset is set to where the command stopped. Init cannot open a file that has no path (any more), such as
//! a shell's here-document, or one that the caller itself could not open: then the command gets a pipe. The thread
//! that fills the pipe reads ahead without moving the caller's offset, and finally subtracts the bytes left in the
//! pipe.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fstat, fstatfs, readlink, seek, tell};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use avfs_hostfs::held::FileId;

use super::pump::PUMP_BYTES;
use crate::sys::Result;

/// File systems whose files are kernel interfaces, by their statfs(2) magic: proc, sysfs, nsfs, cgroup, cgroup2,
/// debugfs, tracefs, securityfs, bpf, configfs, binfmt_misc, efivarfs, pstore, selinuxfs, smackfs. A descriptor of
/// such a file can be used for more than reading.
const KERNEL_INTERFACES: [i64; 15] = [
    0x9fa0,
    0x6265_6572,
    0x6e73_6673,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0x6265_6570,
    0x4249_4e4d,
    0xde5e_81e4,
    0x6165_676c,
    0xf97c_ff8c,
    0x4341_5d53,
];

/// The data that init needs to reopen the file.
pub struct InputFile {
    /// Empty if the file has no path: no file has the empty path.
    pub path: CString,
    pub id: FileId,
    /// The caller's offset.
    pub offset: u64,
}

impl InputFile {
    /// `None` for anything except a regular file that can be read from any offset.
    pub fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        let stat = fstat(fd).ok()?;
        let is_readable = fcntl_getfl(fd).is_ok_and(|flags| flags & OFlags::ACCMODE != OFlags::WRONLY);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !is_readable {
            return None;
        }
        let offset = tell(fd).ok()?;
        let is_data = fstatfs(fd).is_ok_and(|system| !KERNEL_INTERFACES.contains(&system.f_type));
        let path = match is_data {
            true => readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).unwrap_or_default(),
            false => CString::default(),
        };
        Some(Self { path, id: FileId::of(fd).ok()?, offset })
    }
}

/// Sets the caller's offset to where the command stopped, but only if the command has moved it: another process may
/// read the file through the same descriptor.
pub fn leave_at(file: &OwnedFd, start: u64, end: u64) {
    if start != end
        && let Err(errno) = seek(file, SeekFrom::Start(end))
    {
        tracing::warn!(%errno, "cannot set the offset of stdin to where the command stopped");
    }
}

/// A pipe instead of the file.
pub struct InputPipe {
    /// Non-blocking.
    into: OwnedFd,
    /// A duplicate of the command's end, to count the unread bytes.
    unread: OwnedFd,
}

impl InputPipe {
    /// The pipe, and the command's end.
    pub fn new() -> Result<(Self, OwnedFd)> {
        let (from, into) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&into, true)?;
        let unread = rustix::io::fcntl_dupfd_cloexec(&from, 3)?;
        Ok((Self { into, unread }, from))
    }

    /// Fills the pipe until `stopped` is closed, which is when the command has ended.
    pub fn feed(self, file: &OwnedFd, start: u64, stopped: &OwnedFd) {
        let Self { into, unread } = self;
        let mut written = 0;
        let mut buffer = vec![0; PUMP_BYTES];
        'file: while wait(file, PollFlags::IN, stopped) {
            let length = match rustix::io::pread(file, &mut buffer, start + written) {
                Err(Errno::INTR) => continue,
                Ok(0) | Err(_) => break,
                Ok(length) => length,
            };
            let mut rest = &buffer[..length];
            while !rest.is_empty() && wait(&into, PollFlags::OUT, stopped) {
                match rustix::io::write(&into, rest) {
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(_) => break 'file,
                    Ok(length) => {
                        written += length as u64;
                        rest = &rest[length..];
                    }
                }
            }
        }
        // The command reads end of file.
        drop(into);
        while wait_for_end(stopped) {}
        match rustix::io::ioctl_fionread(&unread) {
            Ok(left) => leave_at(file, start, start + written.saturating_sub(left)),
            Err(errno) => {
                tracing::warn!(%errno, "cannot set the offset of stdin to where the command stopped")
            }
        }
    }
}

/// Waits for a descriptor; false once `stopped` is closed.
fn wait(fd: &OwnedFd, flags: PollFlags, stopped: &OwnedFd) -> bool {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(fd.as_fd(), flags),
            PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => return fds[1].revents().is_empty(),
        }
    }
}

/// Waits until `stopped` is closed; true if it has to be called again.
fn wait_for_end(stopped: &OwnedFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN)];
    matches!(poll(&mut fds, None), Err(Errno::INTR))
}
