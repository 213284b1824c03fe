//! Captures the upper of an unmounted overlay as changes of its base.
//!
//! Only the upper is walked, through descriptors: its file system may no longer have a path. The base is never read
//! from disk; entries deleted by a whiteout or an opaque directory are read from the vault. Every file is read and
//! hashed, since size and mtime can be forged. Nothing is committed here.

mod links;
mod merger;
pub(crate) mod modes;
mod over;
mod upper;
mod withhold;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

pub use links::WrittenLinks;
use links::{CopySearch, Evidence, Merged};
use merger::Merger;
use modes::Modes;
use over::Over;
use upper::Upper;

use avfs_types::clock::FileTime;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;

use super::ignore::Rules;
use super::layers::Footprint;
use super::own::OwnFile;
use super::scan::{
    Assembly, Built, ImportError, Outlet, Records, Scan, Scanned, Shared, TroubleReason, lock,
};
use super::write_out::{FreshPages, WriteOut};
use crate::backend::Guard;
use crate::edit::{Edit, Edits};
use crate::edited_tree::EditedTree;
use crate::meter::Meter;
use crate::page::{DirRef, Entry, Node};
use crate::transfer::{Error, Result};
use crate::tree::Pages;
use crate::{Advance, Batch, Committed, Vault, VaultError, tree};

/// Why changes cannot be captured from the upper directory of an overlay.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file changed while it was read.
    #[error("{path} changed during the capture: a process still writes to the upper")]
    NotQuiet {
        /// The path in the upper.
        path: TreePath,
    },
    /// An exclude pattern is invalid.
    #[error("invalid exclude pattern {pattern:?}")]
    BadExclude {
        /// The pattern.
        pattern: String,
        /// The parse error.
        #[source]
        source: ignore::Error,
    },
    /// I/O error in the upper.
    #[error("cannot {operation} {path} in the upper")]
    Io {
        /// The attempted operation, such as `open`.
        operation: &'static str,
        /// The path in the upper.
        path: TreePath,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// I/O error in the journal of modes.
    #[error("cannot {operation} the journal of modes {}", path.display())]
    Journal {
        /// The attempted operation, such as `write`.
        operation: &'static str,
        /// The journal file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The capture was stopped through its [`Meter`].
    #[error("the capture was interrupted")]
    Interrupted,
}

impl CaptureError {
    fn journal(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Journal { operation, path, source }
    }
}

impl Diagnose for CaptureError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotQuiet { .. } => "capture.not_quiet",
            Self::BadExclude { .. } => "capture.bad_exclude",
            Self::Io { .. } => "capture.io",
            Self::Journal { .. } => "capture.journal",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The kind of directory to capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpperKind {
    /// The upper of an overlay, with whiteouts and opaque directories.
    Layer,
    /// A copy of the base that was changed in place: anything that looks like a whiteout is user data, and nothing of
    /// the base shows through.
    Whole,
}

/// The mtimes of written files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// The actual mtimes.
    AsWritten,
    /// Files written at `since` or later get the mtime `to`, in the upper too, so that the upper as a layer matches the
    /// version. A file with the mtime that it has in the base counts as not written.
    Fixed {
        /// Files written from this time on get the mtime `to`.
        since: FileTime,
        /// The mtime to set.
        to: FileTime,
    },
}

/// Options of a capture.
pub struct CaptureOptions<'a> {
    /// How the upper marks deleted entries.
    pub kind: UpperKind,
    /// Patterns of unversioned paths, as lines of an ignore file in the root. They take precedence over ignore files.
    pub exclude: &'a [String],
    /// Paths that are not captured, with everything beneath them, in addition to the vault's own directory.
    pub hidden: &'a [TreePath],
    /// Larger files are left out. At most [`FILE_BYTES_MAX`](crate::chunk::FILE_BYTES_MAX).
    pub file_bytes_max: u64,
    /// Secrets whose values must not be captured.
    pub secrets: &'a Secrets,
    /// The mtimes of captured files.
    pub times: Times,
    /// A file with an earlier atime existed before the command ran.
    pub since: FileTime,
    /// Names that belong to another file than in the base, which may have the times of the old one, or to a copied
    /// directory.
    pub renamed: &'a RenamedNames,
    /// File that records temporarily changed modes, on a file system that survives a crash of the process. An existing
    /// journal is from an earlier capture of the same upper, which is then completed.
    pub modes_journal: &'a Path,
    /// Counts read files and bytes, and can cancel the capture.
    pub meter: &'a Meter,
}

/// A path of the upper that is not captured, and the reason. Paths beneath it are not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The path in the workspace.
    pub path: TreePath,
    /// Why it was left out.
    pub reason: LeftOutReason,
    /// Whether the changes delete this path of the base.
    pub base_is_gone: bool,
}

/// Why a path was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A socket or a device, which a vault cannot store.
    Special(&'static str),
    /// It matches a rule of an ignore file, and the base does not have it.
    Ignored,
    /// It matches an exclude pattern of the options, and the base does not have it.
    Excluded,
    /// The options hide it.
    Hidden,
    /// A vault's own directory, or a file of the vault.
    Own,
    /// It belongs to another user and is not readable.
    NoPermission,
    /// A file above the size limit. The base's entry stays.
    TooLarge {
        /// Size of the file in bytes.
        size: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// A directory deeper than a version can hold.
    TooDeep,
    /// It contains the value of the secret with this name, in its content, name, symlink target or attributes. The
    /// base's entry stays.
    Secret(String),
    /// Only an attribute of a directory is left out: it contains the value of the secret with this name.
    SecretAttribute(String),
    /// Only an attribute that an unprivileged user cannot set is left out; the text names it.
    Attribute(&'static str),
}

impl LeftOutReason {
    /// True if the upper contains data that no version has, other than left-out paths that can be removed from it.
    #[must_use]
    pub(crate) fn stays_in_upper(&self) -> bool {
        match self {
            Self::Secret(_) | Self::SecretAttribute(_) | Self::Attribute(_) | Self::TooLarge { .. } => true,
            Self::Special(_)
            | Self::Ignored
            | Self::Excluded
            | Self::Hidden
            | Self::Own
            | Self::NoPermission
            | Self::TooDeep => false,
        }
    }
}

impl std::fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Special(kind) => write!(f, "a {kind} cannot be kept"),
            Self::Ignored => f.write_str("an ignore rule matches it"),
            Self::Excluded => f.write_str("it is excluded"),
            Self::Hidden => f.write_str("it is not part of the workspace"),
            Self::Own => f.write_str("it belongs to a vault"),
            Self::NoPermission => f.write_str("no permission to read it"),
            Self::TooLarge { size, max } => write!(f, "it is {size} bytes long; at most {max} can be kept"),
            Self::TooDeep => write!(
                f,
                "it is more than {} levels deep, or its path longer than {} bytes",
                avfs_types::path::DEPTH_MAX,
                avfs_types::path::PATH_BYTES_MAX
            ),
            Self::Secret(name) => write!(f, "holds the value of the secret {name}"),
            Self::SecretAttribute(name) => {
                write!(f, "an attribute of it holds the value of the secret {name}")
            }
            Self::Attribute(what) => write!(f, "its {what} cannot be kept"),
        }
    }
}

/// An uncommitted capture. Its blobs are stored, or are in the batch.
pub struct Captured<'v> {
    /// The merged tree of the base and the upper.
    pub edited: EditedTree,
    /// Whether anything but the metadata of directories changed.
    pub files_changed: bool,
    /// Blobs to store in the transaction that adds the version.
    pub batch: Batch<'v>,
    /// Sorted by path.
    pub left_out: Vec<LeftOut>,
    /// Ignore files with invalid patterns, which were skipped.
    pub bad_ignore_files: Vec<TreePath>,
    /// Hard links of the base that were written to.
    pub written_links: WrittenLinks,
    /// The number of changed entries.
    entries_changed: u64,
    /// Files whose content was read.
    pub files_read: u64,
    /// Size of those files in bytes.
    pub bytes_read: u64,
    /// Prevents a sweep until the version is committed.
    _pin: Guard,
}

impl Captured<'_> {
    /// The size of the upper as a layer.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint { entries: self.entries_changed, bytes: self.bytes_read }
    }
}

/// Makes all files of an upper readable to its owner, so that it can be copied. The original modes are recorded in
/// `modes_journal`, from which a capture of the copy takes them.
pub fn open_for_copying(upper: BorrowedFd<'_>, modes_journal: &Path) -> Result<()> {
    Ok(modes::open_up_all(upper, modes_journal)?)
}

/// Like [`open_for_copying`], but only for the upper's root directory, which a capture must be able to read. `upper`
/// may be an `O_PATH` descriptor.
pub fn open_closed_root(upper: BorrowedFd<'_>, modes_journal: &Path) -> Result<()> {
    Ok(modes::open_up_root(upper, &Modes::load(modes_journal, upper)?)?)
}

impl Vault {
    /// Captures the upper of an overlay over `base`. It must no longer be mounted or written to.
    pub fn capture(
        &self,
        upper: BorrowedFd<'_>,
        base: &DirRef,
        options: &CaptureOptions<'_>,
    ) -> Result<Captured<'_>> {
        let pin = self.backend().pin()?;
        let copies = (options.kind == UpperKind::Layer && base.totals.links > 0).then(|| {
            let CaptureOptions { since, times, renamed, .. } = *options;
            CopySearch::new(*base, Evidence { since, times, renamed })
        });
        let merger = Merger::new(self, copies);
        let modes = Modes::load(options.modes_journal, upper)?;
        let scanned = self.scan_upper(upper, base, options, &modes, &merger);
        // Restore the modes even if the scan failed. The failure of the scan is the one to report.
        let restored = modes.restore(upper);
        let (found, batch, notes) = scanned.map_err(in_capture)?;
        restored?;
        let Notes { left_out, bad_ignore_files } = notes;
        let Built { root, new, scanned: Scanned { files_read, bytes_read, .. }, .. } = found;
        let (mut files_changed, links_changed) = (merger.files_changed(), merger.links_changed());
        let entries_changed = merger.entries_changed();
        let mut edited = EditedTree::of(*base, root, new);
        let pages = FreshPages::new(self);
        let (mut more, written_links) = match &merger.copies {
            Some(search) => {
                let (base, root, hidden) = (edited.before(), edited.after(), options.hidden);
                links::join(&Merged { pages: &edited.over(&pages), base, root, hidden }, search)?
            }
            None => Default::default(),
        };
        restore_left_out(&pages, &edited, options, &left_out, &mut more)?;
        let left_out = drop_mount_points(&pages, &edited, options.hidden, left_out, &mut more)?;
        if !more.is_empty() {
            edited.amend(&pages, &more)?;
            files_changed = edited.changes_files(&pages)?;
        }
        if (links_changed || !more.is_empty()) && edited.after().totals.links > 0 {
            edited.settle(&pages)?;
        }
        let mut reported = Vec::with_capacity(left_out.len());
        for (path, reason) in left_out {
            let was_there = tree::lookup(&pages, base, &path)?.is_some();
            // A copy of the base has a mount point in place of a hidden path. The command wrote nothing there.
            if was_there && options.kind == UpperKind::Whole && reason == LeftOutReason::Hidden {
                continue;
            }
            let base_is_gone =
                was_there && tree::lookup(&edited.over(&pages), edited.after(), &path)?.is_none();
            reported.push(LeftOut { path, reason, base_is_gone });
        }
        let mut left_out = reported;
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Captured {
            edited,
            files_changed,
            batch,
            left_out,
            bad_ignore_files,
            written_links,
            entries_changed,
            files_read,
            bytes_read,
            _pin: pin,
        })
    }

    fn scan_upper<'v: 'm, 'm>(
        &'v self,
        upper: BorrowedFd<'_>,
        base: &DirRef,
        options: &'m CaptureOptions<'_>,
        modes: &'m Modes,
        merger: &'m Merger<'m>,
    ) -> Result<(Built<'m>, Batch<'v>, Notes)> {
        let io = |operation| move |source| CaptureError::Io { operation, path: TreePath::root(), source };
        let root = upper.try_clone_to_owned().map_err(io("open"))?;
        let bad_exclude = |source| CaptureError::BadExclude { pattern: options.exclude.join(", "), source };
        let settings = Upper {
            kind: options.kind,
            exclude: Rules::excluding(options.exclude).map_err(bad_exclude)?,
            hidden: options.hidden,
            own: OwnFile::of_bound(self)?,
            file_bytes_max: options.file_bytes_max.min(crate::chunk::FILE_BYTES_MAX),
            secrets: options.secrets,
            times: options.times,
            modes,
            merger,
            left_out: Default::default(),
            bad_ignore_files: Default::default(),
        };
        let held = Outlet::Held(Default::default());
        let assembly = Assembly::new(None, Records::NotWanted, &self.temporary_dirs());
        let shared = Shared::new(self, settings, root, held, options.meter, assembly);
        let hides_base = options.kind == UpperKind::Whole;
        let over = Over { base: Some(*base), hides_base, ..Over::default() };
        Scan::new(shared, None, over).store_into(self, Notes::of)
    }

    /// Commits a capture to a fork whose head is still the base of the capture.
    pub fn commit_captured(
        &self,
        fork: &ForkName,
        base: &VersionId,
        captured: Captured<'_>,
        advance: &Advance<'_>,
    ) -> crate::Result<Committed> {
        let Captured { edited, batch, _pin, .. } = captured;
        self.transact(|transaction| {
            batch.finish(transaction)?;
            let record = transaction.fork(fork)?;
            if record.head != *base {
                let found = record.head;
                return Err(VaultError::ForkMoved { fork: fork.clone(), expected: *base, found });
            }
            edited.store(transaction)?;
            transaction.advance(&record, edited.after(), Advance { ..*advance })
        })
    }

    /// Sets the mode, mtime and attributes of the base's root on an empty upper: overlayfs shows those of the upper,
    /// never those of the base.
    pub fn prepare_upper(&self, upper: BorrowedFd<'_>, base: &DirRef) -> Result<()> {
        WriteOut::for_overlay(self, &Meter::default()).finish_root(upper, base)
    }
}

/// Additional results of a scan.
struct Notes {
    left_out: Vec<(TreePath, LeftOutReason)>,
    bad_ignore_files: Vec<TreePath>,
}

impl Notes {
    /// Consumes the scan, which closes the channel to the storing thread.
    fn of(scanned: &Scanned, shared: Shared<'_, Upper<'_>>) -> Self {
        let upper = &shared.source;
        let mut notes = Self {
            left_out: std::mem::take(&mut *lock(&upper.left_out)),
            bad_ignore_files: std::mem::take(&mut *lock(&upper.bad_ignore_files)),
        };
        for trouble in &scanned.troubles {
            let reason = match trouble.reason {
                TroubleReason::Special(kind) => LeftOutReason::Special(kind),
                TroubleReason::Attribute(what) => LeftOutReason::Attribute(what),
                // In an upper, files that are too large are left out earlier.
                TroubleReason::NoPermission
                | TroubleReason::Unreadable
                | TroubleReason::Vanished
                | TroubleReason::Torn
                | TroubleReason::TooLarge => LeftOutReason::NoPermission,
            };
            notes.left_out.push((trouble.path.clone(), reason));
        }
        notes
    }
}

/// Adds edits that put back entries of the base: those whose replacement was left out, also in opaque directories, and
/// hidden paths, which a copy of the base lacks.
fn restore_left_out(
    pages: &dyn Pages,
    edited: &EditedTree,
    options: &CaptureOptions<'_>,
    left_out: &[(TreePath, LeftOutReason)],
    more: &mut Edits,
) -> Result<()> {
    let replaced = left_out.iter().filter_map(|(path, reason)| match reason {
        LeftOutReason::Secret(_) | LeftOutReason::TooLarge { .. } => Some(path),
        LeftOutReason::Special(_)
        | LeftOutReason::Ignored
        | LeftOutReason::Excluded
        | LeftOutReason::Hidden
        | LeftOutReason::Own
        | LeftOutReason::NoPermission
        | LeftOutReason::TooDeep
        | LeftOutReason::SecretAttribute(_)
        | LeftOutReason::Attribute(_) => None,
    });
    let not_copied = options.hidden.iter().filter(|_| options.kind == UpperKind::Whole);
    let merged = edited.over(pages);
    for path in replaced.chain(not_copied) {
        let Some(old) = tree::lookup(pages, edited.before(), path)? else { continue };
        let Some((parent, _)) = path.split() else { continue };
        let has_parent = matches!(tree::lookup(&merged, edited.after(), &parent)?, Some(Node::Dir(_)));
        if has_parent && tree::lookup(&merged, edited.after(), path)?.as_ref() != Some(&old) {
            more.insert(path.clone(), Edit::Put(old));
        }
    }
    Ok(())
}

/// Adds edits that remove directories above a hidden path that the base does not have and that contain nothing else:
/// they were created as mount points. Returns the left-out paths, with such a directory in place of the paths beneath
/// it.
fn drop_mount_points(
    pages: &dyn Pages,
    edited: &EditedTree,
    hidden: &[TreePath],
    mut left_out: Vec<(TreePath, LeftOutReason)>,
    more: &mut Edits,
) -> Result<Vec<(TreePath, LeftOutReason)>> {
    let merged = edited.over(pages);
    for dir in hidden.iter().flat_map(TreePath::ancestors).filter(|dir| !dir.is_root()) {
        if more.contains_key(&dir) {
            continue;
        }
        let Some(Node::Dir(made)) = tree::lookup(&merged, edited.after(), &dir)? else { continue };
        let is_dropped = |entry: &Entry| matches!(more.get(&dir.join(&entry.name)), Some(Edit::Remove));
        let is_empty = tree::dir(&merged, &made.tree)?.entries.iter().all(is_dropped);
        let others = |(path, reason): &(TreePath, LeftOutReason)| {
            dir.contains(path) && *reason != LeftOutReason::Hidden
        };
        let is_other = !is_empty || left_out.iter().any(others);
        if is_other || tree::lookup(pages, edited.before(), &dir)?.is_some() {
            continue;
        }
        more.retain(|path, _| !dir.contains(path));
        more.insert(dir.clone(), Edit::Remove);
        left_out.retain(|(path, _)| !dir.contains(path));
        left_out.push((dir, LeftOutReason::Hidden));
    }
    Ok(left_out)
}

/// Converts an import error into a capture error.
fn in_capture(error: Error) -> Error {
    let Error::Import(error) = error else { return error };
    let error = match error {
        ImportError::Vanished { path } | ImportError::Torn { path, .. } => CaptureError::NotQuiet { path },
        ImportError::Io { operation, path, source } => CaptureError::Io { operation, path, source },
        ImportError::Interrupted => CaptureError::Interrupted,
        // Only for host directories, never for an upper.
        ImportError::TooDeep { .. }
        | ImportError::TooLarge { .. }
        | ImportError::NotADirectory { .. }
        | ImportError::NoDirectory { .. }
        | ImportError::NoPermission { .. }
        | ImportError::BadIgnore { .. }
        | ImportError::BadExclude { .. } => return error.into(),
    };
    error.into()
}
