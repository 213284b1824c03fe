//! Names of hard-linked files of the lower layers that a rename gave to another file.
//!
//! A capture must not take such a file for the old one after a write: `cp -p` gives a copy the times of the original.
//! Like every path read from the caller, these are hints.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstatfs, lstat, open, readlinkat};

use avfs_types::path::TreePath;

use super::{OVERLAYFS_MAGIC, RENAME_EXCHANGE, Workspace, base_of, read_path};
use crate::sys::Notification;

/// The maximum number of names; further ones are not noted.
const REPLACED_MAX: usize = 65_536;
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

/// Notes a rename that is about to be executed.
pub fn note(replaced: &mut BTreeSet<TreePath>, workspace: &Workspace, call: &Notification) {
    let Some((from, to, flags)) = arguments(call) else { return };
    if flags & RENAME_NOREPLACE != 0 {
        return;
    }
    let is_exchange = flags & RENAME_EXCHANGE != 0;
    let linked = |argument| workspace.path_of(call.thread, argument).filter(|path| workspace.is_linked(path));
    let to_linked = linked(to);
    if to_linked.is_none() && !is_exchange {
        return;
    }
    let from_linked = linked(from);
    // Whether a name is still one of the old file.
    let is_old = |path: &Option<TreePath>| path.as_ref().is_some_and(|path| !replaced.contains(path));
    let (from_is_old, to_is_old) = (is_old(&from_linked), is_old(&to_linked));
    let mut set = |path: Option<TreePath>, is_old: bool| {
        let Some(path) = path else { return };
        if is_old {
            replaced.remove(&path);
        } else if replaced.len() < REPLACED_MAX {
            replaced.insert(path);
        }
    };
    set(to_linked, from_is_old);
    if is_exchange {
        set(from_linked, to_is_old);
    }
}

impl Workspace {
    /// The path of a file in the workspace; `None` for any other name.
    fn path_of(&self, thread: u32, (dir, at): Argument) -> Option<TreePath> {
        let path = read_path(thread, at)?;
        let mut whole = base_of(thread, dir, &path).into_bytes();
        whole.push(b'/');
        whole.extend_from_slice(&path);
        // First, because most renames replace nothing.
        let stat = lstat(OsStr::from_bytes(&whole)).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
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

    /// True for a file with several names in a lower layer.
    fn is_linked(&self, path: &TreePath) -> bool {
        let name = OsStr::from_bytes(path.as_bytes());
        let is_linked = |meta: std::fs::Metadata| meta.is_file() && meta.nlink() > 1;
        self.lowers.iter().any(|lower| lower.join(name).symlink_metadata().is_ok_and(is_linked))
    }
}
