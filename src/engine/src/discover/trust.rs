//! Which vaults found near the working directory are used: those this user has recorded, by creating them or
//! with `avfs vault trust`.
//!
//! A vault decides what a run sees, which settings and approvals apply, and where changes are written. Anyone
//! who can write to a directory above the working directory, or who publishes a repository, could put a vault
//! there. A vault named with `--vault` or `$AVFS_VAULT` is an explicit choice and is not checked here.

use std::io;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Mode as FileMode, OFlags, Uid};

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::READ;
use avfs_hostfs::identity::FileIdentity;
use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::new_file::NewFile;
use avfs_hostfs::place::{FilePlace, NewOwner, Place, PlaceError};
use avfs_hostfs::remove::remove_file;
use avfs_hostfs::stat::HostKind;
use avfs_types::VAULT_DIR;
use avfs_types::diagnose::Diagnose;
use avfs_vault::{Vault, VaultError};

use super::trust_entry::{Entry, canonical, directory_of};

/// The file in the user's data directory that lists trusted vaults, one per line:
/// `ORIGIN DEVICE INODE BIRTH FILE-SYSTEM ID PATH`, or without file system and id, as an older avfs wrote it.
pub const TRUSTED_FILE: &str = "trusted-vaults";
/// Its lock, and the new list until it replaces the old one.
const LOCK_FILE: &[u8] = b"trusted-vaults.lock";
const NEW_FILE: &[u8] = b"trusted-vaults.new";
/// Far more than the vaults of one user need; a longer list is not read.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Entries that are kept although their vault is gone: it may have been moved, or its disk may not be mounted.
const GONE_MAX: usize = 256;
/// Maximum time to wait for another process that writes the list.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the vault {} is not used: you did not create it here and do not trust it", vault.display())]
    Unknown {
        vault: PathBuf,
        /// Where this file was when it was trusted.
        moved_from: Option<PathBuf>,
    },
    #[error("the vault {} is not used: its file has the content of another vault", vault.display())]
    Replaced { vault: PathBuf },
    #[error("the vault {} is not used: it is not the file that you created or trusted at this path", vault.display())]
    OtherFile { vault: PathBuf },
    #[error("the vault {} is not used: {} {reason}", vault.display(), path.display())]
    Unsafe { vault: PathBuf, path: PathBuf, reason: Unsafe },
    #[error("no permission to read the vault {}", vault.display())]
    Hidden { vault: PathBuf },
    #[error("the list of trusted vaults {} is not written: {} is a symbolic link", path.display(), link.display())]
    Linked {
        path: PathBuf,
        link: PathBuf,
        /// The path of the list without symlinks.
        real: PathBuf,
    },
    #[error("cannot {operation} the list of trusted vaults {}", path.display())]
    List {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Why the place of a found vault is unsafe, even if the vault is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsafe {
    Symlink,
    WorldWritable,
}

impl std::fmt::Display for Unsafe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Symlink => "is a symbolic link",
            Self::WorldWritable => "is world-writable",
        })
    }
}

impl Diagnose for TrustError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Replaced { .. } | Self::OtherFile { .. } => "vault.untrusted",
            Self::Unsafe { .. } => "vault.unsafe",
            Self::Hidden { .. } => "vault.no_permission",
            Self::Linked { .. } | Self::List { .. } => "vault.trust_list",
        }
    }
}

/// Why a vault is in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustOrigin {
    /// A run created it automatically.
    Made,
    /// A user requested it: `avfs init`, `avfs vault trust`.
    Chosen,
}

impl TrustOrigin {
    pub(super) const fn word(self) -> &'static [u8] {
        match self {
            Self::Made => b"made",
            Self::Chosen => b"chosen",
        }
    }
}

/// Which groups can write to the place of a vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// At most the caller's own group.
    Own,
    AnotherGroup,
}

/// The entry that a vault is used by. It is confirmed when the vault is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trusted {
    origin: TrustOrigin,
    /// The recorded id of the vault; `None` in an entry of an older avfs.
    id: Option<String>,
    moved_from: Option<PathBuf>,
    /// Whether the entry lacks something that is known now.
    is_outdated: bool,
}

/// The entries of an open list; none if it does not exist.
fn read(open: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Vec<Entry>> {
    let file = match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    if beneath::fstat(file.as_fd())?.kind != HostKind::File {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    std::fs::File::from(file).take(LIST_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(Entry::parse).collect())
}

/// The place of a list that no other process changes meanwhile.
struct Locked {
    place: FilePlace,
    /// `None` if the file system does not support locks: two vaults created at the same time may then need
    /// `vault trust`.
    _lock: Option<FileLock>,
}

/// The entry of a vault.
enum Found {
    Here(Trusted),
    /// The file was recorded with another path.
    Moved(Entry),
    Nothing,
}

/// The list of one user.
#[derive(Clone, Debug)]
pub struct TrustedVaults {
    path: PathBuf,
}

impl TrustedVaults {
    /// The list in the user's data directory of avfs.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(TRUSTED_FILE) }
    }

    /// Fails if another user can replace this vault.
    pub fn check_place(vault: &Path) -> Result<Writers, TrustError> {
        let mut writers = Writers::Own;
        for path in [vault, vault.parent().unwrap_or(vault), directory_of(vault)] {
            let unfit =
                |reason| TrustError::Unsafe { vault: vault.to_owned(), path: path.to_owned(), reason };
            // A vault that cannot be read is reported when it is opened.
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_symlink() {
                return Err(unfit(Unsafe::Symlink));
            }
            if meta.mode() & 0o002 != 0 {
                return Err(unfit(Unsafe::WorldWritable));
            }
            if meta.mode() & 0o020 != 0 && meta.gid() != rustix::process::getegid().as_raw() {
                writers = Writers::AnotherGroup;
            }
        }
        Ok(writers)
    }

    /// Fails if the `.avfs` directory of a vault is a symlink. Not for a vault file named explicitly, which the
    /// user has chosen.
    pub fn check_link(vault: &Path) -> Result<(), TrustError> {
        let path = vault.parent().unwrap_or(vault);
        match path.is_symlink() {
            true => {
                let (vault, path) = (vault.to_owned(), path.to_owned());
                Err(TrustError::Unsafe { vault, path, reason: Unsafe::Symlink })
            }
            false => Ok(()),
        }
    }

    /// Fails unless a vault found at `DIR/.avfs/vault.db` may be used. The entry must be confirmed when it is open.
    pub fn check(&self, vault: &Path) -> Result<Trusted, TrustError> {
        let foreign_group = Self::check_place(vault)? == Writers::AnotherGroup;
        let mut found = self.find(vault)?;
        if matches!(found, Found::Nothing) && self.path.exists() {
            // Another process may have created this vault and not recorded it yet.
            let _locked = self.lock()?;
            found = self.find(vault)?;
        }
        let unknown = |moved_from| TrustError::Unknown { vault: vault.to_owned(), moved_from };
        match found {
            Found::Here(Trusted { origin: TrustOrigin::Made, .. }) if foreign_group => Err(unknown(None)),
            Found::Here(trusted) => Ok(trusted),
            Found::Moved(entry) if entry.keeps_trust_at(vault) => Ok(Trusted {
                origin: entry.origin,
                id: entry.id,
                moved_from: Some(entry.path),
                is_outdated: true,
            }),
            Found::Moved(entry) => Err(unknown(Some(entry.path))),
            Found::Nothing => Err(unknown(None)),
        }
    }

    /// Checks that an open vault is the one that the entry was made for, and brings the entry up to date.
    /// `is_bound_above`: whether it is bound to the directory above it, as a moved vault must be.
    pub fn confirm(
        &self,
        vault: &Path,
        id: &str,
        trusted: &Trusted,
        is_bound_above: bool,
    ) -> Result<(), TrustError> {
        if trusted.id.as_deref().is_some_and(|recorded| recorded != id) {
            return Err(TrustError::Replaced { vault: vault.to_owned() });
        }
        if trusted.moved_from.is_some() && !is_bound_above {
            let moved_from = trusted.moved_from.clone();
            return Err(TrustError::Unknown { vault: vault.to_owned(), moved_from });
        }
        if trusted.is_outdated
            && let Err(error) = self.add(vault, id, trusted.origin)
        {
            tracing::debug!(%error, "cannot bring the entry of the vault up to date");
        }
        Ok(())
    }

    /// Fails if the list has another vault at the real path of this open one, which is named and need not be listed.
    pub fn check_named(&self, vault: &Path, id: &str) -> Result<(), TrustError> {
        let Ok(path) = vault.canonicalize() else { return Ok(()) };
        let Some(entry) = self.entries()?.into_iter().rfind(|entry| entry.path == path) else {
            return Ok(());
        };
        // The number of a device can change whenever the machine starts.
        let is_same =
            |found: FileIdentity| (found.inode, found.birth) == (entry.file.inode, entry.file.birth);
        if !FileIdentity::of(&path).is_ok_and(is_same) {
            return Err(TrustError::OtherFile { vault: vault.to_owned() });
        }
        match entry.id.is_none_or(|recorded| recorded == id) {
            true => Ok(()),
            false => Err(TrustError::Replaced { vault: vault.to_owned() }),
        }
    }

    /// The paths of the vaults in the list that still exist, except those in a directory `.avfs`.
    pub fn own_names(&self) -> Result<Vec<PathBuf>, TrustError> {
        let has_own_name = |entry: &Entry| !entry.path.parent().is_some_and(|home| home.ends_with(VAULT_DIR));
        let is_there =
            |entry: &Entry| FileIdentity::of(&entry.path).is_ok_and(|found| entry.file.is_of(&found));
        let entries = self.entries()?.into_iter();
        Ok(entries.filter(|entry| has_own_name(entry) && is_there(entry)).map(|entry| entry.path).collect())
    }

    /// The paths of all vaults in the list.
    pub fn paths(&self) -> Result<Vec<PathBuf>, TrustError> {
        Ok(self.entries()?.into_iter().map(|entry| entry.path).collect())
    }

    /// Whether the list has a vault with this id, regardless of where it is.
    pub fn contains(&self, vault: &Path, id: &str) -> Result<bool, TrustError> {
        Ok(match self.find(vault)? {
            Found::Here(trusted) => trusted.id.is_none_or(|recorded| recorded == id),
            Found::Moved(_) | Found::Nothing => false,
        })
    }

    /// Whether the list has the file at this path. Its id is compared when it is open.
    pub fn has_entry(&self, vault: &Path) -> Result<bool, TrustError> {
        Ok(matches!(self.find(vault)?, Found::Here(_)))
    }

    fn find(&self, vault: &Path) -> Result<Found, TrustError> {
        let found = canonical(vault).and_then(|path| Ok((FileIdentity::of(&path)?, path)));
        let (file, path) = match found {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(TrustError::Hidden { vault: vault.to_owned() });
            }
            Err(_) => return Ok(Found::Nothing),
        };
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.file.is_of(&file));
        if let Some(Entry { origin, file: recorded, id, .. }) =
            entries.iter().find(|entry| entry.path == path)
        {
            let lacks = id.is_none() || (recorded.file_system.is_none() && file.file_system.is_some());
            let (origin, id) = (*origin, id.clone());
            return Ok(Found::Here(Trusted { origin, id, moved_from: None, is_outdated: lacks }));
        }
        // Without a birth time, an inode that was used again would look like a file that was moved.
        Ok(entries.pop().filter(|_| file.birth != 0).map_or(Found::Nothing, Found::Moved))
    }

    /// Adds an existing vault, and drops those whose path has another file now.
    pub fn add(&self, vault: &Path, id: &str, origin: TrustOrigin) -> Result<(), TrustError> {
        self.append(&self.lock()?, vault, id, origin)
    }

    /// Creates and records a vault under the lock, so that no other process finds and refuses it in between.
    pub fn make<E: From<TrustError> + From<VaultError>>(
        &self,
        vault: &Path,
        origin: TrustOrigin,
        make: impl FnOnce() -> Result<Vault, E>,
    ) -> Result<Vault, E> {
        let locked = self.lock()?;
        let made = make()?;
        self.append(&locked, vault, &made.id()?, origin)?;
        Ok(made)
    }

    /// Opens the directory of the list, creates it if it is missing, and takes the lock.
    fn lock(&self) -> Result<Locked, TrustError> {
        let place =
            Place::of_file_in_new_dirs(&self.path, NewOwner::OfParent).map_err(|error| match error {
                PlaceError::Link { link, real } => TrustError::Linked { path: self.path.clone(), link, real },
                PlaceError::Io { source, .. } => self.failed("create a directory for")(source),
            })?;
        match FileLock::acquire_in(place.dir.as_fd(), LOCK_FILE, Mode::Exclusive, LOCK_PATIENCE) {
            Ok(lock) => Ok(Locked { place, _lock: Some(lock) }),
            Err(LockError::Unsupported(_)) => Ok(Locked { place, _lock: None }),
            Err(error) => Err(self.failed("lock")(io::Error::other(error))),
        }
    }

    fn append(&self, locked: &Locked, vault: &Path, id: &str, origin: TrustOrigin) -> Result<(), TrustError> {
        let entry = Entry::of(vault, id, origin).map_err(self.failed("find the vault for"))?;
        let place = &locked.place;
        let mut entries = read(|| place.open(READ, 0)).map_err(self.failed("read"))?;
        let mut gone = 0;
        // From the newest one.
        entries.reverse();
        entries.retain(|known| match FileIdentity::of(&known.path) {
            _ if known.path == entry.path => false,
            Ok(found) => known.file.is_of(&found),
            Err(_) => {
                gone += usize::from(!known.file.is_of(&entry.file));
                !known.file.is_of(&entry.file) && gone <= GONE_MAX
            }
        });
        entries.reverse();
        entries.push(entry);
        let text: Vec<u8> = entries.iter().flat_map(Entry::line).collect();
        let write = || -> io::Result<()> {
            // Of a process that was killed.
            remove_file(place.dir.as_fd(), NEW_FILE)?;
            let new = NewFile::create(place.dir.as_fd(), NEW_FILE, 0o600)?;
            new.file().write_all(&text)?;
            new.file().sync_all()?;
            // Root may write to the directory of another user, who must be able to use the list.
            let beside = beneath::fstat(place.dir.as_fd())?;
            if rustix::process::geteuid().is_root() && beside.owner != 0 {
                let (user, group) = (Uid::from_raw(beside.owner), Gid::from_raw(beside.group));
                rustix::fs::fchown(new.file(), Some(user), Some(group))?;
            }
            new.place(place.name.as_bytes())
        };
        write().map_err(self.failed("write"))
    }

    fn entries(&self) -> Result<Vec<Entry>, TrustError> {
        let open = || Ok(rustix::fs::open(&self.path, READ | OFlags::CLOEXEC, FileMode::empty())?);
        read(open).map_err(self.failed("read"))
    }

    fn failed(&self, operation: &'static str) -> impl Fn(io::Error) -> TrustError + use<'_> {
        move |source| TrustError::List { operation, path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> (Self, TrustedVaults) {
            let dir = tempfile::tempdir().unwrap();
            let list = TrustedVaults::new(&dir.path().join("data"));
            (Self(dir), list)
        }

        fn vault(&self, name: &str) -> PathBuf {
            let home = self.0.path().join(name).join(".avfs");
            std::fs::create_dir_all(&home).unwrap();
            let vault = home.join("vault.db");
            std::fs::write(&vault, "").unwrap();
            for path in [&self.0.path().join(name), &home, &vault] {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
            }
            vault
        }
    }

    #[test]
    fn only_the_same_file_at_the_same_path_is_trusted() {
        let (home, list) = Home::new();
        let vault = home.vault("one two\n\u{e4}");
        assert_eq!(list.check(&vault).unwrap_err().code(), "vault.untrusted");
        list.add(&vault, ID, TrustOrigin::Made).unwrap();
        list.add(&home.vault("other"), ID, TrustOrigin::Chosen).unwrap();
        list.check(&vault).unwrap();
        std::fs::write(vault.with_extension("new"), "").unwrap();
        std::fs::rename(vault.with_extension("new"), &vault).unwrap();
        assert_eq!(list.check(&vault).unwrap_err().code(), "vault.untrusted", "another file at the path");
        list.add(&vault, ID, TrustOrigin::Made).unwrap();
        // Even a file that gets the inode of its predecessor, as a checkout does on ext4.
        std::fs::remove_file(&vault).unwrap();
        std::fs::write(&vault, "").unwrap();
        if FileIdentity::of(&vault).unwrap().birth != 0 {
            assert_eq!(list.check(&vault).unwrap_err().code(), "vault.untrusted", "reused inode");
        }
        list.add(&vault, ID, TrustOrigin::Made).unwrap();
    }

    #[test]
    fn moved_vault_keeps_trust_if_only_its_owner_could_have_moved_it() {
        let (home, list) = Home::new();
        let old = home.vault("project");
        list.add(&old, ID, TrustOrigin::Chosen).unwrap();
        let dir = home.0.path().join("moved");
        std::fs::rename(directory_of(&old), &dir).unwrap();
        let moved = dir.join(".avfs/vault.db");
        if FileIdentity::of(&moved).unwrap().birth == 0 {
            return;
        }
        let refused = |why: &str| match list.check(&moved) {
            Err(TrustError::Unknown { moved_from: Some(path), .. }) => {
                assert!(path.ends_with("project/.avfs/vault.db"), "{}", path.display());
            }
            other => panic!("{why}: {other:?}"),
        };
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for path in [moved.as_path(), moved.parent().unwrap(), &dir] {
            mode(path, 0o770);
            refused("a group can write it");
            mode(path, 0o700);
        }
        let second = dir.join("second");
        std::fs::hard_link(&moved, &second).unwrap();
        refused("it has two links");
        std::fs::remove_file(&second).unwrap();
        let other = home.vault("project");
        refused("the recorded path exists");
        std::fs::remove_file(&other).unwrap();
        // Another vault that is trusted in between does not remove the entry.
        list.add(&home.vault("other"), ID, TrustOrigin::Chosen).unwrap();
        let trusted = list.check(&moved).unwrap();
        assert_eq!(list.confirm(&moved, "other", &trusted, true).unwrap_err().code(), "vault.untrusted");
        assert_eq!(list.confirm(&moved, ID, &trusted, false).unwrap_err().code(), "vault.untrusted");
        assert!(list.check(&moved).unwrap().moved_from.is_some(), "nothing was confirmed");
        list.confirm(&moved, ID, &trusted, true).unwrap();
        assert!(list.check(&moved).unwrap().moved_from.is_none());
        assert!(list.contains(&moved, ID).unwrap() && !list.contains(&moved, "other").unwrap());
    }

    /// As after a reboot that numbers the devices in another order.
    #[test]
    fn vault_on_another_device_number_is_trusted_if_the_file_system_agrees() {
        let (home, list) = Home::new();
        let vault = home.vault("project");
        list.add(&vault, ID, TrustOrigin::Made).unwrap();
        let text = std::fs::read_to_string(&list.path).unwrap();
        let FileIdentity { device, inode, birth, file_system } = FileIdentity::of(&vault).unwrap();
        let rewrite = |from: String, to: String| {
            assert!(text.contains(&from), "{text}");
            std::fs::write(&list.path, text.replace(&from, &to)).unwrap();
        };
        let untrusted = || assert_eq!(list.check(&vault).unwrap_err().code(), "vault.untrusted");
        rewrite(format!("made {device} {inode} "), format!("made {} {inode} ", device + 1));
        match file_system.filter(|_| birth != 0) {
            Some(_) => drop(list.check(&vault).unwrap()),
            None => untrusted(),
        }
        rewrite(format!("made {device} {inode} "), format!("made {device} {} ", inode + 1));
        untrusted();
        rewrite(format!(" {inode} {birth} "), format!(" {inode} {} ", birth + 1));
        untrusted();
    }

    #[test]
    fn entry_of_an_older_avfs_is_completed_when_it_is_used() {
        let (home, list) = Home::new();
        let vault = home.vault("project");
        list.add(&vault, ID, TrustOrigin::Made).unwrap();
        let new = std::fs::read_to_string(&list.path).unwrap();
        let path = canonical(&vault).unwrap();
        let FileIdentity { device, inode, birth, .. } = FileIdentity::of(&vault).unwrap();
        std::fs::write(&list.path, format!("made {device} {inode} {birth} {}\n", path.display())).unwrap();
        let trusted = list.check(&vault).unwrap();
        assert_eq!(trusted.id, None);
        list.confirm(&vault, ID, &trusted, false).unwrap();
        assert_eq!(std::fs::read_to_string(&list.path).unwrap(), new);
    }

    #[test]
    fn list_drops_replaced_vaults_and_keeps_some_that_are_gone() {
        let (home, list) = Home::new();
        let replaced = home.vault("replaced");
        list.add(&replaced, ID, TrustOrigin::Made).unwrap();
        std::fs::write(replaced.with_extension("new"), "").unwrap();
        std::fs::rename(replaced.with_extension("new"), &replaced).unwrap();
        let vault = home.vault("vault");
        let lines: Vec<u8> = (0..GONE_MAX + 10)
            .flat_map(|n| {
                let file = FileIdentity { inode: n as u64, ..FileIdentity::of(&vault).unwrap() };
                let path = home.0.path().join(format!("gone-{n}"));
                Entry { origin: TrustOrigin::Made, file, id: None, path }.line()
            })
            .collect();
        std::fs::File::options().append(true).open(&list.path).unwrap().write_all(&lines).unwrap();
        list.add(&vault, ID, TrustOrigin::Made).unwrap();
        let entries = list.entries().unwrap();
        assert_eq!(entries.len(), GONE_MAX + 1);
        assert!(
            entries[0].path.ends_with("gone-10") && entries[GONE_MAX].path.ends_with("vault/.avfs/vault.db")
        );
    }

    #[test]
    fn places_that_other_users_can_write_are_refused() {
        let (home, list) = Home::new();
        let vault = home.vault("project");
        list.add(&vault, ID, TrustOrigin::Chosen).unwrap();
        for path in [vault.as_path(), vault.parent().unwrap(), directory_of(&vault)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o702)).unwrap();
            assert_eq!(list.check(&vault).unwrap_err().code(), "vault.unsafe", "{}", path.display());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        list.check(&vault).unwrap();
        let real = vault.with_extension("real");
        std::fs::rename(&vault, &real).unwrap();
        std::os::unix::fs::symlink(&real, &vault).unwrap();
        assert_eq!(list.check(&vault).unwrap_err().code(), "vault.unsafe");
    }
}
