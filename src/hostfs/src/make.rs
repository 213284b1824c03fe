//! Creates files, links and directories in a directory that the caller has open.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Timestamps};
use rustix::io::Errno;

use avfs_types::clock::FileTime;

use crate::stat::timespec;
use crate::xattr;

/// The setuid and setgid bits.
pub const SET_ID_BITS: u32 = 0o6000;

/// The umask: the bits that the process clears in every mode.
#[derive(Clone, Copy, Debug)]
pub struct Umask(u32);

impl Umask {
    /// The umask that applies in `dir`. Read from /proc/self/status, because umask(2) would change it for other
    /// threads.
    pub fn beneath(dir: BorrowedFd<'_>) -> io::Result<Self> {
        // A default ACL replaces the umask and is inherited: then every mode is set explicitly.
        let mut acl = [0_u8; 0];
        if rustix::fs::fgetxattr(dir, "system.posix_acl_default", &mut acl[..]).is_ok_and(|length| length > 0)
        {
            return Ok(Self(0o7777));
        }
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let bits = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
        // If the kernel does not report it, every mode is set explicitly.
        Ok(Self(bits.unwrap_or(0o7777)))
    }

    /// True if a file created with this mode needs no chmod.
    fn passes(self, mode: u32) -> bool {
        mode & self.0 == 0 && mode & !0o777 == 0
    }
}

fn times(mtime: FileTime) -> Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Timestamps { last_access: now, last_modification: timespec(mtime) }
}

/// Creates an empty file; fails if the name exists.
pub fn file(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, OsStr::from_bytes(name), flags, Mode::from_raw_mode(mode & 0o777))?)
}

/// Changes the mode. The kernel silently drops the setgid bit if the process is not in the file's group, as in a
/// setgid directory of another group; then the file first gets the process's own group.
fn change_mode(file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    let lost = |now: u32| mode & SET_ID_BITS & !now != 0;
    if mode & SET_ID_BITS == 0 || !lost(rustix::fs::fstat(file)?.st_mode) {
        return Ok(());
    }
    match rustix::fs::fchown(file, None, Some(rustix::process::getegid())) {
        Ok(()) => Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?),
        // A file system without groups has no such bits either.
        Err(_) => Ok(()),
    }
}

/// Sets the mode, attributes and time of a written file, in an order that preserves each.
pub fn finish(
    file: BorrowedFd<'_>,
    mode: u32,
    umask: Umask,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    mtime: FileTime,
) -> io::Result<()> {
    // Attributes can only be set while the owner has write permission, even on a writable descriptor.
    let closed = !xattrs.is_empty() && mode & 0o200 == 0;
    if closed {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o777 | 0o200))?;
    }
    xattr::write(file, xattrs)?;
    if closed || !umask.passes(mode) {
        change_mode(file, mode)?;
    }
    // An access time equal to the modification time marks a file that was never read, which distinguishes a copy of
    // it in an overlay from a new file.
    let times = Timestamps { last_access: timespec(mtime), last_modification: timespec(mtime) };
    Ok(rustix::fs::futimens(file, &times)?)
}

pub fn symlink(dir: BorrowedFd<'_>, name: &[u8], target: &[u8], mtime: FileTime) -> io::Result<()> {
    let name = OsStr::from_bytes(name);
    rustix::fs::symlinkat(OsStr::from_bytes(target), dir, name)?;
    Ok(rustix::fs::utimensat(dir, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?)
}

pub fn fifo(dir: BorrowedFd<'_>, name: &[u8], mode: u32, mtime: FileTime) -> io::Result<()> {
    let name = OsStr::from_bytes(name);
    rustix::fs::mknodat(dir, name, FileType::Fifo, Mode::from_raw_mode(mode & 0o777), 0)?;
    // The FIFO was created just now in a directory that only the caller can write, so it is not a symlink.
    rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    Ok(rustix::fs::utimensat(dir, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Creates a directory that only its owner can use until [`finish_dir`] sets its mode.
pub fn dir(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::mkdirat(parent, OsStr::from_bytes(name), Mode::from_raw_mode(0o700))?)
}

/// Removes other users' permissions on a directory: earlier versions of avfs created some that were open to others.
pub fn close_to_others(dir: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    if rustix::fs::fstat(&dir)?.st_mode & 0o077 != 0 {
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o700))?;
    }
    Ok(())
}

/// Creates a directory and its missing parents, closed to other users from the start: files in it may have any
/// mode, including setuid programs.
pub fn private_dirs(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Sets the attributes, mode and time of a directory after it is filled.
pub fn finish_dir(
    dir: BorrowedFd<'_>,
    mode: u32,
    xattrs: &[(Vec<u8>, Vec<u8>)],
    mtime: FileTime,
) -> io::Result<()> {
    xattr::write(dir, xattrs)?;
    change_mode(dir, mode)?;
    Ok(rustix::fs::futimens(dir, &times(mtime))?)
}

/// Changes the mode of a file or directory, also through an `O_PATH` descriptor, for which fchmod fails: its name
/// in /proc refers to the same file.
pub fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::chmod(name, Mode::from_raw_mode(mode))?)
}

/// Changes the time of an open file or directory.
pub fn set_mtime(fd: BorrowedFd<'_>, mtime: FileTime) -> io::Result<()> {
    Ok(rustix::fs::futimens(fd, &times(mtime))?)
}

/// Creates a hard link.
pub fn link(from_dir: BorrowedFd<'_>, from: &[u8], to_dir: BorrowedFd<'_>, to: &[u8]) -> io::Result<()> {
    let (from, to) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
    Ok(rustix::fs::linkat(from_dir, from, to_dir, to, AtFlags::empty())?)
}

/// How a rename treats an existing file at the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The new name must not exist.
    Nothing,
    /// An existing file is replaced atomically.
    File,
    /// Anything is allowed: the two are exchanged, atomically if the file system supports it.
    Anything,
}

/// Renames `from` to `to`.
pub fn rename(
    (from_dir, from): (BorrowedFd<'_>, &[u8]),
    (to_dir, to): (BorrowedFd<'_>, &[u8]),
    over: Over,
) -> io::Result<()> {
    let flags = match over {
        Over::Nothing => RenameFlags::NOREPLACE,
        Over::File => RenameFlags::empty(),
        Over::Anything => RenameFlags::EXCHANGE,
    };
    let (old, new) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
    avfs_types::pause::point("rename");
    match rustix::fs::renameat_with(from_dir, old, to_dir, new, flags) {
        // Not every file system supports the flags.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rename_in_steps((from_dir, from), (to_dir, to), over)
        }
        other => Ok(other?),
    }
}

fn rename_in_steps(
    (from_dir, from): (BorrowedFd<'_>, &[u8]),
    (to_dir, to): (BorrowedFd<'_>, &[u8]),
    over: Over,
) -> io::Result<()> {
    let (old, new) = (OsStr::from_bytes(from), OsStr::from_bytes(to));
    match over {
        Over::File => Ok(rustix::fs::renameat(from_dir, old, to_dir, new)?),
        Over::Nothing => match link(from_dir, from, to_dir, to) {
            Ok(()) => Ok(rustix::fs::unlinkat(from_dir, old, AtFlags::empty())?),
            // A directory cannot be hard-linked, and some file systems have no hard links.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                match rustix::fs::statat(to_dir, new, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => Ok(rustix::fs::renameat(from_dir, old, to_dir, new)?),
                    Ok(_) => Err(Errno::EXIST.into()),
                    Err(errno) => Err(errno.into()),
                }
            }
            Err(error) => Err(error),
        },
        Over::Anything => {
            let aside = [from, b".old"].concat();
            let aside = OsStr::from_bytes(&aside);
            rustix::fs::renameat(to_dir, new, from_dir, aside)?;
            rustix::fs::renameat(from_dir, old, to_dir, new).or_else(|errno| {
                // Put the old file back, because its replacement could not be moved.
                rustix::fs::renameat(from_dir, aside, to_dir, new)?;
                Err(errno)
            })?;
            Ok(())
        }
    }
}

/// Sets the time of any file, including a symlink itself. The empty name is the file of the descriptor, which may be
/// `O_PATH`.
pub fn set_time(dir: BorrowedFd<'_>, name: &[u8], mtime: FileTime) -> io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    Ok(rustix::fs::utimensat(dir, OsStr::from_bytes(name), &times(mtime), flags)?)
}

/// Sets the mode and time of an open file or directory.
pub fn set_mode_and_time(file: BorrowedFd<'_>, mode: u32, mtime: FileTime) -> io::Result<()> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    Ok(rustix::fs::futimens(file, &times(mtime))?)
}

/// Writes all of `data` at `offset`.
pub fn write_at(file: &OwnedFd, mut data: &[u8], mut offset: u64) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::pwrite(file.as_fd(), data, offset) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(n) => {
                data = &data[n..];
                offset += n as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::open_root;

    type Rename = fn((BorrowedFd<'_>, &[u8]), (BorrowedFd<'_>, &[u8]), Over) -> io::Result<()>;

    /// The rules are the same for an atomic rename and for one in several steps.
    #[test]
    fn renames_replace_only_what_the_mode_allows() {
        for rename in [rename as Rename, rename_in_steps as Rename] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let fd = open_root(dir.path()).unwrap();
            let go = |from: &str, to: &str, over| {
                rename((fd.as_fd(), from.as_bytes()), (fd.as_fd(), to.as_bytes()), over)
            };
            let put = |name: &str| std::fs::write(at(name), name).unwrap();
            let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
            put("a");
            put("b");
            assert_eq!(go("a", "b", Over::Nothing).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!((read("a"), read("b")), ("a".to_owned(), "b".to_owned()));
            go("a", "new", Over::Nothing).unwrap();
            assert!(!at("a").exists());
            go("new", "b", Over::File).unwrap();
            assert_eq!(read("b"), "a");
            std::fs::create_dir(at("full")).unwrap();
            put("full/x");
            go("b", "full", Over::Anything).unwrap();
            assert_eq!(read("full"), "a");
            std::fs::create_dir(at("dir")).unwrap();
            go("dir", "moved", Over::Nothing).unwrap();
            assert!(at("moved").is_dir() && !at("dir").exists());
            std::fs::create_dir(at("dir")).unwrap();
            go("dir", "full", Over::Anything).unwrap();
            assert!(at("full").is_dir());
            put("stays");
            assert!(go("missing", "stays", Over::Anything).is_err());
            assert_eq!(read("stays"), "stays");
        }
    }
}
