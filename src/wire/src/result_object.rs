//! The result part of an envelope.

use serde::{Deserialize, Serialize};

use avfs_types::Word;

use crate::cache::CacheObject;
use crate::entry::{ChangeObject, ChangeTotals};
use crate::text::{LongText, PathText};

/// The maximum number of listed changes; the counts include all of them.
pub const CHANGES_MAX: usize = 1000;

/// The number of notes that the result of a batch item or of an attempt has.
const FAILURE_NOTES_MAX: usize = 5;

/// The resource usage of the command, including its children.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageObject {
    /// CPU time in user mode, in milliseconds.
    pub user_ms: f64,
    /// CPU time in the kernel, in milliseconds.
    pub system_ms: f64,
    /// The largest resident set of one process, in bytes.
    pub max_rss_bytes: u64,
}

/// Where the time went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct PhasesObject {
    /// Finding the vault and the version, and consulting the policy.
    pub resolve: f64,
    /// Building the sandbox.
    pub mount: f64,
    /// The command itself.
    pub execute: f64,
    /// Reading the changes of the command.
    pub capture: f64,
    /// Writing the new version.
    pub commit: f64,
}

/// A changed path that is not part of the version.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOutObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// Why the path was left out.
    pub reason: String,
}

/// A change that tools on the host execute or read automatically once it is applied.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsOnHostObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// `executed`, or `read_by_agents`.
    pub kind: Word,
    /// The kind of file, such as `a git hook`.
    pub why: Word,
    /// The symlink through which tools find it, if not by its own path.
    pub link: Option<PathText>,
}

/// Files that a command left outside of the workspace, in directories that are deleted with the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutsideWritesObject {
    /// Files, including everything that is not a directory.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// The first paths, topmost first.
    pub paths: Vec<OutsideWriteObject>,
    /// Paths that are not listed.
    pub left_off: u64,
    /// False if a limit was reached or a directory could not be read: there may be more.
    pub complete: bool,
}

/// One path outside of the workspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutsideWriteObject {
    /// The absolute path as the command saw it.
    pub path: String,
    /// The path in Base64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// The size in bytes; null for a directory that could not be read.
    pub size: Option<u64>,
}

/// A system call that seccomp refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedCallObject {
    /// The name of the system call.
    pub call: String,
    /// The number of times that it was refused.
    pub count: u64,
}

/// A connection that the command requested from its proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct ConnectionObject {
    /// The requested host: a name or an address.
    pub host: String,
    /// The requested port.
    pub port: u16,
    /// The address that was dialled, or that caused the refusal.
    pub address: Option<String>,
    /// `allowed`, `refused` or `failed`.
    pub verdict: Word,
    /// Why it was refused or failed.
    pub reason: Option<String>,
    /// Bytes that the command sent.
    pub bytes_up: u64,
    /// Bytes that the command received.
    pub bytes_down: u64,
    /// When it was requested, in milliseconds since the command started.
    pub began_ms: f64,
    /// How long the connection was open, in milliseconds.
    pub lasted_ms: f64,
}

/// Information for the caller that is not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoteObject {
    /// A stable code; never renamed.
    pub code: String,
    /// The note in words.
    pub text: String,
}

/// Changes as text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeReportObject {
    /// `tree`, `stat` or `patch`.
    pub form: Word,
    /// The changes in this form.
    pub text: String,
    /// Changes that are not in the text.
    pub left_off: u64,
    /// Paths of which only a headline is in the text.
    pub shortened: u64,
}

/// The omitted middle part of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct OmittedObject {
    /// The position of the omitted part, in bytes from the start of the text, or of the decoded Base64.
    pub offset: u64,
    /// The number of omitted bytes.
    pub bytes: u64,
}

/// The result of a command that ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultObject {
    /// The id of the run: 10 hex digits.
    pub run_id: String,
    /// The fork with the changes; null without changes.
    pub fork: Option<String>,
    /// The version that the command started from.
    pub version_before: Option<String>,
    /// The version with the changes; null without changes.
    pub version_after: Option<String>,
    /// The checkpoint that was saved before the command ran.
    pub checkpoint_before: Option<String>,
    /// The checkpoint that was saved after it.
    pub checkpoint_after: Option<String>,
    /// The exit status; null if the command was killed.
    pub exit_code: Option<u8>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// The command was killed at its timeout.
    pub timed_out: bool,
    /// The limit for which the command was killed: `memory`, `disk`, `files` or `file_size`.
    pub stopped_by: Option<Word>,
    /// When the command started, RFC 3339 in UTC.
    pub started_at: String,
    /// Wall-clock time of the command in milliseconds.
    pub duration_ms: f64,
    /// Standard output, as far as kept.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stdout: LongText,
    /// Standard error, as far as kept.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stderr: LongText,
    /// Whether `stdout` lacks a part of the output.
    pub stdout_truncated: bool,
    /// Whether `stderr` lacks a part of the output.
    pub stderr_truncated: bool,
    /// The part of the output that `stdout` lacks; null if it is complete.
    pub stdout_omitted: Option<OmittedObject>,
    /// The part of the output that `stderr` lacks; null if it is complete.
    pub stderr_omitted: Option<OmittedObject>,
    /// `utf-8` or `base64`.
    pub stdout_encoding: Word,
    /// `utf-8` or `base64`.
    pub stderr_encoding: Word,
    /// BLAKE3 of the output in `stdout`; null if the output was streamed and not kept.
    pub stdout_digest: Option<String>,
    /// BLAKE3 of the output in `stderr`; null as for `stdout_digest`.
    pub stderr_digest: Option<String>,
    /// The changes, at most 1000.
    pub changes: Vec<ChangeObject>,
    /// The number of changes of each kind, including those not listed.
    pub change_counts: ChangeTotals,
    /// Changes that are not listed.
    pub changes_left_off: usize,
    /// The changes as text, if requested.
    pub change_report: Option<ChangeReportObject>,
    /// Files that the command left in the workspace but that a version cannot, or should not, contain.
    pub left_out: Vec<LeftOutObject>,
    /// `nothing`, `advanced`, `rebased` or `diverted`.
    pub landing: Word,
    /// The command was classified read-only, but it changed files.
    pub classification_violated: bool,
    /// Changed paths that tools on the host execute or read automatically once they are applied.
    pub runs_on_host: Vec<RunsOnHostObject>,
    /// The connections that the command requested, with `--net allow=`.
    pub connections: Vec<ConnectionObject>,
    /// Connections that are not listed.
    pub connections_left_off: u64,
    /// System calls that the command was refused, as far as the kernel reports them.
    pub refused_calls: Vec<RefusedCallObject>,
    /// Files that the command left outside of the workspace, in its private home and in /tmp, which are dropped; null
    /// without such files.
    pub outside_writes: Option<OutsideWritesObject>,
    /// Paths written to the bound directory; null if the changes were not applied.
    pub applied: Option<u64>,
    /// When changes that are not applied are dropped, RFC 3339 in UTC; null if they do not expire.
    pub kept_until: Option<String>,
    /// Nothing was executed: a cached result was used.
    pub cached: bool,
    /// The run whose result was used.
    pub cached_from: Option<String>,
    /// The result can be used for a run with the same request.
    pub remembered: bool,
    /// The use of the result cache; null if the cache was not requested.
    pub cache: Option<CacheObject>,
    /// The resource usage of the command.
    pub usage: UsageObject,
    /// Where the time went, in milliseconds.
    pub phases_ms: PhasesObject,
    /// Notes for the caller.
    pub notes: Vec<NoteObject>,
}

impl ResultObject {
    /// The first notes of a run that failed.
    #[must_use]
    pub fn notes_of_failure(&self) -> Vec<NoteObject> {
        match (self.timed_out, self.exit_code) {
            (false, Some(0)) => Vec::new(),
            (_, _) => self.notes.iter().take(FAILURE_NOTES_MAX).cloned().collect(),
        }
    }

    /// How the command ended: `exit 0`, `signal 9` or `timed out`.
    #[must_use]
    pub fn ending(&self) -> String {
        match (self.timed_out, self.exit_code, self.signal) {
            (true, _, _) => "timed out".to_owned(),
            (false, _, Some(signal)) => format!("signal {signal}"),
            (false, Some(code), None) => format!("exit {code}"),
            (false, None, None) => "ended".to_owned(),
        }
    }

    /// Keeps only the end of each output; drops output that is not UTF-8.
    pub fn keep_tails(&mut self, bytes: usize) {
        for (text, encoding) in
            [(&mut self.stdout, &self.stdout_encoding), (&mut self.stderr, &self.stderr_encoding)]
        {
            match &**encoding {
                "utf-8" => *text = text.tail(bytes),
                _ => *text = LongText::from(String::new()),
            }
        }
    }
}
