//! Runs that a verb names, or means if none is named.

use std::ffi::OsStr;

use avfs_engine::journal::{self, Recorded, RunRequest};
use avfs_request::Retention;
use avfs_request::spec::CommandText;
use avfs_types::diagnose::shell_word;
use avfs_types::ids::{ForkName, RunPrefix};
use avfs_vault::VaultError;
use avfs_vault::backend::{RunRecord, RunState};
use avfs_vault::run;
use avfs_workplace::{OpError, Workplace};

use crate::error::VerbError;
use crate::text::{command_line, first_line};

/// The newest run in effect that changed content. Notes the run, because the user did not name it.
pub fn last_change(workplace: &Workplace) -> Result<RunPrefix, OpError> {
    let last = run::last_change(&*workplace.vault.read()?)?;
    let Some(run) = &last.run else { return Err(VerbError::of_no_change(&last).into()) };
    if let Some(skipped) = &last.times_only {
        note_skipped(workplace, skipped);
    }
    workplace.note(format_args!("run {}: {}", run.id, command_line(&command_text(run))));
    Ok(RunPrefix::from(&run.id))
}

/// Notes that a run is not the one that is meant if none is named.
pub fn note_skipped(workplace: &Workplace, run: &RunRecord) {
    let command = command_text(run);
    workplace.note(format_args!(
        "note: skipped run {}, which changed only modification times: {}",
        run.id,
        first_line(&command)
    ));
}

/// Records about a fork can outlive it, so an unknown fork is not an error; but the name may be mistyped.
pub fn note_fork(workplace: &Workplace, fork: Option<&ForkName>) {
    if let Some(fork) = fork
        && matches!(workplace.vault.fork(fork), Err(VaultError::NoFork { .. }))
    {
        let avfs = &workplace.client.avfs;
        workplace.note(format_args!("note: there is no fork {fork}; list forks with: {avfs} fork list"));
    }
}

/// Why a run has nothing to undo or to discard; `None` if it has a version, or may get one.
pub fn why_unchanged(run: &RunRecord) -> Option<&'static str> {
    if run.version_after.is_some() || !run.state.is_settled() {
        return None;
    }
    // The policy drops the changes of a command that was classified read-only.
    let is_dropped =
        || discards(run) || journal::result_of(run).is_some_and(|result| result.classification_violated);
    Some(match run.state {
        RunState::Completed if is_dropped() => "kept no changes",
        RunState::Completed => "changed nothing",
        RunState::Failed
        | RunState::Interrupted
        | RunState::Recoverable
        | RunState::Denied
        | RunState::ApprovalRequired => "did not complete",
    })
}

/// Whether the request says to drop the changes.
pub fn discards(run: &RunRecord) -> bool {
    let request = Recorded::<RunRequest>::parse(&run.request);
    request.read().is_some_and(|request| request.retention == Retention::Discard.word())
}

/// The command of a run, quoted for a shell.
pub fn command_text(run: &RunRecord) -> String {
    quoted(avfs_present::command_of(&run.request).as_ref())
}

/// The command of a request, quoted for a shell; empty if it is unknown.
pub fn quoted(command: Option<&CommandText>) -> String {
    match command {
        Some(CommandText::Shell(line)) => line.clone(),
        Some(CommandText::Argv(words)) => {
            words.iter().map(|word| shell_word(OsStr::new(word))).collect::<Vec<_>>().join(" ")
        }
        None => String::new(),
    }
}
