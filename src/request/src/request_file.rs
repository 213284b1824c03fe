//! A request as JSON: what `avfs-run --request` reads. The `request` of an envelope is one too.
//!
//! Every key is known; what no key says is as without it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use avfs_types::base64::from_base64;
use avfs_types::ids::{ApprovalPrefix, ForkName};
use avfs_types::reference::Reference;
use avfs_types::{CommandLine, Limit};

use crate::choices::{
    ApprovalMode, BackendChoice, BaseChoice, CheckpointMode, PolicyProfile, Retention, ScratchChoice,
};
use crate::confinement::{LandlockMode, SeccompProfile};
use crate::extra::Profile;
use crate::limits::CpuLimit;
use crate::net::NetMode;
use crate::reproducible::FixedClock;
use crate::timeout::ExecutionTimeout;

/// The version of every JSON document; a change of meaning is another one.
pub const SCHEMA_VERSION: u32 = 1;

/// A request is words and paths: more than this is a mistake.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RequestFile {
    /// The version of this format; 1 if nothing is said.
    pub schema_version: Option<u32>,
    /// A list of words, or a line for /bin/sh -c.
    pub command: Value,
    /// `argv` or `shell`; what `command` looks like if nothing is said.
    pub command_mode: Option<String>,
    /// The command's words in Base64, where they are not UTF-8; wins over `command`.
    pub command_base64: Option<Vec<String>>,
    pub vault: Option<String>,
    /// Of no account: it follows from `vault`.
    pub vault_named: bool,
    pub fork: Option<String>,
    pub from: Option<String>,
    pub cwd: Option<String>,
    pub at: Option<String>,
    pub readonly: bool,
    /// Milliseconds; null means that it may run for ever, nothing at all the default.
    #[serde(deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Option<u64>>,
    /// As `--timeout` takes it.
    pub timeout: Option<String>,
    pub grace_ms: Option<u64>,
    pub checkpoint_mode: Option<String>,
    pub net: Option<String>,
    /// `review`, `apply` or `discard`.
    pub retention: Option<String>,
    pub base: Option<String>,
    pub scratch: Option<String>,
    pub backend: Option<String>,
    pub profile: Option<String>,
    pub allow_degraded: bool,
    pub ro: Vec<String>,
    pub rw: Vec<String>,
    /// Of no account: links are followed anew.
    pub links: BTreeMap<String, String>,
    /// Of no account: every path of `ro` is named.
    pub ro_named: Vec<String>,
    pub tmpfs: Vec<String>,
    pub hide: Vec<String>,
    /// Of no account: cache directories come from the settings.
    pub cache: Vec<String>,
    /// Variables and their values.
    pub env: BTreeMap<String, String>,
    /// Of no account: what they set is in `env`.
    pub env_files: Vec<String>,
    /// As `--reproducible`.
    pub reproducible: bool,
    /// As `--clock-fixed` takes it.
    pub clock_fixed: Option<String>,
    /// Names of variables that are passed on where the caller has them, but for those that are fixed.
    pub environment: Vec<String>,
    /// Names of variables that are passed on and never written down.
    pub secrets: Vec<String>,
    /// Secrets that are given as files: `NAME=file`, or `NAME=PATH`.
    pub secret_files: Vec<String>,
    pub allow_secret_files: bool,
    /// What the run may use: numbers, or as the options take them.
    pub memory: Value,
    pub cpus: Value,
    pub pids: Value,
    pub disk: Value,
    pub files: Value,
    pub file_size: Value,
    pub seccomp: Option<String>,
    pub landlock: Option<String>,
    pub allow_userns: bool,
    /// Policy profiles to hold beside those of the files.
    pub policy: Vec<String>,
    /// `off`, `read` or `write`: whether remembered results are used.
    pub cache_mode: Option<String>,
    /// Paths of the host that the result depends on.
    pub inputs: Vec<String>,
    /// The network and what is shown of the host make no difference.
    pub pure: bool,
    /// `fail`, `wait` or `ask`.
    pub approval: Option<String>,
    /// An approval to use.
    pub approval_id: Option<String>,
}

/// What is wrong with a request, and where.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestFileError {
    #[error("line {line}, column {column}: {problem}")]
    Json { line: usize, column: usize, problem: String },
    #[error("it has more than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("{key}: {problem}")]
    Key { key: &'static str, problem: String },
}

impl RequestFile {
    pub fn parse(text: &[u8]) -> Result<Self, RequestFileError> {
        if text.len() > REQUEST_BYTES_MAX {
            return Err(RequestFileError::TooLong);
        }
        let file: Self = serde_json::from_slice(text).map_err(|error| json_problem(&error))?;
        file.check_version()?;
        Ok(file)
    }

    pub fn check_version(&self) -> Result<(), RequestFileError> {
        match self.schema_version {
            None | Some(SCHEMA_VERSION) => Ok(()),
            Some(other) => Err(bad("schema_version", format!("{other} is not known; this avfs knows 1"))),
        }
    }

    /// The keys that say something: all but those that are as without them.
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

    /// Refuses a value that `avfs-run --request` would refuse, whatever the host: for those who check requests long
    /// before they are run.
    pub fn check(&self) -> Result<(), RequestFileError> {
        fn word<T: FromStr<Err: std::fmt::Display>>(
            key: &'static str,
            value: Option<&str>,
        ) -> Result<(), RequestFileError> {
            let parsed = value.map(str::parse::<T>).transpose();
            parsed.map(drop).map_err(|error| bad(key, error.to_string()))
        }
        fn amount<T: FromStr<Err: std::fmt::Display>>(
            key: &'static str,
            value: &Value,
        ) -> Result<(), RequestFileError> {
            word::<T>(key, amount_text(value).as_deref())
        }
        self.check_version()?;
        self.command_line()?;
        word::<ForkName>("fork", self.fork.as_deref())?;
        word::<Reference>("from", self.from.as_deref())?;
        word::<ExecutionTimeout>("timeout", self.timeout.as_deref())?;
        word::<CheckpointMode>("checkpoint_mode", self.checkpoint_mode.as_deref())?;
        word::<NetMode>("net", self.net.as_deref())?;
        word::<Retention>("retention", self.retention.as_deref())?;
        word::<BaseChoice>("base", self.base.as_deref())?;
        word::<ScratchChoice>("scratch", self.scratch.as_deref())?;
        word::<BackendChoice>("backend", self.backend.as_deref())?;
        word::<Profile>("profile", self.profile.as_deref())?;
        word::<FixedClock>("clock_fixed", self.clock_fixed.as_deref())?;
        amount::<Limit>("memory", &self.memory)?;
        amount::<CpuLimit>("cpus", &self.cpus)?;
        amount::<Limit>("pids", &self.pids)?;
        amount::<Limit>("disk", &self.disk)?;
        amount::<Limit>("files", &self.files)?;
        amount::<Limit>("file_size", &self.file_size)?;
        word::<SeccompProfile>("seccomp", self.seccomp.as_deref())?;
        word::<LandlockMode>("landlock", self.landlock.as_deref())?;
        for profile in &self.policy {
            word::<PolicyProfile>("policy", Some(profile))?;
        }
        word::<ApprovalMode>("approval", self.approval.as_deref())?;
        word::<ApprovalPrefix>("approval_id", self.approval_id.as_deref())?;
        if self.retention.as_deref() == Some(Retention::Apply.word())
            && (self.fork.is_some() || self.readonly)
        {
            return Err(bad("retention", "apply goes neither with a fork nor with readonly".to_owned()));
        }
        Ok(())
    }

    /// The command that is meant.
    pub fn command_line(&self) -> Result<CommandLine, RequestFileError> {
        let mode = self.command_mode.as_deref();
        if !matches!(mode, None | Some("argv" | "shell")) {
            return Err(bad("command_mode", "it is argv or shell".to_owned()));
        }
        if let Some(words) = &self.command_base64 {
            let decoded = words.iter().map(|word| from_base64(word).map(OsString::from_vec));
            let words: Option<Vec<OsString>> = decoded.collect();
            let words = words.ok_or_else(|| bad("command_base64", "a word is not Base64".to_owned()))?;
            return Ok(match (mode, <[OsString; 3]>::try_from(words)) {
                // As a shell is called: what is meant is the line.
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
            (Value::Null, _) => Err(bad("command", "it is missing".to_owned())),
            (Value::String(_), _) => Err(bad("command", "with argv it is a list of words".to_owned())),
            (Value::Array(_), _) => Err(bad("command", "with shell it is one line".to_owned())),
            (Value::Bool(_) | Value::Number(_) | Value::Object(_), _) => {
                Err(bad("command", "it is neither a list of words nor a line".to_owned()))
            }
        }
    }
}

/// A number or a text as an option would take it; nothing for null.
pub fn amount_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

/// What is wrong with the JSON, and where.
pub fn json_problem(error: &serde_json::Error) -> RequestFileError {
    let text = error.to_string();
    let problem = text.split(" at line ").next().unwrap_or_default().to_owned();
    RequestFileError::Json { line: error.line(), column: error.column(), problem }
}

/// Tells null from nothing.
fn even_null<'d, D: Deserializer<'d>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::<u64>::deserialize(value).map(Some)
}

fn bad(key: &'static str, problem: String) -> RequestFileError {
    RequestFileError::Key { key, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Result<CommandLine, RequestFileError> {
        RequestFile::parse(text.as_bytes())?.command_line()
    }

    #[test]
    fn a_command_is_words_or_a_line() {
        let argv = |words: &[&str]| CommandLine::Argv(words.iter().map(OsString::from).collect());
        assert_eq!(command(r#"{"command": ["a", "b c"]}"#), Ok(argv(&["a", "b c"])));
        assert_eq!(command(r#"{"command": "a | b"}"#), Ok(CommandLine::Shell("a | b".into())));
        let odd = command(r#"{"command": ["?"], "command_base64": ["/w=="]}"#);
        assert_eq!(odd, Ok(CommandLine::Argv(vec![OsString::from_vec(vec![0xff])])));
        let line = r#"{"command_mode": "shell", "command_base64": ["L2Jpbi9zaA==", "LWM=", "/w=="]}"#;
        assert_eq!(command(line), Ok(CommandLine::Shell(OsString::from_vec(vec![0xff]))));
    }

    #[test]
    fn no_limit_is_not_the_default() {
        let timeout = |text: &str| RequestFile::parse(text.as_bytes()).unwrap().timeout_ms;
        assert_eq!(timeout("{}"), None);
        assert_eq!(timeout(r#"{"timeout_ms": null}"#), Some(None));
        assert_eq!(timeout(r#"{"timeout_ms": 5}"#), Some(Some(5)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, told) in [
            ("{\n  \"comand\": []}", "line 2, column 10: unknown field `comand`"),
            ("{\"command\": [}", "line 1, column 14"),
            ("{\"command\": [], \"rw\": 1}", "invalid type: integer `1`, expected a sequence"),
            ("{}", "command: it is missing"),
            ("{\"command\": [1]}", "command: a word is not a string"),
            ("{\"command\": {}}", "command: it is neither"),
            ("{\"command\": \"x\", \"command_mode\": \"argv\"}", "command: with argv it is a list"),
            ("{\"command\": [\"x\"], \"command_mode\": \"y\"}", "command_mode: it is argv or shell"),
            ("{\"command\": [\"x\"], \"schema_version\": 2}", "schema_version: 2 is not known"),
            ("{\"command_base64\": [\"?\"]}", "command_base64: a word is not Base64"),
        ] {
            let error = command(text).unwrap_err().to_string();
            assert!(error.starts_with(told) || error.contains(told), "{text}: {error}");
        }
    }
}
