//! The examples of a rule: commands that it must, or must not, match. They are checked whenever the file is read, so
//! that a rule that differs from its author's intention never decides anything.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

use crate::decision::Action;
use crate::reading::{Asked, OwnChoices, Reading};
use crate::rules::Rule;
use crate::verdict::{Fit, RulePlace};

/// The paths in examples.
const WORKSPACE: &str = "/workspace";
const HOME: &str = "/home/user";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Match,
    NotMatch,
}

/// A shell command line, and whether the rule must match it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    pub text: String,
    pub wanted: Wanted,
    pub place: RulePlace,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{place}: the rule {rule} {fault} the example {example:?}")]
pub struct FailedExample {
    pub place: RulePlace,
    pub rule: String,
    pub example: String,
    pub wanted: Wanted,
    pub fault: ExampleFault,
}

/// Why an example fails.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ExampleFault {
    #[error("does not match")]
    NoMatch,
    #[error("matches")]
    Match,
    /// The example proves nothing, either way.
    #[error("cannot be checked ({0}) with")]
    Unreadable(String),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Match => "match",
            Self::NotMatch => "not_match",
        })
    }
}

impl Rule {
    /// The examples that fail. An example does not include the working directory or the fork: those conditions count
    /// as met.
    #[must_use]
    pub fn failed_examples(&self, read: fn(&Asked<'_>) -> Reading) -> Vec<FailedExample> {
        self.examples.iter().filter_map(|example| self.failed(example, read)).collect()
    }

    fn failed(&self, example: &Example, read: fn(&Asked<'_>) -> Reading) -> Option<FailedExample> {
        let command = CommandLine::Shell(OsString::from(&example.text));
        let reading = read(&asked(&command));
        let is_met = reading.commands.iter().any(|command| match self.when.fit_command(command) {
            Fit::No => false,
            // As in a decision: a possible match does not loosen anything.
            Fit::May => self.action > Action::Allow,
            Fit::Sure => true,
        });
        let fault = match (example.wanted, is_met) {
            (Wanted::Match, true) => return None,
            (Wanted::NotMatch, true) => ExampleFault::Match,
            (Wanted::Match | Wanted::NotMatch, false) if reading.commands.is_empty() => {
                let doubt = reading.doubts.into_iter().next();
                ExampleFault::Unreadable(doubt.unwrap_or_else(|| "it contains no command".to_owned()))
            }
            (Wanted::Match, false) => ExampleFault::NoMatch,
            (Wanted::NotMatch, false) => return None,
        };
        Some(FailedExample {
            place: example.place.clone(),
            rule: self.name.clone(),
            example: example.text.clone(),
            wanted: example.wanted,
            fault,
        })
    }
}

fn asked(command: &CommandLine) -> Asked<'_> {
    Asked {
        command,
        fork: None,
        cwd: Path::new(WORKSPACE),
        workspace: Path::new(WORKSPACE),
        project: Path::new(WORKSPACE),
        home: Some(Path::new(HOME)),
        net: &NetMode::None,
        confinement: Confinement::DEFAULT,
        profile: Profile::Strict,
        timeout: ExecutionTimeout::DEFAULT,
        rw: &[],
        provided: &[],
        secrets: &[],
        variables: &[],
        openings: &[],
        terminal: Terminal::None,
        editor: false,
        own: OwnChoices::NONE,
    }
}
