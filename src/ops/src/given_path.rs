//! Paths of a version as they are typed: relative to its root, or absolute paths in the bound directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs_engine::{UNBOUND_PATH, bound_dir};
use avfs_types::path::{PathError, TreePath};
use avfs_vault::Vault;
use avfs_vault::ops::Target;
use avfs_workplace::OpError;

use crate::error::VerbError;

/// A path as typed. Only the vault knows the directory that an absolute path is compared with.
#[derive(Clone, Debug)]
pub struct GivenPath {
    typed: PathBuf,
    /// Valid if the path is relative.
    path: TreePath,
}

impl GivenPath {
    /// Parses a path inside a version, which may contain any bytes.
    pub fn parse(text: OsString) -> Result<Self, PathError> {
        let path = TreePath::parse(text.as_bytes())?;
        Ok(Self { typed: text.into(), path })
    }

    /// Like [`Self::parse`], for the path of a file.
    pub fn parse_file(text: OsString) -> Result<Self, PathError> {
        let path = TreePath::parse_file(text.as_bytes())?;
        Ok(Self { typed: text.into(), path })
    }

    /// The path in a version of this vault.
    pub fn within(&self, vault: &Vault) -> Result<TreePath, OpError> {
        if !self.typed.is_absolute() {
            return Ok(self.path.clone());
        }
        // The path at which the command of a run sees the workspace of a vault without a directory.
        let dir = bound_dir(vault)?.unwrap_or_else(|| UNBOUND_PATH.into());
        match below(&self.typed, &dir) {
            Some(path) => Ok(TreePath::parse(path.as_os_str().as_bytes())?),
            None => Err(VerbError::OutsidePath { path: self.typed.clone(), dir }.into()),
        }
    }

    /// The same, for the destination of a copy or move: a trailing slash says that it is a directory.
    pub fn target(&self, vault: &Vault) -> Result<Target, OpError> {
        let mut text = self.within(vault)?.as_bytes().to_vec();
        if self.typed.as_os_str().as_bytes().ends_with(b"/") {
            text.push(b'/');
        }
        Ok(Target::parse(&text)?)
    }
}

/// The paths in a version of this vault.
pub fn within(paths: &[GivenPath], vault: &Vault) -> Result<Vec<TreePath>, OpError> {
    paths.iter().map(|path| path.within(vault)).collect()
}

/// The part of an absolute path after the directory. The directory may be reached through symlinks; the entry itself
/// need not exist, because an older version may have it.
fn below<'p>(path: &'p Path, dir: &Path) -> Option<&'p Path> {
    if let Ok(rest) = path.strip_prefix(dir) {
        return Some(rest);
    }
    let real = dir.canonicalize().ok()?;
    let above: Vec<&Path> = path.ancestors().collect();
    let found = above.iter().rev().find(|above| above.canonicalize().is_ok_and(|above| above == real));
    path.strip_prefix(found?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_path_is_taken_relative_to_the_directory() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().canonicalize().unwrap().join("project");
        let link = dir.with_file_name("link");
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        for (path, rest) in [
            (dir.join("src/main.rs"), Some("src/main.rs")),
            (dir.join("gone/gone"), Some("gone/gone")),
            (link.join("src"), Some("src")),
            (dir.clone(), Some("")),
            (dir.with_file_name("project2"), None),
            (dir.with_file_name(""), None),
            ("/".into(), None),
        ] {
            assert_eq!(below(&path, &dir), rest.map(Path::new), "{}", path.display());
        }
    }
}
