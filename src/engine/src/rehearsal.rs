//! Determines what a request would use, without creating anything.

use std::path::{Path, PathBuf};

use avfs_policy::{ExecutionDecision, Policy};
use avfs_request::reproducible::clock_held;
use avfs_request::{BackendChoice, Confined, ExecutionRequest};

use crate::locate::Surroundings;
use crate::permission::decide;
use crate::run::{Backend, BaseUsed, Enforcement};
use crate::run_base::{Files, RunBase, lower_dir};
use crate::scratch_size::ScratchSpace;
use crate::workspace_root::{Places, WorkspaceRootError, check_request};

/// The places and settings of a run that was not executed.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The vault; it may not exist yet.
    pub vault: PathBuf,
    pub workspace: PathBuf,
    pub cwd: PathBuf,
    pub decision: ExecutionDecision,
    pub enforcement: Enforcement,
}

impl Rehearsal {
    pub fn of(
        request: &ExecutionRequest,
        policy: &Policy,
        vault: &Path,
        bound: Option<PathBuf>,
        around: &Surroundings,
        cache_dir: &Path,
    ) -> Result<Self, WorkspaceRootError> {
        check_request(request, bound.as_deref())?;
        let places = Places::find(request, bound, &around.cwd)?;
        let decision = decide(policy, request, &places, around.home.as_deref());
        // Only an import knows whether files cannot be mapped.
        let lower = lower_dir(request, &places, cache_dir, Files::Writable)?;
        let base = RunBase::of_dir(request, lower).map_or(BaseUsed::Reused, |base| base.used());
        let backend = match request.backend {
            BackendChoice::Copy => Backend::Copy,
            BackendChoice::Auto | BackendChoice::Overlay => Backend::Overlay,
        };
        let scratch = ScratchSpace::look(cache_dir, 0).choose(request.scratch, &request.limits);
        let enforcement = Enforcement {
            backend,
            confined: Confined {
                seccomp: request.confinement.seccomp,
                // Only the kernel knows.
                landlock_abi: None,
                userns: request.confinement.userns,
            },
            limits: Vec::new(),
            net: request.net.clone(),
            clock: clock_held(request),
            base,
            scratch,
            degraded: Vec::new(),
        };
        Ok(Self {
            vault: vault.to_owned(),
            workspace: places.workspace,
            cwd: places.cwd,
            decision,
            enforcement,
        })
    }
}
