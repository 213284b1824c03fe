//! What is asked, and what a reading of its command says: every simple command in it, and what is in doubt.

use std::path::Path;

use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;
use avfs_types::ids::ForkName;

use crate::category::{Categories, Category};
use crate::opening::Opening;

/// Everything a decision depends on. Plain values: nothing is looked up for them.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub command: &'a CommandLine,
    /// Nothing for a fork of the run's own.
    pub fork: Option<&'a ForkName>,
    /// Where the command runs, and the directory whose files are versioned; as the command sees them.
    pub cwd: &'a Path,
    pub workspace: &'a Path,
    /// The host's directory that the workspace is a copy of: where it is seen inside is for the request to choose,
    /// this is not.
    pub project: &'a Path,
    /// What `~` stands for.
    pub home: Option<&'a Path>,
    pub net: &'a NetMode,
    pub confinement: Confinement,
    pub profile: Profile,
    pub timeout: ExecutionTimeout,
    /// Host paths the command may write to.
    pub rw: &'a [&'a Path],
    /// Names of the secrets it is given.
    pub secrets: &'a [&'a str],
    /// Variables that the request itself brings, with their values.
    pub variables: &'a [(&'a str, &'a str)],
    pub openings: &'a [Opening],
    /// Whether its input and output are a terminal.
    pub terminal: Terminal,
}

/// One word of a command as the shell would pass it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Known(String),
    /// Only the shell will know: it holds a variable, a glob or the output of a command. The text as it is
    /// written, for people.
    Unknown(String),
}

impl Word {
    /// Its value, if it can be told.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Unknown(_) => None,
        }
    }

    /// As it is shown.
    #[must_use]
    pub fn shown(&self) -> &str {
        match self {
            Self::Known(text) | Self::Unknown(text) => text,
        }
    }
}

/// Why a category holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub category: Category,
    /// "`sort -o` writes a file".
    pub why: String,
}

/// One simple command and what was found out about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The program and its arguments; wrappers such as `env` and `timeout` are judged as commands of their own,
    /// and so is what they run.
    pub words: Vec<Word>,
    pub categories: Categories,
    pub findings: Vec<Finding>,
    /// Set for a program that draws on the whole terminal and waits for keys.
    pub screen: Option<Screen>,
}

/// A program that cannot do anything without a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    pub program: String,
    /// A form of it, or another program, that needs no terminal.
    pub instead: String,
}

/// A whole command, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In the order they are written; never empty unless there are doubts.
    pub commands: Vec<Judged>,
    /// Why it cannot be told what will be run: bad syntax, a computed program, a construct that is not known.
    pub doubts: Vec<String>,
    /// Variables whose values its texts for a shell use, but for those that the texts set themselves.
    pub variables: Vec<String>,
}

impl Reading {
    /// What holds of the whole.
    #[must_use]
    pub fn categories(&self) -> Categories {
        Categories::together(self.commands.iter().map(|command| command.categories))
    }
}
