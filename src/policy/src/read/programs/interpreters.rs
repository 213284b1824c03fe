//! Interpreters whose arguments are read as far as it pays.

use super::Program;
use super::judge::by_table;
use crate::read::findings::{Call, Findings};
use crate::read::options::{lists, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// Modules of `python -m` that are judged as the programs they are.
const PROGRAMS: &str = "pip pip3 pipx poetry uv black ruff mypy flake8 isort";

/// Modules that only print.
const PRINT: &str = "tokenize ast dis this calendar platform sysconfig site";

pub fn python(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let module = call.args.iter().position(|word| word.shown() == "-m" || is_flags_with_m(word.shown()));
    let code = call.args.iter().position(|word| !word.shown().starts_with('-') || word.shown() == "-c");
    // After `-i` it asks for code when the module is done.
    let asks = call.args.iter().any(|word| word.shown() == "-i");
    if let Some(at) = module.filter(|at| !asks && code.is_none_or(|code| *at < code))
        && let [name, rest @ ..] = call.args.get(at + 1..).unwrap_or_default()
    {
        if lists(PROGRAMS, name.shown()) {
            return reader.inner(call.args.get(at + 1..).unwrap_or_default(), call.input);
        }
        let files = rest.iter().filter(|word| !word.shown().starts_with('-')).count();
        if lists(PRINT, name.shown()) || name.shown() == "json.tool" && files < 2 {
            return;
        }
        // Who listens needs no network: without one it serves the run's own loopback.
        if name.shown() == "ftplib" {
            found.networks(format!("`{} -m {}` makes connections", call.name, name.shown()));
        }
    }
    by_table(program, call, found, reader);
}

fn is_flags_with_m(word: &str) -> bool {
    // `-cm` runs the code `m`, and `-im` asks for code.
    let letters = word.strip_prefix('-').and_then(|letters| letters.strip_suffix('m'));
    letters.is_some_and(|letters| letters.chars().all(|letter| "bBdEIOPqRsSuvx".contains(letter)))
}

/// A database's shell: `.shell rm x`, `.system rm x`.
pub fn database(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let operands = || call.args.iter().map(Word::shown).filter(|word| !word.starts_with('-'));
    for line in operands().flat_map(|word| word.split([';', '\n'])) {
        let text = [".shell ", ".system "].iter().find_map(|dot| line.trim().strip_prefix(dot));
        if let Some(text) = text {
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    if operands().count() < 2 && call.may_ask() {
        found.talks(format!("`{}` asks for statements", call.name));
    }
    by_table(program, call, found, reader);
}

/// `awk`: a program only looks if it has nothing in it that could run or write.
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
            found.mutates(format!("this program of `{}` may write files or run commands", call.name));
            if program.shown().contains("/inet") {
                found.networks(format!("this program of `{}` may make connections", call.name));
            }
        }
    }
}

/// Files and pipes follow a `print` or stand before a `getline`; strings and patterns are not told apart from code.
fn only_prints(program: &str) -> bool {
    let printed = program.split_once("print").map_or("", |(_, printed)| printed).replace("||", "");
    !["system", "getline", "@", "`", "\\\n"].iter().any(|part| program.contains(part))
        && !printed.contains(['>', '|'])
}
