//! Hints for command lists, recordings and replays.

use avfs_lists::list::ListError;
use avfs_lists::race::ScoreError;
use avfs_lists::record::SelectionError;
use avfs_lists::replay::NoiseError;

use crate::hint;

hint!(ListError, |error, _| {
    let hint = match error {
        Self::Unreadable { .. } => "name a file with one command per line, or - for standard input",
        Self::Spool { .. } => "free some space there, or set TMPDIR to another directory",
        Self::Line { near: Some(near), .. } => return Some(format!("did you mean {near}?")),
        Self::Line { near: None, .. } | Self::Unwritable { .. } => {
            "for all keys, see ListItem in: avfs schema"
        }
        Self::LineTooLong { .. } => "put long input into a file in the workspace",
        Self::TooMany { .. } | Self::TooManyLines { .. } => "split it into several lists",
        Self::Newer { .. } => "use the avfs that recorded it, or a newer one",
        Self::Duplicate { .. } => "give it another id, or omit the id to use the item's number",
        Self::UnknownNeed { .. } => "needs contains ids; an item without an id has its number, starting at 1",
        Self::Cycle { .. } => "remove one of these needs",
        Self::Changed { .. } => "start again, and do not change the file while the batch runs",
    };
    Some(hint.into())
});

hint!(SelectionError, |error, avfs| match error {
    Self::Vault(error) => error.hint(avfs),
    Self::Ambiguous { name } => Some(format!("choose one: fork:{name} or recording:{name}")),
    Self::Unknown { .. } => {
        Some(format!(
            "list forks, recordings and runs with: {avfs} fork list, {avfs} record list, {avfs} runs list"
        ))
    }
});

hint!(ScoreError, |error, _| match error {
    Self::Nothing | Self::NotANumber { .. } => Some("print a number as the last line".into()),
});

hint!(NoiseError, |_, _| Some("write paths as globs (build/**) and outputs as regular expressions".into()));
