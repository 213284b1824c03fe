//! The semantics of rules, one at a time, on readings constructed by hand.

mod properties;
mod requests;
mod rules;

use std::path::Path;

use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, SeccompProfile, Terminal};
use avfs_types::CommandLine;
use avfs_types::ids::ForkName;

use super::*;
use crate::decision::{Action, ExecutionDecision, OnViolation};

/// A request to run `true` in `/w`, without any options.
#[derive(Debug)]
struct Request {
    command: CommandLine,
    fork: Option<ForkName>,
    cwd: &'static str,
    net: NetMode,
    confinement: Confinement,
    profile: Profile,
    rw: Vec<&'static Path>,
    secrets: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    openings: Vec<Opening>,
    own: OwnChoices,
}

impl Request {
    fn plain() -> Self {
        Self {
            command: CommandLine::Argv(vec!["true".into()]),
            fork: None,
            cwd: "/w",
            net: NetMode::None,
            confinement: Confinement::DEFAULT,
            profile: Profile::Strict,
            rw: Vec::new(),
            secrets: Vec::new(),
            variables: Vec::new(),
            openings: Vec::new(),
            own: OwnChoices::NONE,
        }
    }

    fn with_net() -> Self {
        let own = OwnChoices { net: true, ..OwnChoices::NONE };
        Self { net: NetMode::Host, own, ..Self::plain() }
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            command: &self.command,
            fork: self.fork.as_ref(),
            cwd: Path::new(self.cwd),
            workspace: Path::new("/w"),
            project: Path::new("/w"),
            home: None,
            net: &self.net,
            confinement: self.confinement,
            profile: self.profile,
            timeout: ExecutionTimeout::DEFAULT,
            rw: &self.rw,
            provided: &[],
            secrets: &self.secrets,
            variables: &self.variables,
            openings: &self.openings,
            terminal: Terminal::None,
            editor: false,
            own: self.own,
        }
    }

    fn explained(&self, policy: &Policy, reading: Reading) -> Explanation {
        policy.judge(&self.asked(), reading)
    }

    fn decided(&self, policy: &Policy, reading: Reading) -> ExecutionDecision {
        self.explained(policy, reading).decision
    }
}

/// A simple command; a word with a `$` is unknown.
fn command(text: &str, categories: &[Category]) -> Judged {
    let word = |text: &str| match text.contains('$') {
        true => Word::Unknown(text.to_owned()),
        false => Word::Known(text.to_owned()),
    };
    let finding = |category: &Category| Finding {
        category: *category,
        why: format!("it is {category}"),
        instead: None,
    };
    Judged {
        words: text.split_whitespace().map(word).collect(),
        categories: categories.iter().copied().collect(),
        findings: categories.iter().map(finding).collect(),
        screen: None,
        is_redirected: false,
    }
}

fn reading(commands: impl IntoIterator<Item = Judged>) -> Reading {
    Reading { commands: commands.into_iter().collect(), ..Reading::default() }
}

fn one(text: &str, categories: &[Category]) -> Reading {
    reading([command(text, categories)])
}

fn in_doubt(commands: impl IntoIterator<Item = Judged>) -> Reading {
    Reading { doubts: vec!["the program is computed".to_owned()], ..reading(commands) }
}

fn place(line: usize) -> RulePlace {
    RulePlace { file: "/etc/avfs/policy.toml".into(), line }
}

fn rule(prefix: &[&str], action: Action) -> Rule {
    let prefix = prefix.iter().map(|word| vec![(*word).to_owned()]).collect();
    Rule {
        name: format!("says-{action}"),
        place: place(1),
        when: Conditions { prefix, ..Conditions::default() },
        action,
        reason: None,
        examples: Vec::new(),
    }
}

fn layer(tier: Tier, rules: impl IntoIterator<Item = Rule>) -> Layer {
    Layer { rules: rules.into_iter().collect(), ..Layer::new(tier) }
}

fn policy(layers: impl IntoIterator<Item = Layer>) -> Policy {
    layers.into_iter().fold(Policy::builtin(), Policy::with)
}

const READ: &[Category] = &[Category::ReadOnly];
const WRITE: &[Category] = &[Category::Mutating];
const NETWORK: &[Category] = &[Category::Networked];
const ESCAPE: &[Category] = &[Category::Mutating, Category::HostEscapeRisk];
