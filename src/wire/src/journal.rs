//! The records of a run in the journal, with the types that write them.
//!
//! The vault keeps the texts of a row without reading them. `avfs_engine::journal` writes them with these types, and
//! everything that shows or uses a row reads them with [`Recorded::parse`]. What must hold:
//!
//! - Keys are only added. A key that an earlier version did not write has its default, and the keys that a later
//!   version wrote are kept in `later`, so that `--json` prints a row as it was stored.
//! - A text that cannot be read is a value with its problem, never an error: one damaged row must not hide the others.
//!
//! The request and the decision of a row are the [`RequestObject`](crate::RequestObject) and the
//! [`DecisionObject`](crate::DecisionObject) of the envelope, without credentials. The result is a [`RunOutcome`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use avfs_types::Word;

use crate::answer::ErrorBody;
use crate::cache::CacheObject;
use crate::result_object::{ConnectionObject, OmittedObject, PhasesObject};

/// A stored record; in JSON it is the record itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded<T> {
    /// A record of this type.
    Read(T),
    /// Something else.
    Unreadable {
        /// The stored value; a string if the text is not JSON.
        stored: Value,
        /// Why it cannot be read.
        problem: String,
    },
}

impl<T: DeserializeOwned> Recorded<T> {
    /// Reads a text of the journal.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok(record) => Self::Read(record),
            Err(error) => Self::Unreadable {
                stored: serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
                problem: error.to_string(),
            },
        }
    }
}

impl<T> Recorded<T> {
    /// The record; `None` if it cannot be read.
    pub fn read(&self) -> Option<&T> {
        match self {
            Self::Read(record) => Some(record),
            Self::Unreadable { .. } => None,
        }
    }

    /// The record, or why it cannot be read.
    pub fn into_read(self) -> Result<T, String> {
        match self {
            Self::Read(record) => Ok(record),
            Self::Unreadable { problem, .. } => Err(problem),
        }
    }

    /// Why the record cannot be read.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Read(_) => None,
            Self::Unreadable { problem, .. } => Some(problem),
        }
    }
}

impl Recorded<RunOutcome> {
    /// The result of the command, if it ran.
    #[must_use]
    pub fn result(&self) -> Option<&RunResult> {
        match self.read()? {
            RunOutcome::Ended(result) => Some(result),
            RunOutcome::NotRun {} | RunOutcome::Failed(_) => None,
        }
    }

    /// How the run failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&RunFailure> {
        match self.read()? {
            RunOutcome::Failed(failure) => Some(failure),
            RunOutcome::NotRun {} | RunOutcome::Ended(_) => None,
        }
    }
}

impl<T: Serialize> Serialize for Recorded<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Read(record) => record.serialize(serializer),
            Self::Unreadable { stored, .. } => stored.serialize(serializer),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Recorded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Value::deserialize(deserializer)?;
        Ok(match T::deserialize(&stored) {
            Ok(record) => Self::Read(record),
            Err(error) => Self::Unreadable { stored, problem: error.to_string() },
        })
    }
}

/// The result in a row of the journal.
// The order matters: the first variant that fits is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "expected the result of a command, or the failure of a run"
)]
pub enum RunOutcome {
    /// The command was refused, or waits for an approval.
    NotRun {},
    /// avfs failed, or died.
    Failed(RunFailure),
    /// The command ended.
    Ended(Box<RunResult>),
}

/// A run that failed: how far it got, and the error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFailure {
    /// The last state of the run.
    pub stood: Word,
    /// Why it failed; null if its process died.
    #[serde(default)]
    pub error: Option<ErrorBody>,
    /// Keys that a later version wrote.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// The parts of a result that are not columns of the row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunResult {
    /// The command was killed at its timeout.
    pub timed_out: bool,
    /// The limit for which the command was killed.
    pub stopped_by: Option<Word>,
    /// CPU time in user mode, in milliseconds.
    pub user_ms: u64,
    /// CPU time in the kernel, in milliseconds.
    pub system_ms: u64,
    /// The largest resident set of one process, in bytes.
    pub max_rss_bytes: u64,
    /// Where the time went, in milliseconds.
    pub phases_ms: PhasesObject,
    /// Bytes that the command wrote to the workspace.
    pub bytes_written: u64,
    /// BLAKE3 of standard output; null if it was not captured.
    pub stdout_digest: Option<String>,
    /// BLAKE3 of standard error; null if it was not captured.
    pub stderr_digest: Option<String>,
    /// Whether a part of standard output is not covered by its digest.
    pub stdout_truncated: bool,
    /// Whether a part of standard error is not covered by its digest.
    pub stderr_truncated: bool,
    /// The command was classified read-only, but it changed files.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub classification_violated: bool,
    /// The kept output, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_output: Option<KeptOutputObject>,
    /// The last lines of the output of a failed batch item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_lines: Option<LastLinesObject>,
    /// Files that the run wrote outside the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside_writes: Option<OutsideWritesSummary>,
    /// Connections of the run, if its network goes through a proxy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionObject>,
    /// Connections that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections_left_off: u64,
    /// Use of the result cache, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheObject>,
    /// Keys that a later version wrote.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// The kept output of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptOutputObject {
    /// Both streams are kept as stdout, in the order in which they were written.
    pub merged: bool,
    /// The omitted part of stdout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_omitted: Option<OmittedObject>,
    /// The omitted part of stderr.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_omitted: Option<OmittedObject>,
}

/// The last lines of each stream, without values of secrets and without text that looks like a credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LastLinesObject {
    /// Of standard output.
    pub stdout: String,
    /// Of standard error.
    pub stderr: String,
}

/// Files that a command left outside of the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutsideWritesSummary {
    /// Files, including everything that is not a directory.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// The first paths, without text that looks like a credential.
    pub paths: Vec<String>,
    /// Paths that are not listed.
    pub left_off: u64,
    /// False if there may be more.
    pub complete: bool,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{DecisionObject, RequestObject};

    #[test]
    fn a_record_of_another_version_keeps_its_keys() {
        let request =
            Recorded::<RequestObject>::parse(r#"{"command": ["a"], "net": "host", "novel": {"a": 1}}"#);
        let read = request.read().unwrap();
        assert_eq!((&*read.net, &*read.profile, read.timeout_ms), ("host", "strict", Some(300_000)));
        assert_eq!(serde_json::to_value(&request).unwrap()["novel"], json!({"a": 1}));
        let decision = Recorded::<DecisionObject>::parse(r#"{"action": "deny", "novel": [1]}"#);
        assert_eq!(decision.read().unwrap().action, "deny");
        assert_eq!(serde_json::to_value(&decision).unwrap()["novel"], json!([1]));
        for (text, novel) in
            [(r#"{"bytes_written": 7, "x": 1}"#, "x"), (r#"{"stood": "mounting", "y": 2}"#, "y")]
        {
            let outcome = Recorded::<RunOutcome>::parse(text);
            let stored: Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_value(&outcome).unwrap()[novel], stored[novel]);
        }
    }

    #[test]
    fn a_result_is_of_a_command_or_a_failure_or_empty() {
        let outcome = Recorded::<RunOutcome>::parse;
        assert_eq!(outcome("{}"), Recorded::Read(RunOutcome::NotRun {}));
        assert_eq!(serde_json::to_string(&outcome("{}")).unwrap(), "{}");
        assert_eq!(outcome(r#"{"bytes_written": 7}"#).result().unwrap().bytes_written, 7);
        let failed = outcome(r#"{"stood": "mounting", "error": {"code": "a.b", "message": "c"}}"#);
        assert_eq!(failed.failure().unwrap().error.as_ref().unwrap().code, "a.b");
        assert_eq!((failed.result(), outcome("{}").failure()), (None, None));
    }

    #[test]
    fn an_unreadable_record_is_kept_with_its_problem() {
        for (text, stored) in [
            ("not json", json!("not json")),
            ("[]", json!([])),
            (r#"{"command": 7}"#, json!({"command": 7})),
            (r#"{"command": ["a"], "ro": "x"}"#, json!({"command": ["a"], "ro": "x"})),
        ] {
            let request = Recorded::<RequestObject>::parse(text);
            assert!(request.read().is_none() && !request.problem().unwrap().is_empty(), "{text}");
            let value = serde_json::to_value(&request).unwrap();
            assert_eq!(value, stored, "{text}");
            let again: Recorded<RequestObject> = serde_json::from_value(value).unwrap();
            assert!(again.problem().is_some(), "{text}");
        }
    }
}
