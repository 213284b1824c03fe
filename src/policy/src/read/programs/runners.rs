//! Programs that run another one, with arguments that a table cannot describe.

use super::judge::{after, after_assignments, by_table, joined};
use super::{Program, data};
use crate::read::assignments;
use crate::read::findings::{Call, Findings, Input, shown};
use crate::read::options::{self, Order, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub fn env(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, Order::OptionsFirst);
    let rest = after(call, &parsed, 0, reader);
    let rest = after_assignments(rest, found, reader, |_| true);
    reader.paths.enter();
    if let Some(directory) = parsed.value("C chdir") {
        reader.paths.change(directory.known());
    }
    match parsed.value("S split-string") {
        Some(text) => split_string(text, rest, reader),
        None => reader.inner(rest, call.input),
    }
    reader.paths.leave();
}

/// `env -S`: a text that is split, and words after it.
fn split_string(text: &Word, rest: &[Word], reader: &mut Reader<'_>) {
    let mut whole = vec![text.clone()];
    whole.extend(rest.iter().map(|word| match word {
        Word::Known(word) => Word::Known(format!("'{}'", word.replace('\'', "'\\''"))),
        Word::Unknown(_) => word.clone(),
    }));
    let whole = match joined(&whole) {
        // Its own assignments come first, then a program.
        Word::Known(text) => Word::Known(format!("env {text}")),
        Word::Unknown(text) => Word::Unknown(text),
    };
    reader.text(&whole, Dialect::Bash);
}

pub fn xargs(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, Order::OptionsFirst);
    let mark = match parsed.value("I i replace").and_then(Word::known) {
        Some(mark) => Some(mark.to_owned()),
        None => parsed.has("i replace").then(|| "{}".to_owned()),
    };
    if let Some(name) = parsed.value("process-slot-var") {
        assignments::judge_name(name.shown(), found, reader);
    }
    if parsed.has("p interactive") {
        found.talks("`xargs -p` asks before each command");
    }
    fed(after(call, &parsed, 0, reader), mark.as_deref(), reader);
}

/// A program that gets unknown words: in place of `mark`, or at the end.
fn fed(words: &[Word], mark: Option<&str>, reader: &mut Reader<'_>) {
    let Some(first) = words.first() else { return };
    let interprets = options::lists(data::INTERPRETERS, first.shown());
    let mut words = words.to_vec();
    match mark {
        Some(mark) => {
            for word in words.iter_mut().filter(|word| word.shown().contains(mark)) {
                if interprets && word.shown() != mark {
                    // The text is judged as written, but the inserted part is unknown.
                    reader.doubt(format!("`{}` becomes part of the program that is run", shown(mark)));
                } else if word.shown().starts_with(mark) {
                    *word = Word::Unknown(format!("${}", word.shown()));
                } else {
                    *word = Word::Unknown(word.shown().to_owned());
                }
            }
        }
        None => words.push(Word::Unknown("$…".to_owned())),
    }
    reader.inner(&words, Input::Unknown);
}

/// `parallel` passes its words to a shell.
pub fn parallel(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, Order::OptionsFirst);
    if parsed.has("S sshlogin sshloginfile") {
        found.networks("`parallel -S` runs on other machines");
    }
    if parsed.has("joblog results") {
        found.mutates("`parallel` writes a log");
    }
    let rest = after(call, &parsed, 0, reader);
    let end = rest.iter().position(|word| word.shown().starts_with(":::")).unwrap_or(rest.len());
    match joined(rest.get(..end).unwrap_or_default()) {
        _ if end == 0 => {
            found.mutates("`parallel` runs its input");
            reader.doubt("`parallel` runs its input, which is not known");
        }
        Word::Known(text) => reader.text(&Word::Known(format!("{text} \"$_\"")), Dialect::Bash),
        Word::Unknown(text) => reader.text(&Word::Unknown(text), Dialect::Bash),
    }
}

pub fn flock(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, Order::OptionsFirst);
    if let Some(file) = parsed.operands.first() {
        options::writes("`flock`", file, found, reader);
    }
    match after(call, &parsed, 1, reader) {
        [Word::Known(flag), text, ..] if flag == "-c" || flag == "--command" => {
            reader.text(text, Dialect::Sh)
        }
        rest => reader.inner(rest, call.input),
    }
    if let Some(text) = parsed.value("c command") {
        reader.text(text, Dialect::Sh);
    }
}

/// `setarch x86_64 -R rm f`: the architecture comes before the options.
pub fn setarch(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let skip = usize::from(call.first().is_some_and(|first| !first.starts_with('-')));
    let args = call.args.get(skip..).unwrap_or_default();
    by_table(program, &Call { args, ..*call }, found, reader);
}

/// `su`, `runuser`: a text, a program after `-u`, or a shell.
pub fn su(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    let parsed = parse(call.args, program.options, Order::Any);
    if parsed.has("u user") && !parsed.has("c command") {
        let words: Vec<Word> = parsed.operands.into_iter().cloned().collect();
        reader.inner(&words, call.input);
    }
}

/// An editor or a pager: `:!rm x`, `+!rm x` and `-c '!rm x'` run a command without user input.
pub fn editor(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    for word in call.args.iter().filter(|word| word.shown().starts_with(['+', ':', '!', '%'])) {
        if let Some((_, text)) = word.shown().split_once('!') {
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
}
