//! Moves a staged export into an existing directory. Every entry is checked first: a merge that cannot succeed fails
//! before anything changes.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Mode};
use rustix::io::Errno;

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::held::FileId;
use avfs_hostfs::make::Over;
use avfs_hostfs::stat::HostKind;
use avfs_hostfs::{beneath, make, xattr};
use avfs_types::path::TreePath;

use super::export::{ExportError, Overwrite};
use crate::transfer::Result;

/// A staged tree and its destination.
pub(crate) struct Merge<'a> {
    pub(crate) staged: BorrowedFd<'a>,
    pub(crate) dest: BorrowedFd<'a>,
    /// The path of the destination in messages.
    pub(crate) shown: &'a Path,
    pub(crate) overwrite: Overwrite,
    pub(crate) top: Top,
}

/// Whether the destination directory itself gets the metadata of the version's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    Finished,
    Kept,
}

/// An existing directory, and the names to move into it.
pub(crate) struct Meeting {
    pub(crate) path: TreePath,
    /// The existing directory: later, another one may have its path.
    pub(crate) id: FileId,
    pub(crate) moving: Vec<Moving>,
    /// The mode of a directory that the user owns but cannot write to.
    closed: Option<u32>,
}

/// A staged file or directory, under the name that it keeps.
pub(crate) struct Moving {
    pub(crate) name: Vec<u8>,
    pub(crate) id: FileId,
}

impl Merge<'_> {
    fn shown(&self, path: &TreePath) -> PathBuf {
        self.shown.join(OsStr::from_bytes(path.as_bytes()))
    }

    fn both(&self, path: &TreePath) -> Result<(OwnedFd, OwnedFd)> {
        let open = |root| beneath::open(root, path.as_bytes(), DIR);
        let failed = |error| ExportError::host("open", &self.shown(path))(error);
        Ok((open(self.staged).map_err(failed)?, open(self.dest).map_err(failed)?))
    }

    /// Opens the existing directory of a meeting again.
    fn met(&self, meeting: &Meeting) -> Result<OwnedFd> {
        let path = meeting.path.as_bytes();
        let opened = beneath::open(self.dest, path, DIR);
        let same = opened.and_then(|dir| meeting.id.require(dir.as_fd(), path).map(|()| dir));
        Ok(same.map_err(ExportError::host("open", &self.shown(&meeting.path)))?)
    }

    /// Plans all moves. Fails if one of them is impossible.
    pub(crate) fn plan(&self) -> Result<Vec<Meeting>> {
        let top =
            rustix::fs::fstat(self.dest).map_err(|errno| self.failed("stat", &TreePath::root(), errno))?;
        let mut meetings = Vec::new();
        let mut waiting = vec![TreePath::root()];
        while let Some(path) = waiting.pop() {
            let (from, to) = self.both(&path)?;
            let listed =
                beneath::names(from.as_fd()).map_err(ExportError::host("list", &self.shown(&path)))?;
            let mut moving = Vec::new();
            for name in listed.into_iter().map(|listed| listed.name) {
                let at = path.join(&name);
                let looked = |dir: &OwnedFd| match beneath::stat(dir.as_fd(), &name) {
                    Ok(stat) => Ok(Some(stat)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(ExportError::host("stat", &self.shown(&at))(error)),
                };
                let (staged, there) = (looked(&from)?, looked(&to)?);
                let Some(staged) = staged else { continue };
                match (staged.kind, there.map(|stat| stat.kind)) {
                    (_, Some(_)) if self.overwrite == Overwrite::Refuse => {
                        return Err(ExportError::Appeared { path: self.shown(&at) }.into());
                    }
                    (HostKind::Dir, Some(HostKind::Dir)) => waiting.push(at),
                    (wanted, Some(found)) if (wanted == HostKind::Dir) != (found == HostKind::Dir) => {
                        let (wanted, found) = (word(wanted), word(found));
                        return Err(ExportError::InTheWay { path: self.shown(&at), found, wanted }.into());
                    }
                    _ => moving
                        .push(Moving { name, id: FileId { device: staged.device, inode: staged.inode } }),
                }
            }
            let stat = rustix::fs::fstat(&to).map_err(|errno| self.failed("stat", &path, errno))?;
            if !moving.is_empty() && stat.st_dev != top.st_dev {
                return Err(self
                    .failed("replace files on another file system in", &path, Errno::XDEV)
                    .into());
            }
            let may = rustix::fs::accessat(&to, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
            let me = rustix::process::geteuid();
            let ours = me.is_root() || stat.st_uid == me.as_raw();
            // Only the owner can set the mode and mtime of a directory.
            let finished = self.top == Top::Finished || !path.is_root();
            let closed = may.is_err() && (finished || !moving.is_empty());
            if !ours && (closed || finished) {
                return Err(ExportError::NoPermission { path: self.shown(&path) }.into());
            }
            let closed = closed.then_some(stat.st_mode & 0o7777);
            let id = FileId::of(&to).map_err(|errno| self.failed("stat", &path, errno))?;
            meetings.push(Meeting { path, id, moving, closed });
        }
        Ok(meetings)
    }

    /// Makes the planned moves. Existing directories get their metadata afterwards, like all others.
    pub(crate) fn make(&self, meetings: &[Meeting]) -> Result<()> {
        for meeting in meetings {
            let from = beneath::open(self.staged, meeting.path.as_bytes(), DIR)
                .map_err(ExportError::host("open", &self.shown(&meeting.path)))?;
            let to = self.met(meeting)?;
            if let Some(mode) = meeting.closed {
                let opened = rustix::fs::fchmod(&to, Mode::from_raw_mode(mode | 0o700));
                opened.map_err(|errno| self.failed("change the mode of", &meeting.path, errno))?;
            }
            for Moving { name, id } in &meeting.moving {
                let at = || meeting.path.join(name);
                let over = match self.overwrite {
                    Overwrite::Refuse => Over::Nothing,
                    Overwrite::Replace => Over::File,
                };
                let moved = id.require_at(from.as_fd(), name);
                let moved = moved.and_then(|()| make::rename((from.as_fd(), name), (to.as_fd(), name), over));
                moved.map_err(|error| {
                    if error.kind() == io::ErrorKind::AlreadyExists {
                        return ExportError::Appeared { path: self.shown(&at()) };
                    }
                    ExportError::host("replace", &self.shown(&at()))(error)
                })?;
            }
        }
        Ok(())
    }

    /// Removes the attributes of an existing directory.
    pub(crate) fn clear_attributes(&self, meeting: &Meeting) -> Result<()> {
        let to = self.met(meeting)?;
        Ok(xattr::clear(to.as_fd())
            .map_err(ExportError::host("remove the attributes of", &self.shown(&meeting.path)))?)
    }

    fn failed(&self, operation: &'static str, path: &TreePath, errno: Errno) -> ExportError {
        ExportError::host(operation, &self.shown(path))(errno.into())
    }
}

fn word(kind: HostKind) -> &'static str {
    match kind {
        HostKind::Dir => "directory",
        HostKind::Symlink => "symbolic link",
        HostKind::Fifo => "fifo",
        HostKind::Special(kind) => kind,
        HostKind::File | HostKind::Whiteout => "file",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use avfs_types::diagnose::Diagnose;

    use super::*;

    /// Another process writes to the directory while the export is staged, and after it was checked.
    #[test]
    fn files_created_during_an_export_are_replaced_only_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let (staged, dest) = (dir.path().join("staged"), dir.path().join("dest"));
        for at in [&staged, &dest] {
            fs::create_dir(at).unwrap();
        }
        let open = |at| beneath::open_root(at).unwrap();
        let (from, to) = (open(&staged), open(&dest));
        let merge = |overwrite| Merge {
            staged: from.as_fd(),
            dest: to.as_fd(),
            shown: &dest,
            overwrite,
            top: Top::Finished,
        };
        fs::write(staged.join("f"), "ours").unwrap();
        let refuse = merge(Overwrite::Refuse);
        let planned = refuse.plan().unwrap();
        fs::write(dest.join("f"), "theirs").unwrap();
        for refused in [refuse.make(&planned).unwrap_err(), refuse.plan().err().unwrap()] {
            assert_eq!(refused.code(), "export.exists", "{refused}");
        }
        assert_eq!(fs::read(dest.join("f")).unwrap(), b"theirs");
        let replace = merge(Overwrite::Replace);
        replace.make(&replace.plan().unwrap()).unwrap();
        assert_eq!(fs::read(dest.join("f")).unwrap(), b"ours");
    }
}
