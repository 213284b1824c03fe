//! The findings about one simple command.

use avfs_request::NestedUserns;

use super::super::category::{Categories, Category};
use super::super::reading::{Finding, Screen, Word};
use super::limits::SHOWN_CHARS_MAX;

/// A simple command to be judged.
#[derive(Clone, Copy)]
pub struct Call<'c> {
    /// The program without its directory.
    pub name: &'c str,
    pub args: &'c [Word],
    pub input: Input<'c>,
    /// A variable can redirect its connections from the addresses in its arguments.
    pub redirected: bool,
    /// Whether it may create user namespaces.
    pub userns: NestedUserns,
    /// Its home is a directory of the run.
    pub has_own_home: bool,
}

/// The standard input of a command.
#[derive(Clone, Copy)]
pub enum Input<'c> {
    /// The caller's, possibly a terminal.
    Inherited,
    /// A pipe or a file with unknown content.
    Unknown,
    /// Inherited or unknown.
    Either,
    /// This text.
    Text(&'c Word),
}

impl Call<'_> {
    /// Whether a user may type the input.
    pub fn may_ask(&self) -> bool {
        matches!(self.input, Input::Inherited | Input::Either)
    }

    /// The first argument, if it is known.
    pub fn first(&self) -> Option<&str> {
        self.args.first().and_then(Word::known)
    }
}

/// The categories and findings of one simple command.
#[derive(Default)]
pub struct Findings {
    categories: Categories,
    findings: Vec<Finding>,
    screen: Option<Screen>,
}

impl Findings {
    pub fn add(&mut self, category: Category, why: impl Into<String>) {
        let why = why.into();
        match category {
            Category::Destructive => {
                self.note(Category::Mutating, why.clone(), None);
                self.note(category, why, None);
            }
            Category::ReadOnly
            | Category::Mutating
            | Category::Networked
            | Category::HostEscapeRisk
            | Category::Interactive => self.note(category, why, None),
        }
    }

    /// One reason for a category is enough.
    fn note(&mut self, category: Category, why: String, instead: Option<&'static str>) {
        if !self.categories.contains(category) {
            self.categories = self.categories.with(category);
            self.findings.push(Finding { category, why, instead });
        }
    }

    pub fn mutates(&mut self, why: impl Into<String>) {
        self.add(Category::Mutating, why);
    }

    pub fn destroys(&mut self, why: impl Into<String>) {
        self.add(Category::Destructive, why);
    }

    pub fn networks(&mut self, why: impl Into<String>) {
        self.add(Category::Networked, why);
    }

    pub fn escapes(&mut self, why: impl Into<String>) {
        self.add(Category::HostEscapeRisk, why);
    }

    /// A write outside of the workspace; `instead` names places where writing works.
    pub fn writes_outside(&mut self, why: String, instead: &'static str) {
        self.mutates(why.clone());
        self.note(Category::HostEscapeRisk, why, Some(instead));
    }

    pub fn talks(&mut self, why: impl Into<String>) {
        self.add(Category::Interactive, why);
    }

    /// `what` draws on the whole terminal and waits for keys; `instead` is an alternative that does not.
    pub fn fills_screen(&mut self, what: impl Into<String>, instead: &str) {
        let screen = || Screen { what: what.into(), instead: instead.to_owned() };
        self.screen.get_or_insert_with(screen);
    }

    pub fn screen(&self) -> Option<Screen> {
        self.screen.clone()
    }

    /// Adds the findings of another judge, except for some categories.
    pub fn take_over(&mut self, other: Self, but: Categories) {
        for Finding { category, why, instead } in other.findings {
            if !but.contains(category) {
                self.note(category, why, instead);
            }
        }
        self.screen = self.screen.take().or(other.screen);
    }

    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns everything at the end: a command that is not `mutating` is `read_only`.
    pub fn finish(mut self, name: &str) -> (Categories, Vec<Finding>) {
        if !self.categories.contains(Category::Mutating) {
            self.note(Category::ReadOnly, format!("`{}` only reads", shown(name)), None);
        }
        (self.categories, self.findings)
    }
}

/// A word for a message.
pub fn shown(text: &str) -> String {
    let short: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() { format!("{short}…") } else { short }
}
