//! Parses the text of a shell script into its simple commands, in source order.
//!
//! Closed-world: anything unknown is [`Unread`], never skipped. Linear: text is not parsed twice, except for a few
//! `((`, so nesting cannot make it slow. Nothing is expanded that only a running shell could know.
//!
//! A separate parser, because a text that a shell splits differently would be a way around every rule. A test
//! compares it with another parser.

mod braces;
mod compound;
mod lexer;
mod simple;
mod substitution;
mod word;

use std::collections::HashSet;

use super::limits::{COMMANDS_MAX, NESTING_MAX, TEXT_BYTES_MAX};
use crate::reading::Word;

/// The shell that will read the text. A construct that `sh` and bash parse differently is a doubt for `Sh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sh,
    Bash,
    /// Close enough to bash, except that `=rm` expands to a path.
    Zsh,
}

/// Where a command's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    Inherited,
    Pipe,
    Redirected,
    /// The standard input of a function's caller.
    Caller,
    /// The text of a here-document or here-string, by its index.
    Here(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
    ReadWrite,
    /// `>&`: a descriptor, or in bash a file.
    Duplicate,
}

#[derive(Clone, Debug)]
pub struct Redirect {
    pub direction: Direction,
    pub target: Word,
}

#[derive(Clone, Debug)]
pub struct Assignment {
    pub name: String,
    pub value: Word,
}

#[derive(Clone, Debug)]
pub struct Simple {
    pub assignments: Vec<Assignment>,
    pub words: Vec<Word>,
    pub redirects: Vec<Redirect>,
    pub stdin: Stdin,
}

/// Whether a function certainly exists when the commands after its definition run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defined {
    Surely,
    Perhaps,
}

#[derive(Clone, Debug)]
pub enum Item {
    Command(Simple),
    Function(String, Defined),
    /// A variable that a loop or `${x:=…}` assigns; the values of a loop as `(a b)`.
    Assigned(String, Word),
    /// The items up to `Leave` have a separate working directory.
    Enter,
    Leave,
}

/// A text, parsed as far as possible.
#[derive(Debug, Default)]
pub struct Script {
    pub items: Vec<Item>,
    /// Bodies of here-documents.
    pub here: Vec<Word>,
    pub doubts: Vec<String>,
    /// Expressions that the shell evaluates as arithmetic: also indexes, and the names in `${!x}`.
    pub evaluated: Vec<String>,
    pub arrays: Vec<String>,
}

/// `((` may begin arithmetic or two groups; how often the parser may have to backtrack.
const RETRIES_MAX: usize = 16;

/// Why a text cannot be parsed any further.
#[derive(Debug)]
struct Unread(String);

type Read<T> = Result<T, Unread>;

fn unread<T>(why: impl Into<String>) -> Read<T> {
    Err(Unread(why.into()))
}

/// The context of a text.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub dialect: Dialect,
    /// The expansion of `~` and `$HOME`.
    pub home: Option<&'a str>,
    pub depth: usize,
}

/// Parses a shell text.
#[must_use]
pub fn parse(text: &str, mut setting: Setting<'_>) -> Script {
    let mut script = Script::default();
    if text.len() > TEXT_BYTES_MAX {
        script.doubts.push(format!("the text is longer than {TEXT_BYTES_MAX} bytes"));
        return script;
    }
    // If a text may assign HOME, its value is not trusted.
    let is_use = |at: usize| text[..at].ends_with('$') || text[..at].ends_with("${");
    if text.match_indices("HOME").any(|(at, _)| !is_use(at)) {
        setting.home = None;
    }
    let mut parser = Parser::new(text, setting);
    if let Err(Unread(why)) = parser.program() {
        parser.script.doubts.push(format!("cannot parse the command line: {why}"));
    }
    let Parser { script, .. } = parser;
    script
}

struct HereTag {
    tag: String,
    /// A tag with quotes: the body is literal.
    quoted: bool,
    strip_tabs: bool,
    number: usize,
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    setting: Setting<'t>,
    script: Script,
    /// Here-documents whose bodies begin after the next newline.
    pending: Vec<HereTag>,
    /// The number of enclosing constructs that may not run their content.
    conditional: usize,
    /// The remaining number of retries; nested retries would double each other.
    retries: usize,
    /// Doubts already recorded, so that each is listed once.
    recorded_doubts: HashSet<&'static str>,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, setting: Setting<'t>) -> Self {
        Self {
            text,
            at: 0,
            setting,
            script: Script::default(),
            pending: Vec::new(),
            conditional: 0,
            retries: RETRIES_MAX,
            recorded_doubts: HashSet::new(),
        }
    }

    fn program(&mut self) -> Read<()> {
        match self.list()? {
            compound::End::Eof if self.pending.is_empty() => Ok(()),
            compound::End::Eof => unread("unterminated here-document"),
            compound::End::Paren => unread("unmatched `)`"),
            compound::End::Case => unread("`;;` outside of `case`"),
            compound::End::Word(word) => unread(format!("unmatched `{word}`")),
        }
    }

    /// Parses a nested text with its own end: of backquotes, or of a here-document.
    fn nested<T>(&mut self, text: &str, read: impl FnOnce(&mut Parser<'_>) -> Read<T>) -> Read<T> {
        let setting = Setting { depth: self.setting.depth + 1, ..self.setting };
        let mut inner = Parser::new(text, setting);
        inner.script = std::mem::take(&mut self.script);
        inner.conditional = self.conditional + 1;
        inner.retries = self.retries;
        let result = inner.deeper(read);
        self.retries = inner.retries;
        self.script = inner.script;
        result
    }

    /// Parses a construct that may contain itself.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.setting.depth >= NESTING_MAX {
            return unread(format!("it is nested deeper than {NESTING_MAX}"));
        }
        self.setting.depth += 1;
        let result = read(self);
        self.setting.depth -= 1;
        result
    }

    fn emit(&mut self, item: Item) -> Read<()> {
        if self.script.items.len() >= COMMANDS_MAX {
            return unread(format!("it has more than {COMMANDS_MAX} commands"));
        }
        self.script.items.push(item);
        Ok(())
    }

    fn evaluate(&mut self, text: &str) {
        self.script.evaluated.push(text.to_owned());
    }

    /// Records a construct that the shell may parse differently.
    fn doubt(&mut self, why: &'static str) {
        if self.recorded_doubts.insert(why) {
            self.script.doubts.push(why.to_owned());
        }
    }
}
