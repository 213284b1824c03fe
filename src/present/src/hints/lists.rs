//! Hints for command lists, recordings and replays.

use avfs_lists::list::ListError;
use avfs_lists::race::ScoreError;
use avfs_lists::record::SelectionError;
use avfs_lists::replay::NoiseError;

use crate::hint;

hint!(ListError, |error, _| {
    let hint = match error {
        Self::Unreadable { .. } => "name a file with one command a line, or - for standard input",
        Self::Spool { .. } => "make room there, or set TMPDIR to another directory",
        Self::Line { near: Some(near), .. } => return Some(format!("did you mean {near}?")),
        Self::Line { near: None, .. } | Self::Unwritable { .. } => {
            "see every key with: avfs schema, under ListItem"
        }
        Self::LineTooLong { .. } => "put long input into a file of the workspace",
        Self::TooMany { .. } | Self::TooManyLines { .. } => "cut it into several lists",
        Self::Newer { .. } => "use the avfs that recorded it, or a newer one",
        Self::Duplicate { .. } => "give it another id, or none: then it is the item's number",
        Self::UnknownNeed { .. } => "needs names ids; an item without one has its number, from 1",
        Self::Cycle { .. } => "take one of these needs out",
        Self::Changed { .. } => "start again, and leave the file alone until it is done",
    };
    Some(hint.into())
});

hint!(SelectionError, |error, avfs| match error {
    Self::Vault(error) => error.hint(avfs),
    Self::Ambiguous { name } => Some(format!("say which: fork:{name} or recording:{name}")),
    Self::Unknown { .. } => {
        Some(format!("list them with: {avfs} fork list, {avfs} record list, {avfs} runs list"))
    }
});

hint!(ScoreError, |error, _| match error {
    Self::Nothing | Self::NotANumber { .. } => Some("print a number as the last line".into()),
});

hint!(NoiseError, |_, _| Some("write paths as globs (build/**) and outputs as regular expressions".into()));
