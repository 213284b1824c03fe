//! Base: the files that the run starts from. Runs that died are finished first: the fork can have moved with them.

use avfs_types::ids::ForkName;

use super::admit::Admitted;
use super::effective::Effective;
use super::prepare::Prepared;
use super::result::Notes;
use super::site::Site;
use super::state::{Failure, ProxyExecutionState, Stage, enter_in};
use crate::error::ExecuteError;
use crate::mount_session::ScratchDir;
use crate::recover::{HalfCaptured, sweep};
use crate::run_base::RunBase;
use crate::workspace_service::WorkspaceService;

/// A run with its base.
pub(crate) struct Based {
    pub base: RunBase,
    /// The parent of a fork created for the run.
    pub parent: ForkName,
}

impl Stage for Based {
    const STATE: ProxyExecutionState = ProxyExecutionState::Checkpointing;
}

#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn base(
    site: &Site<'_>,
    effective: &Effective<'_>,
    prepared: &Prepared,
    notes: &mut Notes,
) -> Result<Based, Failure> {
    enter_in::<Admitted, Based>(&prepared.session);
    find(site, effective, prepared, notes).map_err(Failure::at::<Based>)
}

fn find(
    site: &Site<'_>,
    effective: &Effective<'_>,
    prepared: &Prepared,
    notes: &mut Notes,
) -> Result<Based, ExecuteError> {
    let (session, run) = (&prepared.session, &effective.run);
    let half_captured = HalfCaptured::Finish { boot_id: &site.boot_id };
    notes.extend(sweep::<ExecuteError>(&ScratchDir::new(&site.cache_dir), site.vault, half_captured)?);
    let workspaces = WorkspaceService { site };
    let goes_on = || match site.meter.stopped_by() {
        Some(signal) => Err(ExecuteError::Interrupted { signal }),
        None => Ok(()),
    };
    let places = &effective.admitted.places;
    let files = workspaces.announce_first_import(places, &run.request, effective.lookup.files)?;
    goes_on()?;
    let based = workspaces.run_base(effective, session, files, notes);
    goes_on()?;
    let based = based?;
    if let Some(version) = based.base.version() {
        session.note_base(&version.version)?;
    }
    // Only now: the fork that the run starts from may have expired, but is in use.
    workspaces.expire_forks(&run.fork, notes);
    Ok(based)
}
