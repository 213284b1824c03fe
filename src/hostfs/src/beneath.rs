//! Opens and creates files beneath a directory, never through a symlink and never outside of it.
//!
//! Paths may be longer than the kernel accepts in one call: they are walked in several hops.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, openat2, statat};
use rustix::io::Errno;

use crate::stat::HostStat;

/// Bytes of a path passed to the kernel at once; PATH_MAX is 4096 including the terminating NUL.
pub(crate) const HOP_BYTES_MAX: usize = 4000;

/// How often an open that fails with EAGAIN is retried at once; then how often with a pause, for two seconds in
/// all.
const AT_ONCE_TRIES_MAX: u32 = 100;
const LEASE_PAUSES_MAX: u32 = 200;
const LEASE_PAUSE: Duration = Duration::from_millis(10);

/// Flags for a directory that is only traversed.
pub const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// Flags for reading a file: if it was replaced by a FIFO or a device, the reader must not block.
pub const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a directory by its path. Symlinks in the path are followed, because the caller chose the path.
pub fn open_root(path: &std::path::Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, DIR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens `path` (components joined by `/`; empty for the directory itself) beneath `root`.
pub fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    create(root, path, flags, Mode::empty())
}

/// Like [`open`], with the mode of a file created by `O_CREAT`.
pub fn create(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let mut from: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > HOP_BYTES_MAX {
        let cut = rest[..HOP_BYTES_MAX]
            .iter()
            .rposition(|b| *b == b'/')
            .ok_or_else(|| io::Error::from(Errno::NAMETOOLONG))?;
        from = Some(open_hop(dir_of(&from, root), &rest[..cut], DIR, Mode::empty())?);
        rest = &rest[cut + 1..];
    }
    let last: &[u8] = if rest.is_empty() { b"." } else { rest };
    open_hop(dir_of(&from, root), last, flags, mode)
}

fn dir_of<'a>(from: &'a Option<OwnedFd>, root: BorrowedFd<'a>) -> BorrowedFd<'a> {
    from.as_ref().map_or(root, |fd| fd.as_fd())
}

fn open_hop(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let name = OsStr::from_bytes(path);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match outlast_lease(|| openat2(dir, name, flags, mode, resolve)) {
        // It was moved out of the directory during the path resolution: as bad as a symlink that leads outside.
        Err(Errno::XDEV) => Err(Errno::LOOP.into()),
        // A socket, or a FIFO without a reader: the file no longer exists.
        Err(Errno::NXIO) => Err(Errno::NOENT.into()),
        other => Ok(other?),
    }
}

/// Repeats a non-blocking open that fails with EAGAIN. Either a rename elsewhere in the tree raced with the path
/// resolution, which passes at once; or another process, such as a file server, holds a lease on the file and is asked
/// to release it, which may take long.
pub(crate) fn outlast_lease(open: impl Fn() -> rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    let mut tries = 0;
    loop {
        match open() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if tries < AT_ONCE_TRIES_MAX => tries += 1,
            Err(Errno::AGAIN) if tries < AT_ONCE_TRIES_MAX + LEASE_PAUSES_MAX => {
                avfs_types::pause::point("leased");
                std::thread::sleep(LEASE_PAUSE);
                tries += 1;
            }
            other => return other,
        }
    }
}

/// The metadata of `name` in `dir`, not following a symlink.
pub fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<HostStat> {
    Ok(HostStat::of(&statat(dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Waits until a write in progress to an open file has ended. Its time stamp is that of the start of the write, so
/// a file may look unchanged for a long time while half of it is old.
///
/// SEEK_DATA takes the lock that a write holds (ext4, btrfs, tmpfs, overlayfs); on XFS, reads take it. It moves the
/// file offset.
pub fn outlast_write(file: BorrowedFd<'_>) {
    // An empty file has no data; a file system without SEEK_DATA does not wait.
    let _ = rustix::fs::seek(file, SeekFrom::Data(0));
}

/// The current metadata of an open file.
pub fn fstat(file: BorrowedFd<'_>) -> io::Result<HostStat> {
    Ok(HostStat::of(&rustix::fs::fstat(file)?))
}

/// The target of the symlink `name` in `dir`.
pub fn read_link(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    match rustix::fs::readlinkat(dir, OsStr::from_bytes(name), Vec::new()) {
        // It is not a symlink any more.
        Err(Errno::INVAL) => Err(io::Error::from(io::ErrorKind::NotFound)),
        other => Ok(other?.into_bytes()),
    }
}

/// A name in a directory, and whether the directory entry says that it is a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub name: Vec<u8>,
    /// `None` if the file system does not report the type.
    pub is_dir: Option<bool>,
}

/// The names in a directory, sorted by bytes, without `.` and `..`.
pub fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Listed>> {
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut listing = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while read_names(&mut listing, &mut names)?.is_some() {}
    names.sort_unstable();
    Ok(names)
}

/// Some names of a directory from a position, in the order of the file system, without `.` and `..`, and the position
/// after them; 0 is the beginning, `None` the end.
pub fn some_names(dir: BorrowedFd<'_>, from: u64) -> io::Result<(Vec<Listed>, Option<u64>)> {
    rustix::fs::seek(dir, SeekFrom::Start(from))?;
    let mut buffer = Vec::with_capacity(4 * 1024);
    let mut listing = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    let next = read_names(&mut listing, &mut names)?;
    Ok((names, next))
}

/// True for a directory without entries.
pub fn is_empty(dir: BorrowedFd<'_>) -> io::Result<bool> {
    let mut place = Some(0);
    while let Some(from) = place {
        let (some, next) = some_names(dir, from)?;
        if !some.is_empty() {
            return Ok(false);
        }
        place = next;
    }
    Ok(true)
}

/// Adds the names that one call to the kernel returns. The position after them; `None` at the end.
fn read_names(listing: &mut RawDir<'_, BorrowedFd<'_>>, names: &mut Vec<Listed>) -> io::Result<Option<u64>> {
    let mut next = None;
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let kind = entry.file_type();
            let is_dir = (kind != FileType::Unknown).then(|| kind.is_dir());
            names.push(Listed { name: name.to_vec(), is_dir });
        }
        next = Some(entry.next_entry_cookie());
        if listing.is_buffer_empty() {
            break;
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlinks_and_dot_dot_cannot_escape() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("in/out")).unwrap();
        let root = open_root(&dir.path().join("in")).unwrap();
        assert!(open(root.as_fd(), b"../secret", READ).is_err());
        assert!(open(root.as_fd(), b"out/secret", READ).is_err());
        assert!(open(root.as_fd(), b"out", READ).is_err());
        // The control: the same file opens through a path that stays inside.
        assert!(open(open_root(dir.path()).unwrap().as_fd(), b"secret", READ).is_ok());
    }

    #[test]
    fn paths_longer_than_path_max_open() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_root(dir.path()).unwrap();
        let name = "d".repeat(200);
        let mut at = root.try_clone().unwrap();
        let mut path = Vec::new();
        for _ in 0..60 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
            at = open(at.as_fd(), name.as_bytes(), DIR).unwrap();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
        }
        assert!(path.len() > 12_000);
        let deep = open(root.as_fd(), &path, DIR).unwrap();
        assert_eq!(fstat(deep.as_fd()).unwrap(), fstat(at.as_fd()).unwrap());
    }

    #[test]
    fn opening_a_socket_fails_as_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let root = open_root(dir.path()).unwrap();
        assert_eq!(open(root.as_fd(), b"socket", READ).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
