//! Shell builtins that a table cannot describe.

use super::Program;
use super::shells::names_script;
use crate::read::assignments;
use crate::read::findings::{Call, Findings, shown};
use crate::read::options::{Order, may_split, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub fn declare(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let is_reference = |word: &Word| word.shown().starts_with('-') && word.shown().contains('n');
    if call.name != "export" && call.args.iter().any(is_reference) {
        found.mutates(format!("`{} -n` makes a name refer to another variable", call.name));
    }
    let has = |letter: char| {
        call.args.iter().map(Word::shown).any(|text| text.starts_with('-') && text.contains(letter))
    };
    for word in call.args.iter().filter(|word| !word.shown().starts_with(['-', '+'])) {
        // `export "PATH=$x"`.
        let written = word.shown();
        let written = written.strip_prefix('"').filter(|_| word.known().is_none()).unwrap_or(written);
        let (name, value) = written.split_once('=').unwrap_or((word.shown(), ""));
        let name = name.strip_suffix('+').unwrap_or(name);
        reader.variable(name);
        if has('a') || has('A') {
            reader.array(name);
        }
        if has('i') {
            reader.evaluate(name);
            reader.evaluate(value);
        }
        if !written.contains('=') {
            continue;
        }
        let value = match word {
            Word::Known(_) => Word::Known(value.to_owned()),
            Word::Unknown(_) => Word::Unknown(value.to_owned()),
        };
        reader.declare(name, &value);
        assignments::judge(name.split('[').next().unwrap_or(""), &value, found, reader);
    }
}

/// Their arguments are arithmetic.
pub fn arithmetic(_: &'static Program, call: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    call.args.iter().for_each(|word| reader.evaluate(word.shown()));
}

/// The operators that compare numbers.
const COMPARES: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

fn is_one_of(word: Option<&Word>, list: &[&str]) -> bool {
    word.and_then(Word::known).is_some_and(|word| list.contains(&word))
}

/// The words beside an operator that compares numbers.
pub fn compared(words: &[Word]) -> impl Iterator<Item = &Word> {
    words.iter().enumerate().filter_map(|(at, word)| {
        let before = at.checked_sub(1).and_then(|before| words.get(before));
        (is_one_of(before, COMPARES) || is_one_of(words.get(at + 1), COMPARES)).then_some(word)
    })
}

/// The names after `-v`, in which a shell expands an index.
fn tested_names(words: &[Word], reader: &mut Reader<'_>) {
    let pairs = words.windows(2).filter(|pair| is_one_of(pair.first(), &["-v"]));
    pairs.filter_map(|pair| pair.last()).for_each(|name| reader.variable(name.shown()));
}

/// `test` and `[`: an unknown word can be a `-v`.
pub fn test(_: &'static Program, call: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    const AFTER_OPERANDS: &[&str] = &["]", ")", "=", "==", "!=", "<", ">", "-a", "-o", "-nt", "-ot", "-ef"];
    tested_names(call.args, reader);
    // Some shells evaluate numbers as `[[` does; a variable there would make most scripts a doubt.
    compared(call.args).filter_map(Word::known).for_each(|text| reader.evaluate(text));
    for (at, word) in call.args.iter().enumerate() {
        let next = call.args.get(at + 1);
        let is_operand = next.is_none() || is_one_of(next, AFTER_OPERANDS) || is_one_of(next, COMPARES);
        if word.known().is_none() && (may_split(word) || !is_operand) {
            reader.evaluate(word.shown());
        }
    }
}

/// `[[`: numbers are expressions.
pub fn conditional(_: &'static Program, call: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    tested_names(call.args, reader);
    compared(call.args).for_each(|word| reader.evaluate(word.shown()));
}

/// `wait -p x` assigns to a variable, and an unknown word can be a `-p`.
pub fn wait(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    for (at, word) in call.args.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| call.args.get(before)?.known());
        match word {
            _ if before == Some("-p") => assignments::judge_name(word.shown(), found, reader),
            Word::Known(text) => {
                if let Some(name) = text.strip_prefix("-p").filter(|name| !name.is_empty()) {
                    assignments::judge_name(name, found, reader);
                }
            }
            Word::Unknown(written) => reader.evaluate(written),
        }
    }
}

pub fn printf(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let variable = match call.args {
        [flag, name, ..] if flag.shown() == "-v" => Some(name.shown()),
        // It can be a `-vNAME`.
        [Word::Unknown(written), ..] if written.trim_start_matches('"').starts_with(['$', '`']) => {
            reader.evaluate(written);
            None
        }
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

pub fn unset(_: &'static Program, call: &Call<'_>, _: &mut Findings, reader: &mut Reader<'_>) {
    reader.forget_functions();
    let names = call.args.iter().map(Word::shown).filter(|word| !word.starts_with('-'));
    names.for_each(|name| reader.variable(name));
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
        if array.is_some() || call.name != "read" {
            reader.array(name.shown());
        }
        assignments::judge_name(name.shown(), found, reader);
    }
}
