//! From the upper of an overlay that nobody uses any more to edits of the base it lay over.
//!
//! Only the upper is walked, by descriptor: it may be on a file system that has no path any more. The base is
//! never looked at on the disk; what a whiteout or an opaque directory takes away is read from the vault.
//! Every file is read and hashed, since a size and a time can be forged. Nothing is committed here.

mod expand;
mod links;
pub(crate) mod modes;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

pub use links::WrittenLinks;
use modes::Modes;

use avfs_types::clock::FileTime;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;
use avfs_types::secrets::Secrets;

use super::ignore::Rules;
use super::import::scan::Scan;
use super::import::shared::{Flavour, Outlet, ScannedTree, Shared, lock};
use super::import::upper::{Over, Upper};
use super::import::{ImportError, TroubleReason};
use super::layers::Footprint;
use super::write_out::{FreshPages, WriteOut};
use crate::backend::Guard;
use crate::edit::{Edit, Edits};
use crate::meter::Meter;
use crate::page::DirRef;
use crate::path_set::PathSet;
use crate::{Advance, Batch, Committed, Result, Vault, VaultError, tree};

/// Why changes cannot be captured from the upper directory of an overlay.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file changed while it was read.
    #[error("{path} changed while it was captured: something still writes to the upper")]
    NotQuiet {
        /// The path in the upper.
        path: TreePath,
    },
    /// A pattern of what is excluded is invalid.
    #[error("{pattern:?} is not a pattern")]
    BadExclude {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        #[source]
        source: ignore::Error,
    },
    /// A failure of the file system in the upper.
    #[error("cannot {operation} {path} in the upper")]
    Io {
        /// What was attempted, such as `open`.
        operation: &'static str,
        /// The path in the upper.
        path: TreePath,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// A failure in the journal of modes.
    #[error("cannot {operation} the journal of modes {}", path.display())]
    Journal {
        /// What was attempted, such as `write`.
        operation: &'static str,
        /// The file of the journal.
        path: PathBuf,
        /// What the kernel said.
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

/// What the directory to be captured is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpperKind {
    /// The upper of an overlay, with its marks.
    Layer,
    /// A copy of the base that was changed in place: what looks like a mark is a user's own, and nothing of the
    /// base shows through.
    Whole,
}

/// Which times what was written has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Those it was written at.
    AsWritten,
    /// What was written at `since` or later has the time `to`, in the upper too: as a layer it shows what the version
    /// has. What has the time that the base has there was not written.
    Fixed {
        /// Files that were written from then on get the time `to`.
        since: FileTime,
        /// The time they get.
        to: FileTime,
    },
}

/// How changes are captured.
pub struct CaptureOptions<'a> {
    /// How the upper marks deleted entries.
    pub kind: UpperKind,
    /// What is never versioned, as lines of an ignore file in the root; they win over every such file.
    pub exclude: &'a [String],
    /// Paths at and beneath which nothing is captured, beside the vault's own directory.
    pub hidden: &'a [TreePath],
    /// Files longer than this are left out; [`FILE_BYTES_MAX`](crate::chunk::FILE_BYTES_MAX) at most.
    pub file_bytes_max: u64,
    /// Values that nothing may hold which is captured.
    pub secrets: &'a Secrets,
    /// What modification times the version gets.
    pub times: Times,
    /// What has an earlier access time was there before the command ran.
    pub since: FileTime,
    /// Where modes are noted that have to be changed for a while; on a file system that outlives a crash of the
    /// process. A journal that is there is of an earlier capture of the same upper, and is finished.
    pub modes_journal: &'a Path,
    /// Counts what is read, and stops the capture.
    pub meter: &'a Meter,
}

/// A path of the upper that is not in the edits, and why. What lies beneath it is not named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The path in the workspace.
    pub path: TreePath,
    /// Why it was left out.
    pub reason: LeftOutReason,
    /// Whether the edits take away what the base has there.
    pub base_is_gone: bool,
}

/// Why a path was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A socket or a device: nothing a vault can keep.
    Special(&'static str),
    /// A rule of an ignore file names it, and the base does not have it.
    Ignored,
    /// A pattern of the options names it, and the base does not have it.
    Excluded,
    /// The options hide it.
    Hidden,
    /// A vault's own directory.
    Own,
    /// It belongs to somebody else, who does not let it be read.
    NoPermission,
    /// A file beyond what a version can hold. What the base has there stays.
    TooLarge {
        /// Bytes of the file.
        size: u64,
        /// The most bytes that are kept.
        max: u64,
    },
    /// A directory beyond the levels a version can hold.
    TooDeep,
    /// It holds the value of the secret of this name, in its content, name, target or attributes. What the base has
    /// there stays.
    Secret(String),
    /// Only this is left out: an attribute of a directory that holds the value of the secret of this name.
    SecretAttribute(String),
    /// Only this is left out: an attribute that no user may set, by what the file loses with it.
    Attribute(&'static str),
}

impl LeftOutReason {
    /// True if the upper holds something, beside what it leaves out by whole paths, that no version has.
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
            Self::Ignored => f.write_str("an ignore file names it"),
            Self::Excluded => f.write_str("it is excluded"),
            Self::Hidden => f.write_str("it is not part of the workspace"),
            Self::Own => f.write_str("it is a vault's own directory"),
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

/// What was captured, its blobs stored or about to be; not committed.
pub struct Captured<'v> {
    /// Relative to the base, for [`Manner::Exact`](crate::edit::Manner); empty if nothing changed.
    pub edits: Edits,
    /// What is left to store, with the transaction that makes the version.
    pub batch: Batch<'v>,
    /// Sorted by path.
    pub left_out: Vec<LeftOut>,
    /// Ignore files with lines that are no patterns; those lines were not applied.
    pub bad_ignore_files: Vec<TreePath>,
    /// Hard links of the base that were written to.
    pub written_links: WrittenLinks,
    /// Files whose content was read.
    pub files_read: u64,
    /// Bytes of those files.
    pub bytes_read: u64,
    /// Nothing is swept until the version is committed.
    _pin: Guard,
}

impl Captured<'_> {
    /// How large the upper is, should it become a layer.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint { entries: self.edits.len() as u64, bytes: self.bytes_read }
    }
}

/// Lets an upper be copied by its owner, whatever modes are in it: they are noted in `modes_journal`, from which a
/// capture of the copy takes them.
pub fn open_for_copying(upper: BorrowedFd<'_>, modes_journal: &Path) -> Result<()> {
    Ok(modes::open_up_all(upper, modes_journal)?)
}

/// The same for the upper's own directory alone, which a capture needs open; `upper` may be a mere path descriptor.
pub fn open_closed_root(upper: BorrowedFd<'_>, modes_journal: &Path) -> Result<()> {
    Ok(modes::open_up_root(upper, &Modes::load(modes_journal, upper)?)?)
}

impl Vault {
    /// Captures an upper that lay over `base`. It must be quiet and no part of a mount any more.
    pub fn capture(
        &self,
        upper: BorrowedFd<'_>,
        base: &DirRef,
        options: &CaptureOptions<'_>,
    ) -> Result<Captured<'_>> {
        let pin = self.backend().pin()?;
        let modes = Modes::load(options.modes_journal, upper)?;
        let scanned = self.scan_upper(upper, base, options, &modes);
        // The modes come back whatever became of the scan; its failure is the one to tell.
        let restored = modes.restore(upper);
        let (found, batch, notes) = scanned.map_err(in_capture)?;
        restored?;
        let pages = FreshPages::new(self);
        let mut edits = expand::edits(&pages, &found)?;
        let written_links = match options.kind {
            UpperKind::Layer => {
                let evidence = links::Evidence { since: options.since, times: options.times };
                links::join(&pages, base, &found, options.hidden, &evidence, &mut edits)?
            }
            UpperKind::Whole => WrittenLinks::default(),
        };
        if options.kind == UpperKind::Whole && !options.hidden.is_empty() {
            // The copy never held what is hidden: that it lacks it is nobody's work.
            let hidden = PathSet::new(options.hidden.iter());
            edits.retain(|path, _| !hidden.covers(path));
        }
        for (path, reason) in &notes.left_out {
            // Also where nothing of the base is seen any more: what was there is not the command's to lose.
            if let LeftOutReason::Secret(_) | LeftOutReason::TooLarge { .. } = reason {
                edits.remove(path);
            }
        }
        let mut left_out: Vec<LeftOut> = self
            .drop_mount_points(base, options.hidden, &mut edits, notes.left_out)?
            .into_iter()
            .map(|(path, reason)| {
                let base_is_gone = matches!(edits.get(&path), Some(Edit::Remove));
                LeftOut { path, reason, base_is_gone }
            })
            .collect();
        left_out.sort_by(|a, b| a.path.cmp(&b.path));
        let (files_read, bytes_read) = (found.scanned.files_read, found.scanned.bytes_read);
        let bad_ignore_files = notes.bad_ignore_files;
        Ok(Captured {
            edits,
            batch,
            left_out,
            bad_ignore_files,
            written_links,
            files_read,
            bytes_read,
            _pin: pin,
        })
    }

    /// Drops directories that lead to a hidden path, that the base does not have and that hold nothing else: they were
    /// made to mount something on. Gives what is left out, with such a directory in place of what lies beneath it.
    fn drop_mount_points(
        &self,
        base: &DirRef,
        hidden: &[TreePath],
        edits: &mut Edits,
        mut left_out: Vec<(TreePath, LeftOutReason)>,
    ) -> Result<Vec<(TreePath, LeftOutReason)>> {
        for dir in hidden.iter().flat_map(TreePath::ancestors).filter(|dir| !dir.is_root()) {
            let is_made = matches!(edits.get(&dir), Some(Edit::Dir(_)));
            if !is_made || edits.keys().any(|path| *path != dir && dir.contains(path)) {
                continue;
            }
            let others = |(path, reason): &(TreePath, LeftOutReason)| {
                dir.contains(path) && *reason != LeftOutReason::Hidden
            };
            if left_out.iter().any(others) || tree::lookup(&FreshPages::new(self), base, &dir)?.is_some() {
                continue;
            }
            edits.remove(&dir);
            left_out.retain(|(path, _)| !dir.contains(path));
            left_out.push((dir, LeftOutReason::Hidden));
        }
        Ok(left_out)
    }

    fn scan_upper(
        &self,
        upper: BorrowedFd<'_>,
        base: &DirRef,
        options: &CaptureOptions<'_>,
        modes: &Modes,
    ) -> Result<(ScannedTree, Batch<'_>, Notes)> {
        let io = |operation| move |source| CaptureError::Io { operation, path: TreePath::root(), source };
        let root = upper.try_clone_to_owned().map_err(io("open"))?;
        let bad_exclude = |source| CaptureError::BadExclude { pattern: options.exclude.join(", "), source };
        let flavour = Flavour::Upper(Upper {
            kind: options.kind,
            exclude: Rules::excluding(options.exclude).map_err(bad_exclude)?,
            hidden: options.hidden,
            file_bytes_max: options.file_bytes_max.min(crate::chunk::FILE_BYTES_MAX),
            secrets: options.secrets,
            times: options.times,
            modes,
            left_out: Default::default(),
            bad_ignore_files: Default::default(),
        });
        let held = Outlet::Held(Default::default());
        let shared = Shared::new(self, flavour, root, held, options.meter);
        let hides_base = options.kind == UpperKind::Whole;
        let over = Over { base: Some(*base), hides_base, ..Over::default() };
        Scan::new(shared, None, over).store_into(self, Notes::of)
    }

    /// Commits what was captured onto a fork that still stands at the version it was captured over.
    pub fn commit_captured(
        &self,
        fork: &ForkName,
        base: &VersionId,
        captured: Captured<'_>,
        advance: &Advance<'_>,
    ) -> Result<Committed> {
        let Captured { edits, batch, _pin, .. } = captured;
        self.transact(|transaction| {
            batch.finish(transaction)?;
            let found = transaction.fork(fork)?.head;
            if found != *base {
                return Err(VaultError::ForkMoved { fork: fork.clone(), expected: *base, found });
            }
            transaction.commit_edits(fork, &edits, advance)
        })
    }

    /// Gives an empty upper the root directory's own mode, time and attributes: overlayfs shows the upper's,
    /// never the base's.
    pub fn prepare_upper(&self, upper: BorrowedFd<'_>, base: &DirRef) -> Result<()> {
        WriteOut::for_overlay(self, &Meter::default()).finish_root(upper, base)
    }
}

/// What a scan said beside what it found.
struct Notes {
    left_out: Vec<(TreePath, LeftOutReason)>,
    bad_ignore_files: Vec<TreePath>,
}

impl Notes {
    /// Ends the scan: a storing thread then has everything.
    fn of(found: &ScannedTree, shared: Shared<'_>) -> Self {
        let mut notes = match &shared.flavour {
            Flavour::Host { .. } => Self { left_out: Vec::new(), bad_ignore_files: Vec::new() },
            Flavour::Upper(upper) => Self {
                left_out: std::mem::take(&mut *lock(&upper.left_out)),
                bad_ignore_files: std::mem::take(&mut *lock(&upper.bad_ignore_files)),
            },
        };
        for trouble in &found.scanned.troubles {
            let reason = match trouble.reason {
                TroubleReason::Special(kind) => LeftOutReason::Special(kind),
                TroubleReason::Attribute(what) => LeftOutReason::Attribute(what),
                // Files that are too large do not come so far in an upper.
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

/// What went wrong, in the words of a capture.
fn in_capture(error: VaultError) -> VaultError {
    let VaultError::Import(error) = error else { return error };
    let error = match error {
        ImportError::Vanished { path } | ImportError::Torn { path, .. } => CaptureError::NotQuiet { path },
        ImportError::Io { operation, path, source } => CaptureError::Io { operation, path, source },
        ImportError::Interrupted => CaptureError::Interrupted,
        // Said of directories of the host, never of an upper.
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
