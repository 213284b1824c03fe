//! What holds where no file says anything: the sandbox confines already, so only what it cannot take back or
//! cannot give is asked about or refused.

use avfs_request::{NetMode, Terminal};

use crate::category::{Categories, Category};
use crate::decision::Action;
use crate::reading::{Asked, Judged, Screen};
use crate::verdict::{Verdict, shown};

/// The flag that gives a command the network.
pub const NET_FLAG: &str = "--net allow=DOMAIN,… or --net host";

/// The rule that refuses a full-screen program where there is no terminal.
pub const NO_TERMINAL: &str = "builtin.no_terminal";

/// The rule that refuses what reaches beyond the sandbox.
pub const HOST_ESCAPE: &str = "builtin.host_escape_risk";

/// The one that explains most comes first among those that are equally strict.
const TOLD_FIRST: [Category; 6] = [
    Category::HostEscapeRisk,
    Category::Networked,
    Category::Destructive,
    Category::Mutating,
    Category::Interactive,
    Category::ReadOnly,
];

/// What is said of a command for those of its categories that nobody else has answered for.
#[must_use]
pub fn baseline(asked: &Asked<'_>, command: &Judged, unanswered: Categories) -> Option<Verdict> {
    let of = |category: &Category| by_category(asked, command, *category);
    TOLD_FIRST.iter().filter(|category| unanswered.contains(**category)).map(of).reduce(Verdict::stricter)
}

/// A command of which nothing is known may do what the sandbox lets it do.
#[must_use]
pub fn categories_of(command: &Judged) -> Categories {
    if command.categories.is_empty() { Categories::of(Category::Mutating) } else { command.categories }
}

/// Nobody can tell what will be run.
#[must_use]
pub fn doubt(doubts: &[String]) -> Verdict {
    let reason = match doubts {
        [] => "there is no command in it".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} (and {} more doubts)", rest.len()),
    };
    Verdict {
        action: Action::RequireApproval,
        rule: "builtin.doubt".to_owned(),
        reason,
        hint: Some("write the commands out in plain words, without what only the shell can know".to_owned()),
    }
}

/// A program that draws on a terminal that is not there would only wait, until its time is over.
fn without_terminal(Screen { program, instead }: &Screen) -> Verdict {
    Verdict {
        action: Action::Deny,
        rule: NO_TERMINAL.to_owned(),
        reason: format!("`{program}` fills a terminal and waits for keys, and there is no terminal"),
        hint: Some(format!("run it on a terminal and without --json, or use {instead}")),
    }
}

fn by_category(asked: &Asked<'_>, command: &Judged, category: Category) -> Verdict {
    if let (Category::Interactive, Terminal::None, Some(screen)) = (category, asked.terminal, &command.screen)
    {
        return without_terminal(screen);
    }
    let why = |otherwise: &str| {
        let finding = command.findings.iter().find(|finding| finding.category == category);
        finding.map_or_else(|| format!("{} {otherwise}", shown(command)), |finding| finding.why.clone())
    };
    let (action, reason, hint) = match category {
        Category::ReadOnly => (Action::Allow, why("only looks"), None),
        Category::Mutating => (Action::AllowWithCheckpoint, why("may write to the workspace"), None),
        Category::Destructive => {
            (Action::AllowWithCheckpoint, why("may delete or overwrite what is there"), None)
        }
        Category::Interactive => (Action::AllowWithCheckpoint, why("talks with a person"), None),
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
            Some("do this outside of the sandbox, or allow it by a rule in your own policy.toml".to_owned()),
        ),
    };
    Verdict { action, rule: format!("builtin.{category}"), reason, hint }
}
