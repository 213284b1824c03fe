//! The texts of a run's row in the journal: request, decision and result.
//!
//! A separate format, which later versions of avfs must read: fields are only added. It shares
//! [`RequestObject`] with the envelope, because a journaled request can be run again.

use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use avfs_policy::ExecutionDecision;
use avfs_request::spec::RequestObject;
use avfs_request::{ExecutionRequest, LimitKind, OutputRetention};
use avfs_types::clock::millis;
use avfs_types::diagnose::{Diagnose, with_causes};
use avfs_types::ids::{ApprovalId, MemoKey, RunId};
use avfs_types::printable::text_of;
use avfs_types::secrets::Secrets;
use avfs_types::{LAST_LINES_BYTES_MAX, last_lines, redact};

use crate::launcher::{Completion, Connection, Exit, OutsideWrite, OutsideWrites};
use crate::output::Output;
use crate::result::Phases;
use crate::result_cache::{CacheUse, Reason};
use crate::state::ProxyExecutionState;

/// The parts of a result that are not columns of the row.
#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalResult {
    timed_out: bool,
    #[cfg_attr(test, serde(borrow))]
    stopped_by: Option<&'static str>,
    user_ms: u128,
    system_ms: u128,
    max_rss_bytes: u64,
    phases_ms: JournalPhases,
    bytes_written: u64,
    /// `None` if the output was not captured.
    stdout_digest: Option<String>,
    stderr_digest: Option<String>,
    stdout_truncated: bool,
    stderr_truncated: bool,
    /// The kept output, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_output: Option<JournalKeptOutput>,
    /// The last lines of the output of a failed batch item.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_lines: Option<JournalLastLines>,
    /// Files that the run wrote outside the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside_writes: Option<JournalOutsideWrites>,
    /// Connections of the run, if its network goes through a proxy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connections: Vec<JournalConnection>,
    #[serde(skip_serializing_if = "is_zero")]
    connections_left_off: u64,
    /// Use of the result cache, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<JournalCache>,
}

/// Describes the kept output of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalKeptOutput {
    /// Both streams are kept as stdout, in the order in which they were written.
    pub merged: bool,
    /// The omitted part of stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_omitted: Option<JournalOmitted>,
    /// The omitted part of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_omitted: Option<JournalOmitted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalOmitted {
    pub offset: u64,
    pub bytes: u64,
}

impl JournalKeptOutput {
    /// The kept output of a run for which it is requested.
    fn of(completion: &Completion) -> Self {
        let omitted = |output: &Option<Output>| {
            let omitted = output.as_ref()?.omitted?;
            Some(JournalOmitted { offset: omitted.offset as u64, bytes: omitted.bytes })
        };
        let stdout = if completion.merged.is_some() { &completion.merged } else { &completion.stdout };
        Self {
            merged: completion.merged.is_some(),
            stdout_omitted: omitted(stdout),
            stderr_omitted: omitted(&completion.stderr),
        }
    }
}

/// The last lines of each stream, without values of secrets and without text that looks like a credential.
#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalLastLines {
    stdout: String,
    stderr: String,
}

impl JournalLastLines {
    /// The last lines of a failed batch item; `None` for any other run. Values of secrets were already removed.
    fn of(request: &ExecutionRequest, completion: &Completion) -> Option<Self> {
        if request.item.is_none() || completion.exit == Exit::Code(0) {
            return None;
        }
        let end = |output: &Option<Output>| {
            let bytes = output.as_ref().map_or_else(Vec::new, |output| output.end(LAST_LINES_BYTES_MAX));
            // Escaping makes bytes longer; cutting a second time only shortens the text.
            redact(last_lines(&text_of(&bytes))).into_owned()
        };
        Some(Self { stdout: end(&completion.stdout), stderr: end(&completion.stderr) })
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalOutsideWrites {
    files: u64,
    dirs: u64,
    bytes: u64,
    paths: Vec<String>,
    left_off: u64,
    complete: bool,
}

impl JournalOutsideWrites {
    fn of(writes: &OutsideWrites) -> Option<Self> {
        if writes.is_empty() {
            return None;
        }
        let path = |one: &OutsideWrite| redact(&text_of(one.path.as_os_str().as_bytes())).into_owned();
        Some(Self {
            files: writes.files,
            dirs: writes.dirs,
            bytes: writes.bytes,
            paths: writes.paths.iter().map(path).collect(),
            left_off: writes.left_off,
            complete: writes.is_complete,
        })
    }
}

#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalPhases {
    resolve: f64,
    mount: f64,
    execute: f64,
    capture: f64,
    commit: f64,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalConnection {
    host: String,
    port: u16,
    address: Option<String>,
    /// `allowed`, `refused` or `failed`.
    verdict: &'static str,
    reason: Option<String>,
    bytes_up: u64,
    bytes_down: u64,
    began_ms: f64,
    lasted_ms: f64,
}

/// How a run used the result cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCache {
    /// `read` or `write`.
    pub mode: String,
    /// The key of its result; `None` if it cannot be cached.
    pub key: Option<String>,
    /// The run whose result was used.
    pub cached_from: Option<String>,
    /// Why no cached result was used.
    pub missed: Vec<JournalReason>,
    /// Why its result is not cached, with `write`.
    pub not_remembered: Vec<JournalReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalReason {
    pub code: String,
    pub text: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalDecision {
    action: &'static str,
    categories: Vec<String>,
    rule: Option<String>,
    reason: String,
    hint: Option<String>,
    /// Rules that would allow a denied request.
    #[serde(skip_serializing_if = "Option::is_none")]
    allow_rule: Option<String>,
    approval_id: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalError {
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl From<&Phases> for JournalPhases {
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

impl From<&Connection> for JournalConnection {
    fn from(connection: &Connection) -> Self {
        let (verdict, reason) = connection.verdict.words();
        Self {
            host: connection.host.clone(),
            port: connection.port,
            address: connection.address.map(|address| address.to_string()),
            verdict,
            reason: reason.map(str::to_owned),
            bytes_up: connection.bytes_up,
            bytes_down: connection.bytes_down,
            began_ms: millis(connection.began),
            lasted_ms: millis(connection.lasted),
        }
    }
}

impl From<&CacheUse> for JournalCache {
    fn from(cache: &CacheUse) -> Self {
        let reasons = |reasons: &[Reason]| {
            let kept = |it: &Reason| JournalReason { code: it.code.to_owned(), text: it.text.clone() };
            reasons.iter().map(kept).collect()
        };
        Self {
            mode: cache.mode.word().to_owned(),
            key: cache.key.as_ref().map(MemoKey::to_hex),
            cached_from: cache.from.as_ref().map(RunId::to_string),
            missed: reasons(&cache.missed),
            not_remembered: reasons(&cache.not_remembered),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Rows are for people and later readers; a value that cannot be serialized becomes empty text, so that the run
/// is not lost.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

pub fn request(request: &ExecutionRequest, vault: Option<&std::path::Path>) -> String {
    text(&RequestObject::of(request, vault).redacted())
}

pub fn decision(decision: &ExecutionDecision, approval: Option<&ApprovalId>) -> String {
    // A reason may quote the command.
    text(&JournalDecision {
        action: decision.action.word(),
        categories: decision.categories.iter().map(|category| category.word().to_owned()).collect(),
        rule: decision.rule.clone(),
        reason: redact(&decision.reason).into_owned(),
        hint: decision.hint.as_deref().map(|hint| redact(hint).into_owned()),
        // A rule with a redacted word would match a different command.
        allow_rule: decision.allow_rule.clone().filter(|rule| redact(rule) == *rule),
        approval_id: approval.map(ApprovalId::to_string),
    })
}

/// Describes a run that failed: how far it got, and the error.
#[derive(Serialize)]
#[cfg_attr(test, derive(Default, Deserialize), serde(default))]
struct JournalFailure {
    stood: &'static str,
    error: Option<JournalError>,
}

pub fn failure(
    stood: ProxyExecutionState,
    error: &impl Diagnose,
    hint: Option<String>,
    secrets: &Secrets,
) -> String {
    let scrubbed = |text: String| redact(&secrets.scrub_text(text)).into_owned();
    let error =
        JournalError { code: error.code(), message: scrubbed(with_causes(error)), hint: hint.map(scrubbed) };
    text(&JournalFailure { stood: stood.word(), error: Some(error) })
}

pub fn interrupted(stood: ProxyExecutionState) -> String {
    text(&JournalFailure { stood: stood.word(), error: None })
}

pub fn result(
    request: &ExecutionRequest,
    completion: &Completion,
    phases: &Phases,
    bytes_written: u64,
    cache: Option<&CacheUse>,
) -> String {
    let truncated = |output: &Option<Output>| output.as_ref().is_some_and(Output::is_truncated);
    text(&JournalResult {
        timed_out: completion.timed_out,
        stopped_by: completion.stopped_by.map(LimitKind::word),
        user_ms: completion.usage.user.as_millis(),
        system_ms: completion.usage.system.as_millis(),
        max_rss_bytes: completion.usage.max_rss_bytes,
        phases_ms: JournalPhases::from(phases),
        bytes_written,
        stdout_digest: completion.stdout.as_ref().map(Output::digest),
        stderr_digest: completion.stderr.as_ref().map(Output::digest),
        stdout_truncated: truncated(&completion.stdout),
        stderr_truncated: truncated(&completion.stderr),
        kept_output: match request.output {
            OutputRetention::Kept => Some(JournalKeptOutput::of(completion)),
            OutputRetention::Dropped => None,
        },
        last_lines: JournalLastLines::of(request, completion),
        outside_writes: JournalOutsideWrites::of(&completion.outside_writes),
        connections: completion.connections.list.iter().map(JournalConnection::from).collect(),
        connections_left_off: completion.connections.left_off,
        cache: cache.map(JournalCache::from),
    })
}

/// The kept output according to the journal row of a run.
#[must_use]
pub fn kept_output_of(result: &str) -> Option<JournalKeptOutput> {
    serde_json::from_value(journal_value(result).get_mut("kept_output")?.take()).ok()
}

/// Bytes written by a run, according to its row.
pub fn bytes_written(result: &str) -> u64 {
    journal_value(result).get("bytes_written").and_then(Value::as_u64).unwrap_or(0)
}

/// The value of a journal text; text that is not JSON is returned as a string.
#[must_use]
pub fn journal_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The command in the text of a request; null if it has no command.
#[must_use]
pub fn command_of(request: &str) -> Value {
    journal_value(request).get_mut("command").map(Value::take).unwrap_or_default()
}

/// Cache use according to the row of a run; `None` if it was not requested.
#[must_use]
pub fn cache_of(result: &str) -> Option<JournalCache> {
    serde_json::from_value(journal_value(result).get_mut("cache")?.take()).ok()
}

#[cfg(test)]
mod tests;
