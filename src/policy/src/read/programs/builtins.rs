//! What shells do themselves.

use super::shells::names_script;
use super::{Judge, Row};
use crate::read::assignments;
use crate::read::found::{Call, Found, shown};
use crate::read::options::{Does, Operands, Opt, Order, Spec, Takes, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row(
        ": true false test [ [[ echo pwd exit return break continue shift set shopt umask ulimit \
         wait times type let dirs caller disown bg suspend logout unalias",
        Judge::Looks,
    ),
    Row("export declare typeset local readonly", Judge::By(declare)),
    Row("printf", Judge::By(printf)),
    Row("getopts", Judge::By(getopts)),
    Row("jobs", Judge::By(jobs)),
    Row(
        "hash",
        Judge::Table(&Spec {
            base: &[],
            opts: &[Opt("p", Takes::Value, Does::Mutates("makes a name run something else"))],
            operands: Operands::Ignored,
        }),
    ),
    Row(
        "history",
        Judge::Table(&Spec {
            base: &[],
            opts: &[
                Opt("w a", Takes::Nothing, Does::Mutates("writes a file")),
                Opt("d", Takes::Value, Does::Nothing),
            ],
            operands: Operands::Ignored,
        }),
    ),
    Row("cd chdir pushd popd", Judge::By(cd)),
    Row("eval", Judge::By(eval)),
    Row("source .", Judge::By(source)),
    Row("trap", Judge::By(trap)),
    Row("alias", Judge::By(alias)),
    Row("exec", Judge::By(exec)),
    Row("command", Judge::By(command)),
    Row("builtin", Judge::By(builtin)),
    Row("unset", Judge::By(unset)),
    Row("read mapfile readarray", Judge::By(read)),
    Row("fg", Judge::Does(&[Does::Talks("takes the terminal")])),
    Row("enable bind complete compgen compopt fc", Judge::By(loads)),
];

fn declare(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let is_reference = |word: &Word| word.shown().starts_with('-') && word.shown().contains('n');
    if call.name != "export" && call.args.iter().any(is_reference) {
        found.mutates(format!("`{} -n` makes a name stand for another variable", call.name));
    }
    for word in call.args {
        let Some((name, value)) = word.shown().split_once('=') else { continue };
        let value = match word {
            Word::Known(_) => Word::Known(value.to_owned()),
            Word::Unknown(_) => Word::Unknown(value.to_owned()),
        };
        assignments::judge(name, &value, found);
    }
}

fn printf(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let variable = match call.args {
        [flag, name, ..] if flag.shown() == "-v" => Some(name.shown()),
        [attached, ..] => attached.shown().strip_prefix("-v"),
        [] => None,
    };
    if let Some(name) = variable {
        assignments::judge_name(name, found);
    }
}

fn getopts(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    if let Some(name) = call.args.get(1) {
        assignments::judge_name(name.shown(), found);
    }
}

/// `jobs -x` runs what follows.
fn jobs(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    if call.first() == Some("-x") {
        reader.inner(call.args.get(1..).unwrap_or_default(), call.input);
    }
}

fn cd(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    let to = call.args.iter().find(|word| !word.shown().starts_with('-') || word.shown() == "-");
    match to {
        _ if call.name == "popd" => reader.places.change(None),
        Some(Word::Known(path)) if path != "-" => reader.places.change(Some(path)),
        Some(_) => reader.places.change(None),
        None => {
            let home = reader.places.home.clone();
            reader.places.change(home.as_deref());
        }
    }
}

/// All words as one text, if all are known.
pub fn joined(words: &[Word]) -> Word {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    match known {
        Some(known) => Word::Known(known.join(" ")),
        None => Word::Unknown(words.iter().map(Word::shown).collect::<Vec<_>>().join(" ")),
    }
}

fn eval(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    let args = match call.args {
        [Word::Known(dashes), rest @ ..] if dashes == "--" => rest,
        all => all,
    };
    reader.text(&joined(args), Dialect::Sh);
}

fn source(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` runs a script", call.name));
    // What is in a script of the workspace is not read: it counts as writing, as any program of the workspace does.
    match call.args.first() {
        Some(file) if names_script(file) => {}
        _ => reader.doubt(format!("it is not known what `{}` is given to run", call.name)),
    }
}

fn trap(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    match call.args {
        [Word::Known(dashes), text, ..] if dashes == "--" => reader.text(text, Dialect::Sh),
        [Word::Known(flag), ..] if flag.starts_with('-') => {}
        [text, _, ..] => reader.text(text, Dialect::Sh),
        [_] | [] => {}
    }
}

fn alias(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    for word in call.args {
        match word {
            Word::Known(text) => {
                let Some((name, value)) = text.split_once('=') else { continue };
                reader.text(&Word::Known(value.to_owned()), Dialect::Sh);
                found.mutates(format!("`alias` makes `{}` run something else", shown(name)));
            }
            Word::Unknown(_) => reader.text(word, Dialect::Sh),
        }
    }
}

fn exec(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, &[Opt("a", Takes::Value, Does::Nothing)], Order::OptionsFirst);
    let rest = call.args.get(parsed.before_operands..).unwrap_or_default();
    reader.inner(rest, call.input);
}

fn command(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, &[], Order::OptionsFirst);
    if !parsed.has(&["v", "V"]) {
        reader.inner(call.args.get(parsed.before_operands..).unwrap_or_default(), call.input);
    }
}

fn builtin(call: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    reader.inner(call.args, call.input);
}

fn unset(_: &Call<'_>, _: &mut Found, reader: &mut Reader<'_>) {
    reader.forget_functions();
}

/// `mapfile -C` runs a text for each line.
fn read(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let opts =
        [Opt("C", Takes::Value, Does::Nothing), Opt("d n N p t u i a c O s", Takes::Value, Does::Nothing)];
    let parsed = parse(call.args, &opts, Order::Any);
    if let Some(text) = parsed.value(&["C"]) {
        found.mutates(format!("`{} -C` runs a text", call.name));
        reader.text(text, Dialect::Bash);
    }
    let array = parsed.value(&["a"]).filter(|_| call.name == "read");
    for name in parsed.operands.iter().copied().chain(array) {
        assignments::judge_name(name.shown(), found);
    }
}

/// They can load or run code, and nobody needs them in a script.
fn loads(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    found.mutates(format!("`{}` can make the shell run something else", call.name));
    if call.args.iter().any(may_run) {
        reader.doubt(format!("it is not known what `{}` makes the shell run", call.name));
    }
}

fn may_run(word: &Word) -> bool {
    ["-x", "-C", "-F", "-f", "-e", "-s"].iter().any(|flag| word.shown().starts_with(flag))
        || word.known().is_none()
}
