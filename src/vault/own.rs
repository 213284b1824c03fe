//! What is avfs's own in a directory, and never part of a version: its directory, its vault, what an export has staged.

use std::path::Path;

use crate::backend::sqlite::COMPANIONS;

use super::ignore::OWN_DIR;
use super::path::TreePath;
use super::store::Vault;

/// An export's staging directory is called this and then a suffix by chance.
pub(super) const STAGING_PREFIX: &str = ".avfs-export-";
const STAGING_SUFFIX_BYTES: usize = 16;

/// Whether a directory of this name is one that an export has made.
#[must_use]
pub(super) fn is_staging_name(name: &[u8]) -> bool {
    name.strip_prefix(STAGING_PREFIX.as_bytes()).is_some_and(|suffix| {
        suffix.len() == STAGING_SUFFIX_BYTES
            && suffix.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
    })
}

/// Whether a path names something in avfs's own directory, or that itself.
#[must_use]
pub(crate) fn is_in_own_dir(path: &TreePath) -> bool {
    path.components().any(|name| name == OWN_DIR)
}

/// What a policy is called that lies beside a vault of any name.
const POLICIES: [&str; 2] = [".policy.toml", ".policy.rego"];

/// Where a vault's file lies in a directory, if it does.
pub(super) struct OwnFile(Option<(TreePath, Vec<u8>)>);

impl OwnFile {
    pub fn nowhere() -> Self {
        Self(None)
    }

    pub fn of(vault: &Vault, root: &Path) -> Self {
        let place = || {
            let file = vault.path()?.canonicalize().ok()?;
            let beneath = file.strip_prefix(root.canonicalize().ok()?).ok()?;
            let path = TreePath::parse(beneath.as_os_str().as_encoded_bytes()).ok()?;
            path.split().map(|(dir, name)| (dir, name.to_vec()))
        };
        Self(place())
    }

    /// True for the vault's file, what SQLite and its locks put beside it, and its policy: a vault never keeps
    /// itself, and no run changes what it is judged by.
    pub fn is(&self, dir: &TreePath, name: &[u8]) -> bool {
        let Some((own_dir, own)) = &self.0 else { return false };
        own_dir == dir
            && name.strip_prefix(own.as_slice()).is_some_and(|rest| {
                rest.is_empty() || COMPANIONS.iter().chain(&POLICIES).any(|suffix| rest == suffix.as_bytes())
            })
    }

    /// True for the directory that it lies in, the time of which it changes whenever it is used.
    pub fn is_in(&self, dir: &TreePath) -> bool {
        self.0.as_ref().is_some_and(|(own_dir, _)| own_dir == dir)
    }
}
