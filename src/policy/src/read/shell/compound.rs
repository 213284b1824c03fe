//! Lists, pipelines and compound commands.

use super::lexer::is_meta;
use super::{Defined, Dialect, Item, Parser, Read, Simple, Stdin, unread};
use crate::reading::Word;

/// The token that ended a list; it is not consumed.
pub(super) enum End {
    Eof,
    Paren,
    Case,
    Word(&'static str),
}

/// The beginning of a function definition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    None,
    Function,
}

impl Parser<'_> {
    pub(super) fn list(&mut self) -> Read<End> {
        self.deeper(Self::list_here)
    }

    fn list_here(&mut self) -> Read<End> {
        loop {
            self.blanks_and_newlines()?;
            match self.peek() {
                None => return Ok(End::Eof),
                Some(b')') => return Ok(End::Paren),
                Some(b';') if self.peek_at(1) == Some(b';') || self.peek_at(1) == Some(b'&') => {
                    return Ok(End::Case);
                }
                Some(_) => {}
            }
            if let Some((word @ ("then" | "elif" | "else" | "fi" | "do" | "done" | "esac" | "}"), _)) =
                self.reserved()
            {
                return Ok(End::Word(word));
            }
            let start = self.script.items.len();
            self.and_or()?;
            self.blanks();
            match self.peek() {
                Some(b';') if !matches!(self.peek_at(1), Some(b';' | b'&')) => self.at += 1,
                Some(b'&') => {
                    self.at += 1;
                    self.scope(start)?;
                }
                None | Some(b'\n' | b')' | b';') => {}
                Some(_) => return unread(self.unexpected()),
            }
        }
    }

    pub(super) fn unexpected(&self) -> String {
        match self.rest().chars().next() {
            Some(found) => format!("shell syntax error at `{found}`"),
            None => "unexpected end of the text".to_owned(),
        }
    }

    /// Gives the items since `start` a separate working directory.
    fn scope(&mut self, start: usize) -> Read<()> {
        self.script.items.insert(start, Item::Enter);
        // Definitions in a subshell do not exist afterwards.
        for item in self.script.items.iter_mut().skip(start) {
            if let Item::Function(_, defined) = item {
                *defined = Defined::Perhaps;
            }
        }
        self.emit(Item::Leave)
    }

    fn and_or(&mut self) -> Read<()> {
        self.pipeline()?;
        loop {
            self.blanks();
            if !(self.eat("&&") || self.eat("||")) {
                return Ok(());
            }
            self.blanks_and_newlines()?;
            self.perhaps(Self::pipeline)?;
        }
    }

    /// Parses something that may not be run.
    fn perhaps<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        self.conditional += 1;
        let result = read(self);
        self.conditional -= 1;
        result
    }

    fn pipeline(&mut self) -> Read<()> {
        loop {
            self.blanks();
            match self.reserved() {
                Some(("!", end)) => self.at = end,
                Some(("time", end)) if self.is_timed_group(end) => self.at = end,
                _ => break,
            }
        }
        let start = self.script.items.len();
        self.command()?;
        let mut elements = 1;
        loop {
            self.blanks();
            if self.peek() != Some(b'|') || self.peek_at(1) == Some(b'|') {
                break;
            }
            self.at += 1;
            self.eat("&");
            self.blanks_and_newlines()?;
            let element = self.script.items.len();
            self.command()?;
            self.feed(element, Stdin::Pipe);
            self.scope(element)?;
            elements += 1;
        }
        if elements > 1 { self.scope(start) } else { Ok(()) }
    }

    /// `time` before a group is the shell's own; before a program it is judged as a program.
    fn is_timed_group(&self, end: usize) -> bool {
        let mut ahead = Parser::new(self.text, self.setting);
        ahead.at = end;
        ahead.blanks();
        if ahead.eat("-p") {
            ahead.blanks();
        }
        ahead.peek() == Some(b'(') || ahead.reserved().is_some()
    }

    /// Sets the standard input of the commands since `start` that have none yet.
    fn feed(&mut self, start: usize, stdin: Stdin) {
        for item in self.script.items.iter_mut().skip(start) {
            if let Item::Command(Simple { stdin: found @ Stdin::Inherited, .. }) = item {
                *found = stdin;
            }
        }
    }

    pub(super) fn command(&mut self) -> Read<()> {
        self.deeper(Self::command_here)
    }

    fn command_here(&mut self) -> Read<()> {
        self.blanks();
        let start = self.script.items.len();
        if self.peek() == Some(b'(') {
            self.parentheses()?;
            return self.redirects_of_group(start);
        }
        let Some((word, end)) = self.reserved() else { return self.simple() };
        match word {
            "time" => return self.simple(),
            "{" | "[[" | "if" | "while" | "until" | "for" | "select" | "case" | "function" | "coproc" => {
                self.at = end
            }
            _ => return unread(format!("unexpected `{word}` at the start of a command")),
        }
        match word {
            "{" => self.body("}")?,
            "[[" => self.test()?,
            "if" => self.perhaps(Self::if_clause)?,
            "while" | "until" => self.perhaps(|parser| {
                parser.body("do")?;
                parser.body("done")
            })?,
            "for" | "select" => self.perhaps(Self::for_clause)?,
            "case" => self.perhaps(Self::case_clause)?,
            "function" => {
                self.blanks();
                let name = self.name()?;
                self.blanks();
                if self.eat("(") {
                    self.blanks();
                    if !self.eat(")") {
                        return unread(self.unexpected());
                    }
                }
                return self.function(name, Keyword::Function);
            }
            _ => return self.coprocess(),
        }
        self.redirects_of_group(start)
    }

    /// A list and the word that ends it.
    fn body(&mut self, close: &str) -> Read<()> {
        match self.list()? {
            End::Word(word) if word == close => self.expect_reserved(close),
            End::Word(_) | End::Eof | End::Paren | End::Case => unread(format!("missing `{close}`")),
        }
    }

    /// A list and its `)`.
    pub(super) fn parenthesized(&mut self) -> Read<()> {
        let outer = std::mem::take(&mut self.pending);
        match self.perhaps(Self::list)? {
            End::Paren if self.pending.is_empty() => self.at += 1,
            End::Paren => return unread("a here-document begins after the `)` of its command"),
            End::Eof | End::Case | End::Word(_) => return unread("missing `)`"),
        }
        self.pending = outer;
        Ok(())
    }

    fn parentheses(&mut self) -> Read<()> {
        self.at += 1;
        if self.peek() == Some(b'(') && self.double_paren()? {
            if self.setting.dialect == Dialect::Sh {
                self.doubt("`((` is arithmetic in bash and commands in other shells");
            }
            return self.emit(Item::Command(Simple {
                assignments: Vec::new(),
                words: vec![Word::Known("let".to_owned())],
                redirects: Vec::new(),
                stdin: Stdin::Inherited,
            }));
        }
        self.emit(Item::Enter)?;
        self.parenthesized()?;
        self.emit(Item::Leave)
    }

    /// From the second `(` of `((`: whether it was arithmetic. If not, the state is restored.
    pub(super) fn double_paren(&mut self) -> Read<bool> {
        let (at, items, here) = (self.at, self.script.items.len(), self.script.here.len());
        let (doubts, evaluated) = (self.script.doubts.len(), self.script.evaluated.len());
        self.at += 1;
        let inside = self.arithmetic();
        if inside.is_ok() && self.eat(")") {
            return Ok(true);
        }
        if self.retries == 0 {
            return unread("`((` is not arithmetic");
        }
        self.retries -= 1;
        self.at = at;
        self.script.items.truncate(items);
        self.script.here.truncate(here);
        self.script.doubts.truncate(doubts);
        self.script.evaluated.truncate(evaluated);
        self.recorded_doubts.clear();
        self.pending.retain(|tag| tag.number < here);
        Ok(false)
    }

    fn if_clause(&mut self) -> Read<()> {
        self.body("then")?;
        loop {
            match self.list()? {
                End::Word("elif") => {
                    self.expect_reserved("elif")?;
                    self.body("then")?;
                }
                End::Word("else") => {
                    self.expect_reserved("else")?;
                    return self.body("fi");
                }
                End::Word("fi") => return self.expect_reserved("fi"),
                End::Word(_) | End::Eof | End::Paren | End::Case => return unread("missing `fi`"),
            }
        }
    }

    fn for_clause(&mut self) -> Read<()> {
        self.blanks();
        if self.eat("((") {
            self.arithmetic()?;
            if !self.eat(")") {
                return unread(self.unexpected());
            }
        } else {
            let name = self.name()?;
            self.blanks_and_newlines()?;
            let mut values = "$@".to_owned();
            if let Some(("in", end)) = self.reserved() {
                self.at = end;
                loop {
                    self.blanks();
                    match self.peek() {
                        None | Some(b';' | b'\n') => break,
                        Some(_) => drop(self.word()?),
                    }
                }
                values = format!("({})", self.text.get(end..self.at).unwrap_or(""));
            }
            self.emit(Item::Assigned(name, Word::Unknown(values)))?;
        }
        self.blanks();
        self.eat(";");
        self.blanks_and_newlines()?;
        match self.reserved() {
            Some(("{", end)) => {
                self.at = end;
                self.body("}")
            }
            _ => {
                self.expect_reserved("do")?;
                self.body("done")
            }
        }
    }

    fn case_clause(&mut self) -> Read<()> {
        self.blanks();
        self.word()?;
        self.expect_reserved("in")?;
        loop {
            self.blanks_and_newlines()?;
            if let Some(("esac", end)) = self.reserved() {
                self.at = end;
                return Ok(());
            }
            self.eat("(");
            loop {
                self.blanks();
                self.word()?;
                self.blanks();
                if !self.eat("|") {
                    break;
                }
            }
            if !self.eat(")") {
                return unread(self.unexpected());
            }
            match self.list()? {
                End::Case => {
                    // `;;`, `;&` or `;;&`.
                    self.at += 1;
                    self.eat(";");
                    self.eat("&");
                }
                End::Word("esac") => {}
                End::Word(_) | End::Eof | End::Paren => return unread("missing `esac`"),
            }
        }
    }

    /// `[[ … ]]`: words between operators.
    fn test(&mut self) -> Read<()> {
        let mut words = vec![Word::Known("[[".to_owned())];
        loop {
            self.blanks_and_newlines()?;
            let Some(byte) = self.peek() else { return unread("missing `]]`") };
            if byte == b'#' || byte == b';' {
                return unread(self.unexpected());
            }
            if is_meta(byte) {
                self.at += 1;
                if self.setting.dialect == Dialect::Sh {
                    self.doubt("`[[` with an operator in it is a test in bash and commands in other shells");
                }
                continue;
            }
            let start = self.at;
            let found = self.word()?;
            words.extend(found);
            if self.text.get(start..self.at) == Some("]]") {
                break;
            }
        }
        self.emit(Item::Command(Simple {
            assignments: Vec::new(),
            words,
            redirects: Vec::new(),
            stdin: Stdin::Inherited,
        }))
    }

    fn coprocess(&mut self) -> Read<()> {
        self.blanks();
        let name =
            self.rest().bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let after = self.rest().get(name..).unwrap_or("");
        let next = after.trim_start_matches([' ', '\t']);
        let named = name > 0 && next.len() < after.len() && next.starts_with(['{', '(']);
        if named && self.reserved().is_none() {
            self.at += name;
        }
        let start = self.script.items.len();
        self.perhaps(Self::command)?;
        self.feed(start, Stdin::Pipe);
        self.scope(start)
    }

    /// The body of a function, after its name and parentheses.
    pub(super) fn function(&mut self, name: String, keyword: Keyword) -> Read<()> {
        // In shells other than bash, `function` is an unknown program.
        let is_read_alike = keyword == Keyword::None || self.setting.dialect != Dialect::Sh;
        let defined = if self.conditional == 0 && is_read_alike { Defined::Surely } else { Defined::Perhaps };
        self.blanks_and_newlines()?;
        let is_compound = self.peek() == Some(b'(')
            || matches!(
                self.reserved(),
                Some(("{" | "if" | "while" | "until" | "for" | "select" | "case" | "[[", _))
            );
        if !is_compound {
            return unread(format!("the function `{name}` has no body"));
        }
        // The standard input of a function is not known here.
        let start = self.script.items.len();
        self.perhaps(Self::command)?;
        self.feed(start, Stdin::Caller);
        self.emit(Item::Function(name, defined))
    }

    fn redirects_of_group(&mut self, start: usize) -> Read<()> {
        let mut group = Simple {
            assignments: Vec::new(),
            words: Vec::new(),
            redirects: Vec::new(),
            stdin: Stdin::Inherited,
        };
        loop {
            self.blanks();
            if !self.redirect(&mut group)? {
                break;
            }
        }
        if group.stdin != Stdin::Inherited {
            self.feed(start, Stdin::Redirected);
        }
        if group.redirects.is_empty() { Ok(()) } else { self.emit(Item::Command(group)) }
    }

    /// A name without quotes or expansions.
    fn name(&mut self) -> Read<String> {
        let start = self.at;
        let words = self.word()?;
        match words.as_slice() {
            [Word::Known(name)] if self.text.get(start..self.at) == Some(name.as_str()) => Ok(name.clone()),
            _ => unread("a name contains quotes or expansions"),
        }
    }
}
