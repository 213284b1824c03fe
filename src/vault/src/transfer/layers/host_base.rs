//! The host's own directory as the base of a stack.
//!
//! A scan has just shown which tree the directory holds. What it holds beside that tree is hidden by a layer of whiteouts,
//! which is made for each run in its scratch. Nothing is written for the rest: the first run on a new fork starts as
//! fast as one on the directory itself. A scan for each run costs more than a copy in the end, so that a stack stands
//! on the directory [`STANDS_ON_HOST_MAX`] times at most.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Uid};

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::DIR;
use avfs_types::ids::TreeId;
use avfs_types::path::TreePath;

use super::difference::Difference;
use super::record::BaseOrigin;
use super::{Made, Stack};
use crate::import::{Scanned, TroubleReason, UNVERSIONED_MAX};
use crate::materialize::BaseCache;
use crate::meter::Meter;
use crate::page::DirRef;
use crate::shelf::{host, make_private};
use crate::write_out::FreshPages;
use crate::{Result, Vault, pages};

/// How often runs stand on a directory of the host before its tree is written to the cache.
pub const STANDS_ON_HOST_MAX: u64 = 16;

/// A file as long as the number of runs that stood on a directory with its tree.
const COUNT_EXTENSION: &str = "uses";
/// How long a count is kept after the last of them.
const COUNT_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How much may differ between a directory of the host and the tree that is to be shown over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Less than half of what a base costs.
    Near,
    /// Everything.
    Any,
}

/// A directory of the host as a scan has just found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBase {
    dir: PathBuf,
    tree: TreeId,
    /// What has to be hidden.
    unversioned: Vec<TreePath>,
}

impl HostBase {
    /// Nothing if the directory cannot stand for the tree: something in it could not be kept as it is or is not the
    /// user's own, or there is too much to hide.
    #[must_use]
    pub fn of(dir: &Path, tree: TreeId, scanned: &Scanned) -> Option<Self> {
        let is_hidden = |reason: &TroubleReason| matches!(reason, TroubleReason::Special(_));
        let exact =
            !scanned.foreign.is_any() && scanned.troubles.iter().all(|trouble| is_hidden(&trouble.reason));
        let unversioned = scanned.unversioned.clone();
        let dir = dir.to_owned();
        (exact && unversioned.len() <= UNVERSIONED_MAX).then_some(Self { dir, tree, unversioned })
    }
}

impl Vault {
    /// The stack for a tree over a directory of the host: with the layers that earlier runs left, or with one for all that
    /// differs. Nothing if the vault does not know what the directory holds, or if too much differs. `veil` is where the
    /// layer that hides unversioned files is made.
    pub fn stack_over_host(
        &self,
        root: &DirRef,
        found: &HostBase,
        distance: Distance,
        cache: &BaseCache,
        veil: &Path,
        meter: &Meter,
    ) -> Result<Option<Stack>> {
        let _pin = self.backend().pin()?;
        if !self.read()?.has_tree(&found.tree)? {
            return Ok(None);
        }
        let mut dirs = vec![found.dir.clone()];
        if !found.unversioned.is_empty() {
            if !self.write_veil(found, veil)? {
                return Ok(None);
            }
            dirs.insert(0, veil.to_owned());
        }
        let (tree, made, layers, leases) = (found.tree, Made::OverHost, Vec::new(), Vec::new());
        let host = Some((found.dir.clone(), self.id()?));
        let mut stack = Stack { dirs, made, host, tree, base: tree, layers, leases };
        if found.tree == root.tree {
            return Ok(Some(stack));
        }
        if let Some(record) = cache.read_stack(&root.tree)?
            && (record.origin, record.base) == (BaseOrigin::Host, found.tree)
        {
            return cache.with_layers(stack, record);
        }
        let pages = FreshPages::new(self);
        let difference = Difference::between(&pages, &pages::reference(&pages, &found.tree)?, root)?;
        if distance == Distance::Near && !difference.is_small_for(root) {
            return Ok(None);
        }
        self.put_difference(&difference, &mut stack, root, cache, meter)?;
        Ok(Some(stack))
    }

    /// Writes whiteouts over what is unversioned; false if a directory on the way belongs to somebody else, and cannot be
    /// shown as theirs.
    fn write_veil(&self, found: &HostBase, veil: &Path) -> Result<bool> {
        make_private(veil)?;
        let into = beneath::open_root(veil).map_err(host("open", veil))?;
        let hiding = Difference::hiding(&found.unversioned);
        let root = pages::reference(&FreshPages::new(self), &found.tree)?;
        hiding.write(self, &root, into.as_fd(), &Meter::default())?;
        let from = beneath::open_root(&found.dir).map_err(host("open", &found.dir))?;
        for path in hiding.dirs() {
            let given = give_to_owner(from.as_fd(), into.as_fd(), path);
            match given {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(false),
                Err(error) => return Err(host("prepare", veil)(error)),
            }
        }
        Ok(true)
    }
}

impl BaseCache {
    /// Counts one more run that stands on the directory with this tree, and tells how many did.
    pub fn count_host_use(&self, found: &HostBase) -> Result<u64> {
        make_private(&self.stacks)?;
        let path = self.stacks.join(format!("{}.{COUNT_EXTENSION}", found.tree));
        let counted = File::options().append(true).create(true).open(&path).and_then(|mut file| {
            file.write_all(b".")?;
            file.metadata()
        });
        Ok(counted.map_err(host("write", &path))?.len())
    }
}

/// True for a count of runs that a sweep of the cache leaves alone.
pub(super) fn is_recent_count(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == COUNT_EXTENSION)
        && path
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|used| used.elapsed().is_ok_and(|since| since < COUNT_KEPT))
}

/// Gives a directory of the veil the owner of the one that it lies over.
fn give_to_owner(from: BorrowedFd<'_>, veil: BorrowedFd<'_>, path: &TreePath) -> std::io::Result<()> {
    let owner = |root| -> std::io::Result<_> {
        let fd = beneath::open(root, path.as_bytes(), rustix::fs::OFlags::PATH)?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok((stat.st_uid, stat.st_gid))
    };
    let (wanted, made) = (owner(from)?, owner(veil)?);
    if wanted == made {
        return Ok(());
    }
    let fd = beneath::open(veil, path.as_bytes(), DIR)?;
    Ok(rustix::fs::fchown(&fd, Some(Uid::from_raw(wanted.0)), Some(Gid::from_raw(wanted.1)))?)
}
