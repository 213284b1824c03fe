//! Interpreters whose arguments are parsed as far as it is useful.

use super::Program;
use super::judge::by_table;
use crate::read::findings::{Call, Findings};
use crate::read::options::{lists, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// Modules of `python -m` that are judged like the programs of the same name.
const PROGRAMS: &str = "pip pip3 pipx poetry uv black ruff mypy flake8 isort";

/// Modules that only print.
const PRINT: &str = "tokenize ast dis this calendar platform sysconfig site";

pub fn python(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let module = call.args.iter().position(|word| word.shown() == "-m" || is_flags_with_m(word.shown()));
    let code = call.args.iter().position(|word| !word.shown().starts_with('-') || word.shown() == "-c");
    // With `-i` it reads code after the module has ended.
    let asks = call.args.iter().any(|word| word.shown() == "-i");
    if let Some(at) = module.filter(|at| !asks && code.is_none_or(|code| *at < code))
        && let [name, rest @ ..] = call.args.get(at + 1..).unwrap_or_default()
    {
        if lists(PROGRAMS, name.shown()) {
            // With `-I` and `-P` the working directory is not searched.
            let options = call.args.iter().take(at + 1).map(Word::shown);
            if !options.into_iter().any(|option| option.contains(['I', 'P'])) {
                found.mutates(format!("`{} -m` runs a module of the working directory first", call.name));
            }
            return reader.inner(call.args.get(at + 1..).unwrap_or_default(), call.input);
        }
        let files = rest.iter().filter(|word| !word.shown().starts_with('-')).count();
        if lists(PRINT, name.shown()) || name.shown() == "json.tool" && files < 2 {
            return;
        }
        // A server does not need network access: without it, it serves the run's own loopback.
        if name.shown() == "ftplib" {
            found.networks(format!("`{} -m {}` makes connections", call.name, name.shown()));
        }
    }
    by_table(program, call, found, reader);
}

fn is_flags_with_m(word: &str) -> bool {
    // `-cm` runs the code `m`, and `-im` reads code.
    let letters = word.strip_prefix('-').and_then(|letters| letters.strip_suffix('m'));
    letters.is_some_and(|letters| letters.chars().all(|letter| "bBdEIOPqRsSuvx".contains(letter)))
}

/// A database shell: `.shell rm x`, `.system rm x`.
pub fn database(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let operands = || call.args.iter().map(Word::shown).filter(|word| !word.starts_with('-'));
    for line in operands().flat_map(|word| word.split([';', '\n'])) {
        let text = [".shell ", ".system "].iter().find_map(|dot| line.trim().strip_prefix(dot));
        if let Some(text) = text {
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    if operands().count() < 2 && call.may_ask() {
        found.talks(format!("`{}` reads statements", call.name));
    }
    by_table(program, call, found, reader);
}

/// `awk`: a program is read-only if nothing in it could run a command or write.
pub fn awk(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    let parsed = parse(call.args, program.options, program.order());
    let sources = parsed.given.iter().filter(|given| matches!(given.name, "e" | "source"));
    let mut programs: Vec<&Word> = sources.filter_map(|given| given.value.as_ref()).collect();
    if programs.is_empty() {
        programs.extend(parsed.operands.first());
    }
    for program in programs {
        if !program.known().is_some_and(only_prints) {
            found.mutates(format!("this `{}` program may write files or run commands", call.name));
            if program.shown().contains("/inet") {
                found.networks(format!("this `{}` program may make connections", call.name));
            }
        }
    }
}

/// Files and pipes follow a `print` or precede a `getline`; strings and patterns are not distinguished from code.
fn only_prints(program: &str) -> bool {
    let printed = program.split_once("print").map_or("", |(_, printed)| printed).replace("||", "");
    !["system", "getline", "@", "`", "\\\n"].iter().any(|part| program.contains(part))
        && !printed.contains(['>', '|'])
}
