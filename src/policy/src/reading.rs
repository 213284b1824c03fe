//! The input of a decision, and the result of parsing its command: every simple command in it, and the doubts.

use std::path::Path;

use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;
use avfs_types::ids::ForkName;

use crate::category::{Categories, Category};
use crate::opening::Opening;

/// Everything a decision depends on. Plain values: nothing else is looked up.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub command: &'a CommandLine,
    /// `None` for an ephemeral fork.
    pub fork: Option<&'a ForkName>,
    /// The working directory of the command and the workspace, as the command sees them.
    pub cwd: &'a Path,
    pub workspace: &'a Path,
    /// The host directory of the workspace. Unlike the path inside, the request cannot choose it.
    pub project: &'a Path,
    /// The expansion of `~`.
    pub home: Option<&'a Path>,
    pub net: &'a NetMode,
    pub confinement: Confinement,
    pub profile: Profile,
    pub timeout: ExecutionTimeout,
    /// Host paths the command may write to.
    pub rw: &'a [&'a Path],
    /// Directories that the run itself provides besides the workspace and `/tmp`, as the command sees them: of
    /// `--tmpfs`, a home that the fork keeps, and caches.
    pub provided: &'a [&'a Path],
    /// Names of the secrets passed to it.
    pub secrets: &'a [&'a str],
    /// Variables that the request itself sets, with their values.
    pub variables: &'a [(&'a str, &'a str)],
    pub openings: &'a [Opening],
    /// Whether its input and output are a terminal.
    pub terminal: Terminal,
    /// Whether a variable of the caller or a setting of git names an editor that may work without a terminal.
    pub editor: bool,
    pub own: OwnChoices,
}

/// What the request itself asks for, without the settings.
#[derive(Clone, Copy, Debug)]
pub struct OwnChoices {
    /// Whether it asks for a network.
    pub net: bool,
    /// Whether it passes variables of the caller.
    pub variables: bool,
    pub profile: Profile,
    pub confinement: Confinement,
}

impl OwnChoices {
    pub const NONE: Self =
        Self { net: false, variables: false, profile: Profile::Strict, confinement: Confinement::DEFAULT };
}

/// One word of a command as the shell would pass it to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Known(String),
    /// Known only to the shell: it contains a variable, a glob or a command substitution. Holds the source text, for
    /// display.
    Unknown(String),
}

impl Word {
    /// Its value, if known.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Unknown(_) => None,
        }
    }

    /// The text for display.
    #[must_use]
    pub fn shown(&self) -> &str {
        match self {
            Self::Known(text) | Self::Unknown(text) => text,
        }
    }
}

/// Why a category applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub category: Category,
    /// "`sort -o` writes a file".
    pub why: String,
    /// Where writing works, for a write outside of the workspace.
    pub instead: Option<&'static str>,
}

/// One simple command and its classification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The program and its arguments. Wrappers such as `env` and `timeout` are judged as separate commands, and so is
    /// the command they run.
    pub words: Vec<Word>,
    pub categories: Categories,
    pub findings: Vec<Finding>,
    /// Set for a program that draws on the whole terminal and waits for keys.
    pub screen: Option<Screen>,
    /// The request sets a variable that replaces programs or libraries: `PATH`, `LD_PRELOAD`.
    pub is_redirected: bool,
}

impl Judged {
    /// A command without words.
    pub(crate) fn nothing() -> Self {
        let (words, findings) = (Vec::new(), Vec::new());
        Self { words, categories: Categories::NONE, findings, screen: None, is_redirected: false }
    }
}

/// Why a command is useless without a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    /// "`vim` is a full-screen program".
    pub what: String,
    /// A form of it, or another program, that does not need a terminal.
    pub instead: String,
}

/// A whole parsed command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In source order; never empty unless there are doubts.
    pub commands: Vec<Judged>,
    /// Why it is uncertain what will run: a syntax error, a computed program name, an unknown construct.
    pub doubts: Vec<String>,
    /// Variables whose values its shell texts use, except those that the texts set themselves.
    pub variables: Vec<String>,
    /// Variables that it sets.
    pub assigned: Vec<String>,
}

impl Reading {
    /// Whether it is uncertain what will run.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        !self.doubts.is_empty() || self.commands.is_empty()
    }

    /// The categories of the whole command. What runs in doubt is at least mutating.
    #[must_use]
    pub fn categories(&self) -> Categories {
        let doubt = self.is_doubtful().then_some(Categories::of(Category::Mutating));
        Categories::together(self.commands.iter().map(|command| command.categories).chain(doubt))
    }
}
