//! The view entries that come from the settings: extra paths to show, and directories that persist between runs.

use std::path::{Path, PathBuf};

use avfs_engine::{Surroundings, UNBOUND_PATH};
use avfs_hostfs::make;
use avfs_request::config::Config;
use avfs_request::{Extra, HostPath, Preset};
use avfs_types::ids::to_hex;

use crate::command::error::RunError;

/// A path from the settings: relative to the home directory (`~/`), absolute, or relative to the workspace.
fn place(text: &str, home: Option<&Path>, workspace: &Path) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(below) => Some(home?.join(below)),
        None => Some(workspace.join(text)),
    }
}

/// Cache directories belong to one vault: two projects with a `target` have separate ones.
pub fn extras(
    config: &Config,
    presets: &[Preset],
    vault_id: &str,
    workspace: Option<&Path>,
    around: &Surroundings,
    cache_dir: &Path,
) -> Result<Vec<Extra>, RunError> {
    let workspace = workspace.unwrap_or(Path::new(UNBOUND_PATH));
    let home = around.home.as_deref();
    let mut extras = Vec::new();
    for setting in &config.run_ro {
        let path = place(&setting.value, home, workspace);
        // The settings may be shared between machines, so a path may be missing on this one.
        extras.extend(path.and_then(|path| HostPath::resolve(path).ok()).map(Extra::ReadOnly));
    }
    let of_presets = presets.iter().flat_map(|preset| preset.data().caches).copied();
    let mut dirs: Vec<&str> = Vec::new();
    for dir in config.cache_dirs.iter().map(|setting| setting.value.as_str()).chain(of_presets) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    for dir in dirs {
        let Some(path) = place(dir, home, workspace) else { continue };
        let name = to_hex(&blake3::hash(dir.as_bytes()).as_bytes()[..8]);
        let source = cache_dir.join("dirs").join(vault_id).join(name);
        make::private_dirs(&source)
            .and_then(|()| make::close_to_others(&cache_dir.join("dirs")))
            .map_err(|source| RunError::Host { operation: "create a cache directory", source })?;
        extras.push(Extra::Cache { source, path });
    }
    Ok(extras)
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
