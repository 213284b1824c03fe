//! `find` and `fd`: what they run, write and delete.

use super::{Judge, Row};
use crate::read::found::{Call, Found, Input, shown};
use crate::read::options;
use crate::read::options::may_be_option;
use crate::read::reader::Reader;
use crate::reading::Word;

pub const ROWS: &[Row] = &[Row("find gfind bfs", Judge::By(find)), Row("fd fdfind", Judge::By(fd))];

fn find(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
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
                    for start in &starts {
                        options::writes("`find -delete`", start, found, reader);
                    }
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

/// What is run for each file: its name begins with the directory the search began in.
fn executes(words: &[Word], starts: &[Word], reader: &mut Reader<'_>) {
    let start = match starts {
        [] => ".",
        [first, ..] => first.shown(),
    };
    let is_shell = words.first().is_some_and(|word| matches!(super::find(word.shown()), Some(Judge::By(_))));
    let mut inner = Vec::with_capacity(words.len());
    for word in words {
        if word.shown() == "{}" {
            inner.push(Word::Known(format!("{start}/{{}}")));
        } else {
            if is_shell && word.shown().contains("{}") {
                reader.doubt("`{}` becomes part of what is run");
            }
            inner.push(word.clone());
        }
    }
    reader.inner(&inner, Input::Inherited);
}

fn fd(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    for (at, word) in call.args.iter().enumerate() {
        let attached = ["--exec=", "--exec-batch="].iter().find_map(|flag| word.shown().strip_prefix(flag));
        // A cluster such as `-Hx` ends with the letter.
        let short = word.shown().strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        let is_short = short.is_some_and(|letters| letters.ends_with(['x', 'X']));
        if is_short || matches!(word.shown(), "--exec" | "--exec-batch") {
            let rest = call.args.get(at + 1..).unwrap_or_default();
            let end = rest.iter().position(|word| word.shown() == ";").unwrap_or(rest.len());
            let mut words = rest.get(..end).unwrap_or_default().to_vec();
            words.push(Word::Known("./{}".to_owned()));
            reader.inner(&words, Input::Inherited);
            return;
        }
        if let Some(program) = attached {
            reader
                .inner(&[Word::Known(program.to_owned()), Word::Known("./{}".to_owned())], Input::Inherited);
        } else if short.is_some_and(|letters| letters.contains(['x', 'X'])) {
            found.mutates("`fd -x` runs a program for each file");
        } else if word.known().is_none() && may_be_option(word) {
            found.mutates(format!("`{}` may be an option of `fd` that runs a program", shown(word.shown())));
        }
    }
}
