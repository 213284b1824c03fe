//! What came of a run, as an envelope tells it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::ids::{CheckpointName, ForkName, RunId, VersionId};
use crate::runtime::change_report::ChangeReport;
use crate::runtime::launcher::{Connection, ConnectionVerdict, Exit, Output};
use crate::runtime::limits::LimitKind;
use crate::runtime::result::{ExecutionResult, Phases, RunsOnHost};
use crate::vault::run::Landed;

use super::cache::CacheObject;
use super::entry::{ChangeObject, ChangeTotals};
use super::text::{PathText, base64, tail, time_text};

/// Changes that are listed; the counts tell of all.
pub const CHANGES_MAX: usize = 1000;

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UsageObject {
    pub user_ms: f64,
    pub system_ms: f64,
    pub max_rss_bytes: u64,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct PhasesObject {
    pub resolve: f64,
    pub mount: f64,
    pub execute: f64,
    pub capture: f64,
    pub commit: f64,
}

fn millis(duration: std::time::Duration) -> f64 {
    // Microseconds are what is worth telling.
    (duration.as_secs_f64() * 1e6).round() / 1e3
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

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LeftOutObject {
    #[serde(flatten)]
    pub path: PathText,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunsOnHostObject {
    #[serde(flatten)]
    pub path: PathText,
    /// `executed`, or `read_by_agents`.
    pub kind: &'static str,
    /// What it is, such as `a git hook`.
    pub why: &'static str,
}

impl From<&RunsOnHost> for RunsOnHostObject {
    fn from(it: &RunsOnHost) -> Self {
        Self { path: PathText::of(&it.path), kind: it.used.word(), why: it.why }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RefusedCallObject {
    pub call: String,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ConnectionObject {
    pub host: String,
    pub port: u16,
    /// The address that was dialled, or that it was refused for.
    pub address: Option<String>,
    /// `allowed`, `refused` or `failed`.
    pub verdict: &'static str,
    /// Why it was refused or failed.
    pub reason: Option<String>,
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Since the command began.
    pub began_ms: f64,
    pub lasted_ms: f64,
}

impl From<&Connection> for ConnectionObject {
    fn from(connection: &Connection) -> Self {
        let (verdict, reason) = match &connection.verdict {
            ConnectionVerdict::Allowed => ("allowed", None),
            ConnectionVerdict::Refused(reason) => ("refused", Some(reason.clone())),
            ConnectionVerdict::Failed(reason) => ("failed", Some(reason.clone())),
        };
        Self {
            host: connection.host.clone(),
            port: connection.port,
            address: connection.address.map(|address| address.to_string()),
            verdict,
            reason,
            bytes_up: connection.bytes_up,
            bytes_down: connection.bytes_down,
            began_ms: millis(connection.began),
            lasted_ms: millis(connection.lasted),
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NoteObject {
    /// Stable: never renamed.
    pub code: String,
    pub text: String,
}

/// Changes as text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeReportObject {
    /// `tree`, `stat` or `patch`.
    pub form: &'static str,
    pub text: String,
    /// Changes that are not in it.
    pub left_off: u64,
    /// Paths of which only a headline is in it.
    pub shortened: u64,
}

impl From<&ChangeReport> for ChangeReportObject {
    fn from(report: &ChangeReport) -> Self {
        Self {
            form: report.form.word(),
            text: report.text.clone(),
            left_off: report.left_off,
            shortened: report.shortened,
        }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResultObject {
    pub run_id: String,
    /// Where the changes are; nothing if there are none.
    pub fork: Option<String>,
    pub version_before: Option<String>,
    pub version_after: Option<String>,
    pub checkpoint_before: Option<String>,
    pub checkpoint_after: Option<String>,
    pub exit_code: Option<u8>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    /// The limit the command was ended for: `memory`, `disk`, `files` or `file_size`.
    pub stopped_by: Option<&'static str>,
    pub started_at: String,
    pub duration_ms: f64,
    pub stdout: String,
    pub stderr: String,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub stdout_encoding: &'static str,
    pub stderr_encoding: &'static str,
    /// BLAKE3 of what is in `stdout` and `stderr`; nothing where it streamed and was not kept.
    pub stdout_digest: Option<String>,
    pub stderr_digest: Option<String>,
    pub changes: Vec<ChangeObject>,
    pub change_counts: ChangeTotals,
    /// Changes that are not listed.
    pub changes_left_off: usize,
    /// The changes as text, where a form was asked for.
    pub change_report: Option<ChangeReportObject>,
    /// What the command left in the workspace that no version can hold, or should not.
    pub left_out: Vec<LeftOutObject>,
    /// `nothing`, `advanced`, `rebased` or `diverted`.
    pub landing: &'static str,
    /// The command was taken for one that only looks, and it changed files.
    pub classification_violated: bool,
    /// Changed paths that tools of the host execute by themselves once they are applied.
    pub runs_on_host: Vec<RunsOnHostObject>,
    /// What the command asked of the network, with `--net allow=`.
    pub connections: Vec<ConnectionObject>,
    /// Connections that are not listed.
    pub connections_left_off: u64,
    /// System calls the command was refused, as far as the kernel tells.
    pub refused_calls: Vec<RefusedCallObject>,
    /// Paths written to the bound directory; nothing if that was not asked for.
    pub applied: Option<u64>,
    /// Nothing was executed: the result of another run was taken.
    pub cached: bool,
    /// That run.
    pub cached_from: Option<String>,
    /// The result can be taken for a run like this one.
    pub remembered: bool,
    /// What the cache had to do with it; nothing if it was not asked for.
    pub cache: Option<CacheObject>,
    pub usage: UsageObject,
    pub phases_ms: PhasesObject,
    pub notes: Vec<NoteObject>,
}

impl ResultObject {
    /// Only the end of each output; of what is no text nothing.
    pub fn keep_tails(&mut self, bytes: usize) {
        for (text, encoding) in
            [(&mut self.stdout, self.stdout_encoding), (&mut self.stderr, self.stderr_encoding)]
        {
            match encoding {
                "utf-8" => *text = tail(text, bytes).to_owned(),
                _ => text.clear(),
            }
        }
    }
}

fn stream(output: Option<&Output>) -> (String, &'static str) {
    let bytes = output.map_or(&b""[..], |output| &output.bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (base64(bytes), "base64"),
    }
}

impl From<&ExecutionResult> for ResultObject {
    fn from(result: &ExecutionResult) -> Self {
        let (stdout, stdout_encoding) = stream(result.stdout.as_ref());
        let (stderr, stderr_encoding) = stream(result.stderr.as_ref());
        let (exit_code, signal) = match result.exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
        let from = result.cache.as_ref().and_then(|cache| cache.from.as_ref());
        let changes: Vec<ChangeObject> =
            result.changes.changes.iter().take(CHANGES_MAX).map(ChangeObject::from).collect();
        Self {
            run_id: result.run_id.to_string(),
            fork: result.fork.as_ref().map(ForkName::to_string),
            version_before: result.version_before.as_ref().map(VersionId::to_hex),
            version_after: result.version_after.as_ref().map(VersionId::to_hex),
            checkpoint_before: result.checkpoint_before.as_ref().map(CheckpointName::to_string),
            checkpoint_after: result.checkpoint_after.as_ref().map(CheckpointName::to_string),
            exit_code,
            signal,
            timed_out: result.timed_out,
            stopped_by: result.stopped_by.map(LimitKind::word),
            started_at: time_text(result.started_at),
            duration_ms: millis(result.duration),
            stdout,
            stderr,
            stdout_truncated: result.stdout.as_ref().is_some_and(|output| output.truncated),
            stderr_truncated: result.stderr.as_ref().is_some_and(|output| output.truncated),
            stdout_encoding,
            stderr_encoding,
            stdout_digest: result.stdout.as_ref().map(Output::digest),
            stderr_digest: result.stderr.as_ref().map(Output::digest),
            changes_left_off: result.changes.changes.len() - changes.len(),
            change_report: result.change_report.as_ref().map(ChangeReportObject::from),
            changes,
            change_counts: ChangeTotals::from(&result.changes.counts),
            left_out: result
                .left_out
                .iter()
                .map(|left| LeftOutObject { path: PathText::of(&left.path), reason: left.reason.to_string() })
                .collect(),
            landing: match result.landed {
                Landed::Nothing => "nothing",
                Landed::Advanced { .. } => "advanced",
                Landed::Rebased { .. } => "rebased",
                Landed::Diverted { .. } => "diverted",
            },
            classification_violated: result.classification_violated,
            runs_on_host: result.runs_on_host.iter().map(RunsOnHostObject::from).collect(),
            connections: result.connections.list.iter().map(ConnectionObject::from).collect(),
            connections_left_off: result.connections.left_off,
            refused_calls: result
                .refused_calls
                .iter()
                .map(|it| RefusedCallObject { call: it.call.clone(), count: it.count })
                .collect(),
            applied: result.applied,
            cached: from.is_some(),
            cached_from: from.map(RunId::to_string),
            remembered: result.cache.as_ref().is_some_and(|cache| cache.remembered),
            cache: result.cache.as_ref().map(CacheObject::from),
            usage: UsageObject {
                user_ms: millis(result.usage.user),
                system_ms: millis(result.usage.system),
                max_rss_bytes: result.usage.max_rss_bytes,
            },
            phases_ms: PhasesObject::from(&result.phases),
            notes: result
                .notes
                .iter()
                .map(|note| NoteObject { code: note.code.to_owned(), text: note.text.clone() })
                .collect(),
        }
    }
}
