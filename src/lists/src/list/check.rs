//! Checks that the shape of an item does not cover: digests, patterns, and the values of its request.

use regex::Regex;

use avfs_types::ids::{DIGEST_BYTES, RunId, from_hex};
use avfs_types::{CommandLine, glob};
use avfs_wire::{ListExpected, ListItem, ListNoise, ListStart};

use super::line::Wrong;

/// Maximum bytes of an id. Anything longer is not a useful name.
const ID_BYTES_MAX: usize = 200;

pub fn check(item: &ListItem) -> Result<(), Wrong> {
    let ListItem { id, needs, start, expected, retries: _, noise, run, request } = item;
    request.check().map_err(|error| Wrong::value(error.to_string()))?;
    let empty = match request.command_line().map_err(|error| Wrong::value(error.to_string()))? {
        CommandLine::Argv(words) => words.first().is_none_or(|word| word.is_empty()),
        CommandLine::Shell(line) => line.is_empty(),
    };
    if empty {
        return Err(Wrong::value("command: it is empty".to_owned()));
    }
    if id.len() > ID_BYTES_MAX {
        return Err(Wrong::value(format!("id: it has more than {ID_BYTES_MAX} bytes")));
    }
    if let Some(need) = needs.iter().find(|need| *need == id) {
        return Err(Wrong::value(format!("needs: {need:?} needs itself")));
    }
    if let Some(ListStart { version, tree, content }) = start {
        digests("start", [("version", version), ("tree", tree), ("content", content)])?;
    }
    if let Some(expected) = expected {
        let ListExpected { exit_code, signal, stdout, stderr, tree, content, version } = expected;
        if exit_code.is_some() && signal.is_some() {
            return Err(Wrong::value("expected: exit_code and signal are mutually exclusive".to_owned()));
        }
        digests("expected", [("stdout", stdout), ("stderr", stderr), ("tree", tree)])?;
        digests("expected", [("content", content), ("version", version)])?;
    }
    if let Some(run) = run {
        RunId::parse(run).map_err(|error| Wrong::value(format!("run: {error}")))?;
    }
    noise.as_ref().map_or(Ok(()), check_noise)
}

fn digests<const N: usize>(of: &str, named: [(&str, &Option<String>); N]) -> Result<(), Wrong> {
    for (key, digest) in named {
        let Some(digest) = digest else { continue };
        if from_hex(digest).is_none_or(|bytes| bytes.len() != DIGEST_BYTES) {
            return Err(Wrong::value(format!(
                "{of}.{key}: expected a digest of {} hex digits",
                2 * DIGEST_BYTES
            )));
        }
    }
    Ok(())
}

fn check_noise(noise: &ListNoise) -> Result<(), Wrong> {
    let ListNoise { mtimes: _, paths, output } = noise;
    for path in paths {
        glob::of_path(path).map_err(|error| Wrong::value(format!("noise.paths: {error}")))?;
    }
    for replaced in output {
        Regex::new(&replaced.pattern).map_err(|error| {
            // The message of regex shows the pattern over several lines; the last line is the error.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Wrong::value(format!("noise.output: invalid pattern {:?}: {reason}", replaced.pattern))
        })?;
    }
    Ok(())
}
