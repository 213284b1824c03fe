//! A version opened for reading.

use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::{Reader, VersionRecord};
use avfs_vault::page::{DirRef, Node};
use avfs_vault::tree::{Pages, Walk};
use avfs_vault::version::{resolve, root_of};
use avfs_vault::{Vault, tree};
use avfs_workplace::OpError;

use crate::error::VerbError;

/// One consistent view of the vault, at one version.
pub struct View<'v> {
    reader: Box<dyn Reader + 'v>,
    /// The version as the caller named it, for hints.
    reference: &'v Reference,
    pub version: VersionRecord,
    pub root: DirRef,
}

impl<'v> View<'v> {
    pub fn open(vault: &'v Vault, reference: &'v Reference) -> Result<Self, OpError> {
        let reader = vault.read()?;
        let (version, _) = resolve(&*reader, reference)?;
        let root = root_of(&version)?;
        Ok(Self { reader, reference, version, root })
    }

    pub fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    pub fn node(&self, path: &TreePath) -> Result<Node, OpError> {
        tree::require(&self.reader(), &self.root, path).map_err(VerbError::in_version(self.reference))
    }

    /// Passes on the entries at or beneath `path`, at most `depth` levels below it. A directory itself is not
    /// included.
    pub fn each(
        &self,
        path: &TreePath,
        depth: Option<usize>,
        mut visit: impl FnMut(TreePath, Node) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let reader = self.reader();
        let pages: &dyn Pages = &reader;
        let node = self.node(path)?;
        let Node::Dir(dir) = &node else { return visit(path.clone(), node) };
        let mut walk = Walk::new(pages, dir, path);
        while let Some(walked) = walk.next() {
            let walked = walked?;
            if depth.is_some_and(|depth| walked.path.depth() - path.depth() >= depth) {
                walk.skip_dir();
            }
            visit(walked.path, walked.node)?;
        }
        Ok(())
    }
}
