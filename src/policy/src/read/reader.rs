//! Walks a command: judges every simple command in it, including those run by other programs.

use std::ffi::OsStr;

use avfs_request::NestedUserns;

use super::super::category::{Categories, Category};
use super::super::reading::{Asked, Judged, Reading, Word};
use super::arithmetic::{self, Arithmetic};
use super::assignments;
use super::findings::{Call, Findings, Input, shown};
use super::limits::{COMMANDS_MAX, NESTING_MAX, TEXT_BYTES_MAX};
use super::options::{self, lists, may_split};
use super::path_location::{PathLocation, PathLocator};
use super::programs::{self, data};
use super::shell::{
    self, Assignment, Defined, Dialect, Direction, Item, Redirect, Script, Setting, Simple, Stdin,
};
use super::variables;

pub struct Reader<'a> {
    pub paths: PathLocator<'a>,
    reading: Reading,
    depth: usize,
    /// Functions that are certainly defined.
    functions: Vec<String>,
    /// Variables that have been assigned so far.
    assigned: Vec<String>,
    arithmetic: Arithmetic,
    /// One of them can redirect a connection from the address on the command line.
    redirected: bool,
    /// One of them replaces a program or library.
    chooses_program: bool,
    /// Git starts an editor that may work without a terminal.
    editor: bool,
    userns: NestedUserns,
}

impl<'a> Reader<'a> {
    pub fn new(asked: &'a Asked<'a>) -> Self {
        Self {
            paths: PathLocator::new(asked),
            reading: Reading::default(),
            depth: 0,
            functions: Vec::new(),
            assigned: Vec::new(),
            arithmetic: Arithmetic::default(),
            redirected: false,
            chooses_program: false,
            editor: asked.editor,
            userns: asked.confinement.userns,
        }
    }

    pub fn finish(mut self) -> Reading {
        if let Some(why) = self.arithmetic.finish() {
            self.doubt(why);
        }
        let assigned = std::mem::take(&mut self.assigned);
        self.reading.variables.retain(|name| !assigned.contains(name));
        self.reading.assigned = assigned;
        if self.reading.commands.is_empty() && self.reading.doubts.is_empty() {
            let (categories, findings) = Findings::default().finish(":");
            self.reading.commands.push(Judged {
                words: vec![Word::Known(":".to_owned())],
                categories,
                findings,
                screen: None,
                is_redirected: false,
            });
        }
        // Also the commands before the assignment: it may be in a loop or a function.
        for command in &mut self.reading.commands {
            command.is_redirected = self.chooses_program;
        }
        self.reading
    }

    /// Records an assignment to a variable.
    pub fn assign(&mut self, name: &str, value: &Word) {
        if let Some(why) = self.arithmetic.assign(name, value) {
            self.doubt(why);
        }
        if name == "HOME" {
            self.paths.move_home();
        }
        if self.assigned.len() < COMMANDS_MAX && !self.assigned.iter().any(|known| known == name) {
            self.assigned.push(name.to_owned());
        }
    }

    /// Records a text that the shell evaluates as arithmetic.
    pub fn evaluate(&mut self, text: &str) {
        if let Some(why) = self.arithmetic.evaluate(text) {
            self.doubt(why);
        }
    }

    /// Records an argument that a builtin uses as the name of a variable.
    pub fn variable(&mut self, written: &str) {
        if let Some(why) = self.arithmetic.name(written) {
            self.doubt(why);
        }
    }

    /// Records an assignment by `declare`.
    pub fn declare(&mut self, name: &str, value: &Word) {
        self.arithmetic.declare(name, value);
    }

    pub fn array(&mut self, name: &str) {
        self.arithmetic.array(name);
    }

    /// From here on, a program may connect to another address than the one on its command line.
    pub fn redirect_connections(&mut self) {
        self.redirected = true;
    }

    /// A variable replaces a program or library.
    pub fn choose_program(&mut self) {
        self.chooses_program = true;
    }

    /// From here on, git starts this editor.
    pub fn choose_editor(&mut self, editor: &Word) {
        // Otherwise it needs a terminal, as the default does.
        self.editor |= !editor.known().is_some_and(programs::fills_screen);
    }

    pub const fn has_editor(&self) -> bool {
        self.editor
    }

    /// Records why it is uncertain what will run.
    pub fn doubt(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.reading.doubts.contains(&why) && self.reading.doubts.len() < COMMANDS_MAX {
            self.reading.doubts.push(why);
        }
    }

    /// `unset`: from here on, no name is certain to be a function.
    pub fn forget_functions(&mut self) {
        self.functions.clear();
    }

    pub fn os_text(&mut self, text: &OsStr, dialect: Dialect) {
        match text.to_str() {
            Some(text) => self.known_text(text, dialect),
            // A shell would use the bytes.
            None => self.doubt("the text is not UTF-8"),
        }
    }

    /// A word that a shell runs as text.
    pub fn text(&mut self, text: &Word, dialect: Dialect) {
        match text {
            Word::Known(text) => self.known_text(text, dialect),
            Word::Unknown(written) => {
                self.doubt(format!("the command is known only at run time: `{}`", shown(written)));
            }
        }
    }

    fn known_text(&mut self, text: &str, dialect: Dialect) {
        if self.depth >= NESTING_MAX {
            self.doubt(format!("it is nested deeper than {NESTING_MAX}"));
            return;
        }
        self.mention(text);
        let home = self.paths.home.clone();
        let script = shell::parse(text, Setting { dialect, home: home.as_deref(), depth: self.depth });
        self.depth += 1;
        // Another shell does not have this one's functions.
        let functions = std::mem::take(&mut self.functions);
        self.paths.enter();
        self.script(script, dialect);
        self.paths.leave();
        self.functions = functions;
        self.depth -= 1;
    }

    /// Records the variables whose values a shell text uses.
    fn mention(&mut self, text: &str) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        for name in variables::mentioned(text) {
            let known = &mut self.reading.variables;
            if known.len() < COMMANDS_MAX && !known.iter().any(|it| it == name) {
                known.push(name.to_owned());
            }
        }
    }

    fn script(&mut self, script: Script, dialect: Dialect) {
        let Script { items, here, doubts, evaluated, arrays } = script;
        evaluated.iter().for_each(|text| self.evaluate(text));
        arrays.iter().for_each(|name| self.array(name));
        for item in items {
            match item {
                Item::Command(simple) => self.simple(simple, &here, dialect),
                Item::Function(name, _) if arithmetic::is_counter(&name) => {
                    self.doubt(format!("`{name}` is a function, and not the program"));
                }
                Item::Function(name, Defined::Surely) => self.functions.push(name),
                Item::Function(_, Defined::Perhaps) => {}
                Item::Assigned(name, value) => self.assigned(&name, &value),
                Item::Enter => self.paths.enter(),
                Item::Leave => self.paths.leave(),
            }
        }
        for why in doubts {
            self.doubt(why);
        }
    }

    fn simple(&mut self, simple: Simple, here: &[Word], dialect: Dialect) {
        let mut found = Findings::default();
        for assignment in &simple.assignments {
            assignments::judge(&assignment.name, &assignment.value, &mut found, self);
            // `x='a[$(rm f)]'; [ "$x" -eq 0 ]`: some shells evaluate it as arithmetic.
            if assignment.value.known().is_some_and(holds_running_index) {
                self.doubt(format!("`{}` may run a command in the index of an array", assignment.name));
            }
        }
        // Judged separately: a rule about the program does not cover another PATH.
        if !found.is_empty() && !simple.words.is_empty() {
            self.keep(bare_words(&simple.assignments, &[]), std::mem::take(&mut found), "a shell");
        }
        for redirect in &simple.redirects {
            self.redirect(redirect, &mut found);
        }
        let input = match simple.stdin {
            Stdin::Inherited => Input::Inherited,
            Stdin::Pipe | Stdin::Redirected => Input::Unknown,
            Stdin::Caller => Input::Either,
            Stdin::Here(number) => here.get(number).map_or(Input::Unknown, Input::Text),
        };
        match simple.words.first() {
            Some(Word::Known(name)) if dialect == Dialect::Zsh && name.starts_with('=') => {
                self.doubt(format!("`{}` expands to a path in zsh", shown(name)));
            }
            Some(Word::Known(name)) if self.functions.contains(name) => {
                let name = name.clone();
                self.keep(simple.words, found, &name);
                return;
            }
            Some(Word::Known(name)) if dialect == Dialect::Zsh && (name == "test" || name == "[") => {
                programs::compared(&simple.words).for_each(|word| self.evaluate(word.shown()));
            }
            Some(_) | None => {}
        }
        if simple.words.is_empty() {
            let words = bare_words(&simple.assignments, &simple.redirects);
            self.keep(words, found, "a shell");
        } else {
            self.command(simple.words, input, found);
        }
    }

    /// A variable set by the request: judged like an assignment before the command.
    pub fn given(&mut self, name: &str, value: &str) {
        let mut found = Findings::default();
        assignments::judge(name, &Word::Known(value.to_owned()), &mut found, self);
        if !found.is_empty() {
            self.keep(vec![Word::Known(format!("{name}={value}"))], found, "a shell");
        }
    }

    /// Most names have no findings.
    fn assigned(&mut self, name: &str, value: &Word) {
        let mut found = Findings::default();
        assignments::judge(name, value, &mut found, self);
        if !found.is_empty() {
            self.keep(vec![Word::Unknown(format!("{name}=…"))], found, "a shell");
        }
    }

    fn keep(&mut self, words: Vec<Word>, found: Findings, name: &str) {
        let judged = judged(words, found, name);
        self.reading.commands.push(judged);
    }

    fn redirect(&mut self, redirect: &Redirect, found: &mut Findings) {
        let is_descriptor = |text: &str| text.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit());
        match redirect.direction {
            Direction::Read => {
                if self.paths.of(&redirect.target) == PathLocation::Network {
                    found.networks(format!("`{}` opens a connection", shown(redirect.target.shown())));
                }
            }
            Direction::Duplicate if redirect.target.known().is_some_and(is_descriptor) => {}
            // To a process substitution, whose commands are judged separately.
            Direction::Write | Direction::ReadWrite if redirect.target.shown().starts_with(">(") => {}
            Direction::Write | Direction::ReadWrite | Direction::Duplicate => {
                options::writes("a redirection", &redirect.target, found, self);
            }
        }
    }

    /// A command that another one runs, given as words.
    pub fn inner(&mut self, words: &[Word], input: Input<'_>) {
        if let Some(word) = words.first() {
            if may_split(word) && word.known().is_none() {
                self.doubt(format!("the program is known only at run time: `{}`", shown(word.shown())));
            }
            self.command(words.to_vec(), input, Findings::default());
        }
    }

    /// One simple command; `found` has the effects of its assignments and redirections.
    fn command(&mut self, words: Vec<Word>, input: Input<'_>, mut found: Findings) {
        if self.reading.commands.len() >= COMMANDS_MAX || self.depth >= NESTING_MAX {
            self.doubt(format!("it has more than {COMMANDS_MAX} commands, or they are nested too deep"));
            return;
        }
        // It is listed before the commands it runs.
        let place = self.reading.commands.len();
        self.reading.commands.push(Judged::nothing());
        self.depth += 1;
        let name = self.program(&words, input, &mut found);
        self.depth -= 1;
        if let Some(place) = self.reading.commands.get_mut(place) {
            *place = judged(words, found, &name);
        }
    }

    /// Judges a command by its program; returns the program's name.
    fn program(&mut self, words: &[Word], input: Input<'_>, found: &mut Findings) -> String {
        let Some((program, args)) = words.split_first() else { return String::new() };
        let Word::Known(program) = program else {
            self.doubt(format!("the program is known only at run time: `{}`", shown(program.shown())));
            found.mutates("the program is not known");
            return program.shown().to_owned();
        };
        let (directory, name) =
            program.rsplit_once('/').map_or((None, program.as_str()), |(d, n)| (Some(d), n));
        match directory {
            None => {}
            Some(directory) if lists(data::SYSTEM_DIRECTORIES, directory) => {}
            Some(directory) if directory.starts_with('/') => {
                found.mutates(format!("`{}` may be any program", shown(program)));
            }
            Some(_) => {
                found.mutates(format!("`{}` is a program of the workspace", shown(program)));
                self.of_workspace(name, args, input, found);
                return name.to_owned();
            }
        }
        let call = self.call(name, args, input);
        match programs::find(name) {
            None => found.mutates(format!("the program `{}` is not known", shown(name))),
            Some(_) if is_question(args) => {}
            Some(program) => programs::judge(program, &call, found, self),
        }
        name.to_owned()
    }

    fn call<'c>(&self, name: &'c str, args: &'c [Word], input: Input<'c>) -> Call<'c> {
        let (userns, has_own_home) = (self.userns, self.paths.has_own_home());
        Call { name, args, input, redirected: self.redirected, userns, has_own_home }
    }

    /// `.venv/bin/pip` does what `pip` does. But a script of the workspace that is named `mount` is not the program
    /// that changes the host, and no file is a shell builtin.
    fn of_workspace(&mut self, name: &str, args: &[Word], input: Input<'_>, found: &mut Findings) {
        let known = programs::find(name).filter(|_| !lists(data::BUILTINS, name) && !is_question(args));
        let Some(program) = known else { return };
        let mut by_name = Findings::default();
        let call = self.call(name, args, input);
        programs::judge(program, &call, &mut by_name, self);
        found.take_over(by_name, Categories::of(Category::HostEscapeRisk));
    }
}

fn judged(words: Vec<Word>, found: Findings, name: &str) -> Judged {
    let screen = found.screen();
    let (categories, findings) = found.finish(name);
    Judged { words, categories, findings, screen, is_redirected: false }
}

/// Whether a text may be an array element whose index contains a command.
fn holds_running_index(text: &str) -> bool {
    text.contains('[') && (text.contains("$(") || text.contains('`'))
}

/// Only `--version` or `--help`.
fn is_question(args: &[Word]) -> bool {
    matches!(args, [Word::Known(only)] if only == "--version" || only == "--help")
}

/// The words that represent a command without a program.
fn bare_words(assignments: &[Assignment], redirects: &[Redirect]) -> Vec<Word> {
    let assigned = assignments.iter().map(|assignment| match &assignment.value {
        Word::Known(value) => Word::Known(format!("{}={value}", assignment.name)),
        Word::Unknown(value) => Word::Unknown(format!("{}={value}", assignment.name)),
    });
    let redirected = redirects.iter().flat_map(|redirect| {
        let sign = match redirect.direction {
            Direction::Read => "<",
            Direction::Write => ">",
            Direction::ReadWrite => "<>",
            Direction::Duplicate => ">&",
        };
        [Word::Known(sign.to_owned()), redirect.target.clone()]
    });
    assigned.chain(redirected).collect()
}
