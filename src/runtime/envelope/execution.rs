//! The execution envelope: what `avfs-run --json` prints, for runs, denials and errors alike.

use std::ffi::OsString;

use schemars::JsonSchema;
use serde::Serialize;

use crate::backend::ApprovalRecord;
use crate::diagnose::Diagnose;
use crate::ids::{ApprovalId, CheckpointName, ForkName, RunId, VersionId, to_hex};
use crate::runtime::change_report::ChangeReport;
use crate::runtime::confinement::NestedUserns;
use crate::runtime::decision::ExecutionDecision;
use crate::runtime::launcher::{Connection, ConnectionVerdict, Exit, Output};
use crate::runtime::limits::{EnforcedLimit, LimitKind};
use crate::runtime::permission::Denial;
use crate::runtime::proxy::{Came, Executed};
use crate::runtime::redact::{redact, redact_words};
use crate::runtime::request::{
    CommandLine, ExecutionRequest, ForkChoice, SecretsInFiles, Writing, shown_word,
};
use crate::runtime::result::{Enforcement, ExecutionResult, Phases, RunsOnHost};
use crate::runtime::room::Scratch;
use crate::runtime::view::Extra;
use crate::vault::run::Landed;

use super::answer::{ErrorBody, SCHEMA_VERSION};
use super::entry::{ChangeObject, ChangeTotals};
use super::text::{PathText, base64, time_text};

/// Changes that are listed; the counts tell of all.
pub const CHANGES_MAX: usize = 1000;

/// The whole answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ExecutionEnvelope {
    pub schema_version: u32,
    pub kind: &'static str,
    /// The command ran, exited with 0, and its changes are kept as was asked.
    pub success: bool,
    pub state: StateName,
    /// What the journal has it as; nothing if it never came to be a run.
    pub run_id: Option<String>,
    /// Nothing if what was asked for could not be understood.
    pub request: Option<RequestObject>,
    pub decision: Option<DecisionObject>,
    pub result: Option<ResultObject>,
    pub enforcement: Option<EnforcementObject>,
    pub error: Option<ErrorBody>,
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    Completed,
    Denied,
    ApprovalRequired,
    Failed,
    /// Only with `--dry-run`.
    Planned,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum CommandText {
    Argv(Vec<String>),
    Shell(String),
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RequestObject {
    pub command: CommandText,
    pub command_mode: &'static str,
    /// The command's bytes where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_base64: Option<Vec<String>>,
    pub vault: Option<String>,
    /// Nothing for an ephemeral fork.
    pub fork: Option<String>,
    pub cwd: Option<String>,
    pub at: Option<String>,
    pub readonly: bool,
    pub timeout_ms: Option<u64>,
    pub grace_ms: u64,
    pub checkpoint_mode: &'static str,
    /// `none`, `host`, or `allow=` and a list of places.
    pub net: String,
    pub retention: &'static str,
    pub base: &'static str,
    pub scratch: &'static str,
    pub backend: &'static str,
    pub profile: &'static str,
    /// What was shown, put or hidden beside the profile.
    pub ro: Vec<String>,
    pub rw: Vec<String>,
    pub tmpfs: Vec<String>,
    pub hide: Vec<String>,
    /// Directories that persist between runs.
    pub cache: Vec<String>,
    /// Names of the variables the command is given; never their values.
    pub environment: Vec<String>,
    /// Those of them that are never written down.
    pub secrets: Vec<String>,
    /// The secrets that are given as files: a name, or `NAME=PATH` for a file of the host.
    pub secret_files: Vec<String>,
    /// Whether files that hold a secret's value are kept.
    pub allow_secret_files: bool,
    /// What the run may use; nothing where there is no limit.
    pub memory: Option<u64>,
    /// Such as `1.5`.
    pub cpus: Option<String>,
    pub pids: Option<u64>,
    pub disk: Option<u64>,
    pub files: Option<u64>,
    pub file_size: Option<u64>,
    /// `default`, `strict` or `off`.
    pub seccomp: &'static str,
    /// `auto`, `required` or `off`.
    pub landlock: &'static str,
    pub allow_userns: bool,
    /// Policy profiles that were asked for.
    pub policy: Vec<&'static str>,
}

impl RequestObject {
    #[must_use]
    pub fn of(request: &ExecutionRequest, vault: Option<&std::path::Path>) -> Self {
        let path = |path: &std::path::PathBuf| path.display().to_string();
        let paths = |wanted: fn(&Extra) -> bool| {
            let chosen = request.extras.iter().filter(|extra| wanted(extra));
            chosen.map(|extra| extra.path().display().to_string()).collect::<Vec<_>>()
        };
        let words = request.command.words();
        let is_text = words.iter().all(|word| word.to_str().is_some());
        let secrets = request.secrets();
        let scrubbed = |word: &OsString| secrets.scrub(word.as_encoded_bytes().to_vec());
        let bytes = || words.iter().map(|word| base64(&scrubbed(word))).collect();
        let shown = |word: &OsString| secrets.scrub_text(shown_word(word));
        let (command, command_mode) = match &request.command {
            CommandLine::Argv(words) => (CommandText::Argv(words.iter().map(shown).collect()), "argv"),
            CommandLine::Shell(line) => (CommandText::Shell(shown(line)), "shell"),
        };
        Self {
            command,
            command_mode,
            command_base64: (!is_text).then(bytes),
            vault: vault.map(|vault| vault.display().to_string()),
            fork: match &request.fork {
                ForkChoice::Ephemeral => None,
                ForkChoice::Persistent { name, .. } => Some(name.to_string()),
            },
            cwd: request.cwd.as_ref().map(path),
            at: request.at.as_ref().map(path),
            readonly: request.writing == Writing::Refused,
            timeout_ms: request.timeout.millis(),
            grace_ms: u64::try_from(request.grace.as_millis()).unwrap_or(u64::MAX),
            checkpoint_mode: request.checkpoint.word(),
            net: request.net.to_string(),
            retention: request.retention.word(),
            base: request.base.word(),
            scratch: request.scratch.word(),
            backend: request.backend.word(),
            profile: request.profile.word(),
            ro: paths(|extra| matches!(extra, Extra::ReadOnly(_))),
            rw: paths(|extra| matches!(extra, Extra::ReadWrite(_))),
            tmpfs: paths(|extra| matches!(extra, Extra::Tmpfs(_))),
            hide: paths(|extra| matches!(extra, Extra::Hide(_))),
            cache: paths(|extra| matches!(extra, Extra::Cache { .. })),
            environment: request.environment.names(),
            secrets: request.environment.secret_names(),
            secret_files: request
                .secret_files
                .iter()
                .map(|file| match &file.source {
                    Some(source) => format!("{}={}", shown_word(&file.name), source.display()),
                    None => shown_word(&file.name),
                })
                .collect(),
            allow_secret_files: request.secrets_in_files == SecretsInFiles::Allowed,
            memory: request.limits.memory,
            cpus: request.limits.cpus.map(|cpus| cpus.to_string()),
            pids: request.limits.pids,
            disk: request.limits.disk,
            files: request.limits.files,
            file_size: request.limits.file_size,
            seccomp: request.confinement.seccomp.word(),
            landlock: request.confinement.landlock.word(),
            allow_userns: request.confinement.userns == NestedUserns::Allowed,
            policy: request.policy.iter().map(|profile| profile.word()).collect(),
        }
    }
}

impl RequestObject {
    /// As it is written down: what looks like a credential is taken out of the command.
    #[must_use]
    pub fn redacted(self) -> Self {
        let command = match &self.command {
            CommandText::Argv(words) => CommandText::Argv(redact_words(words)),
            CommandText::Shell(line) => CommandText::Shell(redact(line).into_owned()),
        };
        // Its bytes would tell what its text does not.
        let command_base64 = self.command_base64.filter(|_| command == self.command);
        Self { command, command_base64, ..self }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DecisionObject {
    pub action: &'static str,
    pub categories: Vec<String>,
    pub rule: Option<String>,
    pub reason: String,
    /// What the caller can do about it.
    pub hint: Option<String>,
    /// The approval that let the request through, or that it waits for.
    pub approval_id: Option<String>,
}

impl DecisionObject {
    #[must_use]
    pub fn of(decision: &ExecutionDecision, approval: Option<&ApprovalId>) -> Self {
        Self {
            action: decision.action.word(),
            categories: decision.categories.iter().map(|category| category.word().to_owned()).collect(),
            rule: decision.rule.clone(),
            reason: decision.reason.clone(),
            hint: decision.hint.clone(),
            approval_id: approval.map(ApprovalId::to_string),
        }
    }

    /// As it is written down: a reason may quote the command.
    #[must_use]
    pub fn redacted(self) -> Self {
        let hint = self.hint.map(|hint| redact(&hint).into_owned());
        Self { reason: redact(&self.reason).into_owned(), hint, ..self }
    }
}

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
    /// What it is, such as `a git hook`.
    pub why: &'static str,
}

impl From<&RunsOnHost> for RunsOnHostObject {
    fn from(it: &RunsOnHost) -> Self {
        Self { path: PathText::of(&it.path), why: it.why }
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
    /// BLAKE3 of what is in `stdout` and `stderr`.
    pub stdout_digest: String,
    pub stderr_digest: String,
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
    pub usage: UsageObject,
    pub phases_ms: PhasesObject,
    pub notes: Vec<NoteObject>,
}

fn stream(output: &Output) -> (String, &'static str) {
    match std::str::from_utf8(&output.bytes) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (base64(&output.bytes), "base64"),
    }
}

fn digest(output: &Output) -> String {
    to_hex(blake3::hash(&output.bytes).as_bytes())
}

impl From<&ExecutionResult> for ResultObject {
    fn from(result: &ExecutionResult) -> Self {
        let (stdout, stdout_encoding) = stream(&result.stdout);
        let (stderr, stderr_encoding) = stream(&result.stderr);
        let (exit_code, signal) = match result.exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
        };
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
            stdout_truncated: result.stdout.truncated,
            stderr_truncated: result.stderr.truncated,
            stdout_encoding,
            stderr_encoding,
            stdout_digest: digest(&result.stdout),
            stderr_digest: digest(&result.stderr),
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

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScratchObject {
    pub kind: &'static str,
    /// The bound of a scratch in memory.
    pub size_bytes: Option<u64>,
}

/// A limit that held.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LimitObject {
    pub limit: &'static str,
    /// Bytes, a count, or thousandths of a processor.
    pub value: u64,
    /// What held it: `cgroup2`, `cgroup1`, `rlimit`, `pid_max`, `tmpfs`, `affinity` or `watch`.
    pub mechanism: &'static str,
}

impl From<&EnforcedLimit> for LimitObject {
    fn from(limit: &EnforcedLimit) -> Self {
        Self { limit: limit.kind.word(), value: limit.value, mechanism: limit.mechanism.word() }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LandlockObject {
    pub abi: u32,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EnforcementObject {
    pub backend: &'static str,
    pub namespaces: Vec<&'static str>,
    /// `default`, `strict` or `off`.
    pub seccomp: &'static str,
    /// The version of Landlock that held; nothing if none did.
    pub landlock: Option<LandlockObject>,
    /// Whether the command could make user namespaces of its own.
    pub nested_userns: bool,
    pub net: String,
    pub limits: Vec<LimitObject>,
    /// `live`, `reused`, `layered` or `materialized`.
    pub base: &'static str,
    pub scratch: ScratchObject,
    pub degraded: Vec<String>,
}

impl From<&Enforcement> for EnforcementObject {
    fn from(enforcement: &Enforcement) -> Self {
        let mut namespaces = vec!["user", "mount", "pid", "ipc", "uts", "cgroup"];
        if enforcement.net.is_apart() {
            namespaces.push("net");
        }
        let scratch = match enforcement.scratch {
            Scratch::Memory { size_bytes, .. } => {
                ScratchObject { kind: "memory", size_bytes: Some(size_bytes) }
            }
            Scratch::Disk => ScratchObject { kind: "disk", size_bytes: None },
        };
        Self {
            backend: enforcement.backend.word(),
            namespaces,
            seccomp: enforcement.confined.seccomp.word(),
            landlock: enforcement.confined.landlock_abi.map(|abi| LandlockObject { abi }),
            nested_userns: enforcement.confined.userns == NestedUserns::Allowed,
            net: enforcement.net.to_string(),
            limits: enforcement.limits.iter().map(LimitObject::from).collect(),
            base: enforcement.base.word(),
            scratch,
            degraded: enforcement.degraded.clone(),
        }
    }
}

impl ExecutionEnvelope {
    /// What came of a request that reached the boundary.
    #[must_use]
    pub fn of<E: Diagnose + 'static>(request: RequestObject, executed: &Executed<E>) -> Self {
        let decided = executed
            .decision
            .as_ref()
            .map(|decision| DecisionObject::of(decision, executed.approval.as_ref()));
        let envelope = Self {
            run_id: executed.run_id.as_ref().map(RunId::to_string),
            request: Some(request),
            decision: decided,
            ..Self::empty(StateName::Failed)
        };
        match &executed.came {
            Ok(Came::Ran(result)) => Self {
                success: result.exit == Exit::Code(0) && !result.timed_out && result.stopped_by.is_none(),
                state: StateName::Completed,
                result: Some(ResultObject::from(&**result)),
                enforcement: Some(EnforcementObject::from(&result.enforcement)),
                ..envelope
            },
            Ok(Came::Denied(denial)) => {
                let error = denial_body(denial, executed.decision.as_ref());
                Self { state: StateName::Denied, error: Some(error), ..envelope }
            }
            Ok(Came::ApprovalRequired(approval)) => Self {
                state: StateName::ApprovalRequired,
                error: Some(approval_body(approval, executed.decision.as_ref())),
                ..envelope
            },
            Err(error) => Self { error: Some(ErrorBody::of(error)), ..envelope },
        }
    }

    /// One that would take place.
    #[must_use]
    pub fn planned(request: RequestObject, decision: &ExecutionDecision, enforcement: &Enforcement) -> Self {
        Self {
            success: true,
            request: Some(request),
            decision: Some(DecisionObject::of(decision, None)),
            enforcement: Some(EnforcementObject::from(enforcement)),
            ..Self::empty(StateName::Planned)
        }
    }

    /// One that could not even be asked for.
    #[must_use]
    pub fn failed(request: Option<RequestObject>, error: ErrorBody) -> Self {
        Self { request, error: Some(error), ..Self::empty(StateName::Failed) }
    }

    fn empty(state: StateName) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            kind: "execution",
            success: false,
            state,
            run_id: None,
            request: None,
            decision: None,
            result: None,
            enforcement: None,
            error: None,
        }
    }
}

/// Why nothing was run.
#[must_use]
pub fn denial_body(denial: &Denial, decision: Option<&ExecutionDecision>) -> ErrorBody {
    let reason = decision.map(|decision| decision.reason.clone()).unwrap_or_default();
    let advice = decision.and_then(|decision| decision.hint.clone());
    let (code, message, hint) = match denial {
        Denial::Policy => ("policy.denied", format!("denied: {reason}"), advice),
        Denial::Person { .. } => ("approval.denied", format!("denied: {reason}"), advice),
        Denial::BadApproval { shown, fault } => {
            let hint = "leave it out to ask for a new one".to_owned();
            (fault.code(), format!("approval {shown} is not good for this request: {fault}"), Some(hint))
        }
    };
    ErrorBody { code: code.to_owned(), message, hint }
}

/// What has to happen first.
#[must_use]
pub fn approval_body(approval: &ApprovalRecord, decision: Option<&ExecutionDecision>) -> ErrorBody {
    let approve = format!("approve it with: avfs approvals approve {}, then run it again", approval.id);
    let hint = match decision.and_then(|decision| decision.hint.clone()) {
        Some(advice) => format!("{advice}; or {approve}"),
        None => approve,
    };
    let message = format!("an approval is required: {}", approval.reason);
    ErrorBody { code: "approval.required".to_owned(), message, hint: Some(hint) }
}
