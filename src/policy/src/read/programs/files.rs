//! Archives, copies and searches: where they write, and the commands they run for each file.

use super::judge::by_table;
use super::rules::is_remote;
use super::{Program, find as find_program};
use crate::read::findings::{Call, Findings, Input, shown};
use crate::read::options::{self, Order, may_be_option, parse};
use crate::read::path_location::PathLocation;
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// `dd`: the file is an operand such as `of=x`, and may be a device.
pub fn dd(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    for word in call.args {
        let text = word.shown().trim_start_matches('"');
        let file = match (word, text.strip_prefix("of=")) {
            (Word::Known(_), Some(file)) => Word::Known(file.to_owned()),
            (Word::Unknown(_), Some(file)) => Word::Unknown(file.to_owned()),
            // It may be any operand.
            (Word::Unknown(_), None) if word.shown().starts_with(['$', '"', '`']) => word.clone(),
            (Word::Known(_) | Word::Unknown(_), None) => continue,
        };
        options::writes(&format!("`{}`", call.name), &file, found, reader);
        if file.shown().starts_with("/dev/") && reader.paths.of(&file) == PathLocation::Outside {
            found.destroys(format!("`{}` overwrites the device `{}`", call.name, shown(file.shown())));
        }
    }
}

/// A compiler: only `-o` as a separate word is certain to name the output.
pub fn compiler(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    for pair in call.args.windows(2) {
        if let [option, file] = pair
            && option.shown() == "-o"
        {
            options::writes(&format!("`{}`", call.name), file, found, reader);
        }
    }
}

/// `tar`: options without a dash, archives on other machines, and actions that run a command.
pub fn tar(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let args = dashed(program, call.args);
    let parsed = parse(&args, program.options, Order::Any);
    let writes = parsed.has("c create r append u update delete");
    // tar needs a mode; only `t` does not write.
    if writes || parsed.has("x extract get A concatenate catenate") || !parsed.has("t list") {
        found.mutates("`tar` packs or unpacks files");
        if let Some(directory) = parsed.value("C directory") {
            options::writes("`tar -C`", directory, found, reader);
        }
    }
    by_table(program, &Call { args: &args, ..*call }, found, reader);
    for given in &parsed.given {
        match (given.name, &given.value) {
            ("checkpoint-action", Some(value)) => checkpoint_action(value, found, reader),
            ("f" | "file", Some(file)) if is_remote(file.shown()) => {
                found.networks(format!("the archive `{}` is on another machine", shown(file.shown())));
            }
            ("f" | "file", Some(file)) if writes && file.shown() != "-" => {
                options::writes("`tar`", file, found, reader);
            }
            _ => {}
        }
    }
}

/// The first word may have its letters without a dash; their values follow in order: `tar cfC a.tar src .`.
fn dashed(program: &Program, args: &[Word]) -> Vec<Word> {
    let Some((Word::Known(letters), rest)) = args.split_first() else { return args.to_vec() };
    if letters.starts_with('-') {
        return args.to_vec();
    }
    let mut rest = rest.iter();
    let mut words = Vec::new();
    for letter in letters.chars() {
        words.push(Word::Known(format!("-{letter}")));
        let option = options::find(program.options, &letter.to_string());
        if option.is_some_and(|option| option.1 == options::Takes::Value) {
            words.extend(rest.next().cloned());
        }
    }
    words.extend(rest.cloned());
    words
}

fn checkpoint_action(value: &Word, found: &mut Findings, reader: &mut Reader<'_>) {
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

/// `find`: an expression with actions.
pub fn find(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let is_expression = |word: &Word| {
        word.shown().starts_with('-') && word.shown().len() > 1 || matches!(word.shown(), "(" | "!")
    };
    let is_global = |word: &Word| matches!(word.shown(), "-H" | "-L" | "-P");
    let paths = call.args.iter().skip_while(|word| is_global(word)).take_while(|word| !is_expression(word));
    let starts: Vec<Word> = paths.cloned().collect();
    let mut at = 0;
    while let Some(word) = call.args.get(at) {
        at += 1;
        match word {
            Word::Known(action) => match action.as_str() {
                "-delete" => {
                    found.destroys("`find -delete` deletes files");
                    starts.iter().for_each(|start| options::writes("`find -delete`", start, found, reader));
                }
                "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                    let what = format!("`find {action}`");
                    found.mutates(format!("{what} writes a file"));
                    if let Some(file) = call.args.get(at) {
                        options::writes(&what, file, found, reader);
                    }
                    at += 1;
                }
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    if action.starts_with("-ok") {
                        found.talks(format!("`find {action}` asks before each command"));
                    }
                    let rest = call.args.get(at..).unwrap_or_default();
                    let end =
                        rest.iter().position(|word| matches!(word.shown(), ";" | "+")).unwrap_or(rest.len());
                    executes(rest.get(..end).unwrap_or_default(), &starts, reader);
                    at += end + 1;
                }
                "-name" | "-iname" | "-path" | "-ipath" | "-regex" | "-iregex" | "-newer" | "-type"
                | "-size" => at += 1,
                _ => {}
            },
            Word::Unknown(_) if may_be_option(word) => {
                found.mutates(format!("`{}` may be an action of `find`", shown(word.shown())));
            }
            Word::Unknown(_) => {}
        }
    }
}

/// The command for each file: file names begin with the directory of the search.
fn executes(words: &[Word], starts: &[Word], reader: &mut Reader<'_>) {
    let start = starts.first().map_or(".", Word::shown);
    let program = words.first().and_then(|word| find_program(word.shown()));
    let may_run = program.is_some_and(|program| !program.is_plain());
    let mut inner = Vec::with_capacity(words.len());
    for word in words {
        if word.shown() == "{}" {
            inner.push(Word::Known(format!("{start}/{{}}")));
        } else {
            if may_run && word.shown().contains("{}") {
                reader.doubt("`{}` becomes part of the program that is run");
            }
            inner.push(word.clone());
        }
    }
    reader.inner(&inner, Input::Inherited);
}

/// `fd`: the command comes last, or after `=`.
pub fn fd(_: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let file = Word::Known("./{}".to_owned());
    for (at, word) in call.args.iter().enumerate() {
        let attached = ["--exec=", "--exec-batch="].iter().find_map(|flag| word.shown().strip_prefix(flag));
        // A cluster such as `-Hx` ends with the letter.
        let short = word.shown().strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let is_short = short.is_some_and(|letters| letters.ends_with(['x', 'X']));
        if is_short || matches!(word.shown(), "--exec" | "--exec-batch") {
            let rest = call.args.get(at + 1..).unwrap_or_default();
            let end = rest.iter().position(|word| word.shown() == ";").unwrap_or(rest.len());
            let mut words = rest.get(..end).unwrap_or_default().to_vec();
            words.push(file);
            reader.inner(&words, Input::Inherited);
            return;
        }
        if let Some(program) = attached {
            reader.inner(&[Word::Known(program.to_owned()), file.clone()], Input::Inherited);
        } else if short.is_some_and(|letters| letters.contains(['x', 'X'])) {
            found.mutates("`fd -x` runs a program for each file");
        } else if word.known().is_none() && may_be_option(word) {
            found.mutates(format!("`{}` may be an option of `fd` that runs a program", shown(word.shown())));
        }
    }
}
