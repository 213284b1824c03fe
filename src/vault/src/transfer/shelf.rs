//! A shelf: a part of the cache for directories that are complete or absent. Each is built under another name and
//! renamed, used under a lease, and moved aside before it is removed.
//!
//! ```text
//! SHELF/NAME/root/     the directory
//! SHELF/NAME/sealed    written last: its identity and the boot id
//! SHELF/NAME/lease     locked by users; its mtime is the time of the last use
//! SHELF/NAME/vault     of a base: the id of the vault it was built from
//! SHELF/.new-X         being built, locked by its builder
//! SHELF/.old-X         being removed
//! ```

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_hostfs::remove::{Removed, remove_tree, remove_tree_while};
use avfs_hostfs::{make, random};

use super::export::ExportError;
use super::unfinished::{Filled, Note, Unfinished};
use crate::VaultError;
use crate::transfer::{Error, Result};

/// Disk space of an entry in addition to its content, for the cache's account.
pub(crate) const ENTRY_BYTES: u64 = 4096;
/// Disk space of an item in addition to its entries: its directory and its root, the seal, the lease, the name of its
/// vault or its stack.
pub(crate) const ITEM_BYTES: u64 = 5 * ENTRY_BYTES;

/// Timeout for the lock under which items are moved aside. Each holder keeps it only for a rename.
const TURN_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    pub(crate) dir: PathBuf,
}

/// An item being built by this process.
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
    lease: FileLock,
    _building: FileLock,
}

/// A published item of a shelf.
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) last_used: SystemTime,
    /// The text of its seal; empty if it has no seal.
    pub(crate) sealed: String,
}

impl Shelf {
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Leases the item with this name. `None` if it does not exist or its seal is not valid.
    pub(crate) fn lease(&self, name: &str, is_good: impl Fn(&str) -> bool) -> Result<Option<FileLock>> {
        let place = self.place(name);
        let lease = place.join("lease");
        if !lease.exists() {
            return Ok(None);
        }
        avfs_types::pause::point("lease");
        let Ok(Some(lock)) = FileLock::try_acquire(&lease, Mode::Shared) else { return Ok(None) };
        // Before the lock was taken, another process may have moved the item aside or replaced it.
        if !lock.is_at(&lease).unwrap_or(false) {
            return Ok(None);
        }
        let sealed = std::fs::read_to_string(place.join("sealed"));
        let good = sealed.is_ok_and(|text| is_good(&text));
        if !good || !place.join("root").is_dir() {
            return Ok(None);
        }
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        if let Ok(file) = File::open(&lease) {
            rustix::fs::futimens(&file, &times).map_err(|errno| host("touch", &lease)(errno.into()))?;
        }
        Ok(Some(lock))
    }

    /// Starts a new item. `None` if an eviction found its directory before it was locked, and treated it as abandoned.
    pub(crate) fn begin(&self) -> Result<Option<Draft>> {
        make_private(&self.dir)?;
        let path = self.dir.join(format!(".new-{}", random::suffix().map_err(VaultError::Output)?));
        make_private(&path)?;
        avfs_types::pause::point("draft-made");
        let Some(building) = FileLock::try_existing(&path, Mode::Shared).map_err(host("lock", &path))? else {
            return Ok(None);
        };
        let lease = path.join("lease");
        let lock = FileLock::try_acquire(&lease, Mode::Shared)
            .map_err(|error| host("lock", &lease)(std::io::Error::other(error)))?;
        Ok(lock.map(|lease| Draft { path, lease, _building: building }))
    }

    /// Records that this process builds here, so that the next process cleans up if this one is killed. For long
    /// builds.
    pub(crate) fn note(&self) -> Result<Option<Note>> {
        let (Some(cache), Some(name)) =
            (self.dir.parent(), self.dir.file_name().and_then(|name| name.to_str()))
        else {
            return Ok(None);
        };
        make_private(cache)?;
        let note = Unfinished::new(cache).note(Filled::Shelf(name));
        note.map(Some).map_err(host("record the build in", &self.dir))
    }

    /// Renames a finished item to `name` and returns the lease on it. `None` if the name is taken.
    pub(crate) fn publish(&self, draft: Draft, name: &str) -> Result<Option<FileLock>> {
        let place = self.place(name);
        avfs_types::pause::point("publish");
        match std::fs::rename(&draft.path, &place) {
            Ok(()) => Ok(Some(draft.lease)),
            Err(error) => {
                remove_tree(&draft.path).map_err(host("remove", &draft.path))?;
                let taken = [ErrorKind::DirectoryNotEmpty, ErrorKind::AlreadyExists].contains(&error.kind());
                if taken { Ok(None) } else { Err(host("move to", &place)(error)) }
            }
        }
    }

    /// Renames an item to a name that is never looked up. `None` if another process was faster.
    pub(crate) fn move_aside(&self, place: &Path) -> Result<Option<PathBuf>> {
        let aside = self.dir.join(format!(".old-{}", random::suffix().map_err(VaultError::Output)?));
        avfs_types::pause::point("move-aside");
        match std::fs::rename(place, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(host("move aside", place)(error)),
        }
    }

    /// All published items, unordered.
    pub(crate) fn items(&self) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for (name, path) in self.entries()?.into_iter().filter(|(name, _)| !name.starts_with('.')) {
            let sealed = std::fs::read_to_string(path.join("sealed")).unwrap_or_default();
            let number = |key: &str| -> u64 {
                let line = sealed.lines().find_map(|line| line.strip_prefix(key));
                line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
            };
            let bytes = item_bytes(number("entries "), number("bytes "));
            let used = std::fs::metadata(path.join("lease")).and_then(|meta| meta.modified());
            items.push(Item { name, bytes, last_used: used.unwrap_or(SystemTime::UNIX_EPOCH), sealed });
        }
        Ok(items)
    }

    fn entries(&self) -> Result<Vec<(String, PathBuf)>> {
        let listing = match std::fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(host("list", &self.dir)(error)),
        };
        let named =
            listing.flatten().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        Ok(named.collect())
    }

    /// The directories of unfinished builds and evictions, of live and dead processes.
    pub(crate) fn unfinished(&self) -> Result<Vec<PathBuf>> {
        let unfinished = self.entries()?.into_iter().filter(|(name, _)| name.starts_with('.'));
        Ok(unfinished.map(|(_, path)| path).collect())
    }

    /// Removes leftovers of dead builders.
    pub(crate) fn sweep(&self) -> Result<()> {
        self.unfinished()?.iter().try_for_each(|path| remove_unleased(path))
    }

    /// True if a process holds a lease on it.
    pub(crate) fn is_in_use(&self, name: &str) -> bool {
        let lease = self.place(name).join("lease");
        lease.exists() && !matches!(FileLock::try_acquire(&lease, Mode::Exclusive), Ok(Some(_)))
    }

    /// Takes the lock under which items are checked and moved aside. Without it, an item that another process has put
    /// in place after the check, and uses, could be moved.
    pub(crate) fn turn(&self) -> Result<FileLock> {
        let turn = self.dir.with_extension("lock");
        FileLock::acquire(&turn, Mode::Exclusive, TURN_PATIENCE)
            .map_err(|error| host("lock", &turn)(std::io::Error::other(error)))
    }

    /// Removes an item unless it is in use. Returns true if it was removed.
    pub(crate) fn evict(&self, name: &str) -> Result<bool> {
        let path = self.place(name);
        let lease = path.join("lease");
        let aside = {
            let _turn = self.turn()?;
            let Ok(Some(alone)) = FileLock::try_acquire(&lease, Mode::Exclusive) else { return Ok(false) };
            if !alone.is_at(&lease).unwrap_or(false) {
                return Ok(false);
            }
            // Moved first, so that no process finds a partly removed item. It cannot be leased under its new name.
            self.move_aside(&path)?
        };
        if let Some(aside) = aside {
            remove_tree(&aside).map_err(host("remove", &aside))?;
        }
        Ok(true)
    }
}

/// The disk space of an item, for the cache's account.
pub(crate) fn item_bytes(entries: u64, bytes: u64) -> u64 {
    bytes.saturating_add(entries.saturating_mul(ENTRY_BYTES)).saturating_add(ITEM_BYTES)
}

/// Time for removing an unfinished item. The next sweep finishes a longer removal: a signal must end the build soon.
const REMOVAL_TIME: Duration = Duration::from_millis(300);

/// Removes an item that could not be finished.
pub(crate) fn drop_draft(draft: &Draft, note: Option<Note>) {
    let begun = Instant::now();
    let removed = remove_tree_while(&draft.path, &|| begun.elapsed() < REMOVAL_TIME);
    // If this fails, the next eviction removes the directory.
    if matches!(removed, Ok(Removed::InPart))
        && let Some(note) = note
    {
        note.leave();
    }
}

pub(crate) fn make_private(path: &Path) -> Result<()> {
    make::private_dirs(path).map_err(host("create", path))
}

pub(crate) fn host(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| ExportError::Host { operation, path, source }.into()
}

/// Removes a directory unless its builder is alive or a process holds a lease on it.
fn remove_unleased(path: &Path) -> Result<()> {
    let Ok(Some(_abandoned)) = FileLock::try_existing(path, Mode::Exclusive) else { return Ok(()) };
    let lease = path.join("lease");
    let _alone = if lease.exists() {
        let Ok(Some(alone)) = FileLock::try_acquire(&lease, Mode::Exclusive) else { return Ok(()) };
        Some(alone)
    } else {
        None
    };
    remove_tree(path).map_err(host("remove", path))
}
