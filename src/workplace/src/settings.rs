//! The view entries that come from the settings: extra paths to show, and directories that persist between runs.

use std::path::Path;

use avfs_engine::{Surroundings, UNBOUND_PATH};
use avfs_hostfs::make;
use avfs_request::config::Config;
use avfs_request::provided::place;
use avfs_request::{ExecutionRequest, Extra, HostPath};
use avfs_types::ids::to_hex;

use crate::run_error::RunError;

/// Cache directories belong to one vault: two projects with a `target` have separate ones.
pub(crate) fn extras(
    config: &Config,
    request: &ExecutionRequest,
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
    for (dir, path) in request.caches(home, workspace) {
        let name = to_hex(&blake3::hash(dir.as_bytes()).as_bytes()[..8]);
        let source = cache_dir.join("dirs").join(vault_id).join(name);
        make::private_dirs(&source)
            .and_then(|()| make::close_to_others(&cache_dir.join("dirs")))
            .map_err(|source| RunError::Host { operation: "create a cache directory", source })?;
        extras.push(Extra::Cache { source, path });
    }
    Ok(extras)
}
