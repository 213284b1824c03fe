//! What is avfs's own in a directory, and never part of a version: its directory, its vault, what an export has staged.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use avfs_hostfs::stat::HostStat;
use avfs_types::path::TreePath;

use super::ignore::OWN_DIR;
use crate::Vault;
use crate::backend::sqlite::COMPANIONS;

/// An export's staging directory is called this and then a suffix by chance.
pub(crate) const STAGING_PREFIX: &str = ".avfs-export-";
const SUFFIX_BYTES: usize = 16;

/// A vault that is being made is called like the vault, then this, and then a suffix by chance.
pub(crate) const UNFINISHED_INFIX: &str = ".new-";

/// Whether a directory of this name is one that an export has made.
#[must_use]
pub(crate) fn is_staging_name(name: &[u8]) -> bool {
    name.strip_prefix(STAGING_PREFIX.as_bytes()).is_some_and(is_suffix)
}

fn is_suffix(suffix: &[u8]) -> bool {
    suffix.len() == SUFFIX_BYTES && suffix.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
}

/// Of a name that begins like that of an unfinished vault `vault`: what follows.
fn behind_unfinished<'n>(vault: &[u8], name: &'n [u8]) -> Option<&'n [u8]> {
    let rest = name.strip_prefix(vault)?.strip_prefix(UNFINISHED_INFIX.as_bytes())?;
    let (suffix, behind) = rest.split_at_checked(SUFFIX_BYTES)?;
    is_suffix(suffix).then_some(behind)
}

/// Whether a file of this name is a vault `vault` that was not finished.
#[must_use]
pub(crate) fn is_unfinished_name(vault: &[u8], name: &[u8]) -> bool {
    behind_unfinished(vault, name) == Some(b"")
}

/// Whether a path names something in avfs's own directory, or that itself.
#[must_use]
pub fn is_in_own_dir(path: &TreePath) -> bool {
    path.components().any(|name| name == OWN_DIR)
}

/// What a policy is called that lies beside a vault of any name.
const POLICIES: [&str; 2] = [".policy.toml", ".policy.rego"];

/// A vault's file, and where it lies beneath a directory, if it does.
pub(crate) struct OwnFile(Option<OwnPlace>);

struct OwnPlace {
    name: Vec<u8>,
    /// By its path.
    dir: Option<TreePath>,
    /// As the kernel knows them: a mount or a link leads to them by other names.
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

    /// True for the vault's file, what SQLite and its locks put beside it, its policy, and what is left of one that was
    /// never finished: a vault never keeps
    /// itself, and no run changes what it is judged by.
    pub(crate) fn is(&self, dir: &TreePath, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|own| own.dir.as_ref() == Some(dir) && own.is_called(name))
    }

    /// As [`OwnFile::is`], of a name in a directory of which [`OwnFile::is_in`] is told.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|own| own.is_called(name))
    }

    /// True for the directory that it lies in, the time of which it changes whenever it is used.
    pub(crate) fn is_in(&self, dir: &HostStat) -> bool {
        self.0.as_ref().is_some_and(|own| own.dir_id == (dir.device, dir.inode))
    }

    /// True for the vault's file under whatever name.
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
