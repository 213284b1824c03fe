//! Prepare: the scratch of one attempt, locked, with everything that another process needs to finish the run.

use std::path::Path;

use avfs_hostfs::lock::FileLock;
use avfs_policy::OnViolation;
use avfs_request::{BaseChoice, SecretsInFiles};
use avfs_types::ids::to_hex;
use avfs_types::path::TreePath;
use avfs_vault::{Vault, VaultError};

use super::admit::{Admitted, wants_version};
use super::effective::Effective;
use super::plan::hidden;
use super::record::Run;
use super::site::Site;
use super::state::Failure;
use crate::cache_care::{DIRS_RUN_BYTES, lease_dirs};
use crate::checkpoint::CheckpointService;
use crate::error::ExecuteError;
use crate::journal;
use crate::mount_session::{MountSession, ScratchDir};
use crate::session_record::SessionRecord;

/// What one attempt holds until its end.
pub(crate) struct Prepared {
    pub session: MountSession,
    pub identity: VaultIdentity,
    /// Paths in the workspace that are not part of it.
    pub hidden: Vec<TreePath>,
    _leases: Vec<FileLock>,
}

/// Creates the scratch. A command whose run could not be kept is not started.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn prepare(site: &Site<'_>, effective: &Effective<'_>) -> Result<Prepared, Failure> {
    let run = &effective.run;
    let prepare = || -> Result<Prepared, ExecuteError> {
        let store = site.vault.backend();
        store.check_writable().and_then(|()| store.check_room()).map_err(VaultError::from)?;
        let identity = VaultIdentity::of(site.vault);
        let leases = lease_dirs(&run.request.extras)?;
        if !leases.is_empty() {
            site.layers.account().add(DIRS_RUN_BYTES);
        }
        let session = ScratchDir::new(&site.cache_dir).prepare(&run.id)?;
        let hidden = hidden(&run.request, &effective.admitted.places);
        Ok(Prepared { session, identity, hidden, _leases: leases })
    };
    let prepared = prepare().map_err(Failure::at::<Admitted>)?;
    match session_record(site, run, &prepared.hidden).write(&prepared.session) {
        Ok(()) => Ok(prepared),
        Err(error) => Err(prepared.discard(Failure::at::<Admitted>(error))),
    }
}

impl Prepared {
    /// Removes the scratch of a command that was not executed. An error in that is the one that matters.
    pub fn discard(self, failure: Failure) -> Failure {
        match self.session.discard() {
            Ok(()) => failure,
            Err(error) => Failure { error: error.into(), ..failure },
        }
    }
}

/// The record with which another process can finish the run.
fn session_record(site: &Site<'_>, run: &Run, hidden: &[TreePath]) -> SessionRecord {
    let request = &run.request;
    let checkpoints = CheckpointService { mode: request.checkpoint, keep: site.checkpoints_keep };
    let labels = checkpoints.labels(run.decision.action, &run.id);
    SessionRecord {
        run: run.id.to_string(),
        vault_id: site.vault_id.clone(),
        vault: site.vault.path().map(|path| path.display().to_string()),
        boot_id: site.boot_id.clone(),
        fork: run.fork.to_string(),
        ephemeral: request.fork.is_ephemeral(),
        touched: request.base == BaseChoice::Touched,
        wanted: wants_version(request),
        started_at: run.started_at.0,
        message: run.message.clone(),
        told_decision: run.decision.audit_text(),
        looks_only: run.decision.looks_only(),
        drops_violations: run.decision.on_violation == OnViolation::Discard,
        expires_seconds: site.expires_seconds,
        exclude: site.exclude.clone(),
        hidden: hidden.iter().map(|path| to_hex(path.as_bytes())).collect(),
        secrets: match request.secrets_in_files {
            SecretsInFiles::Refused => request.secrets().searched().map(str::to_owned).collect(),
            SecretsInFiles::Allowed => Vec::new(),
        },
        item: request.item.as_ref().map(|item| (item.batch.to_string(), item.number)),
        checkpoints: (labels.before.map(|name| name.to_string()), labels.after.map(|name| name.to_string())),
        checkpoints_keep: site.checkpoints_keep.to_string(),
        clock_fixed: request.clock.map(|clock| clock.to_string()),
        request: journal::request(request, site.vault.path()),
        decision: journal::decision(&run.decision, run.approval.as_ref()),
    }
}

/// The identity of the file that a vault was opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VaultIdentity(Option<(u64, u64)>);

impl VaultIdentity {
    pub fn of(vault: &Vault) -> Self {
        Self(vault.path().and_then(file_at))
    }

    /// Fails unless the path still refers to that file.
    pub fn check(self, vault: &Vault) -> avfs_vault::Result<()> {
        match vault.path() {
            Some(path) if file_at(path) != self.0 => Err(VaultError::Moved { path: path.to_owned() }),
            Some(_) | None => Ok(()),
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}
