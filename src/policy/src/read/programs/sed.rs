//! `sed`: its script is read as far as needed to see whether it writes or runs.

use crate::read::found::{Call, Found, shown};
use crate::read::options;
use crate::read::options::{Does, Opt, Order, Takes, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

const OPTS: &[Opt] = &[
    Opt("e expression f file l line-length", Takes::Value, Does::Nothing),
    Opt("i in-place", Takes::Attached, Does::Mutates("changes files in place")),
    Opt(
        "n quiet silent E r regexp-extended s separate u unbuffered z null-data debug posix follow-symlinks",
        Takes::Nothing,
        Does::Nothing,
    ),
    Opt("sandbox", Takes::Nothing, Does::Nothing),
];

pub fn judge(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, OPTS, Order::Any);
    // A long option may be cut short: `--in` and `--i` are `--in-place`.
    let in_place = |name: &str| name == "i" || name.len() > 1 && "in-place".starts_with(name);
    let scripts: Vec<&Word> = parsed
        .given
        .iter()
        .filter(|given| given.name == "e" || given.name.len() > 2 && "expression".starts_with(given.name))
        .filter_map(|given| given.value.as_ref())
        .collect();
    let files = |given: &options::Given<'_>| {
        given.name == "f" || given.name.len() > 1 && "file".starts_with(given.name)
    };
    let has_file = parsed.given.iter().any(files);
    if has_file {
        found.mutates("`sed -f` does what a script says");
    }
    let mut operands = parsed.operands.iter();
    if scripts.is_empty() && !has_file {
        match operands.next() {
            Some(script) => judge_script(script, found, reader),
            None => return,
        }
    }
    for script in scripts {
        judge_script(script, found, reader);
    }
    if parsed.given.iter().any(|given| in_place(given.name)) {
        found.mutates("`sed -i` changes files in place");
        for file in operands {
            options::writes("`sed -i`", file, found, reader);
        }
    }
    if let Some(word) = parsed.hidden {
        found.mutates(format!("`{}` may be an option of `sed` that writes", shown(word.shown())));
    }
}

fn judge_script(script: &Word, found: &mut Found, reader: &mut Reader<'_>) {
    let Word::Known(script) = script else {
        found.mutates("it is not known what the script of `sed` does");
        return;
    };
    match effects(script) {
        None => found.mutates("the script of `sed` is not understood"),
        Some(effects) => {
            for effect in effects {
                match effect {
                    Effect::Writes(file) => {
                        options::writes("`sed` with `w`", &Word::Known(file), found, reader)
                    }
                    Effect::Runs(text) => {
                        found.mutates("`sed` with `e` runs a command");
                        if text.is_empty() {
                            reader.doubt("`sed` with `e` runs what it reads, and that is not known");
                        } else {
                            reader.text(&Word::Known(text), Dialect::Sh);
                        }
                    }
                }
            }
        }
    }
}

enum Effect {
    Writes(String),
    Runs(String),
}

struct Script<'s> {
    rest: std::iter::Peekable<std::str::Chars<'s>>,
}

/// What a script writes and runs; nothing if it is not understood.
fn effects(script: &str) -> Option<Vec<Effect>> {
    let mut script = Script { rest: script.chars().peekable() };
    let mut effects = Vec::new();
    while let Some(found) = script.rest.peek().copied() {
        if found.is_whitespace() || matches!(found, ';' | '{' | '}') {
            script.rest.next();
            continue;
        }
        script.address()?;
        script.command(&mut effects)?;
    }
    Some(effects)
}

impl Script<'_> {
    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        while self.rest.next_if(|found| wanted(*found)).is_some() {}
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        while let Some(found) = self.rest.next_if(|found| *found != '\n') {
            line.push(found);
        }
        line.trim().to_owned()
    }

    /// To the delimiter, which a backslash hides.
    fn section(&mut self, delimiter: char) -> Option<()> {
        loop {
            match self.rest.next()? {
                '\\' => drop(self.rest.next()?),
                found if found == delimiter => return Some(()),
                _ => {}
            }
        }
    }

    fn address(&mut self) -> Option<()> {
        loop {
            match self.rest.peek().copied()? {
                '/' => {
                    self.rest.next();
                    self.section('/')?;
                    self.skip(|found| matches!(found, 'I' | 'M'));
                }
                '\\' => {
                    self.rest.next();
                    let delimiter = self.rest.next()?;
                    self.section(delimiter)?;
                    self.skip(|found| matches!(found, 'I' | 'M'));
                }
                found
                    if found.is_ascii_digit()
                        || matches!(found, '$' | ',' | '~' | '+' | '!' | ' ' | '\t') =>
                {
                    self.rest.next();
                }
                _ => return Some(()),
            }
        }
    }

    fn command(&mut self, effects: &mut Vec<Effect>) -> Option<()> {
        match self.rest.next()? {
            '{' | '}' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => {
            }
            'q' | 'Q' | 'l' | 'L' => self.skip(|found| found.is_ascii_digit() || found == ' '),
            'b' | 't' | 'T' | ':' => self.skip(|found| found != ';' && found != '\n' && found != '}'),
            'r' | 'R' => drop(self.line()),
            'w' | 'W' => effects.push(Effect::Writes(self.line())),
            'e' => effects.push(Effect::Runs(self.line())),
            '#' => drop(self.line()),
            'a' | 'i' | 'c' => {
                // The text goes on after a line that ends with a backslash.
                while self.line().ends_with('\\') {
                    self.rest.next();
                }
            }
            'y' => {
                let delimiter = self.rest.next()?;
                self.section(delimiter)?;
                self.section(delimiter)?;
            }
            's' => {
                let delimiter = self.rest.next()?;
                self.section(delimiter)?;
                self.section(delimiter)?;
                self.flags(effects);
            }
            _ => return None,
        }
        Some(())
    }

    fn flags(&mut self, effects: &mut Vec<Effect>) {
        while let Some(flag) = self.rest.next_if(|found| {
            found.is_ascii_digit() || matches!(found, 'g' | 'p' | 'i' | 'I' | 'm' | 'M' | 'e' | 'w')
        }) {
            match flag {
                'e' => effects.push(Effect::Runs(String::new())),
                'w' => effects.push(Effect::Writes(self.line())),
                _ => {}
            }
        }
    }
}
