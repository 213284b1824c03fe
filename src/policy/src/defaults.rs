//! The built-in defaults: the sandbox already confines commands, so a command needs approval or is denied only for
//! effects that the sandbox cannot undo, or for access that it does not give.

use avfs_request::{NetMode, Terminal};

use crate::category::{Categories, Category};
use crate::decision::Action;
use crate::profile;
use crate::reading::{Asked, Judged, Screen};
use crate::verdict::{Verdict, shown};

/// The option that gives a command network access.
pub const NET_FLAG: &str = "--net allow=DOMAIN,… or --net host";

/// The rule that denies a full-screen program without a terminal.
pub const NO_TERMINAL: &str = "builtin.no_terminal";

/// The rule that asks for commands that need the network.
pub const NETWORKED: &str = "builtin.networked";

/// The rule that denies commands that reach beyond the sandbox.
pub const HOST_ESCAPE: &str = "builtin.host_escape_risk";

/// What to do about a doubt.
pub const WRITE_OUT: &str = "write the commands out literally, without shell expansions";

/// The end of a hint; the rule may follow.
const ALLOW_BY_RULE: &str = "allow it with a rule in ~/.config/avfs/policy.toml";

/// Among equally strict verdicts, the first of these categories explains most.
const EXPLAINED_FIRST: [Category; 6] = [
    Category::HostEscapeRisk,
    Category::Networked,
    Category::Destructive,
    Category::Mutating,
    Category::Interactive,
    Category::ReadOnly,
];

/// How much the rule of an allowed command explains about a request of several commands: the lowest number most. A
/// rule of a file explains more than a default, and a default more than the defaults after it.
#[must_use]
pub fn explaining_rank(rule: &str) -> usize {
    let of = |word: &str| EXPLAINED_FIRST.iter().position(|category| category.word() == word);
    match rule.strip_prefix("builtin.") {
        // More than that the unknown command is mutating.
        Some("doubt") => of(Category::Mutating.word()).map_or(0, |at| 2 * at + 1),
        Some(word) => 2 + 2 * of(word).unwrap_or(EXPLAINED_FIRST.len()),
        None => 0,
    }
}

/// The verdict on a command for those of its categories that no rule has answered.
#[must_use]
pub fn baseline(asked: &Asked<'_>, command: &Judged, unanswered: Categories) -> Option<Verdict> {
    let of = |category: &Category| by_category(asked, command, *category);
    EXPLAINED_FIRST
        .iter()
        .filter(|category| unanswered.contains(**category))
        .map(of)
        .reduce(Verdict::stricter)
}

/// A command without findings may do anything that the sandbox allows.
#[must_use]
pub fn categories_of(command: &Judged) -> Categories {
    if command.categories.is_empty() { Categories::of(Category::Mutating) } else { command.categories }
}

/// The verdict if it cannot be determined what will run. The sandbox confines it, so it asks only if the request gives
/// it more than the default.
#[must_use]
pub fn doubt(asked: &Asked<'_>, doubts: &[String]) -> Verdict {
    let why = why_in_doubt(doubts);
    let rule = "builtin.doubt".to_owned();
    match profile::option_to_drop(asked) {
        None => Verdict { action: Action::AllowWithCheckpoint, rule, reason: why, hint: None },
        Some(drop) => Verdict {
            action: Action::RequireApproval,
            rule,
            reason: format!("{why}, and the request gives it more than the default"),
            hint: Some(format!("{drop}, or {WRITE_OUT}")),
        },
    }
}

#[must_use]
pub fn why_in_doubt(doubts: &[String]) -> String {
    match doubts {
        [] => "it contains no command".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} (and {} more doubts)", rest.len()),
    }
}

/// A program that draws on a missing terminal would only wait, until it times out.
fn without_terminal(Screen { what, instead }: &Screen) -> Verdict {
    Verdict {
        action: Action::Deny,
        rule: NO_TERMINAL.to_owned(),
        reason: format!("{what}, and there is no terminal"),
        hint: Some(format!("run it on a terminal and without --json, or use {instead}")),
    }
}

fn by_category(asked: &Asked<'_>, command: &Judged, category: Category) -> Verdict {
    if let (Category::Interactive, Terminal::None, Some(screen)) = (category, asked.terminal, &command.screen)
    {
        return without_terminal(screen);
    }
    let finding = command.findings.iter().find(|finding| finding.category == category);
    let why = |otherwise: &str| {
        finding.map_or_else(|| format!("{} {otherwise}", shown(command)), |finding| finding.why.clone())
    };
    let (action, reason, hint) = match category {
        Category::ReadOnly => (Action::Allow, why("is read-only"), None),
        Category::Mutating => (Action::AllowWithCheckpoint, why("may write to the workspace"), None),
        Category::Destructive => {
            (Action::AllowWithCheckpoint, why("may delete or overwrite existing files"), None)
        }
        Category::Interactive => (Action::AllowWithCheckpoint, why("is interactive"), None),
        Category::Networked => match asked.net {
            NetMode::None => (
                Action::RequireApproval,
                format!("{}, and the request does not ask for the network", why("needs the network")),
                Some(format!("add {NET_FLAG}")),
            ),
            NetMode::Allow(_) | NetMode::Host => {
                (Action::Allow, why("needs the network, which the request asks for"), None)
            }
        },
        Category::HostEscapeRisk => (
            Action::Deny,
            why("reaches beyond the sandbox"),
            Some(match finding.and_then(|finding| finding.instead) {
                Some(instead) => format!("{instead}; or {ALLOW_BY_RULE}"),
                None => format!("if it has to reach beyond the sandbox, {ALLOW_BY_RULE}"),
            }),
        ),
    };
    Verdict { action, rule: format!("builtin.{category}"), reason, hint }
}
