//! One line of a list: its kind, and its item.

use avfs_request::spec::{RunSpec, SpecError, read_json};
use avfs_types::base64::base64;
use avfs_types::toml_source::nearest;
use avfs_wire::{LIST_VERSION, ListHeader, ListItem};

use super::check::check;

/// The format of the items. A list has a single format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON objects.
    Json,
    /// Shell command lines.
    Plain,
}

impl Form {
    /// Detects the format from the first line that is neither empty nor a comment.
    pub fn of(line: &[u8]) -> Self {
        if line.trim_ascii_start().starts_with(b"{") { Self::Json } else { Self::Plain }
    }
}

/// An error in a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    Json { column: Option<usize>, problem: String, near: Option<String> },
    Newer { version: u64 },
}

impl Wrong {
    pub fn value(problem: String) -> Self {
        Self::Json { column: None, problem, near: None }
    }

    fn json(error: &SpecError) -> Self {
        let SpecError::Json { column, problem: text, .. } = error else {
            return Self::value(error.to_string());
        };
        let (problem, known) = text.split_once(", expected one of ").unwrap_or((text.as_str(), ""));
        let near = problem.strip_prefix("unknown field `").and_then(|rest| {
            let word = rest.trim_end_matches('`');
            let known = known.split(", ").map(|key| key.trim_matches('`'));
            let meant = OTHER_NAMES.iter().find(|(name, _)| *name == word).map(|(_, key)| *key);
            meant.or_else(|| nearest(word, known.chain(OWN_KEYS))).map(str::to_owned)
        });
        // The expected keys of an unknown field are omitted: the list has every key of an item.
        let problem = if problem.starts_with("unknown field") { problem } else { text };
        let column = Some(*column).filter(|column| *column > 0);
        Self::Json { column, problem: problem.to_owned(), near }
    }
}

/// Keys that other tools use, and the key of an item with that meaning.
const OTHER_NAMES: [(&str, &str); 4] =
    [("cmd", "command"), ("argv", "command"), ("args", "command"), ("depends", "needs")];

/// The keys of an item that are not keys of a request.
const OWN_KEYS: [&str; 7] = ["id", "needs", "start", "expected", "retries", "noise", "run"];

/// True for an empty line or a comment.
pub fn is_silent(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.starts_with(b"#")
}

/// The header, if the first line is a header.
pub fn header(line: &[u8]) -> Result<Option<ListHeader>, Wrong> {
    /// Only the key that identifies a header: a newer header may have unknown keys.
    #[derive(serde::Deserialize)]
    struct Version {
        avfs_list: Option<u64>,
    }
    match read_json::<Version>(line) {
        Ok(Version { avfs_list: Some(version) }) if version > LIST_VERSION => Err(Wrong::Newer { version }),
        Ok(Version { avfs_list: Some(0) }) => Err(Wrong::value("avfs_list starts at 1".to_owned())),
        Ok(Version { avfs_list: Some(_) }) => read_json(line).map(Some).map_err(|error| Wrong::json(&error)),
        // Other errors are reported when the line is parsed as an item.
        Ok(Version { avfs_list: None }) => Ok(None),
        Err(error) if line.windows(11).any(|part| part == b"\"avfs_list\"") => Err(Wrong::json(&error)),
        Err(_) => Ok(None),
    }
}

/// The item in a line. `number` counts from 1.
pub fn item(line: &[u8], form: Form, number: u32) -> Result<ListItem, Wrong> {
    let mut item = match form {
        Form::Json => {
            // Without the newline: otherwise an unexpected end would be reported on the next line.
            let item: ListItem = read_json(line.trim_ascii_end()).map_err(|error| Wrong::json(&error))?;
            check(&item)?;
            item
        }
        Form::Plain => plain(line)?,
    };
    if item.id.is_empty() {
        item.id = number.to_string();
    }
    Ok(item)
}

/// A shell command line of arbitrary bytes.
fn plain(line: &[u8]) -> Result<ListItem, Wrong> {
    let line = line.trim_ascii_start();
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.contains(&0) {
        return Err(Wrong::value(
            "the line contains a NUL byte, which cannot be part of an argument".to_owned(),
        ));
    }
    let request = match std::str::from_utf8(line) {
        Ok(text) => RunSpec { command: text.into(), ..RunSpec::default() },
        Err(_) => RunSpec {
            command_mode: Some("shell".to_owned()),
            command_base64: Some([b"/bin/sh", &b"-c"[..], line].map(base64).to_vec()),
            ..RunSpec::default()
        },
    };
    Ok(ListItem { request, ..ListItem::default() })
}
