//! Imports a host directory as a version. Only changed files are read, and symlinks out of the directory are not
//! followed.
//!
//! `scan` lists all directories in parallel, and `files` reads the changed files; `assembly` builds trees from the
//! results, bottom up; then one transaction adds the version.

pub(crate) mod assembly;
pub(crate) mod build;
mod files;
pub(crate) mod hard_links;
pub mod heal;
mod ignore_file;
mod look;
pub(crate) mod scan;
pub(crate) mod shared;
mod spilled_entries;
mod touched;
pub(crate) mod upper;
mod withhold;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use assembly::Built;
use scan::Scan;
use shared::Outlet;

use avfs_types::clock::FileTime;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{BlobId, ForkName, VersionId};
use avfs_types::path::{DEPTH_MAX, PATH_BYTES_MAX, TreePath, shorten};

pub use look::{LOOK_STEPS_MAX, LookPlace, Looked, looks_like};
pub use touched::{TouchedBase, TouchedOptions};

pub use super::spill::SpilledPages;
pub use super::stat_cache::Foreign;
use super::stat_cache::{NewCache, StatCache};
use crate::backend::{BlobRecord, Durability, VersionRecord};
use crate::chunk::FILE_BYTES_MAX;
use crate::edit::{Edit, Edits, Manner};
use crate::meter::Meter;
use crate::page::DirRef;
use crate::pages::NewPages;
use crate::transfer::{Error, Result};
use crate::version::root_of;
use crate::{Advance, Batch, Committed, Vault, When, edit, links, require_version, threads, tree};

/// Why a directory cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The path is not a directory.
    #[error("cannot import {}: it is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The path does not exist.
    #[error("directory {} does not exist", path.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("no permission to read {path}")]
    NoPermission {
        /// The path.
        path: TreePath,
    },
    /// A file or directory was removed while the import ran.
    #[error("{path} vanished during the import")]
    Vanished {
        /// The path.
        path: TreePath,
    },
    /// A file is larger than a version can hold.
    #[error("{path} is {size} bytes long; at most {FILE_BYTES_MAX} can be kept")]
    TooLarge {
        /// The path.
        path: TreePath,
        /// Size of the file in bytes.
        size: u64,
    },
    /// A file changed each time it was read.
    #[error("{path} kept changing while it was read")]
    Torn {
        /// The path.
        path: TreePath,
    },
    /// A path has too many components or bytes.
    #[error(
        "{} is {} levels deep and has {} bytes; at most {DEPTH_MAX} and {PATH_BYTES_MAX} are allowed",
        shorten(&path.to_string()), path.depth(), path.as_bytes().len()
    )]
    TooDeep {
        /// The path.
        path: TreePath,
    },
    /// An ignore file has an invalid pattern.
    #[error("the ignore file {path} has an invalid pattern")]
    BadIgnore {
        /// The ignore file.
        path: TreePath,
        /// The parse error.
        #[source]
        source: ignore::Error,
    },
    /// A pattern in [`ImportOptions::exclude`] is invalid.
    #[error("invalid exclude pattern")]
    BadExclude {
        /// The parse error.
        #[source]
        source: ignore::Error,
    },
    /// Any other I/O error.
    #[error("cannot {operation} {path}")]
    Io {
        /// The attempted operation, such as `open`.
        operation: &'static str,
        /// The path inside the directory.
        path: TreePath,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The import was stopped through its [`Meter`].
    #[error("the import was interrupted")]
    Interrupted,
}

impl Diagnose for ImportError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotADirectory { .. } => "import.not_a_directory",
            Self::NoDirectory { .. } => "import.no_directory",
            Self::NoPermission { .. } => "import.no_permission",
            Self::Vanished { .. } => "import.vanished",
            Self::Torn { .. } => "import.torn_read",
            Self::TooLarge { .. } => "file.too_large",
            Self::TooDeep { .. } => "import.too_deep",
            Self::BadIgnore { .. } => "import.bad_ignore_file",
            Self::BadExclude { .. } => "import.bad_exclude",
            Self::Io { .. } => "import.io",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How to handle files that vanish, cannot be read, or keep changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTrouble {
    /// Fail the whole import; no version is added.
    Fail,
    /// Continue, and list them in the report.
    KeepGoing,
}

/// Options of an import.
pub struct ImportOptions<'a> {
    /// How to handle paths that cannot be read exactly.
    pub on_trouble: OnTrouble,
    /// Path of the directory's stat cache. If `None`, every file is read.
    pub stat_cache: Option<&'a Path>,
    /// Patterns of unversioned paths, as lines of an ignore file in the root.
    pub exclude: &'a [String],
    /// Counts read files and bytes, and can cancel the import.
    pub meter: &'a Meter,
}

/// A path that could not be imported exactly, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The path inside the directory.
    pub path: TreePath,
    /// The reason.
    pub reason: TroubleReason,
}

/// Why a path could not be imported exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleReason {
    /// A socket or a device, which a vault cannot store.
    Special(&'static str),
    /// It was removed during the import; it is not in the version.
    Vanished,
    /// It kept changing; the version has the content that was read last.
    Torn,
    /// It cannot be read; it is not in the version.
    NoPermission,
    /// An I/O error of the disk or its file system.
    Unreadable,
    /// The file is larger than a version can hold.
    TooLarge,
    /// Only an attribute that an unprivileged user cannot set is left out; the text names it.
    Attribute(&'static str),
}

impl std::fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Special(kind) => write!(f, "a {kind} cannot be kept"),
            Self::Vanished => f.write_str("it vanished during the import"),
            Self::Torn => f.write_str("it kept changing; the content that was read last is kept"),
            Self::NoPermission => f.write_str("no permission to read it"),
            Self::Unreadable => f.write_str("the file system cannot read it"),
            Self::TooLarge => write!(f, "it has more than {FILE_BYTES_MAX} bytes"),
            Self::Attribute(what) => write!(f, "its {what} cannot be kept"),
        }
    }
}

/// Maximum number of unversioned paths that a scan lists; one more means that there are too many.
pub const UNVERSIONED_MAX: usize = 4096;

/// The results of scanning a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Number of files whose content was read because the stat cache did not match.
    pub files_read: u64,
    /// Size of those files in bytes.
    pub bytes_read: u64,
    /// Number of damaged blobs in the vault that this import stored again.
    pub mended: u64,
    /// Paths that could not be imported exactly.
    pub troubles: Vec<Trouble>,
    /// Paths of the directory that are never in a version: ignored and excluded paths, the vault, sockets and devices.
    /// Only the topmost path of each, and at most [`UNVERSIONED_MAX`] + 1 of them.
    pub unversioned: Vec<TreePath>,
    /// The error, if the import succeeded but its stat cache could not be saved: the next import reads every file.
    pub cache_unsaved: Option<String>,
    /// Owners in the directory that no sandbox of this user can map.
    pub foreign: Foreign,
    /// The latest `ctime` of all scanned files, except times in the future and that of the vault's directory.
    pub changed_at: FileTime,
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The version of the directory.
    pub committed: Committed,
    /// The results of the scan.
    pub scanned: Scanned,
}

/// Maximum number of scans. The last one is committed even if the fork moved during it: the fork then moves constantly.
const MOVES_SEEN_MAX: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    number: u32,
    /// The stat cache is from the previous attempt, which created no version but has stored all blobs that it names.
    after_own_cache: bool,
}

impl Attempt {
    const FIRST: Self = Self { number: 1, after_own_cache: false };
}

/// Capacity of the channel to the storing thread, in batches of a few megabytes at most.
pub(crate) const CHANNEL_BATCHES: usize = 8;

/// Which blobs of a scan are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep<'a> {
    /// All blobs that the vault does not have.
    Everything,
    /// These blobs, whether or not the vault has them.
    Only(&'a HashSet<BlobId>),
    /// No blobs: only digests are computed.
    Nothing,
}

impl Vault {
    /// Imports the current state of `dir` to a fork. If nothing changed, no version is added.
    pub fn import(
        &self,
        dir: &Path,
        fork: &ForkName,
        message: &str,
        options: &ImportOptions<'_>,
    ) -> Result<Imported> {
        self.import_with(Durability::Synced, dir, fork, message, options)
    }

    /// Like [`Vault::import`], but synced only with the version of the run that starts from it: until then the
    /// directory still has all the content.
    pub fn import_for_run(
        &self,
        dir: &Path,
        fork: &ForkName,
        message: &str,
        options: &ImportOptions<'_>,
    ) -> Result<Imported> {
        self.import_with(Durability::Deferred, dir, fork, message, options)
    }

    fn import_with(
        &self,
        durability: Durability,
        dir: &Path,
        fork: &ForkName,
        message: &str,
        options: &ImportOptions<'_>,
    ) -> Result<Imported> {
        // Objects that the import stores or relies on must not be swept before a version refers to them.
        let _pin = self.backend().pin()?;
        let mut read = (0, 0, 0);
        let mut attempt = Attempt::FIRST;
        loop {
            let (committed, mut scanned) =
                self.import_once(durability, dir, fork, message, options, attempt)?;
            read = (read.0 + scanned.files_read, read.1 + scanned.bytes_read, read.2 + scanned.mended);
            if let Some(committed) = committed {
                (scanned.files_read, scanned.bytes_read, scanned.mended) = read;
                return Ok(Imported { committed, scanned });
            }
            options.meter.recount();
            attempt =
                Attempt { number: attempt.number + 1, after_own_cache: scanned.cache_unsaved.is_none() };
        }
    }

    /// One attempt. It adds no version if the fork moved during the scan, since that may have been an import of newer
    /// changes. The last attempt ignores such a move.
    fn import_once(
        &self,
        durability: Durability,
        dir: &Path,
        fork: &ForkName,
        message: &str,
        options: &ImportOptions<'_>,
        attempt: Attempt,
    ) -> Result<(Option<Committed>, Scanned)> {
        let head = self.fork(fork)?.head;
        let vault_id = self.id()?;
        let cache = self.usable_cache(options, &vault_id, &head, attempt)?;
        let (send, receive) = mpsc::sync_channel::<Vec<BlobRecord>>(CHANNEL_BATCHES);
        let (built, mut batch) = std::thread::scope(|scope| {
            let storing = threads::spawn(scope, move || -> crate::Result<Batch<'_>> {
                let mut batch = Batch::new(self)?;
                for blob in receive.into_iter().flatten() {
                    batch.push(blob)?;
                }
                batch.store_ahead()?;
                Ok(batch)
            })?;
            let scan = scan::host(self, dir, cache.as_ref(), options, Outlet::Channel(send));
            let built = scan.and_then(Scan::build);
            // A failure to store also ends the scan; it is the cause to report.
            let batch = threads::join(storing)?;
            Ok::<_, Error>((built?, batch))
        })?;
        let built = self.with_unreadable(built, &head)?;
        for page in built.new.all() {
            let (id, data) = page?;
            batch.push_page(id, data)?;
        }
        let committed = self.transact_with(durability, |transaction| {
            // Also if this attempt adds no version: the next attempt need not read the files again.
            batch.finish(transaction)?;
            if built.scanned.mended > 0 {
                heal::record(transaction, built.scanned.mended, 0)?;
            }
            let record = transaction.fork(fork)?;
            let moved = record.head != head
                && require_version(transaction.view(), &record.head)?.root != built.root.tree;
            if moved && attempt.number < MOVES_SEEN_MAX {
                return Ok(None);
            }
            let advance = Advance { action: "fork.import", message, run: None, when: When::Changed };
            transaction.advance(&record, &built.root, advance).map(Some)
        })?;
        let mut scanned = built.scanned;
        let version = committed.as_ref().map(|committed| committed.version.id);
        // The version that the cache names may be pruned later; this version has the same content.
        let foreign = scanned.foreign;
        let is_outdated = |cache: &StatCache| {
            (version.is_some() && cache.version() != version) || cache.foreign() != foreign
        };
        let renamed = || cache.as_ref().filter(|cache| is_outdated(cache));
        let new_cache = built.cache.or_else(|| renamed().map(NewCache::again));
        if let (Some(path), Some(cache)) = (options.stat_cache, new_cache) {
            let saved = cache.save(path, &vault_id, version, foreign);
            scanned.cache_unsaved = saved.err().map(|error| format!("{}: {error}", path.display()));
        }
        Ok((committed, scanned))
    }

    /// The tree that an import of `dir` to a fork would create, without storing anything.
    pub fn survey(
        &self,
        dir: &Path,
        fork: &ForkName,
        options: &ImportOptions<'_>,
    ) -> Result<(DirRef, SpilledPages, Scanned)> {
        let _pin = self.backend().pin()?;
        let head = self.fork(fork)?.head;
        let cache = self.usable_cache(options, &self.id()?, &head, Attempt::FIRST)?;
        let built = scan::host(self, dir, cache.as_ref(), options, Outlet::Nowhere)?.build()?;
        let built = self.with_unreadable(built, &head)?;
        Ok((built.root, built.new, built.scanned))
    }

    /// Keeps the fork's entry for paths that could not be read: they are not deleted.
    fn with_unreadable<'c>(&self, mut built: Built<'c>, head: &VersionId) -> Result<Built<'c>> {
        let unread = |trouble: &&Trouble| {
            matches!(
                trouble.reason,
                TroubleReason::NoPermission | TroubleReason::Unreadable | TroubleReason::TooLarge
            )
        };
        let mut unreadable = built.scanned.troubles.iter().filter(unread).peekable();
        if unreadable.peek().is_none() {
            return Ok(built);
        }
        let reader = self.read()?;
        let reader = &*reader;
        let root = root_of(&require_version(reader, head)?)?;
        let mut edits = Edits::new();
        for trouble in unreadable {
            if let Some(node) = tree::lookup(&reader, &root, &trouble.path)? {
                edits.insert(trouble.path.clone(), Edit::Put(node));
            }
        }
        let mut added = NewPages::default();
        let pages = built.new.over(&reader);
        let root = edit::apply(&pages, &built.root, &edits, Manner::Exact, &mut added)?;
        built.root = links::settle(&pages, &root, &mut added)?;
        drop(pages);
        built.new.push(added);
        Ok(built)
    }

    /// The cache, if the version that it describes is kept: then the vault has every blob that the cache names, and
    /// fsck checks them. Unreferenced blobs may exist and be damaged.
    fn usable_cache(
        &self,
        options: &ImportOptions<'_>,
        vault_id: &str,
        head: &VersionId,
        attempt: Attempt,
    ) -> Result<Option<StatCache>> {
        let Some(cache) = options.stat_cache.and_then(|path| StatCache::load(path, vault_id)) else {
            return Ok(None);
        };
        let reader = self.read()?;
        let kept = |id: &VersionId| -> Result<Option<VersionRecord>> {
            Ok(reader.version(id)?.filter(|version| version.pruned_at.is_none()))
        };
        let known = match cache.version() {
            Some(id) => kept(&id)?.is_some(),
            None => attempt.after_own_cache,
        };
        let usable = known || kept(head)?.is_some_and(|head| head.root == cache.root().tree);
        Ok(usable.then_some(cache))
    }
}
