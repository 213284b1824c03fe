//! Directories that a run provides to its command besides the workspace: caches, and the home that a fork keeps.

use std::path::{Path, PathBuf};

use crate::choices::HomeMode;
use crate::request::ExecutionRequest;
use crate::{Extra, ForkChoice};

/// A path from the settings: relative to the home directory (`~/`), absolute, or relative to the workspace.
#[must_use]
pub fn place(text: &str, home: Option<&Path>, workspace: &Path) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(below) => Some(home?.join(below)),
        None => Some(workspace.join(text)),
    }
}

impl ExecutionRequest {
    /// The cache directories of the settings and of the presets: as they are written, and where they are mounted.
    pub fn caches(&self, home: Option<&Path>, workspace: &Path) -> Vec<(&str, PathBuf)> {
        let of_presets = self.presets.iter().flat_map(|preset| preset.data().caches).copied();
        let mut dirs: Vec<&str> = Vec::new();
        for dir in self.cache_dirs.iter().map(String::as_str).chain(of_presets) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        dirs.into_iter().filter_map(|dir| Some((dir, place(dir, home, workspace)?))).collect()
    }

    /// The home directory, if the fork keeps it. A home inside the workspace is part of the workspace.
    #[must_use]
    pub fn kept_home<'h>(&self, home: Option<&'h Path>, workspace: &Path) -> Option<&'h Path> {
        let is_kept = self.home == HomeMode::Persistent && matches!(self.fork, ForkChoice::Persistent { .. });
        let home = home.filter(|path| is_kept && !path.starts_with(workspace));
        home.filter(|path| path.is_absolute() && *path != Path::new("/"))
    }

    /// The caches, the kept home and the directories of `--tmpfs`.
    #[must_use]
    pub fn provided(&self, home: Option<&Path>, workspace: &Path) -> Vec<PathBuf> {
        let caches = self.caches(home, workspace).into_iter().map(|(_, path)| path);
        let empty = self.extras.iter().filter(|extra| matches!(extra, Extra::Tmpfs(_)));
        caches
            .chain(self.kept_home(home, workspace).map(Path::to_owned))
            .chain(empty.map(|extra| extra.path().to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_home_or_the_workspace() {
        let (home, work) = (Path::new("/home/u"), Path::new("/srv/p"));
        assert_eq!(place("~/.cargo", Some(home), work), Some("/home/u/.cargo".into()));
        assert_eq!(place("target", Some(home), work), Some("/srv/p/target".into()));
        assert_eq!(place("/opt/x", Some(home), work), Some("/opt/x".into()));
        assert_eq!(place("~/.cargo", None, work), None);
    }
}
