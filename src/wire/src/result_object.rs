//! What came of a run, as an envelope tells it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cache::CacheObject;
use crate::entry::{ChangeObject, ChangeTotals};
use crate::text::{PathText, tail};

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
    /// The symlink by which it is that, if its own path is not.
    pub link: Option<PathText>,
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
