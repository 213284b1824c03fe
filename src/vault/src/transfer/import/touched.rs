//! Partial import: the state before a run of only the paths that the run touched.
//!
//! The run's upper determines these paths, so the cost depends on the changes of the run, never on the size of the
//! directory. In addition to the touched paths, the tree contains the ignore files in the directories above them, whose
//! rules decide which paths are versioned and how changes are shown, and symlinks at places that the caller names. If
//! the run removed or replaced a directory, the whole subtree is imported.
//!
//! The directory is read after the command has ended; the command itself cannot have changed it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;

use avfs_hostfs::beneath::Listed;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::{beneath, overlay, xattr};
use avfs_types::clock::FileTime;
use avfs_types::path::TreePath;

use super::host::Host;
use super::{ImportError, ImportOptions, OnTrouble, Scanned, host};
use crate::backend::{Durability, Extent, Guard, VersionRecord};
use crate::capture::modes::{Modes, is_closed, open_up_root};
use crate::ignore::{FILE_NAME, OWN_DIR};
use crate::meter::Meter;
use crate::page::DirRef;
use crate::transfer::Result;
use crate::transfer::scan::{Job, Outlet, Shared};
use crate::version::Draft;
use crate::{Vault, VaultError};

/// Files with rules for the directory they are in and everything beneath it.
const IGNORE_FILES: [&[u8]; 2] = [FILE_NAME, b".gitignore"];

/// Maximum number of names of a directory that are checked for symlinks.
const LINKS_NAMES_MAX: usize = 1000;

/// Options of a partial import.
pub struct TouchedOptions<'a> {
    /// Patterns of unversioned paths, as lines of an ignore file in the root.
    pub exclude: &'a [String],
    /// Places whose symlinks belong to the tree too: the places themselves and, for directories, their entries.
    pub links_at: &'a [TreePath],
    /// Paths that were hidden from the command.
    pub hidden: &'a [TreePath],
    /// A time before the command started, by the clock of file timestamps.
    pub launched_at: FileTime,
    /// Records the modes of files in the upper that have to be made readable; a capture of the upper restores them.
    pub modes_journal: &'a Path,
    /// Counts read files and bytes, and can cancel the import.
    pub meter: &'a Meter,
}

/// The state before a run of the paths that the run touched.
pub struct TouchedBase {
    /// A partial version that no fork refers to yet.
    pub version: VersionRecord,
    /// Its root.
    pub root: DirRef,
    /// The results of the scan.
    pub scanned: Scanned,
    /// Prevents a sweep until it is dropped: by then something must refer to the version.
    pub pin: Guard,
}

/// How much of a directory is imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    #[default]
    Everything,
    /// The names that the upper has too.
    Touched,
    /// Only the directory itself.
    Itself,
}

/// The paths that a run touched, determined from its upper.
pub(crate) struct TouchedBy<'a> {
    upper: BorrowedFd<'a>,
    modes: Modes,
    hidden: &'a [TreePath],
    launched_at: FileTime,
    /// Untouched paths that belong to the tree too: other hard links of touched files, and symlinks.
    others: BTreeSet<TreePath>,
}

/// The names of a directory to import, and the reach of each subdirectory.
pub(crate) type TouchedNames = (Vec<Listed>, HashMap<Vec<u8>, Reach>);

impl TouchedBy<'_> {
    /// Opens a directory of the upper, even if its mode denies access to its owner. `None` if the upper has no such
    /// directory.
    fn open(&self, path: &TreePath) -> io::Result<Option<OwnedFd>> {
        let open = || beneath::open(self.upper, path.as_bytes(), beneath::DIR);
        let opened = match open() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.modes.open_up(self.upper, path)?;
                open()
            }
            other => other,
        };
        let dir = match opened {
            Ok(dir) => dir,
            Err(error) => {
                return match Cause::of(&error) {
                    Cause::NotFound | Cause::NotADirectory | Cause::Link => Ok(None),
                    Cause::NoPermission
                    | Cause::Exists
                    | Cause::ReadOnly
                    | Cause::DiskFull
                    | Cause::Unreadable
                    | Cause::Other => Err(error),
                };
            }
        };
        if is_closed(&beneath::fstat(dir.as_fd())?) {
            self.modes.open_up(self.upper, path)?;
        }
        Ok(Some(dir))
    }

    /// The names in a directory of the upper, with their kinds.
    fn names(&self, path: &TreePath) -> io::Result<BTreeMap<Vec<u8>, HostKind>> {
        let mut names = BTreeMap::new();
        let Some(dir) = self.open(path)? else { return Ok(names) };
        for listed in beneath::names(dir.as_fd())? {
            if listed.name != OWN_DIR {
                let kind = beneath::stat(dir.as_fd(), &listed.name)?.kind;
                names.insert(listed.name, kind);
            }
        }
        Ok(names)
    }

    /// How much of a host directory is touched, given the kind of the upper's entry at its path.
    fn reach(&self, path: &TreePath, in_upper: HostKind) -> io::Result<Reach> {
        if self.hidden.contains(path) {
            return Ok(Reach::Itself);
        }
        if in_upper != HostKind::Dir {
            return Ok(Reach::Everything);
        }
        let opaque = self.open(path)?.is_some_and(|dir| overlay::is_opaque(dir.as_fd()));
        Ok(if opaque { Reach::Everything } else { Reach::Touched })
    }

    /// Restores the mtime that the command saw, if other processes changed the directory during the run. An mtime in
    /// the upper from before the run is the one it saw: any change by the command sets a new one.
    pub(super) fn as_found(&self, stat: HostStat, path: &TreePath) -> io::Result<HostStat> {
        if stat.ctime <= self.launched_at {
            return Ok(stat);
        }
        let in_upper = self.open(path)?.map(|dir| beneath::fstat(dir.as_fd())).transpose()?;
        let found = in_upper.map(|dir| dir.mtime).filter(|mtime| *mtime < self.launched_at);
        Ok(HostStat { mtime: found.unwrap_or(stat.mtime), ..stat })
    }

    /// True if the run changed nothing: the upper is empty, apart from hidden paths, and its metadata are unchanged.
    fn is_nothing(&self, dir: BorrowedFd<'_>) -> io::Result<bool> {
        let names = self.names(&TreePath::root())?;
        if names.keys().any(|name| !self.hidden.contains(&TreePath::root().join(name))) {
            return Ok(false);
        }
        let host = self.as_found(beneath::fstat(dir)?, &TreePath::root())?;
        let upper = beneath::fstat(self.upper)?;
        let mode = self.modes.true_mode(&upper);
        let same =
            || -> io::Result<bool> { Ok(overlay::unescape(xattr::read(self.upper)?).0 == xattr::read(dir)?) };
        Ok((mode, upper.mtime) == (host.mode, host.mtime) && same()?)
    }

    /// The names of a directory on the paths to `others`.
    fn toward_others(&self, path: &TreePath) -> impl Iterator<Item = Vec<u8>> {
        // The paths beneath a directory are contiguous in path order: they begin with its path and a slash.
        let begins = if path.is_root() { TreePath::root() } else { path.join(&[0]) };
        let beneath = self.others.range(begins..).map_while(|other| other.below(path));
        beneath.filter_map(|below| below.components().next().map(<[u8]>::to_vec))
    }
}

impl Shared<'_, Host<'_>> {
    /// The names to import of a partly imported directory. `None` if it is imported as a whole.
    pub(super) fn touched_names(
        &self,
        job: &Job<Reach>,
        dir: BorrowedFd<'_>,
    ) -> Result<Option<TouchedNames>> {
        let Some(by) = &self.source.touched else { return Ok(None) };
        match job.own {
            Reach::Everything => return Ok(None),
            Reach::Itself => return Ok(Some(TouchedNames::default())),
            Reach::Touched => {}
        }
        let io =
            |source| ImportError::Io { operation: "list the changes of", path: job.path.clone(), source };
        let mut names: BTreeMap<Vec<u8>, Option<HostKind>> =
            IGNORE_FILES.iter().map(|name| (name.to_vec(), None)).collect();
        names.extend(by.toward_others(&job.path).map(|name| (name, Some(HostKind::Dir))));
        names.extend(by.names(&job.path).map_err(io)?.into_iter().map(|(name, kind)| (name, Some(kind))));
        let mut touched = TouchedNames::default();
        for (name, in_upper) in names {
            let path = job.path.join(&name);
            let stat = match beneath::stat(dir, &name) {
                Err(error) if Cause::of(&error) == Cause::NotFound => continue,
                looked => self.tolerate(looked, "stat", || path.clone())?,
            };
            let Some(stat) = stat else { continue };
            let is_dir = stat.kind == HostKind::Dir;
            if is_dir {
                let reach = in_upper.map_or(Ok(Reach::Itself), |kind| by.reach(&path, kind));
                touched.1.insert(name.clone(), reach.map_err(io)?);
            }
            touched.0.push(Listed { name, is_dir: Some(is_dir) });
        }
        Ok(Some(touched))
    }
}

impl Vault {
    /// Imports the state before a run of the paths of `dir` that the run touched, as a partial version. `None` if the
    /// run changed nothing.
    pub fn import_touched(
        &self,
        dir: &Path,
        upper: BorrowedFd<'_>,
        options: &TouchedOptions<'_>,
    ) -> Result<Option<TouchedBase>> {
        let pin = self.backend().pin()?;
        let mut others = None;
        loop {
            let modes = Modes::load(options.modes_journal, upper)?;
            open_up_root(upper, &modes)?;
            let (hidden, launched_at) = (options.hidden, options.launched_at);
            let import = ImportOptions {
                on_trouble: OnTrouble::KeepGoing,
                stat_cache: None,
                exclude: options.exclude,
                meter: options.meter,
            };
            let mut scan = host::scan(self, dir, None, &import, Outlet::Held(Default::default()))?;
            let mut by = TouchedBy { upper, modes, hidden, launched_at, others: BTreeSet::new() };
            let root = scan.shared.root.as_fd();
            if by.is_nothing(root).map_err(VaultError::Input)? {
                return Ok(None);
            }
            let first = others.is_none();
            by.others = others.take().unwrap_or_else(|| links_at(root, options.links_at));
            let links = by.others.clone();
            scan.only_touched(by);
            let (built, mut batch, root) = scan.store_into(self, |_, shared| shared.root)?;
            if first {
                let names = other_names(root.as_fd(), &built.shared_names.missing(), options.meter)?;
                if !names.is_empty() {
                    others = Some(&names | &links);
                    continue;
                }
            }
            for page in built.new.all() {
                let (id, data) = page?;
                batch.push_page(id, data)?;
            }
            // Deferred: nothing refers to the version until the run lands, with a synced commit.
            let version = self.transact_with(Durability::Deferred, |transaction| {
                batch.finish(transaction)?;
                let (message, parents) = ("before a run with --base touched", Vec::new());
                let draft = Draft { message, run: None, parents, extent: Extent::Partial };
                transaction.put_version(&built.root, draft)
            })?;
            return Ok(Some(TouchedBase { version, root: built.root, scanned: built.scanned, pin }));
        }
    }
}

/// The symlinks at these places, and those in the places that are directories. Unreadable places are skipped.
fn links_at(root: BorrowedFd<'_>, places: &[TreePath]) -> BTreeSet<TreePath> {
    let mut links = BTreeSet::new();
    for place in places {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let Ok(file) = beneath::open(root, place.as_bytes(), flags) else { continue };
        match beneath::fstat(file.as_fd()).map(|stat| stat.kind) {
            Ok(HostKind::Symlink) => {
                links.insert(place.clone());
            }
            Ok(HostKind::Dir) => {
                let Ok(dir) = beneath::open(root, place.as_bytes(), beneath::DIR) else { continue };
                let names = beneath::names(dir.as_fd()).unwrap_or_default().into_iter().take(LINKS_NAMES_MAX);
                for listed in names.filter(|listed| listed.is_dir != Some(true)) {
                    let looked = beneath::stat(dir.as_fd(), &listed.name);
                    if looked.is_ok_and(|stat| stat.kind == HostKind::Symlink) {
                        links.insert(place.join(&listed.name));
                    }
                }
            }
            Ok(HostKind::File | HostKind::Fifo | HostKind::Whiteout | HostKind::Special(_)) | Err(_) => {}
        }
    }
    links
}

/// All paths of files with more hard links than the scan found. Walks the whole directory, but only if a run touched
/// such a file.
fn other_names(
    root: BorrowedFd<'_>,
    missing: &HashMap<(u64, u64), u64>,
    meter: &Meter,
) -> Result<BTreeSet<TreePath>> {
    let mut others = BTreeSet::new();
    let mut waiting = if missing.is_empty() { Vec::new() } else { vec![TreePath::root()] };
    while let Some(path) = waiting.pop() {
        if meter.stopped() {
            return Err(ImportError::Interrupted.into());
        }
        // Unreadable or deleted directories are skipped.
        let Ok(dir) = beneath::open(root, path.as_bytes(), beneath::DIR) else { continue };
        for listed in beneath::names(dir.as_fd()).unwrap_or_default() {
            if listed.name == OWN_DIR {
                continue;
            }
            let Ok(stat) = beneath::stat(dir.as_fd(), &listed.name) else { continue };
            match stat.kind {
                HostKind::Dir if !path.is_too_deep() => waiting.push(path.join(&listed.name)),
                HostKind::File | HostKind::Symlink | HostKind::Fifo
                    if missing.contains_key(&(stat.device, stat.inode)) =>
                {
                    others.insert(path.join(&listed.name));
                }
                HostKind::Dir
                | HostKind::File
                | HostKind::Symlink
                | HostKind::Fifo
                | HostKind::Whiteout
                | HostKind::Special(_) => {}
            }
        }
    }
    Ok(others)
}
