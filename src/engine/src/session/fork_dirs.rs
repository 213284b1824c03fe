//! What a fork keeps between its runs in the cache, per vault and fork: a home, a /tmp, how far the bound directory was
//! compared, and which notes were given.
//!
//! They are separate from the directories of `cache.dirs`, inaccessible to other users, and removed with the fork.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::make;
use avfs_hostfs::remove::remove_tree;
use avfs_types::ids::{ForkName, to_hex};
use avfs_vault::import::LookPlace;

use super::noted::NOTED;

/// The name of the directory in the cache directory.
const PLACE: &str = "forks";
/// The name of the file with the place of the look at the bound directory, beside the kept directories.
const LOOKED: &str = "looked";
/// Bytes of the digest used in place of the fork name: fork names may be longer than file names.
const NAME_BYTES: usize = 16;

/// The kept directories of one vault.
pub struct ForkDirs {
    dir: PathBuf,
}

impl ForkDirs {
    #[must_use]
    pub fn new(cache_dir: &Path, vault_id: &str) -> Self {
        Self { dir: cache_dir.join(PLACE).join(vault_id) }
    }

    /// The directory that contains them all.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The kept homes and /tmp of all forks of all vaults.
    pub(crate) fn list(cache_dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = vec![cache_dir.join(PLACE)];
        for _level in ["vault", "fork", "home or tmp"] {
            let mut below = Vec::new();
            for dir in found {
                match std::fs::read_dir(dir) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    listing => {
                        for entry in listing? {
                            below.push(entry?.path());
                        }
                    }
                }
            }
            found = below;
        }
        found.retain(|dir| !dir.ends_with(LOOKED) && !dir.ends_with(NOTED));
        Ok(found)
    }

    pub(super) fn of(&self, fork: &ForkName) -> PathBuf {
        self.dir.join(name_of(fork))
    }

    /// The home of a fork; created if it does not exist.
    pub fn home(&self, fork: &ForkName) -> io::Result<PathBuf> {
        self.make(self.of(fork).join("home"), 0o700)
    }

    /// The /tmp of a fork; created if it does not exist.
    pub fn tmp(&self, fork: &ForkName) -> io::Result<PathBuf> {
        self.make(self.of(fork).join("tmp"), 0o1777)
    }

    fn make(&self, dir: PathBuf, mode: u32) -> io::Result<PathBuf> {
        make::private_dirs(&dir)?;
        make::close_to_others(&self.dir)?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode))?;
        Ok(dir)
    }

    /// The place at which the next look at the bound directory continues.
    pub(crate) fn looked(&self, fork: &ForkName) -> Option<LookPlace> {
        LookPlace::from_bytes(&std::fs::read(self.of(fork).join(LOOKED)).ok()?)
    }

    /// Keeps the place at which the next look at the bound directory continues; `None` for its root.
    pub(crate) fn keep_looked(&self, fork: &ForkName, place: Option<&LookPlace>) -> io::Result<()> {
        let dir = self.of(fork);
        let Some(place) = place else {
            return std::fs::remove_file(dir.join(LOOKED));
        };
        self.make_private(fork)?;
        std::fs::write(dir.join(LOOKED), place.to_bytes())
    }

    /// Creates the directory of a fork.
    pub(super) fn make_private(&self, fork: &ForkName) -> io::Result<()> {
        make::private_dirs(&self.of(fork))?;
        make::close_to_others(&self.dir)
    }

    /// Removes the directories of a fork, if there are any.
    pub fn remove(&self, fork: &ForkName) -> io::Result<()> {
        match remove_tree(&self.of(fork)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Removes the directories of forks that no longer exist, and returns their number.
    pub fn sweep<'f>(&self, forks: impl IntoIterator<Item = &'f ForkName>) -> io::Result<u64> {
        let listing = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other?,
        };
        let kept: HashSet<String> = forks.into_iter().map(name_of).collect();
        let mut removed = 0;
        for entry in listing {
            let entry = entry?;
            if entry.file_name().to_str().is_none_or(|name| !kept.contains(name)) {
                remove_tree(&entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn name_of(fork: &ForkName) -> String {
    to_hex(&blake3::hash(fork.as_str().as_bytes()).as_bytes()[..NAME_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_directories_are_removed_with_their_fork() {
        let cache = tempfile::tempdir().unwrap();
        let dirs = ForkDirs::new(cache.path(), "0123456789");
        let fork = |name: &str| ForkName::parse(name).unwrap();
        let (one, other) = (fork("one"), fork("a/b"));
        for fork in [&one, &other] {
            std::fs::write(dirs.home(fork).unwrap().join(".profile"), "x").unwrap();
            dirs.tmp(fork).unwrap();
        }
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&dirs.home(&one).unwrap()), mode(&dirs.tmp(&one).unwrap())), (0o700, 0o1777));
        assert_eq!(mode(&cache.path().join(PLACE).join("0123456789")), 0o700);
        dirs.remove(&one).unwrap();
        dirs.remove(&one).unwrap();
        assert!(!dirs.of(&one).exists() && dirs.of(&other).exists());
        assert_eq!(dirs.sweep([&one, &other]).unwrap(), 0);
        assert_eq!(dirs.sweep([&one]).unwrap(), 1);
        assert_eq!(dirs.sweep([]).unwrap(), 0);
    }
}
