//! Copies a layer of an overlay to another file system: everything in it, including whiteouts and sockets.
//!
//! At most two directories and two files are open, and paths may be longer than the kernel accepts in one call.
//! Never changes permissions of the source: the caller must be able to read everything in it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, SeekFrom, ftruncate, mknodat, seek};
use rustix::io::Errno;

use crate::beneath::{DIR, READ};
use crate::make::Umask;
use crate::stat::{HostKind, HostStat};
use crate::{beneath, make, overlay, xattr};

const BUFFER_BYTES: usize = 256 * 1024;

/// Copies the contents and the metadata of `from` to the new directory `to`. An error names its path.
pub fn layer(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let mut copy = Copy { from, to, umask: Umask::beneath(to)?, linked: HashMap::new() };
    // Parents before children; their metadata is set in reverse order, because their modes may forbid writing.
    let mut dirs: Vec<Vec<u8>> = vec![Vec::new()];
    let mut next = 0;
    while next < dirs.len() {
        let dir = dirs[next].clone();
        copy.fill(&dir, &mut dirs)?;
        next += 1;
    }
    dirs.iter().rev().try_for_each(|dir| copy.finish(dir).map_err(|error| naming(dir, error)))
}

struct Copy<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    umask: Umask,
    /// Files with several hard links: where the first one was written.
    linked: HashMap<u64, (Vec<u8>, Vec<u8>)>,
}

impl Copy<'_> {
    fn both(&self, dir: &[u8]) -> io::Result<(OwnedFd, OwnedFd)> {
        Ok((beneath::open(self.from, dir, DIR)?, beneath::open(self.to, dir, DIR)?))
    }

    /// Copies the entries of `dir`; subdirectories are created and filled later.
    fn fill(&mut self, dir: &[u8], dirs: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let (from, to) = self.both(dir).map_err(|error| naming(dir, error))?;
        for listed in beneath::names(from.as_fd()).map_err(|error| naming(dir, error))? {
            let path = join(dir, &listed.name);
            let copied = beneath::stat(from.as_fd(), &listed.name).and_then(|stat| {
                self.entry(dir, &listed.name, &stat, from.as_fd(), to.as_fd())?;
                Ok(stat.kind == HostKind::Dir)
            });
            if copied.map_err(|error| naming(&path, error))? {
                dirs.push(path);
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &[u8],
        name: &[u8],
        stat: &HostStat,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match stat.kind {
            HostKind::Dir => make::dir(to, name),
            HostKind::File if stat.links > 1 => self.linked(dir, name, stat, from, to),
            HostKind::File => self.file(name, from, to),
            HostKind::Symlink => make::symlink(to, name, &beneath::read_link(from, name)?, stat.mtime),
            HostKind::Fifo => make::fifo(to, name, stat.mode, stat.mtime),
            HostKind::Special("socket") => socket(to, name, stat.mode),
            // A device cannot be stored, and it hides the file of the layers below.
            HostKind::Whiteout | HostKind::Special(_) => overlay::whiteout(to, name),
        }
    }

    fn linked(
        &mut self,
        dir: &[u8],
        name: &[u8],
        stat: &HostStat,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
    ) -> io::Result<()> {
        if let Some((first_dir, first)) = self.linked.get(&stat.inode) {
            let first_dir = beneath::open(self.to, first_dir, DIR)?;
            return make::link(first_dir.as_fd(), first, to, name);
        }
        self.linked.insert(stat.inode, (dir.to_vec(), name.to_vec()));
        self.file(name, from, to)
    }

    fn file(&self, name: &[u8], from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
        let from = beneath::open(from, name, READ)?;
        let stat = beneath::fstat(from.as_fd())?;
        let to = make::file(to, name, stat.mode)?;
        content(&from, &to, stat.size)?;
        make::finish(to.as_fd(), stat.mode, self.umask, &xattr::read(from.as_fd())?, stat.mtime)
    }

    fn finish(&self, dir: &[u8]) -> io::Result<()> {
        let (from, to) = self.both(dir)?;
        let stat = beneath::fstat(from.as_fd())?;
        make::finish_dir(to.as_fd(), stat.mode, &xattr::read(from.as_fd())?, stat.mtime)
    }
}

/// Copies the data of a file; holes stay holes.
fn content(from: &OwnedFd, to: &OwnedFd, size: u64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut at = 0;
    while at < size {
        at = match seek(from, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            // A file system that does not report holes has none.
            other => other.unwrap_or(at),
        };
        let end = seek(from, SeekFrom::Hole(at)).unwrap_or(size);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            match rustix::io::pread(from, &mut buffer[..want], at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    make::write_at(to, &buffer[..length], at)?;
                    at += length as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(ftruncate(to, size)?)
}

/// Creates a socket that no process listens on, so that readers of the copy can report that it was a socket.
fn socket(dir: BorrowedFd<'_>, name: &[u8], mode: u32) -> io::Result<()> {
    Ok(mknodat(dir, OsStr::from_bytes(name), FileType::Socket, Mode::from_raw_mode(mode & 0o777), 0)?)
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.is_empty() { b"" } else { b"/" };
    [dir, slash, name].concat()
}

fn naming(path: &[u8], error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::path::Path;

    use avfs_types::clock::FileTime;

    use super::*;

    fn copied(from: &Path, to: &Path) -> io::Result<()> {
        std::fs::create_dir(to)?;
        layer(beneath::open_root(from)?.as_fd(), beneath::open_root(to)?.as_fd())
    }

    #[test]
    fn everything_in_a_layer_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir_all(from.join("opaque/below")).unwrap();
        let root = beneath::open_root(&from).unwrap();
        overlay::whiteout(root.as_fd(), b"gone").unwrap();
        let opaque = beneath::open(root.as_fd(), b"opaque", DIR).unwrap();
        overlay::make_opaque(opaque.as_fd()).unwrap();
        std::fs::write(from.join("opaque/below/one"), "content").unwrap();
        std::fs::hard_link(from.join("opaque/below/one"), from.join("two")).unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        make::fifo(root.as_fd(), b"fifo", 0o640, FileTime { seconds: 7, nanos: 8 }).unwrap();
        let _listening = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        let sparse = make::file(root.as_fd(), b"sparse", 0o600).unwrap();
        make::write_at(&sparse, b"middle", 5 << 20).unwrap();
        ftruncate(&sparse, 10 << 20).unwrap();
        let attribute = (b"user.a".to_vec(), b"b".to_vec());
        let time = FileTime { seconds: -5, nanos: 6 };
        make::finish(sparse.as_fd(), 0o4440, Umask::beneath(root.as_fd()).unwrap(), &[attribute], time)
            .unwrap();
        std::fs::set_permissions(from.join("opaque"), std::fs::Permissions::from_mode(0o1555)).unwrap();
        make::set_mtime(opaque.as_fd(), time).unwrap();

        copied(&from, &to).unwrap();
        let look = |name: &str| to.join(name).symlink_metadata().unwrap();
        assert!(look("gone").file_type().is_char_device() && look("gone").rdev() == 0);
        assert!(look("socket").file_type().is_socket());
        assert_eq!((look("fifo").mode() & 0o7777, look("fifo").mtime_nsec()), (0o640, 8));
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
        assert_eq!(std::fs::read(to.join("two")).unwrap(), b"content");
        assert_eq!(look("two").ino(), look("opaque/below/one").ino());
        assert_eq!((look("opaque").mode() & 0o7777, look("opaque").mtime()), (0o1555, -5));
        let opaque = beneath::open_root(&to.join("opaque")).unwrap();
        assert_eq!(overlay::unescape(xattr::read(opaque.as_fd()).unwrap()).1, overlay::Shows::Itself);
        let (before, after) = (from.join("sparse"), to.join("sparse"));
        assert_eq!(std::fs::read(&before).unwrap(), std::fs::read(after).unwrap());
        assert_eq!((look("sparse").mode() & 0o7777, look("sparse").mtime_nsec()), (0o4440, 6));
        assert!(look("sparse").blocks() < 1024, "{} blocks", look("sparse").blocks());
        let sparse = beneath::open(beneath::open_root(&to).unwrap().as_fd(), b"sparse", READ).unwrap();
        assert_eq!(xattr::read(sparse.as_fd()).unwrap().len(), 1);
    }

    #[test]
    fn errors_name_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir_all(from.join("sub")).unwrap();
        std::fs::write(from.join("sub/x"), "").unwrap();
        std::fs::create_dir_all(to.join("sub")).unwrap();
        let failed =
            layer(beneath::open_root(&from).unwrap().as_fd(), beneath::open_root(&to).unwrap().as_fd());
        let failed = failed.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::AlreadyExists);
        assert!(failed.to_string().starts_with("sub: "), "{failed}");
    }
}
