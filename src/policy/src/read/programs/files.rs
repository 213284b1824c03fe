//! Making, copying, moving and removing files.

use super::{Judge, Row};
use crate::read::found::{Call, Found, shown};
use crate::read::options;
use crate::read::options::{Does, Operands, Opt, Spec, Takes};
use crate::read::places::Place;
use crate::read::reader::Reader;
use crate::reading::Word;

const WRITES: &[Does] = &[Does::Mutates("writes files")];
const ATTRIBUTES: &[Does] = &[Does::Mutates("changes attributes of files")];
const REMOVES: &[Does] = &[Does::Destroys("deletes files")];

/// Options of cp, mv and ln.
const COPYING: &[Opt] = &[
    Opt("t target-directory", Takes::Value, Does::Writes("writes files")),
    Opt("S suffix", Takes::Value, Does::Nothing),
    Opt("backup", Takes::Attached, Does::Nothing),
];

const INSTALLING: &[Opt] = &[
    Opt("t target-directory", Takes::Value, Does::Writes("writes files")),
    Opt("S suffix m mode o owner g group", Takes::Value, Does::Nothing),
    Opt("strip-program", Takes::Value, Does::RunsText("runs a program")),
];

const fn written(base: &'static [Does], opts: &'static [Opt]) -> Spec {
    Spec { base, opts, operands: Operands::Written }
}

pub const ROWS: &[Row] = &[
    Row("rm unlink", Judge::Table(&Spec { base: REMOVES, opts: &[], operands: Operands::Written })),
    Row(
        "rmdir",
        Judge::Table(&Spec {
            base: &[Does::Destroys("deletes directories")],
            opts: &[],
            operands: Operands::Written,
        }),
    ),
    Row(
        "shred",
        Judge::Table(&written(
            &[Does::Destroys("overwrites files")],
            &[Opt("n iterations s size random-source", Takes::Value, Does::Nothing)],
        )),
    ),
    Row("wipe srm", Judge::Table(&written(&[Does::Destroys("overwrites files")], &[]))),
    Row(
        "truncate",
        Judge::Table(&written(
            &[Does::Destroys("cuts files")],
            &[Opt("s size r reference", Takes::Value, Does::Nothing)],
        )),
    ),
    Row(
        "fallocate",
        Judge::Table(&written(
            &[Does::Destroys("cuts files")],
            &[Opt("o offset l length", Takes::Value, Does::Nothing)],
        )),
    ),
    Row("install", Judge::Table(&Spec { base: WRITES, opts: INSTALLING, operands: Operands::LastWritten })),
    Row("cp", Judge::Table(&Spec { base: WRITES, opts: COPYING, operands: Operands::LastWritten })),
    // What is moved is gone from where it was.
    Row("mv rename", Judge::Table(&Spec { base: WRITES, opts: COPYING, operands: Operands::Written })),
    Row(
        "ln link symlink",
        Judge::Table(&Spec { base: WRITES, opts: COPYING, operands: Operands::LastWritten }),
    ),
    Row(
        "touch",
        Judge::Table(&written(WRITES, &[Opt("d date r reference t time", Takes::Value, Does::Nothing)])),
    ),
    Row("mkdir mkfifo mknod", Judge::Table(&written(WRITES, &[Opt("m mode", Takes::Value, Does::Nothing)]))),
    Row("mktemp", Judge::Table(&written(WRITES, &[Opt("p tmpdir suffix", Takes::Value, Does::Nothing)]))),
    Row("chmod chattr", Judge::Table(&written(ATTRIBUTES, &[]))),
    Row("setfacl", Judge::Table(&written(ATTRIBUTES, &[Opt("m x M X", Takes::Value, Does::Nothing)]))),
    Row("setfattr", Judge::Table(&written(ATTRIBUTES, &[Opt("n v x", Takes::Value, Does::Nothing)]))),
    Row("chown chgrp", Judge::By(chown)),
    Row("tee sponge", Judge::Table(&Spec { base: &[], opts: &[], operands: Operands::Written })),
    Row("dd dcfldd ddrescue", Judge::By(dd)),
    Row("split csplit", Judge::Does(&[Does::Mutates("writes the parts")])),
    Row(
        "patch",
        Judge::Table(&Spec {
            base: &[Does::Mutates("changes files")],
            opts: &[
                Opt("dry-run", Takes::Nothing, Does::Looks),
                Opt("o output r reject-file d directory", Takes::Value, Does::Writes("writes a file")),
                Opt("i input p strip F fuzz B z V Y", Takes::Value, Does::Nothing),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row("sync fsync", Judge::Looks),
    Row("rsync", Judge::By(rsync)),
];

fn chown(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` changes attributes of files", call.name));
    found.escapes(format!("`{}` gives files to another user", call.name));
    for word in call.args.iter().skip(1).filter(|word| !word.shown().starts_with('-')) {
        options::writes(&format!("`{}`", call.name), word, found, reader);
    }
}

fn dd(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    for word in call.args {
        let text = word.shown();
        let file = match word {
            Word::Known(_) => text.strip_prefix("of=").map(|file| Word::Known(file.to_owned())),
            Word::Unknown(_) => match text.trim_start_matches('"').strip_prefix("of=") {
                Some(file) => Some(Word::Unknown(file.to_owned())),
                // It may be any operand.
                None if text.starts_with(['$', '"', '`']) => Some(word.clone()),
                None => None,
            },
        };
        let Some(file) = file else { continue };
        options::writes(&format!("`{}`", call.name), &file, found, reader);
        if file.shown().starts_with("/dev/") && reader.places.of(&file) == Place::Outside {
            found.destroys(format!("`{}` overwrites the device `{}`", call.name, shown(file.shown())));
        }
    }
}

const RSYNC: &[Opt] = &[
    Opt("e rsh", Takes::Value, Does::RunsText("runs a program to connect with")),
    Opt("rsync-path", Takes::Value, Does::RunsText("runs a program on the other side")),
    Opt(
        "delete delete-before delete-after delete-during delete-excluded del",
        Takes::Nothing,
        Does::Destroys("deletes files"),
    ),
    Opt("remove-source-files", Takes::Nothing, Does::Destroys("deletes files")),
    Opt("n dry-run list-only", Takes::Nothing, Does::Looks),
    Opt(
        "log-file write-batch only-write-batch backup-dir temp-dir T partial-dir",
        Takes::Value,
        Does::Writes("writes a file"),
    ),
    Opt(
        "f filter exclude include exclude-from include-from files-from B block-size max-size min-size timeout port password-file bwlimit M",
        Takes::Value,
        Does::Nothing,
    ),
];

fn rsync(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let spec = Spec { base: &[Does::Mutates("writes files")], opts: RSYNC, operands: Operands::Ignored };
    options::judge(&spec, call, found, reader);
    let parsed = options::parse(call.args, RSYNC, options::Order::Any);
    let is_remote = |word: &&Word| {
        let before_slash = word.shown().split('/').next().unwrap_or("");
        before_slash.contains(':')
    };
    if parsed.operands.iter().any(is_remote) {
        found.networks("`rsync` copies over the network");
    } else if let ([_, .., last], false) = (parsed.operands.as_slice(), parsed.has(&["n", "dry-run"])) {
        options::writes("`rsync`", last, found, reader);
    }
}
