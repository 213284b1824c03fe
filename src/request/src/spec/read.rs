//! Requests as JSON: the input of `avfs-run --request`. The `request` of an envelope is one too.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use avfs_types::CommandLine;
use avfs_types::base64::from_base64;

use super::RunSpec;
use crate::choices::Retention;

/// The version of every JSON document; a change of meaning is a new version.
pub const SCHEMA_VERSION: u32 = 1;

/// A request consists of words and paths: anything larger is a mistake.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// An error in a request, and its position.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    #[error("line {line}, column {column}: {problem}")]
    Json { line: usize, column: usize, problem: String },
    #[error("longer than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("{key}: {problem}")]
    Key { key: &'static str, problem: String },
}

impl RunSpec {
    pub fn parse(text: &[u8]) -> Result<Self, SpecError> {
        if text.len() > REQUEST_BYTES_MAX {
            return Err(SpecError::TooLong);
        }
        let file: Self = read_json(text)?;
        file.check_version()?;
        Ok(file)
    }

    pub fn check_version(&self) -> Result<(), SpecError> {
        match self.schema_version {
            None | Some(SCHEMA_VERSION) => Ok(()),
            Some(other) => {
                Err(bad("schema_version", format!("{other} is not supported; this avfs supports 1")))
            }
        }
    }

    /// Returns the keys whose values differ from their defaults.
    pub fn said(&self) -> serde_json::Result<Map<String, Value>> {
        let keys = |file: &Self| match serde_json::to_value(file)? {
            Value::Object(keys) => Ok(keys),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Ok::<_, serde_json::Error>(Map::new())
            }
        };
        let unsaid = keys(&Self::default())?;
        Ok(keys(self)?.into_iter().filter(|(key, value)| unsaid.get(key) != Some(value)).collect())
    }

    /// Rejects requests that cannot run on any host, for callers that check requests long before they run.
    pub fn check(&self) -> Result<(), SpecError> {
        self.check_version()?;
        self.command_line()?;
        if self.kept() == Retention::Apply && self.readonly {
            return Err(bad("retention", "a read-only run has no changes to apply".to_owned()));
        }
        Ok(())
    }

    /// What to do with the changes.
    #[must_use]
    pub fn kept(&self) -> Retention {
        match (self.apply, self.discard) {
            (true, _) => Retention::Apply,
            (false, true) => Retention::Discard,
            (false, false) => self.retention.unwrap_or(Retention::Review),
        }
    }

    /// Returns the command to run.
    pub fn command_line(&self) -> Result<CommandLine, SpecError> {
        if let Some(line) = &self.shell {
            return Ok(CommandLine::Shell(line.clone()));
        }
        if !self.words.is_empty() {
            return Ok(CommandLine::Argv(self.words.clone()));
        }
        let mode = self.command_mode.as_deref();
        if !matches!(mode, None | Some("argv" | "shell")) {
            return Err(bad("command_mode", "expected argv or shell".to_owned()));
        }
        if let Some(words) = &self.command_base64 {
            let decoded = words.iter().map(|word| from_base64(word).map(OsString::from_vec));
            let words: Option<Vec<OsString>> = decoded.collect();
            let words = words.ok_or_else(|| bad("command_base64", "a word is not Base64".to_owned()))?;
            return Ok(match (mode, <[OsString; 3]>::try_from(words)) {
                // The words that call a shell: the command is the line.
                (Some("shell"), Ok([_, _, line])) => CommandLine::Shell(line),
                (_, Ok(words)) => CommandLine::Argv(words.to_vec()),
                (_, Err(words)) => CommandLine::Argv(words),
            });
        }
        match (&self.command, mode) {
            (Value::String(line), None | Some("shell")) => Ok(CommandLine::Shell(line.into())),
            (Value::Array(words), None | Some("argv")) => {
                let words: Option<Vec<OsString>> =
                    words.iter().map(|word| Some(OsString::from(word.as_str()?))).collect();
                let words = words.ok_or_else(|| bad("command", "a word is not a string".to_owned()))?;
                Ok(CommandLine::Argv(words))
            }
            (Value::Null, _) => Err(bad("command", "missing".to_owned())),
            (Value::String(_), _) => Err(bad("command", "expected a list of words in argv mode".to_owned())),
            (Value::Array(_), _) => Err(bad("command", "expected a string in shell mode".to_owned())),
            (Value::Bool(_) | Value::Number(_) | Value::Object(_), _) => {
                Err(bad("command", "expected a list of words or a string".to_owned()))
            }
        }
    }
}

/// Parses JSON. An error names its position, and the key if a value is invalid.
pub fn read_json<'d, T: Deserialize<'d>>(text: &'d [u8]) -> Result<T, SpecError> {
    let mut document = serde_json::Deserializer::from_slice(text);
    let problem = |error: &serde_json::Error, key: String| {
        let text = error.to_string();
        let problem = text.split(" at line ").next().unwrap_or_default();
        // The message about an unknown key already names the key.
        let is_named = key.is_empty() || problem.starts_with("unknown field");
        let problem = if is_named { problem.to_owned() } else { format!("{key}: {problem}") };
        SpecError::Json { line: error.line(), column: error.column(), problem }
    };
    let read = serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let key = if error.inner().is_data() { error.path().to_string() } else { String::new() };
        problem(error.inner(), key.trim_matches('.').to_owned())
    })?;
    document.end().map_err(|error| problem(&error, String::new()))?;
    Ok(read)
}

/// Distinguishes null from an absent key.
pub(super) fn even_null<'d, D: Deserializer<'d>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::<u64>::deserialize(value).map(Some)
}

fn bad(key: &'static str, problem: String) -> SpecError {
    SpecError::Key { key, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Result<CommandLine, SpecError> {
        RunSpec::parse(text.as_bytes())?.command_line()
    }

    #[test]
    fn a_command_is_argv_or_a_shell_line() {
        let argv = |words: &[&str]| CommandLine::Argv(words.iter().map(OsString::from).collect());
        assert_eq!(command(r#"{"command": ["a", "b c"]}"#), Ok(argv(&["a", "b c"])));
        assert_eq!(command(r#"{"command": "a | b"}"#), Ok(CommandLine::Shell("a | b".into())));
        let odd = command(r#"{"command": ["?"], "command_base64": ["/w=="]}"#);
        assert_eq!(odd, Ok(CommandLine::Argv(vec![OsString::from_vec(vec![0xff])])));
        let line = r#"{"command_mode": "shell", "command_base64": ["L2Jpbi9zaA==", "LWM=", "/w=="]}"#;
        assert_eq!(command(line), Ok(CommandLine::Shell(OsString::from_vec(vec![0xff]))));
    }

    #[test]
    fn a_null_timeout_differs_from_an_absent_one() {
        let timeout = |text: &str| RunSpec::parse(text.as_bytes()).unwrap().timeout_ms;
        assert_eq!(timeout("{}"), None);
        assert_eq!(timeout(r#"{"timeout_ms": null}"#), Some(None));
        assert_eq!(timeout(r#"{"timeout_ms": 5}"#), Some(Some(5)));
    }

    #[test]
    fn errors_name_their_position() {
        for (text, expected) in [
            ("{\n  \"comand\": []}", "line 2, column 10: unknown field `comand`"),
            ("{\"command\": [}", "line 1, column 14"),
            ("{\"command\": [], \"rw\": 1}", "invalid type: integer `1`, expected a sequence"),
            ("{}", "command: missing"),
            ("{\"command\": [1]}", "command: a word is not a string"),
            ("{\"command\": {}}", "command: expected a list of words or a string"),
            (
                "{\"command\": \"x\", \"command_mode\": \"argv\"}",
                "command: expected a list of words in argv mode",
            ),
            ("{\"command\": [\"x\"], \"command_mode\": \"y\"}", "command_mode: expected argv or shell"),
            ("{\"command\": [\"x\"], \"schema_version\": 2}", "schema_version: 2 is not supported"),
            ("{\"command_base64\": [\"?\"]}", "command_base64: a word is not Base64"),
        ] {
            let error = command(text).unwrap_err().to_string();
            assert!(error.starts_with(expected) || error.contains(expected), "{text}: {error}");
        }
    }
}
