//! What is told of a replay: a line for each run, and the `result` of the verb.

use serde::Serialize;

use avfs_types::words;

use crate::entry::ChangeObject;

/// One thing in which a run differs from what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceObject {
    /// `exit`, `stdout`, `stderr`, `tree` or `times`.
    pub what: &'static str,
    /// The difference in words.
    pub text: String,
    /// Declared noise explains it.
    pub noise: bool,
}

/// One line of `--results`: a run that was replayed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayItemResult {
    /// Its number in the list, from 1.
    pub item: u64,
    /// The id of the item, from the list.
    pub id: String,
    /// The command on one line.
    pub command: String,
    /// `identical`, `equivalent`, `diverged`, `unrecorded`, or `error` if it could not be run.
    pub verdict: &'static str,
    /// It was not run: a remembered result was compared.
    pub cached: bool,
    /// In what the run differs from what was recorded, noise included.
    pub differences: Vec<DifferenceObject>,
    /// The run that replayed it.
    pub run_id: Option<String>,
    /// What it left; kept for a week where it diverged.
    pub version: Option<String>,
    /// The version that was recorded; null if it is not known.
    pub expected_version: Option<String>,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
    /// Why it could not be run.
    pub reason: Option<String>,
    /// Stable: never renamed.
    pub code: Option<String>,
}

impl ReplayItemResult {
    /// What came of it, in a few words.
    #[must_use]
    pub fn ending(&self) -> String {
        let mut text = self.verdict.to_owned();
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
    /// How a run compares with the one it repeats.
    ReplayVerdict, "verdict", {
        /// Exit code, outputs and every bit of the tree are the same.
        Identical = "identical",
        /// They differ in nothing but declared noise.
        Equivalent = "equivalent",
        /// They differ in more than declared noise.
        Diverged = "diverged",
        /// There was nothing recorded to compare with.
        Unrecorded = "unrecorded",
    }
);

/// How many runs came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayCounts {
    /// Runs of the list.
    pub items: u64,
    /// Runs that are identical.
    pub identical: u64,
    /// Runs that differ in declared noise alone.
    pub equivalent: u64,
    /// Runs that diverged.
    pub diverged: u64,
    /// Runs that have nothing recorded.
    pub unrecorded: u64,
    /// Runs that could not be run.
    pub error: u64,
    /// It ended before they were come to, or what they wait for could not be run.
    pub not_run: u64,
    /// Those that were not run, whatever came of them.
    pub cached: u64,
}

impl ReplayCounts {
    /// Counts one more run; `None` is one that could not be run.
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

    /// The verdict on all of them.
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

/// A replay.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replay {
    /// The list, fork or run that was replayed.
    pub source: String,
    /// The verdict on all: the worst one.
    pub verdict: &'static str,
    /// How many runs came to which verdict.
    pub counts: ReplayCounts,
    /// Wall-clock time in milliseconds.
    pub duration_ms: f64,
    /// The first run that diverged.
    pub first_diverged: Option<ReplayItemResult>,
    /// What differs between its tree and the recorded one, noise left out.
    pub changes: Vec<ChangeObject>,
    /// Changes that are not listed.
    pub changes_left_off: usize,
    /// The first of those that diverged or could not be run; with `--exact` of all that are not identical.
    pub others: Vec<ReplayItemResult>,
    /// Why it ended before its end.
    pub stopped: Option<String>,
}
