//! Records which vaults have data in the cache, and their paths: the data of a vault is removed once its file
//! is gone.
//!
//! ```text
//! CACHE/vault/ID    the inode of the vault file, a newline, its path
//! ```
//!
//! Written when a vault first puts data there. The next run of a vault that was moved updates the record; until
//! then a sweep may remove its part of the cache, which only costs time.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::make;

/// The vaults that have data in a cache.
#[derive(Clone, Debug)]
pub struct CacheOwners {
    dir: PathBuf,
}

impl CacheOwners {
    #[must_use]
    pub fn new(cache_dir: &Path) -> Self {
        Self { dir: cache_dir.join("vault") }
    }

    /// Records the path of a vault, unless there is a record. Not an error if that fails: without a record, the
    /// cache is only freed later.
    pub fn register(&self, id: &str, vault: Option<&Path>) {
        if !self.dir.join(id).exists() {
            self.update(id, vault);
        }
    }

    /// Records the current path of a vault.
    pub fn update(&self, id: &str, vault: Option<&Path>) {
        let Some(vault) = vault else { return };
        let written = std::fs::metadata(vault).and_then(|meta| {
            let mut text = format!("{}\n", meta.ino()).into_bytes();
            text.extend(std::path::absolute(vault)?.into_os_string().into_vec());
            make::private_dirs(&self.dir)?;
            std::fs::write(self.dir.join(id), text)
        });
        if let Err(error) = written {
            tracing::debug!(%error, "cannot record the vault as an owner of the cache");
        }
    }

    pub(super) fn forget(&self, id: &str) -> std::io::Result<()> {
        match std::fs::remove_file(self.dir.join(id)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The ids of vaults whose file was removed or replaced.
    pub(super) fn gone(&self) -> std::io::Result<Vec<String>> {
        let listing = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let ids = listing.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(ids.filter(|id| self.is_gone(id)).collect())
    }

    /// False for an unknown vault.
    fn is_gone(&self, id: &str) -> bool {
        let Ok(text) = std::fs::read(self.dir.join(id)) else { return false };
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else { return false };
        let inode = std::str::from_utf8(&text[..end]).ok().and_then(|text| text.parse::<u64>().ok());
        match std::fs::metadata(OsStr::from_bytes(&text[end + 1..])) {
            Ok(meta) => inode.is_some_and(|inode| inode != meta.ino()),
            // A path that cannot be read may exist.
            Err(error) => [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vault_is_gone_when_its_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let owners = CacheOwners::new(dir.path());
        let vault = dir.path().join("vault\nwith a newline.db");
        std::fs::write(&vault, "x").unwrap();
        owners.register("0a", Some(&vault));
        owners.register("0b", None);
        assert_eq!(owners.gone().unwrap(), [] as [String; 0]);
        // Replace it with another file; the old inode stays in use.
        std::fs::rename(&vault, dir.path().join("moved")).unwrap();
        assert_eq!(owners.gone().unwrap(), ["0a"]);
        std::fs::write(&vault, "y").unwrap();
        assert_eq!(owners.gone().unwrap(), ["0a"]);
        owners.update("0a", Some(&vault));
        assert_eq!(owners.gone().unwrap(), [] as [String; 0]);
    }
}
