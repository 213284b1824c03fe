//! The directory that a vault in the user's data directory belongs to, in a file beside the vault: its identity and its
//! path. With it the vault is found again after the directory was moved.

use std::io;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::identity::FileIdentity;
use avfs_hostfs::{owner, random};
use avfs_types::VAULT_FILE;

use super::trust_entry::unescape;

const FILE: &str = "directory";
/// More than the longest path, escaped.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeptRecord {
    identity: FileIdentity,
    pub(super) path: PathBuf,
}

impl KeptRecord {
    /// The record for a directory, given by its real path.
    pub(super) fn of(dir: &Path) -> io::Result<Self> {
        Ok(Self { identity: FileIdentity::of(dir)?, path: dir.to_owned() })
    }

    /// The record in the directory of a vault; `None` if it does not exist or cannot be understood.
    pub(super) fn read(home: &Path) -> Option<Self> {
        let mut text = Vec::new();
        std::fs::File::open(home.join(FILE)).ok()?.take(BYTES_MAX).read_to_end(&mut text).ok()?;
        let line = text.strip_suffix(b"\n")?;
        let start = line.windows(2).position(|pair| pair == b" /")?;
        let mut words = std::str::from_utf8(&line[..start]).ok()?.split(' ');
        let identity = FileIdentity::parse(&mut words)?;
        Some(Self { identity, path: PathBuf::from(unescape(&line[start + 1..])?) })
    }

    /// Writes the record beside the vault in `home`, complete or not at all.
    pub(super) fn write(&self, home: &Path) -> io::Result<()> {
        let mut text = format!("{} ", self.identity).into_bytes();
        text.extend(self.path.as_os_str().as_bytes().escape_ascii());
        text.push(b'\n');
        let staged = home.join(format!("{FILE}.new-{}", random::suffix()?));
        let vault = home.join(VAULT_FILE).metadata()?;
        let written = owner::create_like(&staged, &vault, 0o666)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| std::fs::rename(&staged, home.join(FILE)));
        if written.is_err() {
            let _ = std::fs::remove_file(&staged);
        }
        written
    }

    /// Whether a directory, given by its real path, is the recorded one after it was moved: nothing is at the recorded
    /// path any more.
    pub(super) fn has_moved_to(&self, dir: &Path) -> bool {
        let is_gone = self
            .path
            .symlink_metadata()
            .is_err_and(|error| [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()));
        // Without a birth time, another directory can have the same inode.
        let is_same = |found: FileIdentity| found.birth != 0 && self.identity.is_of(&found);
        self.path != dir && is_gone && FileIdentity::of(dir).is_ok_and(is_same)
    }
}

/// The directory among those of kept vaults whose vault belongs to `dir`, which was moved.
pub(super) fn find_moved(kept: &Path, dir: &Path) -> Option<PathBuf> {
    let mut homes: Vec<PathBuf> = std::fs::read_dir(kept).ok()?.flatten().map(|entry| entry.path()).collect();
    homes.sort();
    homes.into_iter().find(|home| {
        let is_of_dir = |record: KeptRecord| record.has_moved_to(dir);
        KeptRecord::read(home).is_some_and(is_of_dir) && home.join(VAULT_FILE).is_file()
    })
}
