//! Shell builtins that a table cannot describe.

use super::Program;
use super::shells::names_script;
use crate::read::assignments;
use crate::read::findings::{Call, Findings, shown};
use crate::read::options::{Order, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub fn declare(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let is_reference = |word: &Word| word.shown().starts_with('-') && word.shown().contains('n');
    if call.name != "export" && call.args.iter().any(is_reference) {
        found.mutates(format!("`{} -n` makes a name refer to another variable", call.name));
    }
    for word in call.args {
        let Some((name, value)) = word.shown().split_once('=') else { continue };
        let value = match word {
            Word::Known(_) => Word::Known(value.to_owned()),
            Word::Unknown(_) => Word::Unknown(value.to_owned()),
        };
        assignments::judge(name, &value, found, reader);
    }
}

pub fn printf(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let variable = match call.args {
        [flag, name, ..] if flag.shown() == "-v" => Some(name.shown()),
        [attached, ..] => attached.shown().strip_prefix("-v"),
        [] => None,
    };
    if let Some(name) = variable {
        assignments::judge_name(name, found, reader);
    }
}

pub fn getopts(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    if let Some(name) = call.args.get(1) {
        assignments::judge_name(name.shown(), found, reader);
    }
}

pub fn cd(_: &'static Program, call: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    let to = call.args.iter().find(|word| !word.shown().starts_with('-') || word.shown() == "-");
    match to {
        _ if call.name == "popd" => reader.paths.change(None),
        Some(Word::Known(path)) if path != "-" => reader.paths.change(Some(path)),
        Some(_) => reader.paths.change(None),
        None => {
            let home = reader.paths.home.clone();
            reader.paths.change(home.as_deref());
        }
    }
}

pub fn source(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` runs a script", call.name));
    // A script of the workspace is not parsed: it counts as writing, as any program of the workspace does.
    match call.args.first() {
        Some(file) if names_script(file) => {}
        _ => reader.doubt(format!("the script that `{}` runs is not known", call.name)),
    }
}

pub fn trap(_: &'static Program, call: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    match call.args {
        [Word::Known(dashes), text, ..] if dashes == "--" => reader.text(text, Dialect::Sh),
        [Word::Known(flag), ..] if flag.starts_with('-') => {}
        [text, _, ..] => reader.text(text, Dialect::Sh),
        [_] | [] => {}
    }
}

pub fn alias(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    for word in call.args {
        match word {
            Word::Known(text) => {
                let Some((name, value)) = text.split_once('=') else { continue };
                reader.text(&Word::Known(value.to_owned()), Dialect::Sh);
                found.mutates(format!("`alias` makes `{}` run another command", shown(name)));
            }
            Word::Unknown(_) => reader.text(word, Dialect::Sh),
        }
    }
}

pub fn unset(_: &'static Program, _: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    reader.forget_functions();
}

/// Variables that are read; `mapfile -C` runs a text for each line.
pub fn read(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, Order::Any);
    if let Some(text) = parsed.value("C") {
        found.mutates(format!("`{} -C` runs a text", call.name));
        reader.text(text, Dialect::Bash);
    }
    let array = parsed.value("a").filter(|_| call.name == "read");
    for name in parsed.operands.iter().copied().chain(array) {
        assignments::judge_name(name.shown(), found, reader);
    }
}
