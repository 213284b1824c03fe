//! avfs's own files in a directory, which are never part of a version: its directory, its vault, staged exports.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use avfs_hostfs::stat::HostStat;
use avfs_types::path::TreePath;

use super::ignore::OWN_DIR;
use crate::Vault;
use crate::backend::sqlite::COMPANIONS;

/// Prefix of the name of a staging directory; a random suffix follows.
pub(crate) const STAGING_PREFIX: &str = ".avfs-export-";
const SUFFIX_BYTES: usize = 16;

/// Follows the vault's name in the name of an unfinished vault, before a random suffix.
pub(crate) const UNFINISHED_INFIX: &str = ".new-";

/// True if this is the name of an export's staging directory.
#[must_use]
pub(crate) fn is_staging_name(name: &[u8]) -> bool {
    name.strip_prefix(STAGING_PREFIX.as_bytes()).is_some_and(is_suffix)
}

fn is_suffix(suffix: &[u8]) -> bool {
    suffix.len() == SUFFIX_BYTES && suffix.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
}

/// The rest of a name that begins with the name of an unfinished vault `vault`.
fn behind_unfinished<'n>(vault: &[u8], name: &'n [u8]) -> Option<&'n [u8]> {
    let rest = name.strip_prefix(vault)?.strip_prefix(UNFINISHED_INFIX.as_bytes())?;
    let (suffix, behind) = rest.split_at_checked(SUFFIX_BYTES)?;
    is_suffix(suffix).then_some(behind)
}

/// True if this is the name of an unfinished vault `vault`.
#[must_use]
pub(crate) fn is_unfinished_name(vault: &[u8], name: &[u8]) -> bool {
    behind_unfinished(vault, name) == Some(b"")
}

/// True if the path is avfs's own directory or inside it.
#[must_use]
pub fn is_in_own_dir(path: &TreePath) -> bool {
    path.components().any(|name| name == OWN_DIR)
}

/// Suffixes of a policy file beside a vault; the vault's name precedes them.
const POLICIES: [&str; 2] = [".policy.toml", ".policy.rego"];

/// A vault's file and its location relative to a directory.
pub(crate) struct OwnFile(Option<OwnPlace>);

struct OwnPlace {
    name: Vec<u8>,
    /// Path of the vault's directory; `None` if it is not beneath the directory.
    dir: Option<TreePath>,
    /// Device and inode: a mount or a link can lead to them under other names.
    dir_id: (u64, u64),
    file_id: (u64, u64),
}

impl OwnFile {
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    pub(crate) fn of(vault: &Vault, root: &Path) -> Self {
        let place = || {
            let file = vault.path()?.canonicalize().ok()?;
            let id = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
            let beneath = |root: &Path| {
                let path = file.parent()?.strip_prefix(root.canonicalize().ok()?).ok()?;
                TreePath::parse(path.as_os_str().as_encoded_bytes()).ok()
            };
            Some(OwnPlace {
                name: file.file_name()?.as_encoded_bytes().to_vec(),
                dir: beneath(root),
                dir_id: id(file.parent()?)?,
                file_id: id(&file)?,
            })
        };
        Self(place())
    }

    /// True for the vault's file, its companions from SQLite and locks, its policy, and leftovers of an unfinished
    /// vault: a vault never stores itself, and a run cannot change the policy that decides about it.
    pub(crate) fn is(&self, dir: &TreePath, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|own| own.dir.as_ref() == Some(dir) && own.is_called(name))
    }

    /// Like [`OwnFile::is`], for a name in a directory for which [`OwnFile::is_in`] is true.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|own| own.is_called(name))
    }

    /// True for the directory of the vault. Its mtime changes whenever the vault is used.
    pub(crate) fn is_in(&self, dir: &HostStat) -> bool {
        self.0.as_ref().is_some_and(|own| own.dir_id == (dir.device, dir.inode))
    }

    /// True for the vault's file under any name.
    pub(crate) fn is_file(&self, file: &HostStat) -> bool {
        self.0.as_ref().is_some_and(|own| own.file_id == (file.device, file.inode))
    }
}

impl OwnPlace {
    fn is_called(&self, name: &[u8]) -> bool {
        let behind = behind_unfinished(&self.name, name).or_else(|| name.strip_prefix(self.name.as_slice()));
        behind.is_some_and(|rest| {
            rest.is_empty() || COMPANIONS.iter().chain(&POLICIES).any(|suffix| rest == suffix.as_bytes())
        })
    }
}
