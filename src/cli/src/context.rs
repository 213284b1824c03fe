//! The context of every command: the caller, and its output.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use avfs_engine::Surroundings;
use avfs_hostfs::machine;
use avfs_ops::{Client, Observer, OpError, WorkplaceError};
use avfs_vault::Vault;

use crate::progress::{Display, Signals};
use crate::ui::Ui;

pub struct CommandContext {
    pub ui: Ui,
    pub client: Client,
}

impl CommandContext {
    /// Reads the environment, once.
    pub fn gather(ui: Ui, vault_option: Option<OsString>) -> Result<Self, OpError> {
        let cwd = working_dir(vault_option.as_deref())?;
        let surroundings = Surroundings::of(cwd, machine::environment());
        let observer = Observer {
            progress: Arc::new(Display),
            cancellation: Arc::new(Signals),
            notices: Arc::new(ui.clone()),
        };
        let mut client = Client::new(surroundings, vault_option, observer);
        client.environment = std::env::vars_os().collect();
        Ok(Self { client, ui })
    }

    /// Opens the vault of --vault or of the working directory.
    pub fn open_vault(&self) -> Result<Vault, OpError> {
        Ok(self.client.open()?.vault)
    }
}

/// The working directory. If it was deleted and the vault has an absolute path, returns an empty path, so
/// that the vault stays usable and relative paths do not exist.
fn working_dir(vault_option: Option<&OsStr>) -> Result<PathBuf, WorkplaceError> {
    let vault = vault_option.map(OsStr::to_owned).or_else(|| std::env::var_os("AVFS_VAULT"));
    match std::env::current_dir() {
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound
                && vault.is_some_and(|vault| Path::new(&vault).is_absolute()) =>
        {
            Ok(PathBuf::new())
        }
        other => other.map_err(WorkplaceError::host("find the working directory", Path::new("."))),
    }
}

/// The running executable, even if another version has replaced its file.
pub const OWN: &str = "/proc/self/exe";

/// A command that runs another verb of this program.
pub fn own_command(verb: &str) -> Command {
    let mut command = Command::new(OWN);
    command.arg0("avfs").arg(verb);
    command
}
