//! Follows the names of files and directories of the lower layers through renames.
//!
//! A capture needs them for hard links: a new file with the times of the old one (`cp -p`) is not a name of it, and a
//! name that was moved still is. Like every path read from the caller, these are hints.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstatfs, lstat, open, readlinkat};
use rustix::io::Errno;

use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;

use super::{OVERLAYFS_MAGIC, RENAME_EXCHANGE, Workspace, base_of, read_path};
use crate::sys::Notification;

const RENAME_NOREPLACE: u64 = 1;

/// A path argument: its directory, `None` for the working directory, and the address of the path.
type Argument = (Option<u64>, u64);

/// Both arguments of a rename, and its flags.
fn arguments(call: &Notification) -> Option<(Argument, Argument, u64)> {
    let [first, second, third, fourth, flags, _] = call.arguments;
    match libc::c_long::from(call.number) {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => Some(((None, first), (None, second), 0)),
        libc::SYS_renameat => Some(((Some(first), second), (Some(third), fourth), 0)),
        libc::SYS_renameat2 => Some(((Some(first), second), (Some(third), fourth), flags)),
        _ => None,
    }
}

/// A rename that is about to be executed.
pub struct Rename {
    from: Vec<u8>,
    to: Vec<u8>,
    flags: u64,
    stat: Stat,
    /// `None` if nothing has the new name.
    to_kind: Option<FileType>,
}

impl Rename {
    /// `None` if it is not known what the call renames.
    pub fn of(call: &Notification) -> Option<Self> {
        let (from, to, flags) = arguments(call)?;
        let (from, to) = (whole_path(call.thread, from)?, whole_path(call.thread, to)?);
        let stat = stat_of(&from).ok()??;
        let to_kind = stat_of(&to).ok()?.as_ref().map(kind);
        Some(Self { from, to, flags, stat, to_kind })
    }

    const fn is_exchange(&self) -> bool {
        self.flags & RENAME_EXCHANGE != 0
    }

    /// True if it moves a directory.
    pub fn moves_dirs(&self) -> bool {
        let exchanged = self.to_kind.filter(|_| self.is_exchange());
        [Some(kind(&self.stat)), exchanged].contains(&Some(FileType::Directory))
    }

    /// False if it is clear that it will fail.
    fn is_possible(&self) -> bool {
        let from_kind = kind(&self.stat);
        match self.to_kind {
            None => !self.is_exchange(),
            Some(_) if self.is_exchange() => true,
            Some(_) if self.flags & RENAME_NOREPLACE != 0 => false,
            Some(FileType::Directory) => from_kind == FileType::Directory && is_empty(&self.to),
            Some(_) => from_kind != FileType::Directory,
        }
    }

    /// Notes the new names, unless it is clear that the rename will fail.
    pub fn note(&self, names: &mut RenamedNames, workspace: &Workspace) {
        // Most renames are of a new file to a new name.
        if self.to_kind.is_none() && workspace.is_new_file(&self.stat) {
            return;
        }
        let Some(from) = workspace.path_of(&self.from).filter(|_| self.is_possible()) else { return };
        if self.to_kind.is_none() && names.is_empty() && !workspace.is_known(&from) {
            return;
        }
        let Some(to) = workspace.path_of(&self.to).filter(|to| *to != from) else { return };
        let is_known = |path: &TreePath| workspace.is_known(path);
        if self.is_exchange() {
            names.exchange(&from, &to, is_known);
        } else {
            names.rename(&from, &to, is_known);
        }
    }

    /// Notes that its directories were copied, completely or in part, and keep their names.
    pub fn note_copies(&self, names: &mut RenamedNames, workspace: &Workspace) {
        let exchanged = self.is_exchange().then_some(&self.to);
        for path in [Some(&self.from), exchanged].into_iter().flatten() {
            if let Some(path) = workspace.path_of(path) {
                names.copy(&path, |path| workspace.is_known(path));
            }
        }
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The path as seen from here, without trailing slashes.
fn whole_path(thread: u32, (dir, at): Argument) -> Option<Vec<u8>> {
    let path = read_path(thread, at)?;
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let mut whole = base_of(thread, dir, &path).into_bytes();
    whole.push(b'/');
    whole.extend_from_slice(&path[..end]);
    Some(whole)
}

/// `None` if nothing has this name.
fn stat_of(whole: &[u8]) -> rustix::io::Result<Option<Stat>> {
    match lstat(OsStr::from_bytes(whole)) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_empty(whole: &[u8]) -> bool {
    std::fs::read_dir(OsStr::from_bytes(whole)).is_ok_and(|mut entries| entries.next().is_none())
}

impl Workspace {
    /// False for a file of a lower layer, even if it was copied up: it keeps its atime.
    fn is_new_file(&self, stat: &Stat) -> bool {
        let atime = (stat.st_atime, i64::try_from(stat.st_atime_nsec).unwrap_or(0));
        kind(stat) == FileType::RegularFile
            && stat.st_nlink == 1
            && atime >= (self.since.tv_sec, self.since.tv_nsec)
    }

    /// The path in the workspace; `None` for any other.
    fn path_of(&self, whole: &[u8]) -> Option<TreePath> {
        let slash = whole.iter().rposition(|byte| *byte == b'/')?;
        let (above, name) = (&whole[..=slash], &whole[slash + 1..]);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(OsStr::from_bytes(above), flags, Mode::empty()).ok()?;
        if u64::try_from(fstatfs(&parent).ok()?.f_type).ok()? != OVERLAYFS_MAGIC {
            return None;
        }
        let link = format!("/proc/self/fd/{}", parent.as_raw_fd());
        let seen = readlinkat(rustix::fs::CWD, link, Vec::new()).ok()?;
        let below = Path::new(OsStr::from_bytes(seen.as_bytes())).strip_prefix(&self.path).ok()?;
        // Refuses names that no tree can have, such as `..`.
        TreePath::parse(below.join(OsStr::from_bytes(name)).as_os_str().as_bytes()).ok()
    }

    /// True for a directory of a lower layer, and for a file in it with several names.
    fn is_known(&self, path: &TreePath) -> bool {
        let name = OsStr::from_bytes(path.as_bytes());
        let is_known = |meta: std::fs::Metadata| meta.is_dir() || (meta.is_file() && meta.nlink() > 1);
        self.lowers.iter().any(|lower| lower.join(name).symlink_metadata().is_ok_and(is_known))
    }
}
