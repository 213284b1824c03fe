//! The steps of a plan. One for each change is decided in advance and takes 24 bytes; its task is made from the change
//! when it is carried out.

use avfs_hostfs::make::Over;
use avfs_types::ids::VersionId;
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, Side};
use avfs_vault::page::{DirMeta, DirRef, Node};

use super::host::{FileDigest, Host, LookDigest};
use super::moved::Moved;
use super::path_digests::PathDigests;
use super::top_dirs::TopDirs;
use crate::apply::error::{ApplyError, Conflict};

type Result<T> = std::result::Result<T, ApplyError>;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A file, symlink or fifo, completed before it gets its name.
    Put {
        path: TreePath,
        node: Node,
        /// A file that is replaced passes on its owner and attributes.
        over: Over,
    },
    /// A new directory, with all requested changes in it.
    Plant {
        path: TreePath,
        dir: DirRef,
        meta: DirMeta,
        over: Over,
    },
    /// Only the mode (of a file) and the time of an existing entry.
    Adjust {
        path: TreePath,
        node: Node,
    },
    Unlink {
        path: TreePath,
    },
    Rmdir {
        path: TreePath,
    },
    /// The time of a directory itself and, depending on `what`, its other metadata.
    Finish {
        path: TreePath,
        meta: DirMeta,
        what: DirPart,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirPart {
    Time,
    All,
}

/// What a change needs. The rest of its task follows from the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Put(Over),
    Plant(Over),
    Adjust,
    Unlink,
    Rmdir,
    Finish(DirPart),
}

impl Act {
    pub const fn of(task: &Task) -> Self {
        match task {
            Task::Put { over, .. } => Self::Put(*over),
            Task::Plant { over, .. } => Self::Plant(*over),
            Task::Adjust { .. } => Self::Adjust,
            Task::Unlink { .. } => Self::Unlink,
            Task::Rmdir { .. } => Self::Rmdir,
            Task::Finish { what, .. } => Self::Finish(*what),
        }
    }

    /// The task for a change; `None` if it needs none.
    fn task(self, change: &Change) -> Option<Task> {
        let path = change.path.clone();
        match (self, change.after.as_ref()) {
            (Self::Unlink, _) => Some(Task::Unlink { path }),
            (Self::Rmdir, _) => Some(Task::Rmdir { path }),
            (Self::Put(over), Some(Side { node, .. })) => Some(Task::Put { path, node: node.clone(), over }),
            (Self::Adjust, Some(Side { node, .. })) => Some(Task::Adjust { path, node: node.clone() }),
            (Self::Plant(over), Some(Side { node: Node::Dir(dir), dir_meta: Some(meta) })) => {
                Some(Task::Plant { path, dir: *dir, meta: meta.clone(), over })
            }
            (Self::Finish(what), Some(Side { dir_meta: Some(meta), .. })) => {
                Some(Task::Finish { path, meta: meta.clone(), what })
            }
            (Self::Nothing | Self::Put(_) | Self::Plant(_) | Self::Adjust | Self::Finish(_), _) => None,
        }
    }
}

/// The decision about one change.
#[derive(Clone, Copy)]
pub struct Decided {
    pub act: Act,
    /// The state found at the path; `None` for a path in a new directory.
    pub seen: Option<LookDigest>,
    /// The file found there.
    pub file: Option<FileDigest>,
}

pub struct Plan<'c> {
    pub changes: &'c Changes,
    /// One for each change.
    pub decided: Vec<Decided>,
    /// Number of changes that need no step.
    pub already: u64,
    /// Changes whose content is already in place.
    pub there: Vec<TreePath>,
    /// The version whose content the tasks write.
    pub version: VersionId,
    /// Directories that are replaced by something else.
    pub swapped: TopDirs,
    pub moved: Moved,
}

impl Plan<'_> {
    /// The tasks in the order of their paths, each with the index of its change.
    pub fn tasks(&self) -> impl Iterator<Item = Result<(usize, Task)>> {
        let decided = self.changes.iter().zip(&self.decided).enumerate();
        decided.filter_map(|(place, (change, decided))| match change {
            Ok(change) => decided.act.task(&change).map(|task| Ok((place, task))),
            Err(error) => Some(Err(error.into())),
        })
    }

    /// The same in reverse order: the deepest paths come first.
    pub fn tasks_backward(&self) -> impl Iterator<Item = Result<(usize, Task)>> {
        let mut changes = self.changes.lookup();
        let decided = self.decided.iter().enumerate().rev();
        decided.filter_map(move |(place, decided)| match changes.get(place) {
            Ok(change) => {
                let task = change.and_then(|change| decided.act.task(change));
                task.map(|task| Ok((place, task)))
            }
            Err(error) => Some(Err(error.into())),
        })
    }

    /// True if a task adds something.
    pub fn adds(&self) -> bool {
        self.decided.iter().any(|decided| matches!(decided.act, Act::Put(_) | Act::Plant(_)))
    }

    /// Fails if the host changed since the plan was made: writing the new content to the staging directory
    /// takes time. `asked` are the paths of all changes.
    pub fn check_again(&self, host: &Host<'_>, asked: &PathDigests) -> Result<()> {
        host.forget_way();
        let mut conflicts = Vec::new();
        for (change, decided) in self.changes.iter().zip(&self.decided) {
            host.require_going()?;
            let Some(before) = decided.seen else { continue };
            let path = &change?.path;
            let gives_way = self.swapped.contains(path);
            let is_new = |name: &TreePath| !asked.contains(name);
            if !host.is_still(path, before)? || gives_way && host.names_beneath(path)?.iter().any(is_new) {
                let reason = "it changed during the apply";
                conflicts.push(Conflict { path: path.clone(), reason: reason.into() });
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        Err(ApplyError::conflict(host.dir(), conflicts, self.version, self.changes))
    }
}
