//! Which vaults found near the working directory are used: those this user has recorded, by creating them or
//! with `avfs vault trust`.
//!
//! A vault decides what a run sees, which settings and approvals apply, and where changes are written. Anyone
//! who can write to a directory above the working directory, or who publishes a repository, could put a vault
//! there. A vault named with `--vault` or `$AVFS_VAULT` is an explicit choice and is not checked here.

use std::ffi::OsStr;
use std::io;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Mode as FileMode, OFlags, Uid};

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::READ;
use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::new_file::NewFile;
use avfs_hostfs::place::{FilePlace, NewOwner, Place, PlaceError};
use avfs_hostfs::remove::remove_file;
use avfs_hostfs::stat::HostKind;
use avfs_types::diagnose::Diagnose;

/// The file in the user's data directory that lists trusted vaults, one per line: `ORIGIN DEVICE INODE BIRTH PATH`.
pub const TRUSTED_FILE: &str = "trusted-vaults";
/// Its lock, and the new list until it replaces the old one.
const LOCK_FILE: &[u8] = b"trusted-vaults.lock";
const NEW_FILE: &[u8] = b"trusted-vaults.new";
/// Far more than the vaults of one user need; a longer list is not read.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Maximum time to wait for another process that writes the list.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("the vault {} is not used: you did not create it here and do not trust it", vault.display())]
    Unknown { vault: PathBuf },
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
            Self::Unknown { .. } => "vault.untrusted",
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
    const fn word(self) -> &'static [u8] {
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

/// A vault in the list: exactly this file at exactly this path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    origin: TrustOrigin,
    file: FileIdentity,
    path: PathBuf,
}

/// The identity of a file. A file system may reuse the inode of a deleted file: the birth time distinguishes
/// the two, if the file system records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    /// Nanoseconds; 0 if unknown.
    birth: u128,
}

impl FileIdentity {
    fn of(path: &Path) -> io::Result<Self> {
        let meta = path.symlink_metadata()?;
        let birth = meta.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let birth = birth.map_or(0, |since| since.as_nanos());
        Ok(Self { device: meta.dev(), inode: meta.ino(), birth })
    }
}

impl Entry {
    fn of(vault: &Path, origin: TrustOrigin) -> io::Result<Self> {
        let path = canonical(vault)?;
        Ok(Self { origin, file: FileIdentity::of(&path)?, path })
    }

    fn is_there(&self) -> bool {
        FileIdentity::of(&self.path).is_ok_and(|file| file == self.file)
    }

    fn line(&self) -> Vec<u8> {
        let mut line = self.origin.word().to_vec();
        let FileIdentity { device, inode, birth } = self.file;
        line.extend(format!(" {device} {inode} {birth} ").as_bytes());
        line.extend(self.path.as_os_str().as_bytes().escape_ascii());
        line.push(b'\n');
        line
    }

    /// `None` for a line that this version does not understand.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.splitn(5, |byte| *byte == b' ');
        let word = words.next()?;
        let origin =
            [TrustOrigin::Made, TrustOrigin::Chosen].into_iter().find(|origin| origin.word() == word)?;
        let mut number = || std::str::from_utf8(words.next()?).ok();
        let (device, inode) = (number()?.parse().ok()?, number()?.parse().ok()?);
        let file = FileIdentity { device, inode, birth: number()?.parse().ok()? };
        Some(Self { origin, file, path: PathBuf::from(unescape(words.next()?)?) })
    }
}

/// Reverses `escape_ascii`.
fn unescape(text: &[u8]) -> Option<std::ffi::OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, if byte == b'\\' { rest.next()? } else { 0 }) {
            (b'\\', b't') => b'\t',
            (b'\\', b'n') => b'\n',
            (b'\\', b'r') => b'\r',
            (b'\\', b'x') => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            (b'\\', literal) => literal,
            (plain, _) => plain,
        });
    }
    Some(std::ffi::OsString::from_vec(bytes))
}

/// The real path of the directory, joined with the file name: a symlink in place of the file is not resolved.
fn canonical(file: &Path) -> io::Result<PathBuf> {
    let dir = file.parent().unwrap_or(Path::new("/")).canonicalize()?;
    Ok(dir.join(file.file_name().unwrap_or(OsStr::new(""))))
}

/// The directory whose `.avfs` contains the vault.
fn directory_of(vault: &Path) -> &Path {
    vault.parent().and_then(Path::parent).unwrap_or(Path::new("/"))
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

    /// Fails unless a vault found at `DIR/.avfs/vault.db` may be used.
    pub fn check(&self, vault: &Path) -> Result<(), TrustError> {
        let foreign_group = Self::check_place(vault)? == Writers::AnotherGroup;
        let unknown = || TrustError::Unknown { vault: vault.to_owned() };
        let listed = || self.origin(vault);
        let mut origin = listed()?;
        if origin.is_none() && self.path.exists() {
            // Another process may have created this vault and not recorded it yet.
            let _locked = self.lock()?;
            origin = listed()?;
        }
        match origin {
            Some(TrustOrigin::Chosen) => Ok(()),
            Some(TrustOrigin::Made) if !foreign_group => Ok(()),
            Some(TrustOrigin::Made) | None => Err(unknown()),
        }
    }

    /// Whether the list has a vault, regardless of where it is.
    pub fn contains(&self, vault: &Path) -> Result<bool, TrustError> {
        Ok(self.origin(vault)?.is_some())
    }

    /// The paths of all vaults in the list.
    pub fn paths(&self) -> Result<Vec<PathBuf>, TrustError> {
        Ok(self.entries()?.into_iter().map(|entry| entry.path).collect())
    }

    /// Why the list has a vault; `None` if it is not in the list or does not exist.
    fn origin(&self, vault: &Path) -> Result<Option<TrustOrigin>, TrustError> {
        let found = match Entry::of(vault, TrustOrigin::Made) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(TrustError::Hidden { vault: vault.to_owned() });
            }
            Err(_) => return Ok(None),
        };
        let same = |entry: &Entry| (entry.file, &entry.path) == (found.file, &found.path);
        Ok(self.entries()?.into_iter().find(same).map(|entry| entry.origin))
    }

    /// Adds an existing vault, and drops those that no longer exist.
    pub fn add(&self, vault: &Path, origin: TrustOrigin) -> Result<(), TrustError> {
        self.append(&self.lock()?, vault, origin)
    }

    /// Creates and records a vault under the lock, so that no other process finds and refuses it in between.
    pub fn make<T, E: From<TrustError>>(
        &self,
        vault: &Path,
        origin: TrustOrigin,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let locked = self.lock()?;
        let made = make()?;
        self.append(&locked, vault, origin)?;
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

    fn append(&self, locked: &Locked, vault: &Path, origin: TrustOrigin) -> Result<(), TrustError> {
        let entry = Entry::of(vault, origin).map_err(self.failed("find the vault for"))?;
        let place = &locked.place;
        let mut entries = read(|| place.open(READ, 0)).map_err(self.failed("read"))?;
        entries.retain(|known| known.path != entry.path && known.is_there());
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
        list.add(&vault, TrustOrigin::Made).unwrap();
        list.add(&home.vault("other"), TrustOrigin::Chosen).unwrap();
        list.check(&vault).unwrap();
        std::fs::write(vault.with_extension("new"), "").unwrap();
        std::fs::rename(vault.with_extension("new"), &vault).unwrap();
        assert_eq!(list.check(&vault).unwrap_err().code(), "vault.untrusted", "another file at the path");
        list.add(&vault, TrustOrigin::Made).unwrap();
        // Even a file that gets the inode of its predecessor, as a checkout does on ext4.
        std::fs::remove_file(&vault).unwrap();
        std::fs::write(&vault, "").unwrap();
        if FileIdentity::of(&vault).unwrap().birth != 0 {
            assert_eq!(list.check(&vault).unwrap_err().code(), "vault.untrusted", "reused inode");
        }
        list.add(&vault, TrustOrigin::Made).unwrap();
        let moved = home.0.path().join("moved");
        std::fs::rename(directory_of(&vault), &moved).unwrap();
        let moved = moved.join(".avfs/vault.db");
        assert_eq!(list.check(&moved).unwrap_err().code(), "vault.untrusted", "the file at another path");
    }

    #[test]
    fn list_drops_vaults_that_no_longer_exist() {
        let (home, list) = Home::new();
        for n in 0..5 {
            let vault = home.vault(&format!("v{n}"));
            list.add(&vault, TrustOrigin::Made).unwrap();
            std::fs::remove_file(vault).unwrap();
        }
        list.add(&home.vault("last"), TrustOrigin::Made).unwrap();
        assert_eq!(list.entries().unwrap().len(), 1);
    }

    #[test]
    fn places_that_other_users_can_write_are_refused() {
        let (home, list) = Home::new();
        let vault = home.vault("project");
        list.add(&vault, TrustOrigin::Chosen).unwrap();
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

    #[test]
    fn written_lines_read_back_unchanged() {
        for path in ["/plain", "/with space", "/tab\tnew\nline", "/back\\slash'\"", "/\u{fc}ber"] {
            let entry = Entry {
                origin: TrustOrigin::Chosen,
                file: FileIdentity { device: 7, inode: u64::MAX, birth: 9 },
                path: PathBuf::from(path),
            };
            let line = entry.line();
            assert_eq!(Entry::parse(&line[..line.len() - 1]), Some(entry));
        }
        assert_eq!(Entry::parse(b"other 1 2 /x"), None);
        assert_eq!(Entry::parse(b"made 1 /x"), None);
    }
}
