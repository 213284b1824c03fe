//! What came of a run, as an envelope tells it.

use serde::{Deserialize, Serialize};

use crate::cache::CacheObject;
use crate::entry::{ChangeObject, ChangeTotals};
use crate::text::{LongText, PathText};

/// Changes that are listed; the counts tell of all.
pub const CHANGES_MAX: usize = 1000;

/// What the command used, its children included.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhasesObject {
    /// Finding the vault and the version, and asking the policy.
    pub resolve: f64,
    /// Building the sandbox.
    pub mount: f64,
    /// The command itself.
    pub execute: f64,
    /// Reading what the command changed.
    pub capture: f64,
    /// Writing the new version.
    pub commit: f64,
}

/// A changed path that is not part of the version.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftOutObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// Why the path was left out.
    pub reason: String,
}

/// A change that tools of the host execute or read by themselves once it is applied.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunsOnHostObject {
    /// The path; its fields are part of this object.
    #[serde(flatten)]
    pub path: PathText,
    /// `executed`, or `read_by_agents`.
    pub kind: &'static str,
    /// What it is, such as `a git hook`.
    pub why: &'static str,
    /// The symlink by which it is that, if its own path is not.
    pub link: Option<PathText>,
}

/// What a command left outside of the workspace, in directories that go with the sandbox.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutsideWritesObject {
    /// Everything that is not a directory.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// The sizes of the files together.
    pub bytes: u64,
    /// The first paths, nearest to the top first.
    pub paths: Vec<OutsideWriteObject>,
    /// Paths that are not listed.
    pub left_off: u64,
    /// False if a bound was met or a directory could not be read: there may be more.
    pub complete: bool,
}

/// One path outside of the workspace.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutsideWriteObject {
    /// The absolute path as the command saw it.
    pub path: String,
    /// Only for a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
    /// Its size in bytes; null of a directory that could not be looked into.
    pub size: Option<u64>,
}

/// A system call that seccomp refused.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusedCallObject {
    /// The name of the system call.
    pub call: String,
    /// How often it was refused.
    pub count: u64,
}

/// A connection that the command asked its proxy for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConnectionObject {
    /// The host that was asked for: a name or an address.
    pub host: String,
    /// The port that was asked for.
    pub port: u16,
    /// The address that was dialled, or that it was refused for.
    pub address: Option<String>,
    /// `allowed`, `refused` or `failed`.
    pub verdict: &'static str,
    /// Why it was refused or failed.
    pub reason: Option<String>,
    /// Bytes that the command sent.
    pub bytes_up: u64,
    /// Bytes that the command received.
    pub bytes_down: u64,
    /// Since the command began.
    pub began_ms: f64,
    /// How long the connection was open, in milliseconds.
    pub lasted_ms: f64,
}

/// Something the caller should know that is not an error.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoteObject {
    /// Stable: never renamed.
    pub code: String,
    /// The note in words.
    pub text: String,
}

/// Changes as text.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangeReportObject {
    /// `tree`, `stat` or `patch`.
    pub form: &'static str,
    /// The changes in this form.
    pub text: String,
    /// Changes that are not in it.
    pub left_off: u64,
    /// Paths of which only a headline is in it.
    pub shortened: u64,
}

/// A part of a stream that was omitted: the beginning and the end are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedObject {
    /// Where it would be, in bytes from the start of the text, or of what Base64 stands for.
    pub offset: u64,
    /// How many bytes of the stream were omitted.
    pub bytes: u64,
}

/// What came of a command that ran.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResultObject {
    /// The id of the run: 10 hex digits.
    pub run_id: String,
    /// Where the changes are; null if there are none.
    pub fork: Option<String>,
    /// The version that the command started from.
    pub version_before: Option<String>,
    /// The version with the changes; null if there are none.
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
    /// The limit the command was ended for: `memory`, `disk`, `files` or `file_size`.
    pub stopped_by: Option<&'static str>,
    /// When the command started, RFC 3339 in UTC.
    pub started_at: String,
    /// Wall-clock time of the command in milliseconds.
    pub duration_ms: f64,
    /// Standard output, as far as it was kept.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub stdout: LongText,
    /// Standard error, as far as it was kept.
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
    pub stdout_encoding: &'static str,
    /// `utf-8` or `base64`.
    pub stderr_encoding: &'static str,
    /// BLAKE3 of what is in `stdout` and `stderr`; null where it streamed and was not kept.
    pub stdout_digest: Option<String>,
    /// BLAKE3 of what is in `stderr`; null as for `stdout_digest`.
    pub stderr_digest: Option<String>,
    /// The changes, at most 1000 of them.
    pub changes: Vec<ChangeObject>,
    /// How many changes there are of each kind, those not listed included.
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
    /// What the command left outside of the workspace, in its private home and in /tmp, which are dropped; null if nothing.
    pub outside_writes: Option<OutsideWritesObject>,
    /// Paths written to the bound directory; null if that was not asked for.
    pub applied: Option<u64>,
    /// When changes that are not applied by then are dropped, RFC 3339 in UTC; null if they do not expire.
    pub kept_until: Option<String>,
    /// Nothing was executed: the result of another run was taken.
    pub cached: bool,
    /// That run.
    pub cached_from: Option<String>,
    /// The result can be taken for a run like this one.
    pub remembered: bool,
    /// What the cache had to do with it; null if it was not asked for.
    pub cache: Option<CacheObject>,
    /// What the command used.
    pub usage: UsageObject,
    /// Where the time went, in milliseconds.
    pub phases_ms: PhasesObject,
    /// What else the caller should know.
    pub notes: Vec<NoteObject>,
}

impl ResultObject {
    /// Only the end of each output; of what is no text nothing.
    pub fn keep_tails(&mut self, bytes: usize) {
        for (text, encoding) in
            [(&mut self.stdout, self.stdout_encoding), (&mut self.stderr, self.stderr_encoding)]
        {
            match encoding {
                "utf-8" => *text = text.tail(bytes),
                _ => *text = LongText::from(String::new()),
            }
        }
    }
}
