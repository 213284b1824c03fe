//! The difference between a base and a tree, as an overlayfs layer over the base.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::{beneath, overlay};
use avfs_types::path::TreePath;

use super::Footprint;
use crate::Vault;
use crate::diff::{Change, collect};
use crate::expansion::Expansion;
use crate::export::ExportError;
use crate::meter::Meter;
use crate::page::{DirRef, Node};
use crate::transfer::Result;
use crate::tree::Pages;
use crate::write_out::WriteOut;

#[derive(Default)]
pub(super) struct Difference {
    /// Files, symlinks and fifos to write.
    files: HashSet<TreePath>,
    /// New or changed directories, and all directories above a change: overlayfs shows a directory with the metadata of
    /// the topmost layer that has it.
    dirs: HashSet<TreePath>,
    /// Deleted names.
    whiteouts: Vec<TreePath>,
    /// Directories that replace an entry of another type.
    opaque: Vec<TreePath>,
    pub(crate) size: Footprint,
}

impl Difference {
    pub(crate) fn between(pages: &dyn Pages, from: &DirRef, to: &DirRef) -> Result<Self> {
        let mut difference = Self::default();
        // Deleted directories: one whiteout hides everything in them.
        let mut gone: HashSet<TreePath> = HashSet::new();
        let mut add = |change| difference.add(change, &mut gone);
        collect(pages, from, to, &mut Expansion::default(), &mut add)?;
        let made = difference.files.len() + difference.dirs.len() + difference.whiteouts.len();
        difference.size.entries = made as u64;
        Ok(difference)
    }

    /// True if a layer for it costs at most half of a base for the whole tree.
    pub(crate) fn is_small_for(&self, root: &DirRef) -> bool {
        self.size.cost().saturating_mul(2) <= Footprint::of(&root.totals).cost()
    }

    /// A difference that only hides these paths.
    pub(crate) fn hiding(paths: &[TreePath]) -> Self {
        let mut difference = Self::default();
        for path in paths {
            difference.whiteouts.push(path.clone());
            difference.show_way_to(path);
        }
        difference
    }

    /// The directories in the layer.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &TreePath> {
        self.dirs.iter()
    }

    fn add(&mut self, change: Change, gone: &mut HashSet<TreePath>) {
        let Change { path, before, after, .. } = change;
        let was_dir = before.as_ref().map(|side| matches!(side.node, Node::Dir(_)));
        let parent = path.split().map(|(parent, _)| parent);
        if was_dir == Some(true) && !matches!(&after, Some(side) if matches!(side.node, Node::Dir(_))) {
            gone.insert(path.clone());
        }
        match after.map(|side| side.node) {
            // Changes are sorted by path, so a deleted directory comes before its entries.
            None if parent.is_some_and(|parent| gone.contains(&parent)) => return,
            None => self.whiteouts.push(path.clone()),
            Some(Node::Dir(_)) => {
                self.dirs.insert(path.clone());
                if was_dir == Some(false) {
                    self.opaque.push(path.clone());
                }
            }
            Some(node @ (Node::File(_) | Node::Symlink(_) | Node::Fifo(_))) => {
                self.size.bytes = self.size.bytes.saturating_add(node.totals().bytes);
                self.files.insert(path.clone());
            }
        }
        self.show_way_to(&path);
    }

    /// Adds the directories above a path.
    fn show_way_to(&mut self, path: &TreePath) {
        let mut up = path.clone();
        while let Some((parent, _)) = up.split() {
            if !self.dirs.insert(parent.clone()) {
                break;
            }
            up = parent;
        }
    }

    /// Writes the layer to an empty directory. `to` is the target tree of the difference.
    pub(crate) fn write(
        &self,
        vault: &Vault,
        to: &DirRef,
        into: BorrowedFd<'_>,
        meter: &Meter,
    ) -> Result<()> {
        let out = WriteOut::for_overlay(vault, meter);
        let wanted = |path: &TreePath, is_dir: bool| {
            if is_dir { self.dirs.contains(path) } else { self.files.contains(path) }
        };
        let unfinished = out.write(to, into, &wanted)?.unfinished;
        let fail = |path: &TreePath| {
            let path = path.clone();
            move |source| ExportError::Io { operation: "mark", path, source }
        };
        for path in &self.whiteouts {
            meter.require_going()?;
            let Some((parent, name)) = path.split() else { continue };
            let dir = beneath::open(into, parent.as_bytes(), DIR).map_err(fail(path))?;
            overlay::whiteout(dir.as_fd(), name).map_err(fail(path))?;
        }
        for path in &self.opaque {
            let dir = beneath::open(into, path.as_bytes(), DIR).map_err(fail(path))?;
            overlay::make_opaque(dir.as_fd()).map_err(fail(path))?;
        }
        out.finish_staged(into, &unfinished)
    }
}
