//! The texts of a run's row in the journal: request, decision and result.
//!
//! What comes in are the values of a run: the granted request, the decision of the policy, the completion of the
//! command or the error. What leaves are texts, which the vault stores verbatim; credentials and the values of
//! secrets are removed here. [`read`] is the way back: the typed row of a record.
//!
//! The types are those of `avfs-wire`, so that `avfs runs show --json` prints a row with the type that wrote it, and a
//! journaled request can be run again. What must hold:
//!
//! - A separate format, which later versions of avfs must read: fields are only added. `tests/golden/journal.txt` has
//!   rows of every version, and `tests.rs` reads them.
//! - Reading never fails: a text that is not a record is [`Recorded::Unreadable`], with the problem.
//!
//! Open `avfs_wire::RunResult` (`src/wire/src/journal.rs`) first: the stored result of a command.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use avfs_policy::ExecutionDecision;
use avfs_request::{ExecutionRequest, OutputRetention};
use avfs_types::clock::millis;
use avfs_types::diagnose::{Diagnose, with_causes};
use avfs_types::ids::{ApprovalId, MemoKey, RunId};
use avfs_types::printable::text_of;
use avfs_types::secrets::Secrets;
use avfs_types::{LAST_LINES_BYTES_MAX, last_lines, redact};
use avfs_vault::backend::RunRecord;
use avfs_wire::{
    CacheObject, ConnectionObject, ErrorBody, KeptOutputObject, LastLinesObject, OmittedObject,
    OutsideWritesSummary, PhasesObject, ReasonObject,
};

pub use avfs_request::spec::RequestObject as RunRequest;
pub use avfs_wire::{DecisionObject as RunDecision, Recorded, RunFailure, RunOutcome, RunResult};

use crate::launcher::{Completion, Connection, Exit, OutsideWrite, OutsideWrites};
use crate::output::{Omitted, Output};
use crate::result_cache::{CacheUse, Reason};
use crate::run::{Phases, ProxyExecutionState};

/// The row of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalRow {
    pub request: Recorded<RunRequest>,
    pub decision: Recorded<RunDecision>,
    pub outcome: Recorded<RunOutcome>,
}

/// Reads the texts of a row.
#[must_use]
pub fn read(run: &RunRecord) -> JournalRow {
    JournalRow {
        request: Recorded::parse(&run.request),
        decision: Recorded::parse(&run.decision),
        outcome: Recorded::parse(&run.result),
    }
}

/// The result of a row; `None` if the command did not run.
#[must_use]
pub fn result_of(run: &RunRecord) -> Option<RunResult> {
    match Recorded::<RunOutcome>::parse(&run.result).into_read() {
        Ok(RunOutcome::Ended(result)) => Some(*result),
        Ok(RunOutcome::NotRun {} | RunOutcome::Failed(_)) | Err(_) => None,
    }
}

impl From<Omitted> for OmittedObject {
    fn from(omitted: Omitted) -> Self {
        Self { offset: omitted.offset as u64, bytes: omitted.bytes }
    }
}

/// The kept output of a run for which it is requested.
fn kept_output(completion: &Completion) -> KeptOutputObject {
    let omitted = |output: &Option<Output>| output.as_ref()?.omitted.map(OmittedObject::from);
    let stdout = if completion.merged.is_some() { &completion.merged } else { &completion.stdout };
    KeptOutputObject {
        merged: completion.merged.is_some(),
        stdout_omitted: omitted(stdout),
        stderr_omitted: omitted(&completion.stderr),
    }
}

/// The last lines of a failed batch item; `None` for any other run. Values of secrets were already removed.
fn last_lines_of(request: &ExecutionRequest, completion: &Completion) -> Option<LastLinesObject> {
    if request.item.is_none() || completion.exit == Exit::Code(0) {
        return None;
    }
    let end = |output: &Option<Output>| {
        let bytes = output.as_ref().map_or_else(Vec::new, |output| output.end(LAST_LINES_BYTES_MAX));
        // Escaping makes bytes longer; cutting a second time only shortens the text.
        redact(last_lines(&text_of(&bytes))).into_owned()
    };
    Some(LastLinesObject { stdout: end(&completion.stdout), stderr: end(&completion.stderr) })
}

fn outside_writes(writes: &OutsideWrites) -> Option<OutsideWritesSummary> {
    if writes.is_empty() {
        return None;
    }
    let path = |one: &OutsideWrite| redact(&text_of(one.path.as_os_str().as_bytes())).into_owned();
    Some(OutsideWritesSummary {
        files: writes.files,
        dirs: writes.dirs,
        bytes: writes.bytes,
        paths: writes.paths.iter().map(path).collect(),
        left_off: writes.left_off,
        complete: writes.is_complete,
    })
}

impl From<&Phases> for PhasesObject {
    fn from(phases: &Phases) -> Self {
        Self {
            resolve: millis(phases.resolve),
            mount: millis(phases.mount),
            execute: millis(phases.execute),
            capture: millis(phases.capture),
            commit: millis(phases.commit),
        }
    }
}

impl From<&Connection> for ConnectionObject {
    fn from(connection: &Connection) -> Self {
        let (verdict, reason) = connection.verdict.words();
        Self {
            host: connection.host.clone(),
            port: connection.port,
            address: connection.address.map(|address| address.to_string()),
            verdict: verdict.into(),
            reason: reason.map(str::to_owned),
            bytes_up: connection.bytes_up,
            bytes_down: connection.bytes_down,
            began_ms: millis(connection.began),
            lasted_ms: millis(connection.lasted),
        }
    }
}

impl From<&Reason> for ReasonObject {
    fn from(reason: &Reason) -> Self {
        Self { code: reason.code.to_owned(), text: reason.text.clone() }
    }
}

impl From<&CacheUse> for CacheObject {
    fn from(cache: &CacheUse) -> Self {
        Self {
            mode: cache.mode.word().to_owned(),
            key: cache.key.as_ref().map(MemoKey::to_hex),
            cached_from: cache.from.as_ref().map(RunId::to_string),
            missed: cache.missed.iter().map(ReasonObject::from).collect(),
            not_remembered: cache.not_remembered.iter().map(ReasonObject::from).collect(),
        }
    }
}

/// Rows are for people and later readers; a value that cannot be serialized becomes empty text, so that the run
/// is not lost.
pub(crate) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

pub(crate) fn request(request: &ExecutionRequest, vault: Option<&Path>) -> String {
    text(&RunRequest::of(request, vault).redacted())
}

/// The decision about a request, with the approval that it has or waits for.
#[must_use]
pub fn decided(decision: &ExecutionDecision, approval: Option<&ApprovalId>) -> RunDecision {
    RunDecision {
        action: decision.action.word().into(),
        categories: decision.categories.iter().map(|category| category.word().to_owned()).collect(),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
        hint: decision.hint.clone(),
        allow_rule: decision.allow_rule.clone(),
        approval_id: approval.map(ApprovalId::to_string),
        ..RunDecision::default()
    }
}

pub(crate) fn decision(decision: &ExecutionDecision, approval: Option<&ApprovalId>) -> String {
    let decided = decided(decision, approval);
    // A reason may quote the command.
    text(&RunDecision {
        reason: redact(&decided.reason).into_owned(),
        hint: decided.hint.map(|hint| redact(&hint).into_owned()),
        // A rule with a redacted word would match a different command.
        allow_rule: decided.allow_rule.filter(|rule| redact(rule) == *rule),
        ..decided
    })
}

pub(crate) fn failure(
    stood: ProxyExecutionState,
    error: &impl Diagnose,
    hint: Option<String>,
    secrets: &Secrets,
) -> String {
    let scrubbed = |text: String| redact(&secrets.scrub_text(text)).into_owned();
    let code = error.code().to_owned();
    failed(stood, Some(ErrorBody { code, message: scrubbed(with_causes(error)), hint: hint.map(scrubbed) }))
}

pub(crate) fn interrupted(stood: ProxyExecutionState) -> String {
    failed(stood, None)
}

fn failed(stood: ProxyExecutionState, error: Option<ErrorBody>) -> String {
    text(&RunFailure { stood: stood.word().into(), error, later: serde_json::Map::new() })
}

/// The result of a command, as far as it is known when the command has ended.
pub(crate) fn result(request: &ExecutionRequest, completion: &Completion, phases: &Phases) -> RunResult {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let truncated = |output: &Option<Output>| output.as_ref().is_some_and(Output::is_truncated);
    RunResult {
        timed_out: completion.timed_out,
        stopped_by: completion.stopped_by.map(|limit| limit.word().into()),
        user_ms: ms(completion.usage.user),
        system_ms: ms(completion.usage.system),
        max_rss_bytes: completion.usage.max_rss_bytes,
        phases_ms: PhasesObject::from(phases),
        stdout_digest: completion.stdout.as_ref().map(Output::digest),
        stderr_digest: completion.stderr.as_ref().map(Output::digest),
        stdout_truncated: truncated(&completion.stdout),
        stderr_truncated: truncated(&completion.stderr),
        kept_output: match request.output {
            OutputRetention::Kept => Some(kept_output(completion)),
            OutputRetention::Dropped => None,
        },
        last_lines: last_lines_of(request, completion),
        outside_writes: outside_writes(&completion.outside_writes),
        connections: completion.connections.list.iter().map(ConnectionObject::from).collect(),
        connections_left_off: completion.connections.left_off,
        ..RunResult::default()
    }
}

#[cfg(test)]
mod tests;
