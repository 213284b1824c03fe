//! Detects whether another process changed the lower directory of a run in a path that the run touched.
//!
//! Only entries at or above the run's edits are checked, so the cost is proportional to the run's changes. No
//! file content is read, and nothing is written.

use std::collections::HashSet;
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
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::page::{DirRef, Node};
use avfs_vault::tree::{CachedPages, Pages, Walk};
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

    /// True if an edited path, or one of its parent directories, differs from the base.
    pub fn is_changed(&self, edits: &Edits) -> Result<bool> {
        let mut looked = HashSet::new();
        for (path, edit) in edits {
            let node = self.in_base(path)?;
            // A name created by another process changes the time of its directory, which is checked.
            let parents =
                path.ancestors().find_map(|dir| self.in_base(&dir).transpose().map(|node| (dir, node)));
            if let Some((dir, node)) = parents
                && looked.insert(dir.clone())
                && self.differs(&dir, &node?)?
            {
                return Ok(true);
            }
            let Some(node) = node else { continue };
            if looked.insert(path.clone()) && self.differs(path, &node)? {
                return Ok(true);
            }
            let goes = match edit {
                Edit::Put(_) | Edit::Remove => true,
                Edit::Dir(_) => false,
            };
            if let (Node::Dir(dir), true) = (&node, goes) {
                for walked in Walk::new(self.pages.source(), dir, path) {
                    let walked = walked?;
                    if self.differs(&walked.path, &walked.node)? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn in_base(&self, path: &TreePath) -> Result<Option<Node>> {
        tree::lookup(&self.pages, &self.base, path)
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
        let HostStat { kind, mode, mtime, size, .. } = *stat;
        Ok(match node {
            Node::File(file) => {
                (kind, mode, mtime, size) == (HostKind::File, file.mode, file.mtime, file.size)
            }
            Node::Symlink(link) => (kind, mtime) == (HostKind::Symlink, link.mtime),
            Node::Fifo(fifo) => (kind, mode, mtime) == (HostKind::Fifo, fifo.mode, fifo.mtime),
            Node::Dir(dir) => {
                let (meta, _) = tree::top(&self.pages, &dir.tree)?;
                (kind, mode, mtime) == (HostKind::Dir, meta.mode, meta.mtime)
            }
        })
    }
}
