//! Archives and compression.

use super::{Judge, Row};
use crate::read::found::{Call, Found, shown};
use crate::read::options;
use crate::read::options::{Does, Operands, Opt, Order, Spec, Takes, parse};
use crate::read::places::Place;
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row("tar gtar bsdtar", Judge::By(tar)),
    Row(
        "zip",
        Judge::Table(&Spec {
            base: &[Does::Mutates("writes an archive")],
            opts: &[
                Opt("TT unzip-command", Takes::Value, Does::RunsText("runs a command to test with")),
                Opt("T test", Takes::Nothing, Does::Mutates("can run a command to test with")),
                Opt("m move", Takes::Nothing, Does::Destroys("deletes what it has packed")),
                Opt("b temp-path n suffixes i include x exclude t tt", Takes::Nothing, Does::Nothing),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "unzip",
        Judge::Table(&Spec {
            base: &[Does::Mutates("unpacks files")],
            opts: &[
                Opt("l p t v Z z", Takes::Nothing, Does::Looks),
                Opt("d", Takes::Value, Does::Writes("unpacks files")),
                Opt("o", Takes::Nothing, Does::Mutates("overwrites files")),
                Opt("P x", Takes::Value, Does::Nothing),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "gzip gunzip bzip2 bunzip2 xz unxz lzma unlzma zstd unzstd lz4 unlz4 brotli compress uncompress pigz pbzip2 pxz lzip",
        Judge::Table(&Spec {
            base: &[Does::Mutates("writes a file and removes the old one")],
            opts: &[
                Opt("l list t test c stdout to-stdout", Takes::Nothing, Does::Looks),
                Opt("o output", Takes::Value, Does::Writes("writes a file")),
                Opt(
                    "train train-cover train-fastcover train-legacy",
                    Takes::Attached,
                    Does::Mutates("writes a dictionary"),
                ),
                Opt("S suffix T threads p processes", Takes::Value, Does::Nothing),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "cpio pax",
        Judge::Table(&Spec {
            base: &[Does::Mutates("packs or unpacks files")],
            opts: &[
                Opt("t list", Takes::Nothing, Does::Looks),
                Opt("F file O I", Takes::Value, Does::Writes("writes a file")),
                Opt("rsh-command", Takes::Value, Does::RunsText("runs a program to connect with")),
                Opt(
                    "o create i extract p pass-through",
                    Takes::Nothing,
                    Does::Mutates("packs or unpacks files"),
                ),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row("7z 7za 7zr 7zz rar unrar", Judge::By(seven)),
    Row("ar", Judge::By(ar)),
    Row("dpkg-deb ark atool aunpack apack jar", Judge::Does(&[Does::Mutates("packs or unpacks files")])),
];

const TAR: &[Opt] = &[
    Opt("to-command", Takes::Value, Does::RunsText("runs a command for each file")),
    Opt("I use-compress-program use-compress-prog", Takes::Value, Does::RunsText("runs a program")),
    Opt("F info-script new-volume-script", Takes::Value, Does::RunsText("runs a script")),
    Opt("rsh-command rmt-command", Takes::Value, Does::RunsText("runs a program to connect with")),
    Opt("checkpoint-action", Takes::Value, Does::Nothing),
    Opt("checkpoint", Takes::Attached, Does::Nothing),
    Opt("remove-files delete", Takes::Nothing, Does::Destroys("deletes files")),
    Opt("index-file volno-file", Takes::Value, Does::Writes("writes a file")),
    Opt(
        "C directory f file T files-from X exclude-from exclude strip-components transform xform b K N V g",
        Takes::Value,
        Does::Nothing,
    ),
    Opt("list t create extract get append update concatenate catenate", Takes::Nothing, Does::Nothing),
];

fn tar(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let args = dashed(call.args);
    let parsed = parse(&args, TAR, Order::Any);
    // Without its mode no tar does anything; only `t` does not write.
    let is_mode = |names: &[&str]| parsed.has(names);
    let lists = is_mode(&["t", "list"])
        && !is_mode(&[
            "c",
            "x",
            "r",
            "u",
            "A",
            "create",
            "extract",
            "get",
            "append",
            "update",
            "concatenate",
            "catenate",
        ]);
    if !lists {
        found.mutates("`tar` packs or unpacks files");
        if let Some(directory) = parsed.value(&["C", "directory"]) {
            options::writes("`tar -C`", directory, found, reader);
        }
    }
    let spec = Spec { base: &[], opts: TAR, operands: Operands::Ignored };
    options::judge(&spec, &Call { args: &args, ..*call }, found, reader);
    for given in &parsed.given {
        let Some(value) = &given.value else { continue };
        match given.name {
            // Options may be cut short.
            name if name.len() > 10 && "checkpoint-action".starts_with(name) => {
                checkpoint_action(value, found, reader)
            }
            "f" | "file" => archive(value, &parsed, found, reader),
            _ => {}
        }
    }
}

/// The first word may have its letters without a dash, and then their values follow in order: `tar cfC a.tar src .`.
fn dashed(args: &[Word]) -> Vec<Word> {
    let Some((Word::Known(letters), rest)) = args.split_first() else { return args.to_vec() };
    if letters.starts_with('-') {
        return args.to_vec();
    }
    let mut rest = rest.iter();
    let mut words = Vec::new();
    for letter in letters.chars() {
        words.push(Word::Known(format!("-{letter}")));
        if matches!(letter, 'f' | 'C' | 'T' | 'X' | 'b' | 'K' | 'N' | 'V' | 'g' | 'I' | 'F') {
            words.extend(rest.next().cloned());
        }
    }
    words.extend(rest.cloned());
    words
}

fn checkpoint_action(value: &Word, found: &mut Found, reader: &mut Reader<'_>) {
    match value.shown().split_once('=') {
        Some(("exec", text)) => {
            found.mutates("`tar --checkpoint-action` runs a command");
            let text = text.trim_matches(['\'', '"']).to_owned();
            let text = if value.known().is_some() { Word::Known(text) } else { Word::Unknown(text) };
            reader.text(&text, Dialect::Sh);
        }
        _ if value.known().is_none() => found.mutates("`tar --checkpoint-action` may run a command"),
        _ => {}
    }
}

fn archive(file: &Word, parsed: &options::Parsed<'_>, found: &mut Found, reader: &Reader<'_>) {
    let host = file.shown().split('/').next().unwrap_or("");
    if host.contains(':') {
        found.networks(format!("the archive `{}` is on another machine", shown(file.shown())));
    } else if parsed.has(&["c", "create", "r", "append", "u", "update", "delete"]) && file.shown() != "-" {
        options::writes("`tar`", file, found, reader);
    }
}

fn seven(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    match call.first() {
        Some("l" | "t" | "i" | "lb" | "lt" | "vb" | "vt" | "b" | "h") => {}
        Some("d") => found.destroys(format!("`{}` deletes from an archive", call.name)),
        _ => found.mutates(format!("`{}` packs or unpacks files", call.name)),
    }
    for word in call.args {
        if let Some(directory) = word.shown().strip_prefix("-o") {
            let directory = Word::Known(directory.to_owned());
            if reader.places.of(&directory) == Place::Outside {
                options::writes(&format!("`{}`", call.name), &directory, found, reader);
            }
        }
    }
}

fn ar(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let first = call.first().unwrap_or("r");
    // `--plugin` loads a library.
    let looks = first.trim_start_matches('-').starts_with(['t', 'p', 'V']) && !first.starts_with("--");
    if !looks {
        found.mutates("`ar` changes an archive");
    }
}
