//! The texts of a run's row in the journal.

use serde::{Deserialize, Serialize};

use crate::diagnose::Diagnose;
use crate::ids::ApprovalId;
use crate::vault::secrets::Secrets;

use super::decision::ExecutionDecision;
use super::envelope::{
    CacheObject, ConnectionObject, DecisionObject, ErrorBody, PhasesObject, RequestObject,
};
use super::launcher::{Completion, Output};
use super::limits::LimitKind;
use super::memo::CacheUse;
use super::redact::redact;
use super::request::ExecutionRequest;
use super::result::Phases;
use super::state::ProxyExecutionState;

/// What is kept of a result beside the columns of the row.
#[derive(Serialize)]
struct JournalResult {
    timed_out: bool,
    stopped_by: Option<&'static str>,
    user_ms: u128,
    system_ms: u128,
    max_rss_bytes: u64,
    phases_ms: PhasesObject,
    bytes_written: u64,
    /// Nothing where the output was not kept.
    stdout_digest: Option<String>,
    stderr_digest: Option<String>,
    stdout_truncated: bool,
    stderr_truncated: bool,
    /// What it asked of the network, where that goes through a proxy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    connections: Vec<ConnectionObject>,
    #[serde(skip_serializing_if = "is_zero")]
    connections_left_off: u64,
    /// What the cache had to do with it, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<CacheObject>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    bytes_written: u64,
}

/// Rows are for people and later readers; a value that cannot be written is left empty rather than losing
/// the run over it.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

pub fn request(request: &ExecutionRequest, vault: Option<&std::path::Path>) -> String {
    text(&RequestObject::of(request, vault).redacted())
}

pub fn decision(decision: &ExecutionDecision, approval: Option<&ApprovalId>) -> String {
    text(&DecisionObject::of(decision, approval).redacted())
}

/// What is kept of a run that came to nothing: how far it got, and why not farther.
#[derive(Serialize)]
struct JournalFailure {
    stood: &'static str,
    error: Option<ErrorBody>,
}

pub fn failure(stood: ProxyExecutionState, error: &impl Diagnose, secrets: &Secrets) -> String {
    let ErrorBody { code, message, hint } = ErrorBody::of(error);
    let told = |text: String| redact(&secrets.scrub_text(text)).into_owned();
    let error = ErrorBody { code, message: told(message), hint: hint.map(told) };
    text(&JournalFailure { stood: stood.word(), error: Some(error) })
}

pub fn interrupted(stood: ProxyExecutionState) -> String {
    text(&JournalFailure { stood: stood.word(), error: None })
}

pub fn result(
    completion: &Completion,
    phases: &Phases,
    bytes_written: u64,
    cache: Option<&CacheUse>,
) -> String {
    let truncated = |output: &Option<Output>| output.as_ref().is_some_and(|output| output.truncated);
    text(&JournalResult {
        timed_out: completion.timed_out,
        stopped_by: completion.stopped_by.map(LimitKind::word),
        user_ms: completion.usage.user.as_millis(),
        system_ms: completion.usage.system.as_millis(),
        max_rss_bytes: completion.usage.max_rss_bytes,
        phases_ms: PhasesObject::from(phases),
        bytes_written,
        stdout_digest: completion.stdout.as_ref().map(Output::digest),
        stderr_digest: completion.stderr.as_ref().map(Output::digest),
        stdout_truncated: truncated(&completion.stdout),
        stderr_truncated: truncated(&completion.stderr),
        connections: completion.connections.list.iter().map(ConnectionObject::from).collect(),
        connections_left_off: completion.connections.left_off,
        cache: cache.map(CacheObject::from),
    })
}

/// How much a run wrote, by its row.
pub fn bytes_written(result: &str) -> u64 {
    serde_json::from_str::<Written>(result).map_or(0, |written| written.bytes_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        assert_eq!(bytes_written("{\"bytes_written\": 7, \"x\": 1}"), 7);
        assert_eq!(bytes_written("{}"), 0);
        assert_eq!(bytes_written("not json"), 0);
    }
}
