//! Detects whether another process changed the lower directory of a run in a path that the run touched.
//!
//! Only entries at or above the run's changes are checked, so the cost is proportional to the run's changes. No
//! file content is read, and nothing is written.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

use avfs_hostfs::beneath;
use avfs_hostfs::stat::{HostKind, HostStat, wall_clock};
use avfs_types::clock::FileTime;
use avfs_types::ids::TreeId;
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::import::looks_like;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::tree::{CachedPages, Pages};
use avfs_vault::{Result, Vault, VaultError, pages, tree};

/// Compares the host directory with the base version of a run.
pub(crate) struct HostLook<'a> {
    pages: CachedPages<'a>,
    /// The root of the version.
    base: DirRef,
    dir: OwnedFd,
    /// The directory of the vault: using the vault changes its times.
    vault_dir: Option<(u64, u64)>,
    /// The command did not run before this time.
    launched_at: FileTime,
}

impl<'a> HostLook<'a> {
    pub fn new(
        vault: &Vault,
        pages: &'a dyn Pages,
        base: &TreeId,
        dir: &Path,
        launched_at: FileTime,
    ) -> Result<Self> {
        let base = pages::reference(pages, base)?;
        let pages = CachedPages::new(pages);
        let dir = beneath::open_root(dir).map_err(VaultError::Input)?;
        let vault_dir = vault.path().and_then(Path::parent).and_then(|dir| dir.metadata().ok());
        let vault_dir = vault_dir.map(|meta| (meta.dev(), meta.ino()));
        Ok(Self { pages, base, dir, vault_dir, launched_at })
    }

    /// True if a path of these changes of the base, or one of its parent directories, differs from the base.
    pub fn is_changed(&self, changes: &Changes) -> Result<bool> {
        let mut last_dir = None;
        for change in changes {
            let change = change?;
            let path = change.path_before();
            if let Some(before) = &change.before
                && self.differs(path, &before.node)?
            {
                return Ok(true);
            }
            for path in [path, &change.path] {
                let dir = path.split().map(|(dir, _)| dir);
                // A name created by another process changes the time of its directory.
                if dir != last_dir && self.dir_differs(path)? {
                    return Ok(true);
                }
                last_dir = dir;
            }
        }
        Ok(false)
    }

    /// Whether the closest directory of the base above a path differs from the base.
    fn dir_differs(&self, path: &TreePath) -> Result<bool> {
        for dir in path.ancestors() {
            if let Some(node) = tree::lookup(&self.pages, &self.base, &dir)? {
                return self.differs(&dir, &node);
            }
        }
        Ok(false)
    }

    /// Compares files only by kind, mode, size and times: sufficient for a note, not for a decision.
    fn differs(&self, path: &TreePath, node: &Node) -> Result<bool> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let opened = beneath::open(self.dir.as_fd(), path.as_bytes(), flags);
        let stat = match opened.and_then(|file| beneath::fstat(file.as_fd())) {
            Ok(stat) => stat,
            // A file that could not be read before the run cannot be compared either.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(false),
            Err(_) => return Ok(true),
        };
        if self.vault_dir == Some((stat.device, stat.inode)) {
            return Ok(stat.kind != HostKind::Dir);
        }
        let is_recent = stat.ctime > self.launched_at && stat.ctime <= wall_clock();
        Ok(is_recent || !self.looks_like(&stat, node)?)
    }

    fn looks_like(&self, stat: &HostStat, node: &Node) -> Result<bool> {
        let has_dir_meta = match node {
            Node::Dir(dir) => {
                let (meta, _) = tree::top(&self.pages, &dir.tree)?;
                (stat.mode, stat.mtime) == (meta.mode, meta.mtime)
            }
            Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => true,
        };
        Ok(has_dir_meta && looks_like(stat, node))
    }
}
