//! The JSON of a replay: a line for each run, and the `result` of the verb.

use serde::{Deserialize, Serialize};

use avfs_types::{Word, words};

use crate::entry::ChangeObject;

/// One difference between a run and its recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceObject {
    /// `exit`, `stdout`, `stderr`, `tree` or `times`.
    pub what: Word,
    /// The difference in words.
    pub text: String,
    /// True if it is declared noise.
    pub noise: bool,
}

/// One line of `--results`: a replayed run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayItemResult {
    /// The number of the item in the list, from 1.
    pub item: u64,
    /// The id of the item, from the list.
    pub id: String,
    /// The command on one line.
    pub command: String,
    /// `identical`, `equivalent`, `diverged`, `unrecorded`, or `error` if it could not run.
    pub verdict: Word,
    /// The item did not run: a cached result was compared.
    pub cached: bool,
    /// The differences from the recording, noise included.
    pub differences: Vec<DifferenceObject>,
    /// The run of the replay.
    pub run_id: Option<String>,
    /// The version after the run; kept for a week if it diverged.
    pub version: Option<String>,
    /// The recorded version; null if it is unknown.
    pub expected_version: Option<String>,
    /// The approval that it needs, if it was not run for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
    /// Why it could not run.
    pub reason: Option<String>,
    /// A stable code; never renamed.
    pub code: Option<String>,
}

impl ReplayItemResult {
    /// The outcome in a few words.
    #[must_use]
    pub fn ending(&self) -> String {
        let mut text = self.verdict.clone().into_owned();
        if self.cached {
            text.push_str(" (cached)");
        }
        let differences: Vec<String> =
            self.differences.iter().map(|it| format!("{}: {}", it.what, it.text)).collect();
        if !differences.is_empty() {
            text = format!("{text}: {}", differences.join("; "));
        }
        if let Some(reason) = &self.reason {
            text = format!("{text}: {reason}");
        }
        text
    }
}

words!(
    /// The comparison of a replayed run with its recording.
    ReplayVerdict, "verdict", {
        /// Exit status, outputs and every bit of the tree are equal.
        Identical = "identical",
        /// They differ only in declared noise.
        Equivalent = "equivalent",
        /// They differ in more than declared noise.
        Diverged = "diverged",
        /// Nothing was recorded to compare with.
        Unrecorded = "unrecorded",
    }
);

/// The number of runs by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayCounts {
    /// Runs of the list.
    pub items: u64,
    /// Runs that are identical.
    pub identical: u64,
    /// Runs that differ only in declared noise.
    pub equivalent: u64,
    /// Runs that diverged.
    pub diverged: u64,
    /// Runs without a recording to compare with.
    pub unrecorded: u64,
    /// Runs that could not run.
    pub error: u64,
    /// Runs that the replay did not reach, or that depend on a run that could not run.
    pub not_run: u64,
    /// Runs that did not run because a cached result was compared.
    pub cached: u64,
}

impl ReplayCounts {
    /// Counts one more run; `None` for a run that could not run.
    pub fn add(&mut self, verdict: Option<ReplayVerdict>, cached: bool) {
        self.items += 1;
        self.cached += u64::from(cached);
        *match verdict {
            Some(ReplayVerdict::Identical) => &mut self.identical,
            Some(ReplayVerdict::Equivalent) => &mut self.equivalent,
            Some(ReplayVerdict::Diverged) => &mut self.diverged,
            Some(ReplayVerdict::Unrecorded) => &mut self.unrecorded,
            None => &mut self.error,
        } += 1;
    }

    /// The overall verdict.
    #[must_use]
    pub fn verdict(&self) -> &'static str {
        match self {
            Self { error: 1.., .. } => "error",
            Self { diverged: 1.., .. } => ReplayVerdict::Diverged.word(),
            Self { not_run: 1.., .. } => "error",
            Self { equivalent: 1.., .. } => ReplayVerdict::Equivalent.word(),
            Self { identical: 1.., .. } => ReplayVerdict::Identical.word(),
            Self { .. } => ReplayVerdict::Unrecorded.word(),
        }
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replay {
    /// The list, fork or run that was replayed.
    pub source: String,
    /// The overall verdict: the worst one.
    pub verdict: Word,
    /// The number of runs by verdict.
    pub counts: ReplayCounts,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
    /// The first run that diverged.
    pub first_diverged: Option<ReplayItemResult>,
    /// The differences between the tree of that run and the recorded one, without noise.
    pub changes: Vec<ChangeObject>,
    /// Changes that are not listed.
    pub changes_left_off: usize,
    /// The first runs that diverged or could not run; with `--exact`, the first that are not identical.
    pub others: Vec<ReplayItemResult>,
    /// Why the replay ended early.
    pub stopped: Option<String>,
}
