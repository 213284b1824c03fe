//! The host's own directory as the base of a stack.
//!
//! A scan has just determined the tree of the directory. Unversioned files are hidden by a layer of whiteouts, the
//! veil, which is written for each run in its scratch. Nothing else is written: the first run on a new fork starts as
//! fast as a run on the directory itself. But this needs a scan for each run, which in the long term costs more than a
//! copy, so the directory is used as a base at most [`STANDS_ON_HOST_MAX`] times.

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
use crate::transfer::Result;
use crate::write_out::FreshPages;
use crate::{Vault, pages};

/// How many runs use a host directory as their base before its tree is written to the cache.
pub const STANDS_ON_HOST_MAX: u64 = 16;

/// Extension of a file whose length is the number of runs that used a host directory with this tree as their base.
const COUNT_EXTENSION: &str = "uses";
/// How long a count is kept after the last run.
const COUNT_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// How much a host directory may differ from the tree to show over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// A layer for the difference costs at most half of a base.
    Near,
    /// Any difference.
    Any,
}

/// A host directory in the state of a scan that has just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBase {
    dir: PathBuf,
    tree: TreeId,
    /// Paths that must be hidden.
    unversioned: Vec<TreePath>,
}

impl HostBase {
    /// `None` if the directory cannot represent the tree: a file could not be imported exactly or belongs to another
    /// user or group, or there are too many paths to hide.
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
    /// The stack for a tree over a host directory, with the layers of earlier runs or with one layer for the whole
    /// difference. `None` if the vault does not have the directory's tree, or if it differs too much. `veil` is the
    /// path for the layer that hides unversioned files.
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
        let pages = FreshPages::stoppable(self, meter);
        let difference = Difference::between(&pages, &pages::reference(&pages, &found.tree)?, root)?;
        if distance == Distance::Near && !difference.is_small_for(root) {
            return Ok(None);
        }
        self.put_difference(&difference, &mut stack, root, cache, meter)?;
        Ok(Some(stack))
    }

    /// Writes whiteouts for unversioned paths. Returns false if a parent directory belongs to another user, so that its
    /// copy in the veil cannot get the same owner.
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
    /// Counts a run that uses the directory with this tree as its base, and returns the new count.
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

/// True for a count of runs that is too recent for a sweep to remove.
pub(super) fn is_recent_count(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == COUNT_EXTENSION)
        && path
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|used| used.elapsed().is_ok_and(|since| since < COUNT_KEPT))
}

/// Sets the owner of a directory of the veil to that of the directory beneath it.
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
