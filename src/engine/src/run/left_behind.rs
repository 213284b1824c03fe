//! What a run leaves for another process: the end of its command, and changes that could not be kept.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use avfs_types::ids::VersionId;
use avfs_types::secrets::Secrets;
use avfs_vault::transfer;

use super::admit::wants_version;
use super::execute::Ended;
use super::prepare::Prepared;
use super::record::Run;
use super::result::Phases;
use super::site::Site;
use crate::error::ExecuteError;
use crate::journal;
use crate::launcher::{Completion, ConnectionVerdict, Exit, Upper};
use crate::mount_session::MountSession;
use crate::session_record::SessionOutcome;

/// Why the changes of an ended command are not in the vault.
pub(crate) struct Unkept {
    /// The version that they are relative to, so that a recovery does not have to guess it.
    pub base: Option<VersionId>,
    pub source: Box<transfer::Error>,
}

impl Unkept {
    pub fn new<E: Into<transfer::Error>>(base: Option<VersionId>) -> impl FnOnce(E) -> Self {
        move |source| Self { base, source: Box::new(source.into()) }
    }
}

/// Leaves changes that cannot be kept now to a later `avfs recover`.
#[tracing::instrument(level = "debug", skip_all)]
pub(super) fn leave_behind(site: &Site<'_>, run: &Run, ended: Ended<'_>, unkept: Unkept) -> ExecuteError {
    let Ended { prepared: Prepared { session, .. }, completion, sandbox, upper, .. } = ended;
    sandbox.close();
    let dir = session.dir().to_owned();
    let saved = match upper.memory() {
        Some(memory) => session.spill(memory),
        None => Ok(()),
    };
    let saved = saved.and_then(|()| match session.read_outcome()? {
        Some(_) => Ok(()),
        None => outcome(site, run, &completion, unkept.base).write(&session, &run.id),
    });
    let (id, source, exit) = (run.id.clone(), unkept.source, completion.exit);
    match saved.and_then(|()| session.keep()) {
        Ok(_) => match site.meter.stopped_by() {
            Some(signal) => ExecuteError::CaptureInterrupted { id, dir, exit, signal },
            None => ExecuteError::CaptureFailed { id, dir, exit, source },
        },
        Err(lost) => ExecuteError::CaptureLost { id, lost: Box::new(lost), source },
    }
}

/// Records on disk that the command has ended, if its changes are there too. An error does not prevent the run.
pub(super) fn note_end(
    site: &Site<'_>,
    run: &Run,
    completion: &mut Completion,
    upper: &Upper,
    session: &MountSession,
) {
    if upper.memory().is_some() || !wants_version(&run.request) {
        return;
    }
    scrub(&run.request.secrets(), completion);
    if let Err(error) = outcome(site, run, completion, None).write(session, &run.id) {
        tracing::warn!(%error, "cannot record the end of the command");
    }
}

/// How the command ended, for a recovery.
pub(super) fn outcome(
    site: &Site<'_>,
    run: &Run,
    completion: &Completion,
    version_before: Option<VersionId>,
) -> SessionOutcome {
    let (exit_code, signal) = match completion.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    SessionOutcome {
        exit_code,
        signal,
        ended_at: site.vault.now().0,
        version_before: version_before.map(|version| version.to_hex()),
        result: journal::text(&journal::result(&run.request, completion, &Phases::default())),
    }
}

/// Removes the values of secrets from everything that is stored or shown.
pub(super) fn scrub(secrets: &Secrets, completion: &mut Completion) {
    let outputs = [&mut completion.stdout, &mut completion.stderr, &mut completion.merged];
    for output in outputs.into_iter().flatten() {
        *output = std::mem::take(output).scrubbed(secrets);
    }
    for one in &mut completion.outside_writes.paths {
        let path = std::mem::take(&mut one.path).into_os_string().into_vec();
        one.path = OsString::from_vec(secrets.scrub(path)).into();
    }
    // A host name in a request can leak a secret to the network; it must not leak into the record.
    for connection in &mut completion.connections.list {
        let shown = secrets.scrub_host(connection.host.clone());
        let host = std::mem::replace(&mut connection.host, shown);
        match &mut connection.verdict {
            ConnectionVerdict::Allowed => {}
            ConnectionVerdict::Refused(why) | ConnectionVerdict::Failed(why) => {
                *why = secrets.scrub_text(why.replace(&host, &connection.host));
            }
        }
    }
}
