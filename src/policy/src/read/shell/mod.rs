//! From the text of a shell script to its simple commands, in the order they are written.
//!
//! Closed-world: what is not known here is [`Unread`], never skipped. Linear: what was read is not
//! read again, but for a few `((`, so no nesting can make it slow. Nothing is expanded that only a running shell could know.
//!
//! It is a reader of its own because a text that a shell splits otherwise than we do is a way around every rule. A test
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

/// Which shell will read the text. What `sh` would read in another way than bash is a doubt for `Sh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Sh,
    Bash,
    /// Close enough to bash, but `=rm` stands for a path.
    Zsh,
}

/// Where a command's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    Inherited,
    Pipe,
    Redirected,
    /// Whatever a function is called with.
    Caller,
    /// The text of a here-document or here-string, by its number.
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

/// Whether a function is there for certain when what follows its definition runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defined {
    Surely,
    Perhaps,
}

#[derive(Clone, Debug)]
pub enum Item {
    Command(Simple),
    Function(String, Defined),
    /// A variable that a loop or `${x:=…}` gives a value.
    Assigned(String),
    /// What comes until `Leave` has a working directory of its own.
    Enter,
    Leave,
}

/// A text, read as far as it could be.
#[derive(Debug, Default)]
pub struct Script {
    pub items: Vec<Item>,
    /// Bodies of here-documents.
    pub here: Vec<Word>,
    pub doubts: Vec<String>,
}

/// `((` may begin arithmetic or two groups; how often that may turn out late.
const RETRIES_MAX: usize = 16;

/// Why a text cannot be read any further.
#[derive(Debug)]
struct Unread(String);

type Read<T> = Result<T, Unread>;

fn unread<T>(why: impl Into<String>) -> Read<T> {
    Err(Unread(why.into()))
}

/// What stands around a text.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    pub dialect: Dialect,
    /// What `~` and `$HOME` stand for.
    pub home: Option<&'a str>,
    pub depth: usize,
}

/// Reads a text for a shell.
#[must_use]
pub fn parse(text: &str, mut setting: Setting<'_>) -> Script {
    let mut script = Script::default();
    if text.len() > TEXT_BYTES_MAX {
        script.doubts.push(format!("the text is longer than {TEXT_BYTES_MAX} bytes"));
        return script;
    }
    // A text that may give HOME another value is not trusted with it.
    let is_use = |at: usize| text[..at].ends_with('$') || text[..at].ends_with("${");
    if text.match_indices("HOME").any(|(at, _)| !is_use(at)) {
        setting.home = None;
    }
    let mut parser = Parser::new(text, setting);
    if let Err(Unread(why)) = parser.program() {
        parser.script.doubts.push(why);
    }
    let Parser { script, .. } = parser;
    script
}

struct HereTag {
    tag: String,
    /// A tag with quotes: the body is taken as it is.
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
    /// How many constructs are around that may not run what is in them.
    conditional: usize,
    /// How often a text may still be read in a second way; nested retries would double each other.
    retries: usize,
    /// Doubts already told, so that a loop of them is one.
    told: HashSet<&'static str>,
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
            told: HashSet::new(),
        }
    }

    fn program(&mut self) -> Read<()> {
        match self.list()? {
            compound::End::Eof if self.pending.is_empty() => Ok(()),
            compound::End::Eof => unread("a here-document has no end"),
            compound::End::Paren => unread("a `)` closes nothing"),
            compound::End::Case => unread("a `;;` stands outside of `case`"),
            compound::End::Word(word) => unread(format!("`{word}` ends nothing")),
        }
    }

    /// A text inside this one that has an end of its own: of backquotes, of a here-document.
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

    /// Something that may hold itself.
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

    /// A construct that the shell may read in another way than it is read here.
    fn doubt(&mut self, why: &'static str) {
        if self.told.insert(why) {
            self.script.doubts.push(why.to_owned());
        }
    }
}
