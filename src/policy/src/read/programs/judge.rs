//! Judges a command by the table of its program.

use super::{Operands, Program, Rule, Runs, rules, verbs};
use crate::read::assignments;
use crate::read::findings::{Call, Findings, shown};
use crate::read::options::{self, Does, Parsed, apply, find, may_split, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub fn judge(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    match program.code {
        Some(code) => code(program, call, found, reader),
        None => by_table(program, call, found, reader),
    }
    if let Some(screen) = &program.screen
        && call.may_ask()
        && !screen.is_batch(call)
    {
        found.fills_screen(format!("`{}` is a full-screen program", call.name), screen.instead);
    }
}

pub fn by_table(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, program.order());
    let only_looks = by_options(program, call, &parsed, found, reader);
    let what = format!("`{}`", call.name);
    for Rule { when, does, stop } in program.rules {
        if when.iter().all(|when| rules::holds(when, program, call, &parsed)) {
            does.iter().for_each(|does| apply(*does, &what, None, found, reader));
            if *stop {
                return;
            }
        }
    }
    if only_looks {
        return;
    }
    program.does.iter().for_each(|does| apply(*does, &what, None, found, reader));
    match (program.operands, parsed.operands.as_slice()) {
        (Operands::Written, all) => {
            all.iter().for_each(|word| options::writes(&what, word, found, reader));
        }
        (Operands::LastWritten, [_, .., last]) => options::writes(&what, last, found, reader),
        (Operands::Run, all) => all.iter().for_each(|text| reader.text(text, Dialect::Sh)),
        (Operands::Ignored | Operands::LastWritten, _) => {}
    }
    if let Some(verbs) = program.verbs {
        verbs::judge(verbs, call, found, reader);
    }
    run(program, call, &parsed, found, reader);
}

/// Records the effects of its options, and returns whether one of them makes it read-only.
fn by_options(
    program: &Program,
    call: &Call<'_>,
    parsed: &Parsed<'_>,
    found: &mut Findings,
    reader: &mut Reader<'_>,
) -> bool {
    let mut only_looks = false;
    for given in &parsed.given {
        let dashes = if given.name.chars().count() > 1 { "--" } else { "-" };
        let what = || format!("`{} {dashes}{}`", call.name, shown(given.name));
        match find(program.options, given.name) {
            Some(option) => {
                only_looks |= matches!(option.2, Does::Looks);
                apply(option.2, &what(), given.value.as_ref(), found, reader);
            }
            None if program.is_closed() => found.mutates(format!("{} is not known", what())),
            None => {}
        }
    }
    let has_effects = program.options.iter().any(options::Opt::has_effect);
    if let (Some(word), true) = (parsed.hidden, has_effects) {
        found.mutates(format!("`{}` may be an option of `{}` that writes", shown(word.shown()), call.name));
    }
    only_looks
}

fn run(
    program: &Program,
    call: &Call<'_>,
    parsed: &Parsed<'_>,
    found: &mut Findings,
    reader: &mut Reader<'_>,
) {
    match program.runs {
        Runs::Nothing => {}
        Runs::Words { skip } => {
            let rest = after(call, parsed, skip, reader);
            reader.inner(rest, call.input);
        }
        Runs::Text { skip } => {
            let rest = after(call, parsed, skip, reader);
            if !rest.is_empty() {
                reader.text(&joined(rest), Dialect::Sh);
            }
        }
        Runs::Assignments => {
            let rest = after(call, parsed, 0, reader);
            let rest = after_assignments(rest, found, reader, is_variable);
            // The shell's own `time` accepts `!` too.
            let is_bang = rest.first().is_some_and(|first| first.known() == Some("!"));
            reader.inner(rest.get(usize::from(is_bang)..).unwrap_or_default(), call.input);
        }
        Runs::After(words) => {
            let at = call.args.iter().position(|word| options::lists(words, word.shown()));
            if let Some(at) = at {
                reader.inner(call.args.get(at + 1..).unwrap_or_default(), call.input);
            }
        }
    }
}

/// The arguments after options and `skip` words.
pub fn after<'c>(call: &Call<'c>, parsed: &Parsed<'_>, skip: usize, reader: &mut Reader<'_>) -> &'c [Word] {
    let start = parsed.before_operands + skip;
    let before = call.args.get(..start.min(call.args.len())).unwrap_or_default();
    if let Some(word) = before.iter().find(|word| may_split(word)) {
        reader.doubt(format!("`{}` may contain the program that `{}` runs", shown(word.shown()), call.name));
    }
    call.args.get(start..).unwrap_or_default()
}

/// Judges the assignments before a program and returns the rest; `accepts` decides which names are assignments.
pub fn after_assignments<'c>(
    mut rest: &'c [Word],
    found: &mut Findings,
    reader: &mut Reader<'_>,
    accepts: impl Fn(&str) -> bool,
) -> &'c [Word] {
    while let Some((word, more)) = rest.split_first() {
        let Some((name, value)) = word.shown().split_once('=') else { break };
        let value = match word {
            Word::Known(_) if accepts(name) => Word::Known(value.to_owned()),
            Word::Unknown(_) if is_variable(name) => Word::Unknown(value.to_owned()),
            Word::Known(_) | Word::Unknown(_) => break,
        };
        assignments::judge(name, &value, found, reader);
        rest = more;
    }
    rest
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// All words joined to one text, if all are known.
pub fn joined(words: &[Word]) -> Word {
    let known: Option<Vec<&str>> = words.iter().map(Word::known).collect();
    match known {
        Some(known) => Word::Known(known.join(" ")),
        None => Word::Unknown(words.iter().map(Word::shown).collect::<Vec<_>>().join(" ")),
    }
}
