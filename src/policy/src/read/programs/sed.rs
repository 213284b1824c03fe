//! `sed`: its script is parsed as far as needed to see whether it writes or runs a command.

use super::Program;
use super::judge::by_table;
use crate::read::findings::{Call, Findings};
use crate::read::options::{self, Order, parse};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub fn judge(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    let parsed = parse(call.args, program.options, Order::Any);
    let scripts = parsed.given.iter().filter(|given| matches!(given.name, "e" | "expression"));
    let mut scripts: Vec<&Word> = scripts.filter_map(|given| given.value.as_ref()).collect();
    let mut operands = parsed.operands.iter();
    if scripts.is_empty() && !parsed.has("f file") {
        scripts.extend(operands.next());
    }
    scripts.iter().for_each(|script| judge_script(script, found, reader));
    if parsed.has("i in-place") {
        operands.for_each(|file| options::writes("`sed -i`", file, found, reader));
    }
}

fn judge_script(script: &Word, found: &mut Findings, reader: &mut Reader<'_>) {
    let Word::Known(script) = script else {
        found.mutates("the script of `sed` is not known");
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
                            reader.doubt("`sed` with `e` runs its input, which is not known");
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

/// The files that a script writes and the commands it runs; `None` if it is not understood.
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

    /// Up to the delimiter, which a backslash escapes.
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
                // The text continues after a line that ends with a backslash.
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
