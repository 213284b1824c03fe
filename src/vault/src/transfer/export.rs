//! Exports a version to a directory of the host, completely or not at all.
//!
//! All files are written to a staging directory first, which is moved into place when it is complete. The staging
//! directory of a killed export is not locked; the next export to the same place removes it.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use avfs_hostfs::cause::Cause;
use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::remove::remove_tree;
use avfs_hostfs::{beneath, random};
use avfs_types::diagnose::Diagnose;
use avfs_types::path::TreePath;

use super::merge::{Meeting, Merge, Top};
use super::own::OwnFile;
use super::set_ids::SetIds;
pub use super::write_out::Unwritten;
use super::write_out::{FreshPages, OverlayNames, Unfinished, WriteOut, Written};
use super::{ignore, own};
use crate::meter::Meter;
use crate::page::DirRef;
use crate::path_set::PathSet;
use crate::{Result, Vault, VaultError, tree};

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
    /// The export was stopped through its [`Meter`].
    #[error("the export was interrupted; no files were left behind")]
    Interrupted,
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
            Self::Interrupted => "interrupted",
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
        // A handcrafted version may contain the paths of avfs's own files, which an export must not overwrite.
        let own_file = OwnFile::of(self, dest);
        let is_own = |path: &TreePath| {
            path.split().is_some_and(|(dir, name)| name == ignore::OWN_DIR || own_file.is(&dir, name))
        };
        let wanted = |path: &TreePath, is_dir: bool| {
            let wanted = whole || named.covers(path) || (is_dir && named.leads_to(path));
            wanted && !is_own(path)
        };
        match place_for(dest, options.overwrite)? {
            Destination::New { parent, name, made } => {
                let staging = Staging::make(&parent)?;
                let written = out.write(root, staging.fd.as_fd(), &wanted)?;
                out.finish(staging.fd.as_fd(), &written.unfinished)?;
                staging.publish(&parent.join(name))?;
                made.keep();
                Ok(sorted(written.stripped))
            }
            Destination::Into { dir } => {
                let staging = Staging::make(&dir)?;
                let Written { unfinished, stripped } = out.write(root, staging.fd.as_fd(), &wanted)?;
                out.attributes(staging.fd.as_fd(), &unfinished)?;
                let target = beneath::open_root(&dir).map_err(ExportError::host("open", &dir))?;
                let merge = Merge {
                    staged: staging.fd.as_fd(),
                    dest: target.as_fd(),
                    shown: &dir,
                    overwrite: options.overwrite,
                    top: if whole { Top::Finished } else { Top::Kept },
                };
                let meetings = merge.plan()?;
                if options.meter.stopped() {
                    return Err(ExportError::Interrupted.into());
                }
                // A directory that only receives some paths keeps its own metadata.
                let kept = |dir: &Unfinished| whole || !dir.path.is_root();
                let unfinished: Vec<Unfinished> = unfinished.into_iter().filter(kept).collect();
                let mut met = meetings.iter().filter(|met| whole || !met.path.is_root());
                let moved = merge.make(&meetings);
                let moved = moved.and_then(|()| met.try_for_each(|met| merge.clear_attributes(&met.path)));
                drop(staging);
                if let Err(error) = moved.and_then(|()| out.finish(target.as_fd(), &unfinished)) {
                    if options.overwrite == Overwrite::Refuse {
                        // The directory was empty: this export moved everything under these names.
                        remove_moved(&dir, &meetings);
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
    New { parent: PathBuf, name: OsString, made: MadeDirs },
    /// The destination is a directory: entries are moved into it one by one.
    Into { dir: PathBuf },
}

fn place_for(dest: &Path, overwrite: Overwrite) -> Result<Destination> {
    match std::fs::metadata(dest) {
        Ok(meta) if !meta.is_dir() => Err(ExportError::NotADirectory { path: dest.to_owned() }.into()),
        Ok(_) => {
            sweep(dest);
            let mut entries = std::fs::read_dir(dest).map_err(ExportError::host("list", dest))?;
            if overwrite == Overwrite::Refuse && entries.next().is_some() {
                return Err(ExportError::Exists { path: dest.to_owned() }.into());
            }
            Ok(Destination::Into { dir: dest.to_owned() })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let absolute = std::path::absolute(dest).map_err(ExportError::host("find", dest))?;
            let parent = absolute.parent().unwrap_or(Path::new("/")).to_owned();
            let name = absolute.file_name().map(OsString::from);
            let name = name.ok_or_else(|| ExportError::NotADirectory { path: dest.to_owned() })?;
            let made = MadeDirs::make(&parent).map_err(ExportError::host("create", &parent))?;
            sweep(&parent);
            Ok(Destination::New { parent, name, made })
        }
        Err(error) => Err(ExportError::host("stat", dest)(error).into()),
    }
}

/// Directories above a destination that were created for it. Dropping this removes them if they are empty.
struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    fn make(dir: &Path) -> std::io::Result<Self> {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && dir.symlink_metadata().is_err();
        // Innermost first, the order of removal.
        let made = Self(dir.ancestors().take_while(is_missing).map(Path::to_owned).collect());
        std::fs::create_dir_all(dir)?;
        Ok(made)
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in &self.0 {
            // A directory that another process has filled stays, as do those above it.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Removes the entries that a failed export has moved into an empty directory.
fn remove_moved(dir: &Path, meetings: &[Meeting]) {
    for meeting in meetings.iter().filter(|meeting| meeting.path.is_root()) {
        for name in &meeting.names {
            let path = dir.join(OsStr::from_bytes(name));
            if path.symlink_metadata().is_ok()
                && let Err(error) = remove_any(&path)
            {
                tracing::warn!(%error, path = %path.display(), "cannot remove leftovers of an export");
            }
        }
    }
}

fn remove_any(path: &Path) -> std::io::Result<()> {
    if path.symlink_metadata()?.is_dir() { remove_tree(path) } else { std::fs::remove_file(path) }
}

/// Removes staging directories of this user whose exporter is dead. Errors are ignored: a leftover does no harm.
pub fn sweep(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let me = rustix::process::geteuid().as_raw();
    for entry in entries.flatten().filter(|entry| own::is_staging_name(entry.file_name().as_bytes())) {
        let path = entry.path();
        if !entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == me) {
            continue;
        }
        // Held until the directory is removed: an exporter that has created it but not locked it yet then makes
        // another.
        if let Ok(Some(_abandoned)) = FileLock::try_existing(&path, Mode::Exclusive)
            && let Err(error) = remove_tree(&path)
        {
            tracing::warn!(%error, path = %path.display(), "cannot remove leftovers of an export");
        }
    }
}

/// A staging directory, removed on drop.
pub struct Staging {
    path: PathBuf,
    /// Descriptor of the directory.
    pub fd: OwnedFd,
    /// Shows other processes that the exporter is alive.
    _alive: FileLock,
}

impl Staging {
    /// Creates an empty directory with mode 0700 in `parent`.
    pub fn make(parent: &Path) -> Result<Self> {
        loop {
            let unique = random::suffix().map_err(VaultError::Output)?;
            let path = parent.join(format!("{}{unique}", own::STAGING_PREFIX));
            let host = |operation| ExportError::host(operation, &path);
            std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(host("create"))?;
            avfs_types::pause::point("staging-made");
            let locked = FileLock::try_existing(&path, Mode::Exclusive).map_err(host("lock"));
            let opened = locked.and_then(|alive| match alive {
                Some(alive) => {
                    let fd = beneath::open_root(&path).map_err(host("open"))?;
                    Ok(Some((alive, fd)))
                }
                // A sweep found it before it was locked, and treated it as abandoned.
                None => Ok(None),
            });
            match opened {
                Ok(Some((alive, fd))) => return Ok(Self { path, fd, _alive: alive }),
                Ok(None) => {}
                Err(error) => {
                    // The directory is empty. If this fails, the next export to the same place removes it.
                    let _ = std::fs::remove_dir(&path);
                    return Err(error.into());
                }
            }
        }
    }

    /// Renames the finished directory to its destination.
    fn publish(self, dest: &Path) -> Result<()> {
        avfs_types::pause::point("publish");
        std::fs::rename(&self.path, dest).map_err(|error| {
            if [ErrorKind::DirectoryNotEmpty, ErrorKind::AlreadyExists].contains(&error.kind()) {
                return ExportError::Appeared { path: dest.to_owned() };
            }
            ExportError::host("move to", dest)(error)
        })?;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // If this fails, the next export to the same place removes the directory.
        let _ = remove_tree(&self.path);
    }
}
