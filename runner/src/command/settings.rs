//! What the settings add to the view: paths that are shown, and directories that persist between runs.

use std::path::{Path, PathBuf};

use avfs_engine::{Surroundings, UNBOUND_PATH};
use avfs_hostfs::make;
use avfs_request::config::Config;
use avfs_request::{Extra, HostPath, Preset};
use avfs_types::ids::to_hex;

use crate::command::error::RunError;

/// A path as the settings write it: beneath the home, absolute, or beneath the workspace.
fn place(text: &str, home: Option<&Path>, workspace: &Path) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(below) => Some(home?.join(below)),
        None => Some(workspace.join(text)),
    }
}

/// Directories of the cache are the vault's own: two projects with a `target` have two.
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
        // What is listed for other machines too may be missing on this one.
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
            .map_err(|source| RunError::Host { operation: "make a cache directory", source })?;
        extras.push(Extra::Cache { source, path });
    }
    Ok(extras)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_home_or_in_the_workspace() {
        let (home, work) = (Path::new("/home/u"), Path::new("/srv/p"));
        assert_eq!(place("~/.cargo", Some(home), work), Some("/home/u/.cargo".into()));
        assert_eq!(place("target", Some(home), work), Some("/srv/p/target".into()));
        assert_eq!(place("/opt/x", Some(home), work), Some("/opt/x".into()));
        assert_eq!(place("~/.cargo", None, work), None);
    }
}
