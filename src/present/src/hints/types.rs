//! Hints for names, ids, paths and values that cannot be parsed.

use std::ffi::OsStr;

use avfs_types::diagnose::shell_word;
use avfs_types::ids::{Drawn, DrawnIdError, NameError, PREFIX_HEX_DIGITS_MIN, RUN_ID_HEX_DIGITS};
use avfs_types::path::PathError;
use avfs_types::reference::{BadReference, Reference};
use avfs_types::{UnitError, WordError};

use crate::{Avfs, hint};

hint!(BadReference, |error, avfs| for_range(&error.reference, avfs).or_else(|| Some(
    "expected FORK, FORK@CHECKPOINT, FORK~N, run:ID, last, or the first four or more digits of a version"
        .into(),
)));

/// The hint for `A..B`, as other tools write two versions.
pub fn for_range(reference: &str, avfs: &Avfs) -> Option<String> {
    let (before, after) = reference.split_once("..")?;
    let name = |word: &str, otherwise: &str| {
        let word = word.trim_matches('.');
        match word {
            "" => otherwise.to_owned(),
            // No character of a reference needs quotes.
            word if Reference::parse(word).is_ok() => word.to_owned(),
            word => shell_word(OsStr::new(word)),
        }
    };
    let (before, after) = (name(before, "A"), name(after, "B"));
    Some(format!("name the two versions as separate arguments: {avfs} diff {before} {after}"))
}

hint!(PathError, |_, _| Some("name a path inside the workspace, such as src/main.rs".into()));

hint!(UnitError, |error, _| {
    let hint = match error {
        Self::Size(_) => "write a size such as 4096, 500K, 20MiB or 10GiB",
        Self::Nothing(_) => "write none for no limit",
        Self::Cpus(_) => "write a number such as 2 or 0.5",
        Self::Span(_) => "write a duration such as 90s, 30m, 12h, 7d or 2w",
        Self::Clock(_) => "write a time such as 2026-01-31T12:00:00Z, or @ and seconds since 1970",
        Self::Since(_) => {
            "write a duration such as 12h, or a time such as 2026-01-31, '2026-01-31 12:00:00' or 2026-01-31T12:00:00Z"
        }
    };
    Some(hint.into())
});

hint!(WordError, |_, _| None);

hint!(NameError, |error, avfs| Some(match error {
    Self::BadCharacter { name, found: ':', .. } if name.starts_with("run:") => {
        format!("the fork of a run is named run-ID; list runs with: {avfs} runs list")
    }
    Self::Empty { .. }
    | Self::TooLong { .. }
    | Self::BadCharacter { .. }
    | Self::BadSlash { .. }
    | Self::BadStart { .. }
    | Self::Misleading { .. } => {
        "choose a name such as fix-1 or release_2.0".into()
    }
}));

hint!(DrawnIdError, |error, avfs| {
    let listing = match error.what {
        Drawn::Run => "runs list",
        Drawn::Approval => "approvals list",
        Drawn::Batch => "batch --list",
    };
    Some(format!(
        "an id has {RUN_ID_HEX_DIGITS} hex digits; the first {PREFIX_HEX_DIGITS_MIN} or more identify it; list ids with: \
             {avfs} {listing}"
    ))
});
