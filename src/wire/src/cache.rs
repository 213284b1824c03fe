//! The use of the result cache by a run, and the `result` of the verbs about the cache.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use serde_json::Value;

use avfs_request::spec::CommandText;
use avfs_types::clock::parse_time;
use avfs_types::{Word, Zone};

/// Why a result is not cached, or why no cached result was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct ReasonObject {
    /// A stable code; never renamed.
    pub code: String,
    /// The reason in words, for people.
    pub text: String,
}

/// The use of the result cache by a run; also stored in the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(!default))]
#[serde(default)]
pub struct CacheObject {
    /// `read` or `write`.
    pub mode: String,
    /// The key of its result; null if the result cannot be cached.
    pub key: Option<String>,
    /// The run whose result was used.
    pub cached_from: Option<String>,
    /// Why no cached result was used.
    pub missed: Vec<ReasonObject>,
    /// Why the result of this run is not cached, with `write`.
    pub not_remembered: Vec<ReasonObject>,
}

/// A cached result.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoObject {
    /// The key of the result, in hex digits.
    pub key: String,
    /// The run that made the result.
    pub run_id: String,
    /// The command of the request; null if the run is not in the journal.
    #[cfg_attr(feature = "schema", schemars(with = "Value"))]
    pub command: Option<CommandText>,
    /// The exit status of the run.
    pub exit_code: i32,
    /// BLAKE3 of standard output.
    pub stdout_digest: String,
    /// BLAKE3 of standard error.
    pub stderr_digest: String,
    /// The version that the run started from.
    pub version_before: Option<String>,
    /// The version after the run; null if it changed nothing.
    pub version_after: Option<String>,
    /// When the result was stored, RFC 3339 in UTC.
    pub created_at: String,
    /// When the result expires, RFC 3339 in UTC.
    pub expires_at: String,
    /// Why the result is no longer available: `expired`, `version-gone` or `output-gone`. The next gc deletes it.
    pub lost: Option<Word>,
    /// The digests of everything that the result depends on, by name.
    pub parts: BTreeMap<String, String>,
}

/// The result of `avfs cache list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheList {
    /// Newest first.
    pub results: Vec<MemoObject>,
    /// True if there are older ones.
    pub more: bool,
}

/// The result of `avfs cache forget`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheForget {
    /// The results that are no longer remembered.
    pub forgotten: Vec<MemoObject>,
}

/// Whether a cached result was used for a run, or would be used for a request, and why not.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheExplain {
    /// The run; null for a request.
    pub run_id: Option<String>,
    /// `hit`, `miss`, or `not_asked` for a run without `--cache`.
    pub outcome: Word,
    /// The run whose result was, or would be, used.
    pub cached_from: Option<String>,
    /// The key of the lookup; null if the result cannot be cached.
    pub key: Option<String>,
    /// Why no cached result was, or would be, used.
    pub missed: Vec<ReasonObject>,
    /// For a run: its own result is cached now. For a request: its result would be cached with `--cache write`.
    pub remembered: bool,
    /// Why the run's own result is not, or would not be, cached.
    pub not_remembered: Vec<ReasonObject>,
    /// The result that would be used for a request.
    pub found: Option<FoundObject>,
}

/// A cached result that would be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundObject {
    /// The exit status of the cached run.
    pub exit_code: i32,
    /// BLAKE3 of standard output.
    pub stdout_digest: String,
    /// BLAKE3 of standard error.
    pub stderr_digest: String,
    /// Whether the run changed files.
    pub changed: bool,
    /// The digest of the tree after the run, with the times of the cached run.
    pub tree: String,
    /// The digest of the tree without modification times.
    pub content: String,
    /// When the result was stored, RFC 3339 in UTC.
    pub created_at: String,
    /// When the result expires, RFC 3339 in UTC.
    pub expires_at: String,
}

impl CacheExplain {
    /// The explanation in words; times are in this zone.
    #[must_use]
    pub fn lines(&self, zone: &Zone) -> Vec<String> {
        let about = self.run_id.as_ref().map_or_else(|| "this request".to_owned(), |id| format!("run:{id}"));
        let past = self.run_id.is_some();
        let mut lines = vec![match (&*self.outcome, &self.cached_from) {
            ("not_asked", _) => format!("not asked: {about} ran without --cache"),
            (_, Some(from)) => format!("hit: the result of run:{from}"),
            (_, None) => "miss:".to_owned(),
        }];
        let reason_lines = |reasons: &[ReasonObject]| -> Vec<String> {
            reasons.iter().map(|reason| format!("  {} ({})", reason.text, reason.code)).collect()
        };
        lines.extend(reason_lines(&self.missed));
        if let Some(found) = &self.found {
            let changed = if found.changed { "changed files" } else { "changed nothing" };
            let until = parse_time(&found.expires_at).map(|until| zone.show(until));
            let until = until.as_ref().unwrap_or(&found.expires_at);
            lines.push(format!("  exit {}, {changed}, kept until {until}", found.exit_code));
        }
        match (past, self.remembered, self.not_remembered.is_empty()) {
            (true, true, _) => lines.push("cached: its own result is in the cache".to_owned()),
            (false, true, _) if self.found.is_none() => {
                lines.push(
                    "with --cache write its result would be cached, unless the outcome prevents it"
                        .to_owned(),
                );
            }
            (_, false, false) => {
                lines.push("not cached:".to_owned());
                lines.extend(reason_lines(&self.not_remembered));
            }
            (true, false, true) | (false, _, _) => {}
        }
        lines
    }
}
