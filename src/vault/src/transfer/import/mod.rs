//! Imports a host directory as a version. Only changed files are read, and symlinks out of the directory are not
//! followed.
//!
//! What comes in is a path and a fork; what leaves is a version of the fork, or only a tree ([`Vault::survey`]). The
//! room `scan` walks the directory and builds the trees; `host` is its source for a directory that other processes use:
//! ignore rules, the stat cache, entries that vanish. One transaction then adds the version.
//!
//! A version must never mix two states of a file, and never lose a path only because it could not be read. Open `host`
//! first for the rules of versioned paths, and `Vault::import_once` for how a version is added. `touched` imports only
//! the paths that a run touched, `look` searches for a difference without reading files, `heal` restores damaged
//! objects.

pub mod heal;
mod host;
mod ignore_file;
mod look;
mod touched;

use std::path::Path;
use std::sync::mpsc;

use avfs_types::ids::{ForkName, VersionId};

pub use look::{LOOK_STEPS_MAX, LookPlace, Looked, looks_like};
pub use touched::{TouchedBase, TouchedOptions};

use super::scan::{Built, CHANNEL_BATCHES, Outlet, Scan};
pub use super::scan::{ImportError, OnTrouble, Scanned, Trouble, TroubleReason, UNVERSIONED_MAX};
pub use super::spill::SpilledPages;
pub use super::stat_cache::Foreign;
use super::stat_cache::{NewCache, StatCache};
use crate::backend::{BlobRecord, Durability, VersionRecord};
use crate::edit::{Edit, Edits, Manner};
use crate::meter::Meter;
use crate::page::DirRef;
use crate::pages::NewPages;
use crate::transfer::{Error, Result};
use crate::version::root_of;
use crate::{Advance, Batch, Committed, Vault, When, edit, links, require_version, threads, tree};

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
            let scan = host::scan(self, dir, cache.as_ref(), options, Outlet::Channel(send));
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
        let built = host::scan(self, dir, cache.as_ref(), options, Outlet::Nowhere)?.build()?;
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
