//! Exports a version to a directory of the host, completely or not at all.
//!
//! All files are written to a staging directory first, which is moved into place when it is complete. The staging
//! directory of a killed export is not locked; [`Unfinished`](super::unfinished::Unfinished) notes which one to remove.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::renameat;

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::held::FileId;
use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::place::{MadeDirs, NewOwner, Place, PlaceError, Rest, readable};
use avfs_hostfs::remove::{remove_empty_dir, remove_open_tree, remove_same};
use avfs_hostfs::{beneath, make, random};
use avfs_types::diagnose::Diagnose;
use avfs_types::path::TreePath;

use super::merge::{Meeting, Merge, Top};
use super::own;
use super::own::OwnFile;
use super::set_ids::SetIds;
use super::unfinished::{DirIdentity, Note};
pub use super::write_out::Unwritten;
use super::write_out::{FreshPages, OverlayNames, Unfinished, WriteOut, Written};
use crate::meter::Meter;
use crate::page::DirRef;
use crate::path_set::PathSet;
use crate::transfer::Result;
use crate::{Vault, VaultError, tree};

/// Why a version cannot be written to a directory.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The destination exists and is not empty.
    #[error("{} already exists and is not empty", path.display())]
    Exists {
        /// The path on the host.
        path: PathBuf,
    },
    /// Another process created the destination during the export.
    #[error("{} was created by another process during the export, and is not replaced", path.display())]
    Appeared {
        /// The path on the host.
        path: PathBuf,
    },
    /// The destination is not a directory.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path on the host.
        path: PathBuf,
    },
    /// A symlink on the way to the destination.
    #[error("{} is a symbolic link; the export does not follow it", link.display())]
    Symlink {
        /// The path on the host.
        link: PathBuf,
        /// The path of the destination without symlinks.
        real: PathBuf,
    },
    /// The destination has an entry of another type.
    #[error("cannot replace {}: it is a {found}, but the version has a {wanted} there", path.display())]
    InTheWay {
        /// The path on the host.
        path: PathBuf,
        /// The type of the existing entry.
        found: &'static str,
        /// The type of the version's entry.
        wanted: &'static str,
    },
    /// The user lacks write permission.
    #[error("no permission to write {}", path.display())]
    NoPermission {
        /// The path on the host.
        path: PathBuf,
    },
    /// I/O error inside the destination.
    #[error("cannot {operation} {path}")]
    Io {
        /// The attempted operation, such as `create`.
        operation: &'static str,
        /// The path inside the tree.
        path: TreePath,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// I/O error outside of the tree.
    #[error("cannot {operation} {}", path.display())]
    Host {
        /// The attempted operation, such as `create`.
        operation: &'static str,
        /// The path on the host.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
}

impl ExportError {
    pub(crate) fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| match Cause::of(&source) {
            Cause::NoPermission => Self::NoPermission { path },
            Cause::NotADirectory => Self::NotADirectory { path },
            Cause::NotFound
            | Cause::Exists
            | Cause::Link
            | Cause::ReadOnly
            | Cause::DiskFull
            | Cause::Unreadable
            | Cause::Other => Self::Host { operation, path, source },
        }
    }
}

impl Diagnose for ExportError {
    fn code(&self) -> &'static str {
        match self {
            Self::Exists { .. } | Self::Appeared { .. } => "export.exists",
            Self::NotADirectory { .. } => "export.not_a_directory",
            Self::Symlink { .. } => "export.symlink",
            Self::InTheWay { .. } => "export.in_the_way",
            Self::NoPermission { .. } => "export.no_permission",
            Self::Io { source, .. } | Self::Host { source, .. } => match Cause::of(source) {
                Cause::DiskFull => "export.disk_full",
                Cause::NoPermission => "export.no_permission",
                Cause::NotFound
                | Cause::Exists
                | Cause::NotADirectory
                | Cause::Link
                | Cause::ReadOnly
                | Cause::Unreadable
                | Cause::Other => "export.io",
            },
        }
    }
}

/// How an export treats existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Fail if the destination is not empty.
    Refuse,
    /// Replace files and merge directories. Files that the version does not have stay.
    Replace,
}

/// Options of an export.
pub struct ExportOptions<'a> {
    /// How to treat existing files in the destination.
    pub overwrite: Overwrite,
    /// Export only these paths, each at its place in the tree; empty for all.
    pub paths: &'a [TreePath],
    /// Whether setuid and setgid bits are written.
    pub set_ids: SetIds,
    /// Counts written files and bytes, and can cancel the export.
    pub meter: &'a Meter,
    /// Collects files that are damaged or missing in the vault, so that the export continues without them. If `None`,
    /// such a file fails the export.
    pub unwritten: Option<&'a Unwritten>,
}

impl Vault {
    /// Writes the tree of a version to `dest`. Returns the files that lost their setuid and setgid bits.
    pub fn export(&self, root: &DirRef, dest: &Path, options: &ExportOptions<'_>) -> Result<Vec<TreePath>> {
        let _pin = self.backend().pin()?;
        let named = PathSet::new(options.paths.iter());
        // The root alone means everything.
        let whole = named.is_empty() || named.has(&TreePath::root());
        let pages = FreshPages::new(self);
        for path in options.paths.iter().filter(|path| named.has(path)) {
            tree::require(&pages, root, path)?;
        }
        drop(pages);
        options.meter.expect(root.totals.entries, root.totals.bytes);
        let ExportOptions { set_ids, meter, unwritten, .. } = *options;
        let out = WriteOut { vault: self, overlay_names: OverlayNames::Plain, set_ids, meter, unwritten };
        // First: the destination of a killed export counts as empty.
        self.sweep_staging();
        let destination = place_for(dest, options.overwrite)?;
        // A handcrafted version may contain the paths of avfs's own files, which an export must not overwrite.
        let own_file = OwnFile::of(self, &destination.real());
        let wanted = |path: &TreePath, is_dir: bool| {
            let wanted = whole || named.covers(path) || (is_dir && named.leads_to(path));
            wanted && !own_file.covers(path)
        };
        match destination {
            Destination::New { parent, real, name, made } => {
                let staging = Staging::make(self, parent.as_fd(), &real)?;
                let written = out.write(root, staging.fd.as_fd(), &wanted)?;
                out.finish_staged(staging.fd.as_fd(), &written.unfinished)?;
                staging.publish(&name, &real.join(&name))?;
                made.keep();
                Ok(sorted(written.stripped))
            }
            Destination::Into { dir: target, real: dir } => {
                let staging = Staging::make(self, target.as_fd(), &dir)?;
                let Written { unfinished, stripped } = out.write(root, staging.fd.as_fd(), &wanted)?;
                out.attributes(staging.fd.as_fd(), &unfinished)?;
                let merge = Merge {
                    staged: staging.fd.as_fd(),
                    dest: target.as_fd(),
                    shown: &dir,
                    overwrite: options.overwrite,
                    top: if whole { Top::Finished } else { Top::Kept },
                };
                let meetings = merge.plan()?;
                if options.meter.stopped() {
                    return Err(VaultError::Interrupted.into());
                }
                // A directory that only receives some paths keeps its own metadata.
                let kept = |dir: &Unfinished| whole || !dir.path.is_root();
                let mut unfinished: Vec<Unfinished> = unfinished.into_iter().filter(kept).collect();
                let existing: BTreeMap<&TreePath, FileId> =
                    meetings.iter().map(|met| (&met.path, met.id)).collect();
                for dir in &mut unfinished {
                    dir.id = existing.get(&dir.path).copied().unwrap_or(dir.id);
                }
                let mut met = meetings.iter().filter(|met| whole || !met.path.is_root());
                let moved = merge.make(&meetings);
                let moved = moved.and_then(|()| met.try_for_each(|met| merge.clear_attributes(met)));
                drop(staging);
                if let Err(error) = moved.and_then(|()| out.finish(target.as_fd(), &unfinished)) {
                    if options.overwrite == Overwrite::Refuse {
                        // The directory was empty: this export moved everything under these names.
                        remove_moved(target.as_fd(), &meetings);
                    }
                    return Err(error);
                }
                Ok(sorted(stripped))
            }
        }
    }
}

fn sorted(mut paths: Vec<TreePath>) -> Vec<TreePath> {
    paths.sort();
    paths
}

enum Destination {
    /// The destination does not exist: one rename publishes the whole export.
    New {
        parent: OwnedFd,
        /// The path of the parent.
        real: PathBuf,
        name: OsString,
        made: MadeDirs,
    },
    /// The destination is a directory: entries are moved into it one by one.
    Into { dir: OwnedFd, real: PathBuf },
}

impl Destination {
    /// The path of the exported tree.
    fn real(&self) -> PathBuf {
        match self {
            Self::New { real, name, .. } => real.join(name),
            Self::Into { real, .. } => real.clone(),
        }
    }
}

impl From<PlaceError> for ExportError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Link { link, real } => Self::Symlink { link, real },
            PlaceError::Io { path, source } => Self::host("open", &path)(source),
        }
    }
}

/// Opens the destination, or the directory in which it is created. From here on only descriptors are used.
fn place_for(dest: &Path, overwrite: Overwrite) -> Result<Destination> {
    let Place { dir, real, rest } = Place::find(dest).map_err(ExportError::from)?;
    match rest {
        Rest::File { .. } => Err(ExportError::NotADirectory { path: dest.to_owned() }.into()),
        Rest::Nothing => {
            let dir = readable(dir.as_fd()).map_err(ExportError::host("open", dest))?;
            sweep_in(dir.as_fd(), &real, None);
            let is_empty = beneath::is_empty(dir.as_fd()).map_err(ExportError::host("list", dest))?;
            if overwrite == Overwrite::Refuse && !is_empty {
                return Err(ExportError::Exists { path: dest.to_owned() }.into());
            }
            Ok(Destination::Into { dir, real })
        }
        Rest::Missing { mut names } => {
            let name = names.pop().ok_or_else(|| ExportError::NotADirectory { path: dest.to_owned() })?;
            let real = names.iter().fold(real, |real, name| real.join(name));
            let made = MadeDirs::make(dir, &names, 0o777, NewOwner::Caller);
            let (made, parent) = made.map_err(ExportError::host("create", &real))?;
            // A directory that cannot be listed has leftovers that only the note of the exporter finds.
            if let Ok(parent) = readable(parent.as_fd()) {
                sweep_in(parent.as_fd(), &real, None);
            }
            Ok(Destination::New { parent, real, name, made })
        }
    }
}

/// Removes the entries that a failed export has moved into an empty directory.
fn remove_moved(dir: BorrowedFd<'_>, meetings: &[Meeting]) {
    for moving in meetings.iter().filter(|meeting| meeting.path.is_root()).flat_map(|meeting| &meeting.moving)
    {
        if let Err(error) = remove_same(dir, &moving.name, moving.id) {
            let name = OsStr::from_bytes(&moving.name).display();
            tracing::warn!(%error, %name, "cannot remove leftovers of an export");
        }
    }
}

/// Removes what killed processes left in a directory, as [`sweep_in`].
pub(crate) fn sweep_noted(dir: &Path, noted: Option<DirIdentity>) -> Swept {
    Place::open_dir(dir).map_or(Swept::Completely, |fd| sweep_in(fd.as_fd(), dir, noted))
}

/// Whether a sweep has removed what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swept {
    /// Nothing is left that it should remove.
    Completely,
    /// A directory could not be examined or removed.
    Partly,
}

/// Removes empty staging directories of this user whose exporter is dead, and the one that a dead exporter has noted,
/// with its files. Others keep their files: a process that can write to `dir` can give the name of a staging directory
/// to any directory in it. Errors are ignored: a leftover does no harm.
pub fn sweep_in(dir: BorrowedFd<'_>, shown: &Path, noted: Option<DirIdentity>) -> Swept {
    let Ok(names) = beneath::names(dir) else { return Swept::Partly };
    let mut swept = Swept::Completely;
    for name in names.into_iter().map(|listed| listed.name).filter(|name| own::is_staging_name(name)) {
        match sweep_one(dir, &name, noted) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let path = shown.join(OsStr::from_bytes(&name));
                tracing::warn!(%error, path = %path.display(), "cannot remove leftovers of an export");
                swept = Swept::Partly;
            }
            Ok(()) | Err(_) => {}
        }
    }
    swept
}

fn sweep_one(dir: BorrowedFd<'_>, name: &[u8], noted: Option<DirIdentity>) -> std::io::Result<()> {
    let tree = match beneath::open(dir, name, DIR) {
        // Nothing that avfs made.
        Err(error) if is_replaced(&error) || Cause::of(&error) == Cause::NoPermission => return Ok(()),
        opened => opened?,
    };
    if beneath::fstat(tree.as_fd())?.owner != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    // Held until the directory is removed: an exporter that has created it but not locked it yet then makes another.
    let Some(_abandoned) =
        FileLock::try_open(tree.try_clone()?, Mode::Exclusive).map_err(std::io::Error::other)?
    else {
        return Ok(());
    };
    let is_noted = match noted {
        Some(noted) => DirIdentity::of(tree.as_fd())? == noted,
        None => false,
    };
    match is_noted {
        true => remove_open_tree(dir, name, tree.as_fd()),
        false => remove_empty_dir(dir, name).map(drop),
    }
}

/// How often a new staging directory can be found by a sweep, or replaced by another process, before it is locked.
const STAGING_TRIES_MAX: u32 = 100;

/// A staging directory, removed on drop. If that fails, its note stays for the next sweep.
pub struct Staging {
    note: Option<Note>,
    parent: OwnedFd,
    name: OsString,
    /// Descriptor of the directory.
    pub fd: OwnedFd,
    id: FileId,
    is_published: bool,
    /// Shows other processes that the exporter is alive.
    _alive: FileLock,
}

impl Staging {
    /// Creates and notes an empty directory with mode 0700 in `parent`, which has the path `shown`.
    pub fn make(vault: &Vault, parent: BorrowedFd<'_>, shown: &Path) -> Result<Self> {
        let note = vault.note_staging(shown);
        let mut staging = Self::make_unnoted(parent, shown)?;
        if let Some(Err(error)) = note.as_ref().map(|note| note.identify(staging.fd.as_fd())) {
            tracing::warn!(%error, "cannot note the staging directory in the cache");
        }
        staging.note = note;
        Ok(staging)
    }

    fn make_unnoted(parent: BorrowedFd<'_>, shown: &Path) -> Result<Self> {
        for _ in 0..STAGING_TRIES_MAX {
            let unique = random::suffix().map_err(VaultError::Output)?;
            let name = OsString::from(format!("{}{unique}", own::STAGING_PREFIX));
            let path = shown.join(&name);
            let host = |operation| ExportError::host(operation, &path);
            make::dir(parent, name.as_bytes()).map_err(host("create"))?;
            avfs_types::pause::point("staging-made");
            let opened = match beneath::open(parent, name.as_bytes(), DIR) {
                // A sweep, or another process that writes there, has removed or replaced it.
                Err(error) if is_replaced(&error) => continue,
                opened => opened.map_err(host("open")),
            };
            let staging = opened.and_then(|fd| {
                let id = FileId::of(&fd).map_err(|errno| host("stat")(errno.into()))?;
                // Another directory in its place could have entries that would be published.
                if !is_new(fd.as_fd()).map_err(host("list"))? {
                    return Ok(None);
                }
                let held = fd.try_clone().map_err(host("lock"))?;
                // Not free: a sweep found it before it was locked, and treats it as abandoned.
                let alive = FileLock::try_open(held, Mode::Exclusive).map_err(host("lock"))?;
                let is_there = id.is_at(parent, name.as_bytes()).map_err(host("stat"))?;
                let Some(alive) = alive.filter(|_| is_there) else { return Ok(None) };
                let parent = parent.try_clone_to_owned().map_err(host("open"))?;
                let name = name.clone();
                Ok(Some(Self { note: None, parent, name, fd, id, is_published: false, _alive: alive }))
            });
            match staging {
                Ok(Some(staging)) => return Ok(staging),
                Ok(None) => {}
                Err(error) => {
                    // Removes only an empty directory. If this fails, the next export to the same place does it.
                    let _ = remove_empty_dir(parent, name.as_bytes());
                    return Err(error.into());
                }
            }
        }
        let replaced = std::io::Error::other("another process keeps replacing it");
        Err(ExportError::host("create a directory in", shown)(replaced).into())
    }

    /// Renames the finished directory. `shown` is its new path.
    fn publish(mut self, name: &OsStr, shown: &Path) -> Result<()> {
        avfs_types::pause::point("publish");
        let moved = self.id.require_at(self.parent.as_fd(), self.name.as_bytes());
        let moved = moved.and_then(|()| Ok(renameat(&self.parent, &self.name, &self.parent, name)?));
        moved.map_err(|error| {
            if [ErrorKind::DirectoryNotEmpty, ErrorKind::AlreadyExists].contains(&error.kind()) {
                return ExportError::Appeared { path: shown.to_owned() };
            }
            ExportError::host("move to", shown)(error)
        })?;
        self.is_published = true;
        Ok(())
    }
}

fn is_replaced(error: &std::io::Error) -> bool {
    match Cause::of(error) {
        Cause::NotFound | Cause::NotADirectory | Cause::Link => true,
        Cause::Exists
        | Cause::NoPermission
        | Cause::ReadOnly
        | Cause::DiskFull
        | Cause::Unreadable
        | Cause::Other => false,
    }
}

/// True for an empty directory of this user that still exists.
fn is_new(dir: BorrowedFd<'_>) -> std::io::Result<bool> {
    match beneath::is_empty(dir) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        // A sweep has removed it since it was opened: such a directory cannot be listed.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    let owner = beneath::fstat(dir)?.owner;
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(true);
    }
    // Some file systems give all files to another user.
    let name = b"owner";
    let file = make::file(dir, name, 0o600)?;
    avfs_hostfs::remove::remove_file(dir, name)?;
    Ok(beneath::fstat(file.as_fd())?.owner == owner)
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_published {
            let removed = remove_open_tree(self.parent.as_fd(), self.name.as_bytes(), self.fd.as_fd());
            if let (Err(_), Some(note)) = (removed, self.note.take()) {
                note.leave();
            }
        }
    }
}
