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

/// Whether a rename moves directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    Files,
    /// Or it is not known.
    Dirs,
}

/// Notes a rename that is about to be executed, unless it is clear that it will fail.
pub fn note(names: &mut RenamedNames, workspace: &Workspace, call: &Notification) -> Moves {
    let Some((from, to, flags)) = arguments(call) else { return Moves::Dirs };
    let (Some(from), Some(to)) = (whole_path(call.thread, from), whole_path(call.thread, to)) else {
        return Moves::Dirs;
    };
    let (Ok(Some(stat)), Ok(to_stat)) = (stat_of(&from), stat_of(&to)) else { return Moves::Dirs };
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    let kinds = (kind(&stat), to_stat.as_ref().map(kind));
    // Most renames are of a new file to a new name.
    if kinds.1.is_some() || !workspace.is_new_file(&stat) {
        note_kinds(names, workspace, (&from, &to), kinds, flags);
    }
    let is_exchange = flags & RENAME_EXCHANGE != 0;
    match kinds {
        (FileType::Directory, _) => Moves::Dirs,
        (_, Some(FileType::Directory)) if is_exchange => Moves::Dirs,
        _ => Moves::Files,
    }
}

fn note_kinds(
    names: &mut RenamedNames,
    workspace: &Workspace,
    (from, to): (&[u8], &[u8]),
    (from_kind, to_kind): (FileType, Option<FileType>),
    flags: u64,
) {
    let is_exchange = flags & RENAME_EXCHANGE != 0;
    let is_possible = match to_kind {
        None => !is_exchange,
        Some(_) if is_exchange => true,
        Some(_) if flags & RENAME_NOREPLACE != 0 => false,
        Some(FileType::Directory) => from_kind == FileType::Directory && is_empty(to),
        Some(_) => from_kind != FileType::Directory,
    };
    let Some(from) = workspace.path_of(from).filter(|_| is_possible) else { return };
    if to_kind.is_none() && names.is_empty() && !workspace.is_known(&from) {
        return;
    }
    let Some(to) = workspace.path_of(to).filter(|to| *to != from) else { return };
    let is_known = |path: &TreePath| workspace.is_known(path);
    if is_exchange {
        names.exchange(&from, &to, is_known);
    } else {
        names.rename(&from, &to, is_known);
    }
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
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file && stat.st_nlink == 1 && atime >= (self.since.tv_sec, self.since.tv_nsec)
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
