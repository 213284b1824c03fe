//! The [`Vault`] type: creates and opens vaults, and runs their transactions.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, access};

use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::owner::give;
use avfs_hostfs::random;
use avfs_types::clock::{Clock, Timestamp};
use avfs_types::ids::{ForkName, VersionId, to_hex};

use crate::audit::Event;
use crate::backend::ApplicationRecord;
use crate::backend::sqlite::{OpenOptions, SqliteBackend, sibling};
use crate::backend::{
    Backend, BackendError, BlobRecord, Durability, Extent, ForkRecord, Life, Reader, Rollback, VersionRecord,
    Writer,
};
use crate::error::{Result, VaultError};
use crate::own::{UNFINISHED_INFIX, is_unfinished_name};
use crate::page::{DirMeta, DirRef};
use crate::pages::NewPages;
use crate::unfinished::{Filled, Note, Unfinished};
use crate::version::{Draft, check_entries};
use crate::{audit, pages, quota};

/// Keys of the `meta` table.
pub mod key {
    pub(crate) const VAULT_ID: &str = "vault_id";
    /// When the vault was created.
    pub const CREATED_AT: &str = "created_at";
    /// The directory the vault is bound to, or [`BOUND_ABOVE`].
    pub const BOUND: &str = "bound";
    /// The value of [`BOUND`] for a vault in the `.avfs` of its directory: it remains valid when that is moved.
    pub const BOUND_ABOVE: &[u8] = b"..";
}

/// The acting user and the clock, supplied by the caller.
#[derive(Clone)]
pub struct Context {
    /// The clock that versions and audit rows get their times from.
    pub clock: Arc<dyn Clock>,
    /// The user that versions and audit rows name.
    pub actor: String,
}

/// Returns the versions that are in use even if no fork and no checkpoint leads to them.
type InUse = Box<dyn Fn() -> std::io::Result<Vec<VersionId>> + Send + Sync>;

/// One vault, shared by threads.
pub struct Vault {
    backend: Box<dyn Backend>,
    path: Option<PathBuf>,
    context: Context,
    in_use: Option<InUse>,
    unfinished: Option<Unfinished>,
    others: Vec<PathBuf>,
}

/// Attempts to create a file and lock it before a concurrent sweep removes it.
const BEGIN_TRIES_MAX: u32 = 100;

/// A unique temporary name beside the vault `path`: for a vault being created, or one being deleted.
fn unfinished_name(path: &Path) -> Result<PathBuf> {
    let unique = random::suffix().map_err(VaultError::Input)?;
    Ok(sibling(path, &format!("{UNFINISHED_INFIX}{unique}")))
}

/// Creates the file of a future vault, locked by this process while it is still empty.
fn begin(path: &Path, owner: Option<&Metadata>) -> Result<(PathBuf, FileLock)> {
    for _ in 0..BEGIN_TRIES_MAX {
        let unfinished = unfinished_name(path)?;
        let file = SqliteBackend::make_file(&unfinished)?;
        if let Some(owner) = owner {
            give(&file, owner).map_err(|error| {
                given_up(&unfinished, BackendError::io("change the owner of", path, error).into())
            })?;
        }
        avfs_types::pause::point("vault-begun");
        match FileLock::try_open(file.into(), Mode::Exclusive) {
            Ok(Some(lock)) if lock.is_at(&unfinished).unwrap_or(false) => return Ok((unfinished, lock)),
            // A concurrent sweep locked it first, and removes it.
            Ok(_) => {}
            Err(error) => {
                let error = BackendError::lock(path, LockError::of(error));
                return Err(given_up(&unfinished, error.into()));
            }
        }
    }
    Err(VaultError::Output(std::io::ErrorKind::WouldBlock.into()))
}

/// Removes the leftovers of a failed creation. Errors of the removal are ignored: the first failure is reported.
fn given_up(unfinished: &Path, error: VaultError) -> VaultError {
    let _ = SqliteBackend::remove_files(unfinished);
    error
}

/// Removes unfinished files of the vault `path` that killed processes of this user left behind. Errors are ignored: a
/// leftover does no harm.
fn sweep_unfinished(path: &Path) {
    let (Some(dir), Some(vault)) = (path.parent(), path.file_name()) else { return };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let own = |meta: Metadata| meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw();
        if is_unfinished_name(vault.as_encoded_bytes(), name.as_encoded_bytes())
            && entry.metadata().is_ok_and(own)
            && let Ok(Some(_lock)) = FileLock::try_existing(&entry.path(), Mode::Exclusive)
        {
            let _ = SqliteBackend::remove_files(&entry.path());
        }
    }
}

impl Vault {
    /// Creates a vault at `path` atomically. `bound` is the value of [`key::BOUND`].
    pub fn create(path: &Path, bound: Option<&[u8]>, options: OpenOptions, context: Context) -> Result<Self> {
        Self::create_for(None, path, bound, options, context)
    }

    /// Creates a vault that belongs to the owner of a file with this metadata, if root creates it.
    pub fn create_for(
        owner: Option<&Metadata>,
        path: &Path,
        bound: Option<&[u8]>,
        options: OpenOptions,
        context: Context,
    ) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(SqliteBackend::taken(path, &options).into());
        }
        sweep_unfinished(path);
        let (unfinished, lock) = begin(path, owner)?;
        let made = SqliteBackend::create_in(&unfinished, options)
            .map_err(VaultError::from)
            .and_then(|backend| initialize(&backend, bound, &context).map(|()| backend));
        match made {
            Ok(backend) => backend.publish(path)?,
            Err(error) => return Err(given_up(&unfinished, error)),
        }
        // Dropped before the open: closing this descriptor later would release the POSIX locks that this process then
        // holds on the vault.
        drop(lock);
        Self::open(path, options, context)
    }

    /// Copies the current state of the vault to one new file, atomically. Other processes can write during the copy.
    pub fn copy(&self, to: &Path) -> Result<()> {
        let Some(path) = self.path.as_deref() else {
            return Err(VaultError::Output(std::io::ErrorKind::Unsupported.into()));
        };
        let options = OpenOptions::default();
        if to.symlink_metadata().is_ok() {
            return Err(SqliteBackend::taken(to, &options).into());
        }
        sweep_unfinished(to);
        let (unfinished, lock) = begin(to, None)?;
        let copied = SqliteBackend::open(path, options)
            .and_then(|source| source.copy_into(&unfinished))
            .and_then(|copy| copy.publish(to));
        drop(lock);
        copied.map_err(|error| given_up(&unfinished, error.into()))
    }

    /// Opens a vault file. Fails if the file does not exist, is not a vault, or has a newer format.
    pub fn open(path: &Path, options: OpenOptions, context: Context) -> Result<Self> {
        let backend = SqliteBackend::open(path, options)?;
        Ok(Self {
            backend: Box::new(backend),
            path: Some(path.to_owned()),
            context,
            in_use: None,
            unfinished: None,
            others: Vec::new(),
        })
    }

    /// Removes the vault and its companion files, once no process uses it.
    pub fn delete(self, patience: Duration) -> Result<()> {
        let Some(path) = self.path.as_deref() else { return Ok(()) };
        // Removing a symlink would leave the vault itself in place.
        let path = path.canonicalize().map_err(|error| BackendError::io("remove", path, error))?;
        let aside = unfinished_name(&path)?;
        let _alone = self.backend.sweep_guard()?;
        drop(self.backend);
        Ok(SqliteBackend::delete(&path, &aside, patience)?)
    }

    /// Creates a vault on any backend.
    pub fn over(backend: Box<dyn Backend>, context: Context) -> Result<Self> {
        initialize(&*backend, None, &context)?;
        Ok(Self { backend, path: None, context, in_use: None, unfinished: None, others: Vec::new() })
    }

    /// Makes gc and prune keep the versions that `in_use` returns: only the caller knows the active runs.
    #[must_use]
    pub fn sparing(
        mut self,
        in_use: impl Fn() -> std::io::Result<Vec<VersionId>> + Send + Sync + 'static,
    ) -> Self {
        self.in_use = Some(Box::new(in_use));
        self
    }

    /// Makes exports and applies note their staging directories there, so that those of killed processes are removed.
    #[must_use]
    pub fn noting(mut self, unfinished: Unfinished) -> Self {
        self.unfinished = Some(unfinished);
        self
    }

    /// Names other vaults of the user: their files are never imported, captured, exported or applied either.
    #[must_use]
    pub fn knowing(mut self, others: Vec<PathBuf>) -> Self {
        self.others = others;
        self
    }

    /// The other vaults.
    #[must_use]
    pub fn others(&self) -> &[PathBuf] {
        &self.others
    }

    /// Removes the noted staging directories of killed processes. Errors are not fatal: a leftover does no harm.
    pub fn sweep_staging(&self) {
        if let Some(unfinished) = &self.unfinished
            && let Err(error) = unfinished.sweep()
        {
            tracing::warn!(%error, "cannot remove what killed processes left");
        }
    }

    /// Notes a staging directory in `place`.
    #[must_use]
    pub(crate) fn note_staging(&self, place: &Path) -> Option<Note> {
        let noted = self.unfinished.as_ref()?.note(Filled::Staging(place));
        noted.inspect_err(|error| tracing::warn!(%error, "cannot note a staging directory in the cache")).ok()
    }

    /// Binds the vault to a directory, given by its real path.
    pub fn rebind(&self, dir: &Path) -> Result<()> {
        self.transact(|transaction| {
            let bound = dir.as_os_str().as_encoded_bytes();
            transaction.writer.set_meta(key::BOUND, bound)?;
            let (action, detail) = ("vault.rebind", String::from_utf8_lossy(bound));
            transaction.record(&Event { action, subject: "", before: None, after: None, detail: &detail })
        })
    }

    /// Waits until every transaction committed so far, by any process, is on disk.
    pub fn flush(&self) -> Result<()> {
        Ok(self.backend.flush()?)
    }

    /// The existing versions that are in use, including those of applications that can still be undone.
    pub(super) fn versions_in_use(&self, reader: &dyn Reader) -> Result<Vec<VersionId>> {
        let reported =
            self.in_use.as_ref().map_or(Ok(Vec::new()), |in_use| in_use()).map_err(VaultError::Input)?;
        let applied = reader.applications_after(self.now())?.into_iter().filter(ApplicationRecord::stands);
        let applied = applied.flat_map(|of| [of.before, of.after]);
        let mut there = Vec::new();
        for id in reported.into_iter().chain(applied) {
            if reader.version(&id)?.is_some() {
                there.push(id);
            }
        }
        Ok(there)
    }

    /// The path of the vault file; `None` for a vault in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Directories for temporary files of lists that are too long for memory, in order of preference.
    #[must_use]
    pub fn temporary_dirs(&self) -> Vec<PathBuf> {
        let beside = self.path().and_then(Path::parent).map(Path::to_owned);
        // Not /tmp, which may be in memory. A vault that cannot be written still has a place there.
        beside.into_iter().chain([PathBuf::from("/var/tmp")]).collect()
    }

    /// The first of these directories that can be written.
    #[must_use]
    pub fn temporary_dir(&self) -> Option<PathBuf> {
        let can_write = |dir: &PathBuf| access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        self.temporary_dirs().into_iter().find(can_write)
    }

    /// The store, for operations without a method here.
    #[must_use]
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The acknowledged commits that this vault lacks because it is an older copy, such as one from a backup.
    #[must_use]
    pub fn older_copy(&self) -> Option<&Rollback> {
        self.backend.older_copy()
    }

    /// The current time of the context's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// A consistent view of the vault. Do not hold it longer than needed: the WAL grows while it is open.
    pub fn read(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(self.backend.read()?)
    }

    /// Runs `body` as one transaction: its changes are on disk when this returns, or have no effect.
    pub fn transact<T>(&self, body: impl FnOnce(&mut Transaction<'_>) -> Result<T>) -> Result<T> {
        self.transact_with(Durability::Synced, body)
    }

    pub(super) fn transact_with<T>(
        &self,
        durability: Durability,
        body: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact_deciding(body, |_| durability)
    }

    /// Like [`Vault::transact`], for the outcome of a run: `durability` applies if the transaction adds a version.
    /// Records without a version survive the end of this process, and reach the disk with the next version.
    pub(super) fn transact_run<T>(
        &self,
        durability: Durability,
        body: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact_deciding(body, |transaction| match transaction.has_version {
            true => durability,
            false => Durability::Deferred,
        })
    }

    fn transact_deciding<T>(
        &self,
        body: impl FnOnce(&mut Transaction<'_>) -> Result<T>,
        durability: impl FnOnce(&Transaction<'_>) -> Durability,
    ) -> Result<T> {
        let mut transaction = Transaction::over(self.backend.write()?, &self.context);
        let done = body(&mut transaction)?;
        let durability = durability(&transaction);
        transaction.writer.commit(durability)?;
        Ok(done)
    }

    /// The id of the vault at a path, without opening the vault for use. Changes nothing.
    pub fn id_at(path: &Path) -> Result<String> {
        let id = SqliteBackend::look_up(path, key::VAULT_ID, &OpenOptions::default())?;
        Ok(to_hex(&id.unwrap_or_default()))
    }

    /// The id of the vault, assigned at creation, in hex digits.
    pub fn id(&self) -> Result<String> {
        let id = self.read()?.meta(key::VAULT_ID)?.unwrap_or_default();
        Ok(to_hex(&id))
    }
}

/// Writes a vault's first rows: its id, an empty version and the main fork.
fn initialize(backend: &dyn Backend, bound: Option<&[u8]>, context: &Context) -> Result<()> {
    let id = random::bytes::<16>().map_err(VaultError::Input)?;
    let mut transaction = Transaction::over(backend.write()?, context);
    let now = context.clock.now();
    transaction.writer.set_meta(key::VAULT_ID, &id)?;
    transaction.writer.set_meta(key::CREATED_AT, now.0.to_string().as_bytes())?;
    if let Some(bound) = bound {
        transaction.writer.set_meta(key::BOUND, bound)?;
    }
    let mut new = NewPages::default();
    let root = pages::build(&DirMeta::default(), Vec::new(), &mut new);
    transaction.put_pages(&new)?;
    let draft = Draft { message: "empty", run: None, parents: Vec::new(), extent: Extent::Full };
    let version = transaction.put_version(&root, draft)?;
    let name = ForkName::main();
    transaction.writer.insert_fork(&ForkRecord {
        name: name.clone(),
        head: version.id,
        base: version.id,
        parent: None,
        created_at: now,
        life: Life::Persistent,
    })?;
    transaction.record(&Event {
        action: "vault.create",
        subject: name.as_str(),
        before: None,
        after: Some(version.id.0),
        detail: "",
    })?;
    transaction.writer.commit(Durability::Synced)?;
    Ok(())
}

/// The outcome of an operation that may add a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The current head of the fork.
    pub version: VersionRecord,
    /// The previous head of the fork; the same version if nothing changed.
    pub previous: VersionId,
}

impl Committed {
    /// True if a version was added.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.version.id != self.previous
    }
}

/// The operations of a write transaction.
pub struct Transaction<'a> {
    pub(super) writer: Box<dyn Writer + 'a>,
    context: &'a Context,
    /// Bytes of content added in this transaction.
    added: u64,
    /// Whether this transaction added a version.
    has_version: bool,
}

impl<'a> Transaction<'a> {
    fn over(writer: Box<dyn Writer + 'a>, context: &'a Context) -> Self {
        Self { writer, context, added: 0, has_version: false }
    }
}

impl Transaction<'_> {
    #[must_use]
    pub(crate) fn view(&self) -> &dyn Reader {
        self.writer.view()
    }

    #[must_use]
    pub(crate) fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    /// The acting user.
    #[must_use]
    pub(crate) fn actor(&self) -> &str {
        &self.context.actor
    }

    pub(crate) fn record(&mut self, event: &Event<'_>) -> Result<()> {
        audit::append(&mut *self.writer, self.context.clock.now(), &self.context.actor, event)
    }

    pub(crate) fn put_blobs(&mut self, blobs: &[BlobRecord]) -> Result<()> {
        self.added += blobs.iter().map(|blob| blob.data.len() as u64).sum::<u64>();
        Ok(self.writer.put_blobs(blobs)?)
    }

    pub(crate) fn put_pages(&mut self, new: &NewPages) -> Result<()> {
        Ok(self.writer.put_trees(&new.pages)?)
    }

    /// Adds a version with this root. Fails if a quota would be exceeded.
    pub fn put_version(&mut self, root: &DirRef, draft: Draft<'_>) -> Result<VersionRecord> {
        check_entries(root.totals.entries)?;
        quota::check(self.view(), &root.totals, draft.parents.first(), self.added)?;
        let draft = Draft { extent: self.extent_of(&draft)?, ..draft };
        let version = draft.finish(root, &self.context.actor, self.context.clock.now());
        self.writer.put_version(&version)?;
        self.has_version = true;
        Ok(version)
    }

    /// A version with a partial parent is partial too.
    fn extent_of(&self, draft: &Draft<'_>) -> Result<Extent> {
        for parent in &draft.parents {
            if let Some(Extent::Partial) = self.view().version(parent)?.map(|parent| parent.extent) {
                return Ok(Extent::Partial);
            }
        }
        Ok(draft.extent)
    }

    /// Makes `root` the head of a fork, as a new version, unless the head already has this root.
    pub(crate) fn advance(
        &mut self,
        fork: &ForkRecord,
        root: &DirRef,
        action: Advance<'_>,
    ) -> Result<Committed> {
        let head = require_version(self.view(), &fork.head)?;
        if head.extent == Extent::Partial {
            return Err(VaultError::Partial { id: head.id });
        }
        let same = head.root == root.tree && head.pruned_at.is_none();
        if same && action.when == When::Changed {
            return Ok(Committed { version: head, previous: fork.head });
        }
        self.advance_to(fork, root, vec![fork.head], action)
    }

    /// Makes `root` the head of a fork, as a new version with these parents, the current head first.
    pub(super) fn advance_to(
        &mut self,
        fork: &ForkRecord,
        root: &DirRef,
        parents: Vec<VersionId>,
        action: Advance<'_>,
    ) -> Result<Committed> {
        let Advance { message, run, .. } = action;
        let version = self.put_version(root, Draft { message, run, parents, extent: Extent::Full })?;
        if !self.writer.move_fork(&fork.name, &fork.head, &version.id)? {
            let found = self.fork(&fork.name)?.head;
            return Err(VaultError::ForkMoved { fork: fork.name.clone(), expected: fork.head, found });
        }
        self.record(&Event {
            action: action.action,
            subject: fork.name.as_str(),
            before: Some(fork.head.0),
            after: Some(version.id.0),
            detail: action.message,
        })?;
        Ok(Committed { version, previous: fork.head })
    }

    pub(crate) fn fork(&self, name: &ForkName) -> Result<ForkRecord> {
        self.view().fork(name)?.ok_or_else(|| VaultError::NoFork { name: name.clone() })
    }
}

/// How a fork moves to a new root.
pub struct Advance<'a> {
    /// The action name in the audit log, such as `fork.write`.
    pub action: &'static str,
    /// The message of the new version.
    pub message: &'a str,
    /// The run that made the changes.
    pub run: Option<&'a str>,
    /// When a version is added.
    pub when: When,
}

/// When a version is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Only if the content differs from the head's.
    Changed,
    /// Even if it does not: the operation must be recorded.
    Always,
}

/// Returns a version that must exist. Fails with [`VaultError::MissingObject`].
pub fn require_version(reader: &dyn Reader, id: &VersionId) -> Result<VersionRecord> {
    let found = reader.version(id)?;
    found.ok_or_else(|| VaultError::MissingObject { kind: "version", id: id.short() })
}
