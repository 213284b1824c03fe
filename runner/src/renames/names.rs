//! Follows the names of files and directories of the lower layers through renames.
//!
//! A capture needs them for hard links: a new file with the times of the old one (`cp -p`) is not a name of it, and a
//! name that was moved still is. Like every path read from the caller, these are hints.

use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Stat};

use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;

use super::Workspace;
use super::place::{Argument, Place, Unresolved, Written, root_of};
use crate::sys::{Notification, is_waiting};

const RENAME_NOREPLACE: u64 = 1;
const RENAME_EXCHANGE: u64 = 2;

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

/// A call that waits for its answer.
pub enum Called {
    /// A rename within the workspace.
    Within(Rename),
    /// A rename that fails, or is of no concern.
    Elsewhere,
    /// It is not known what the call renames.
    Unknown,
}

/// A rename within the workspace that is about to be executed.
pub struct Rename {
    from: Place,
    to: Place,
    flags: u64,
}

/// What has the names of a rename.
pub struct Looks {
    from: Stat,
    /// `None` if nothing has the new name.
    to_kind: Option<FileType>,
}

impl Called {
    /// Resolves the paths of a call. This can wait for a file system that the command can name.
    pub fn of(call: &Notification, listener: BorrowedFd<'_>, workspace: &Workspace) -> Self {
        match resolved(call, listener, workspace) {
            Ok(rename) => Self::Within(rename),
            Err(Unresolved::Absent) => Self::Elsewhere,
            Err(Unresolved::Unknown) => Self::Unknown,
        }
    }
}

fn resolved(
    call: &Notification,
    listener: BorrowedFd<'_>,
    workspace: &Workspace,
) -> Result<Rename, Unresolved> {
    let (from, to, flags) = arguments(call).ok_or(Unresolved::Absent)?;
    let root = root_of(call.thread);
    let written = [from, to].map(|argument| Written::read(call.thread, argument));
    // The caller may be dead, and its id may be that of another thread, with another root.
    if !is_waiting(listener, call.id) {
        return Err(Unresolved::Absent);
    }
    let root = root?;
    let device = workspace.device(&root)?;
    let [from, to] = written.map(|written| written?.resolve(&root));
    let is_elsewhere = |place: &Result<Place, Unresolved>| match place {
        Ok(place) => !place.is_on(device),
        Err(reason) => *reason == Unresolved::Absent,
    };
    if is_elsewhere(&from) || is_elsewhere(&to) {
        return Err(Unresolved::Absent);
    }
    Ok(Rename { from: from?, to: to?, flags })
}

impl Rename {
    /// `None` if the kernel will refuse the rename.
    pub fn looks(&self) -> Option<Looks> {
        let from = self.from.stat().ok()??;
        let to_kind = self.to.stat().ok()?.as_ref().map(kind);
        Some(Looks { from, to_kind })
    }

    const fn is_exchange(&self) -> bool {
        self.flags & RENAME_EXCHANGE != 0
    }

    /// The directories that overlayfs would refuse to move.
    pub fn unmovable(&self, looks: &Looks, workspace: &Workspace) -> Vec<&Place> {
        let exchanged = looks.to_kind.filter(|_| self.is_exchange());
        let moved = [(&self.from, Some(kind(&looks.from))), (&self.to, exchanged)];
        let dirs = moved.into_iter().filter(|(_, kind)| *kind == Some(FileType::Directory));
        dirs.map(|(place, _)| place).filter(|place| workspace.is_in_lower(place)).collect()
    }

    /// False if it is clear that it will fail.
    fn is_possible(&self, looks: &Looks) -> bool {
        let from_kind = kind(&looks.from);
        match looks.to_kind {
            None => !self.is_exchange(),
            Some(_) if self.is_exchange() => true,
            Some(_) if self.flags & RENAME_NOREPLACE != 0 => false,
            Some(FileType::Directory) => from_kind == FileType::Directory && self.to.is_empty(),
            Some(_) => from_kind != FileType::Directory,
        }
    }

    /// Notes the new names, unless it is clear that the rename will fail.
    pub fn note(&self, looks: &Looks, names: &mut RenamedNames, workspace: &Workspace) {
        // Most renames are of a new file to a new name.
        if looks.to_kind.is_none() && workspace.is_new_file(&looks.from) {
            return;
        }
        let Some(from) = workspace.path_of(&self.from).filter(|_| self.is_possible(looks)) else { return };
        if looks.to_kind.is_none() && names.is_empty() && !workspace.is_known(&from) {
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
        for place in [Some(&self.from), exchanged].into_iter().flatten() {
            if let Some(path) = workspace.path_of(place) {
                names.copy(&path, |path| workspace.is_known(path));
            }
        }
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

impl Workspace {
    /// False for a file of a lower layer, even if it was copied up: it keeps its atime.
    fn is_new_file(&self, stat: &Stat) -> bool {
        let atime = (stat.st_atime, i64::try_from(stat.st_atime_nsec).unwrap_or(0));
        kind(stat) == FileType::RegularFile
            && stat.st_nlink == 1
            && atime >= (self.since.tv_sec, self.since.tv_nsec)
    }
}
