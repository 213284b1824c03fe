//! avfs's own files in a directory, which are never part of a version: its directory, its vault, staged exports.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::stat::HostStat;
use avfs_types::path::TreePath;

use super::ignore::OWN_DIR;
use crate::backend::sqlite::{COMPANIONS, sibling};
use crate::key;
use crate::{Result, Vault};

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
pub(crate) const POLICIES: [&str; 2] = [".policy.toml", ".policy.rego"];

/// The paths of a vault and of all files that belong to it, existing or not.
pub fn files_of(vault: &Path) -> impl Iterator<Item = PathBuf> {
    [""].iter().chain(COMPANIONS).chain(&POLICIES).map(|suffix| sibling(vault, suffix))
}

/// The files of the known vaults, and their locations relative to a directory.
pub struct OwnFile(Vec<OwnPlace>);

struct OwnPlace {
    /// The name of the file, in lower case: a file system may not distinguish them.
    name: Vec<u8>,
    /// Path of the vault's directory; `None` if it is not beneath the directory.
    dir: Option<TreePath>,
    /// Device and inode: a mount or a link can lead to them under other names.
    dir_id: (u64, u64),
    file_id: (u64, u64),
}

impl OwnFile {
    pub(crate) fn nowhere() -> Self {
        Self(Vec::new())
    }

    /// The locations of a vault, and of the others that it knows, relative to `root`.
    #[must_use]
    pub fn of(vault: &Vault, root: &Path) -> Self {
        let root = id(root);
        let known = vault.path().into_iter().chain(vault.others().iter().map(PathBuf::as_path));
        Self(known.filter_map(|vault| OwnPlace::find(vault, root)).collect())
    }

    /// The same relative to the directory that the vault is bound to.
    pub fn of_bound(vault: &Vault) -> Result<Self> {
        let bound = match vault.read()?.meta(key::BOUND)? {
            Some(bound) if bound != key::BOUND_ABOVE => Some(PathBuf::from(OsStr::from_bytes(&bound))),
            Some(_) => {
                vault.path().and_then(|path| Some(path.canonicalize().ok()?.parent()?.parent()?.to_owned()))
            }
            None => None,
        };
        Ok(bound.map_or_else(Self::nowhere, |bound| Self::of(vault, &bound)))
    }

    /// True if the path is avfs's own directory, a file of a vault, or inside one.
    #[must_use]
    pub fn covers(&self, path: &TreePath) -> bool {
        let is_file = |own: &OwnPlace| {
            let below = path.below(own.dir.as_ref()?)?;
            below.components().next().map(|name| own.is_called(name))
        };
        is_in_own_dir(path) || self.0.iter().any(|own| is_file(own).unwrap_or(false))
    }

    /// True for a vault's file, its companions, its policy, and leftovers of an unfinished vault, in the directory
    /// `dir`: a vault never stores itself, and a run cannot change the policy that decides about it.
    #[must_use]
    pub fn is_called(&self, dir: &HostStat, name: &[u8]) -> bool {
        self.0.iter().any(|own| own.is_in(dir) && own.is_called(name))
    }

    /// True for the directory of a vault. Its mtime changes whenever the vault is used.
    #[must_use]
    pub fn is_in(&self, dir: &HostStat) -> bool {
        self.0.iter().any(|own| own.is_in(dir))
    }

    /// True for a vault's file under any name.
    pub(crate) fn is_file(&self, file: &HostStat) -> bool {
        self.0.iter().any(|own| own.file_id == (file.device, file.inode))
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

impl OwnPlace {
    fn find(vault: &Path, root: Option<(u64, u64)>) -> Option<Self> {
        let file = vault.canonicalize().ok()?;
        let home = file.parent()?;
        // By identity: `root` may be another mount of a directory above the vault.
        let beneath = |root: (u64, u64)| {
            let above = home.ancestors().find(|above| id(above) == Some(root))?;
            TreePath::parse(home.strip_prefix(above).ok()?.as_os_str().as_encoded_bytes()).ok()
        };
        Some(Self {
            name: file.file_name()?.as_encoded_bytes().to_ascii_lowercase(),
            dir: root.and_then(beneath),
            dir_id: id(home)?,
            file_id: id(&file)?,
        })
    }

    fn is_in(&self, dir: &HostStat) -> bool {
        self.dir_id == (dir.device, dir.inode)
    }

    fn is_called(&self, name: &[u8]) -> bool {
        let name = name.to_ascii_lowercase();
        let behind = behind_unfinished(&self.name, &name).or_else(|| name.strip_prefix(self.name.as_slice()));
        behind.is_some_and(|rest| {
            [""].iter().chain(COMPANIONS).chain(&POLICIES).any(|suffix| rest == suffix.as_bytes())
        })
    }
}
