//! From a directory of the host to a version: only what changed is read, nothing outside is followed.
//!
//! `scan` looks at every directory in parallel and has changed files read (`files`); `build` makes
//! trees of what was found, from the bottom up; then one transaction makes the version.

mod assembly;
pub(crate) mod build;
mod files;
pub mod heal;
pub(crate) mod scan;
pub(crate) mod shared;
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
use crate::version::root_of;
use crate::{
    Advance, Batch, Committed, Result, Vault, VaultError, When, edit, links, require_version, threads, tree,
};

/// Why a directory cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The path is not a directory.
    #[error("cannot import {}: it is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// There is nothing at the path.
    #[error("there is no directory {}", path.display())]
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
        /// Bytes of the file.
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
    /// A line of an ignore file is not a pattern.
    #[error("the ignore file {path} has a bad pattern")]
    BadIgnore {
        /// The ignore file.
        path: TreePath,
        /// What is wrong with the line.
        #[source]
        source: ignore::Error,
    },
    /// A pattern in [`ImportOptions::exclude`] is invalid.
    #[error("a pattern of what is excluded is none")]
    BadExclude {
        /// What is wrong with it.
        #[source]
        source: ignore::Error,
    },
    /// Any other failure of the file system.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was attempted, such as `open`.
        operation: &'static str,
        /// The path inside the directory.
        path: TreePath,
        /// What the kernel said.
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

/// What to do about files that vanish, cannot be read, or do not hold still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTrouble {
    /// Fail the whole import; no version is added.
    Fail,
    /// Go on, and name them in the report.
    KeepGoing,
}

/// How a directory is imported.
pub struct ImportOptions<'a> {
    /// What happens when a path cannot be read as it is.
    pub on_trouble: OnTrouble,
    /// Where the stat cache of this directory lies; without it every file is read.
    pub stat_cache: Option<&'a Path>,
    /// What is never versioned, as lines of an ignore file in the root.
    pub exclude: &'a [String],
    /// Counts what is read, and stops the import.
    pub meter: &'a Meter,
}

/// A path that is not in the version as it was on the host, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The path inside the directory.
    pub path: TreePath,
    /// What is wrong with it.
    pub reason: TroubleReason,
}

/// Why a path is not in the version as it was on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleReason {
    /// A socket or a device: nothing a vault can keep.
    Special(&'static str),
    /// It was removed while the import ran; it is not in the version.
    Vanished,
    /// Kept as it was last read.
    Torn,
    /// It cannot be read; it is not in the version.
    NoPermission,
    /// The disk or its file system fails at it.
    Unreadable,
    /// Of more bytes than a vault keeps of one file.
    TooLarge,
    /// Only this is left out: an attribute that no user may set, by what the file loses with it.
    Attribute(&'static str),
}

impl std::fmt::Display for TroubleReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Special(kind) => write!(f, "a {kind} cannot be kept"),
            Self::Vanished => f.write_str("it vanished during the import"),
            Self::Torn => f.write_str("it kept changing; it is kept as it was last read"),
            Self::NoPermission => f.write_str("no permission to read it"),
            Self::Unreadable => f.write_str("the file system cannot read it"),
            Self::TooLarge => write!(f, "it has more than {FILE_BYTES_MAX} bytes"),
            Self::Attribute(what) => write!(f, "its {what} cannot be kept"),
        }
    }
}

/// Unversioned paths that a scan lists; one more says that there are too many.
pub const UNVERSIONED_MAX: usize = 4096;

/// What a scan of a directory found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Files whose content was read, not known from the stat cache.
    pub files_read: u64,
    /// Bytes of those files.
    pub bytes_read: u64,
    /// Blobs that were damaged in the vault and are whole again, since this import had their content.
    pub mended: u64,
    /// Paths that are not in the version as they were on the host.
    pub troubles: Vec<Trouble>,
    /// What the directory holds and no version does: ignored and excluded paths, the vault, sockets and devices. Only the
    /// outermost path of each, and at most [`UNVERSIONED_MAX`] + 1 of them.
    pub unversioned: Vec<TreePath>,
    /// Set when the import was good but its stat cache could not be kept: the next one reads every file.
    pub cache_unsaved: Option<String>,
    /// What of the directory no sandbox of this user can map.
    pub foreign: Foreign,
    /// The latest change of a status (`ctime`) among everything that was scanned. Times in the future do not count, nor does the
    /// directory that the vault lies in.
    pub changed_at: FileTime,
}

/// A directory that became a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The version that the directory became.
    pub committed: Committed,
    /// What the scan found.
    pub scanned: Scanned,
}

/// Scans of which the last does not mind that the fork moves meanwhile: something changes all the time.
const MOVES_SEEN_MAX: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    number: u32,
    /// The stat cache is that of the attempt before, which made no version and has stored all it names.
    after_own_cache: bool,
}

impl Attempt {
    const FIRST: Self = Self { number: 1, after_own_cache: false };
}

/// Batches of blobs on their way to the vault, each of some megabytes at most.
pub(crate) const CHANNEL_BATCHES: usize = 8;

/// Whether what is read is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep<'a> {
    /// Whatever the vault does not have.
    Everything,
    /// These, whether or not the vault has them.
    Only(&'a HashSet<BlobId>),
    /// Only its digests matter.
    Nothing,
}

impl Vault {
    /// Imports the present state of `dir` onto a fork. Nothing changed: no version is added.
    pub fn import(
        &self,
        dir: &Path,
        fork: &ForkName,
        message: &str,
        options: &ImportOptions<'_>,
    ) -> Result<Imported> {
        self.import_with(Durability::Synced, dir, fork, message, options)
    }

    /// As [`Vault::import`], on the disk with the version of the run that begins with it: until then the directory has
    /// everything.
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
        // Nothing that the import stores or relies on may be swept before a version refers to it.
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
            attempt =
                Attempt { number: attempt.number + 1, after_own_cache: scanned.cache_unsaved.is_none() };
        }
    }

    /// One attempt, which adds no version if the fork went elsewhere during the scan: whoever moved it may have
    /// imported what came since. The last does as it was told.
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
            let storing = threads::spawn(scope, move || -> Result<Batch<'_>> {
                let mut batch = Batch::new(self)?;
                for blob in receive.into_iter().flatten() {
                    batch.push(blob)?;
                }
                batch.store_ahead()?;
                Ok(batch)
            })?;
            let scan = scan::host(self, dir, cache.as_ref(), options, Outlet::Channel(send));
            let built = scan.and_then(Scan::build);
            // A failure to store ends the scan too; it is the cause to tell.
            let batch = threads::join(storing)?;
            Ok::<_, VaultError>((built?, batch))
        })?;
        let built = self.with_unreadable(built, &head)?;
        for page in built.new.all() {
            let (id, data) = page?;
            batch.push_page(id, data)?;
        }
        let committed = self.transact_with(durability, |transaction| {
            // Also of an attempt in vain: the next one need not read it again.
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
        // The version it names may be given up; this one has the same.
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

    /// The tree `dir` would be imported as onto a fork, without storing anything.
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

    /// What could not be read is not gone: it stays what the fork has there.
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

    /// The cache, if the version that it describes is kept: then the vault has every blob the cache names, and a check
    /// of the vault has seen them. What nothing refers to may be there and damaged.
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
