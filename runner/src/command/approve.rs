//! Asks the user at the terminal whether a command may run.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use avfs_engine::journal::Recorded;
use avfs_engine::{Approver, RememberFor, Remembered, offered_networks};
use avfs_policy::{Category, ExecutionDecision};
use avfs_present::Avfs;
use avfs_request::NetMode;
use avfs_types::printable;
use avfs_vault::approval::Answer;
use avfs_vault::backend::ApprovalRecord;
use avfs_wire::asked_for;

use crate::command::render;

/// The user at the controlling terminal, even if the standard streams are redirected.
pub struct AtTerminal<'a> {
    pub place: RememberFor<'a>,
    pub avfs: &'a Avfs,
    /// Whether stderr reports that a run waits.
    pub reports: bool,
}

/// The user's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Once,
    Always,
    Never,
}

impl Approver for AtTerminal<'_> {
    fn waits(&self, approval: &ApprovalRecord) {
        if self.reports {
            let (id, command) = (&approval.id, avfs_present::command_to_approve(self.avfs, approval));
            render::say([format!("avfs-run: waiting for an approval; answer with: {command}, or deny {id}")]);
        }
    }

    fn ask(&self, approval: &ApprovalRecord, decision: &ExecutionDecision) -> Option<Answer> {
        let mut terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let always = Remembered::plan(approval, None, None, &self.place);
        let networks = match decision.categories.contains(Category::Networked) {
            true => {
                let request = Recorded::parse(&approval.request);
                request
                    .read()
                    .map(|request| offered_networks(request, self.place.workspace))
                    .unwrap_or_default()
            }
            false => Vec::new(),
        };
        let question = question(approval, decision, always.as_ref().ok(), &networks);
        // Discard input typed before the question was shown: it does not answer the question.
        rustix::termios::tcflush(&terminal, rustix::termios::QueueSelector::IFlush).ok()?;
        terminal.write_all(question.as_bytes()).ok()?;
        let mut answer = String::new();
        BufReader::new(&terminal).read_line(&mut answer).ok()?;
        let (word, net) = understand(&answer, &networks)?;
        let approved = match net {
            Some(net) => Answer::ApproveWith { net: net.to_string() },
            None => Answer::Approve,
        };
        match word {
            Word::Once => Some(approved),
            Word::Never => Some(Answer::Deny),
            Word::Always => {
                let rules =
                    Remembered::plan(approval, None, net, &self.place).and_then(|rules| rules.write());
                match rules {
                    Ok(()) => Some(approved),
                    Err(error) => {
                        // The user asked for a permanent approval. If it cannot be saved, let the user decide again.
                        let _ = terminal
                            .write_all(avfs_terminal::lines(render::failure(&error, self.avfs)).as_bytes());
                        None
                    }
                }
            }
        }
    }
}

fn question(
    approval: &ApprovalRecord,
    decision: &ExecutionDecision,
    always: Option<&Remembered>,
    networks: &[NetMode],
) -> String {
    let offers = networks.iter().zip(1..).map(|(net, number)| match net {
        NetMode::None => format!("{number} without network"),
        NetMode::Host => format!("{number} with the host's network"),
        NetMode::Allow(list) => format!("{number} with {list}"),
    });
    let offers: Vec<String> = offers.collect();
    let offers = (!offers.is_empty())
        .then(|| format!("  networks: {}; append a number to choose one, as in y2", offers.join(", ")));
    let choice = match always {
        Some(rules) => {
            let prefixes: Vec<String> = rules.prefixes.iter().map(|words| words.join(" ")).collect();
            format!("Run it? [y] once, [a] always {:?} here, [n] no: ", prefixes.join(", "))
        }
        None => "Run it once? [y/n]: ".to_owned(),
    };
    let categories: Vec<&str> = decision.categories.iter().map(|category| category.word()).collect();
    let mut lines = vec![format!("avfs-run: this command needs your approval ({}):", approval.id)];
    let asked = asked_for(&Recorded::parse(&approval.request));
    lines.extend(asked.iter().map(|(name, text)| format!("  {:<9} {text}", format!("{name}:"))));
    lines.push(format!("  reason:   {}", approval.reason));
    lines.push(format!("  found:    {}", categories.join(", ")));
    lines.extend(decision.hint.as_ref().map(|hint| format!("  hint:     {hint}")));
    lines.extend(offers);
    avfs_terminal::lines(lines) + &printable::line(&choice)
}

/// The answer and the chosen network: the first, unless the answer ends with a number. An unclear answer leaves the
/// question open.
fn understand<'n>(answer: &str, networks: &'n [NetMode]) -> Option<(Word, Option<&'n NetMode>)> {
    let answer = answer.trim().to_ascii_lowercase();
    let (text, number) = answer.split_at(answer.trim_end_matches(|c: char| c.is_ascii_digit()).len());
    let word = match text.trim() {
        "y" | "yes" => Word::Once,
        "a" | "always" => Word::Always,
        "n" | "no" => Word::Never,
        _ => return None,
    };
    match (word, number) {
        (Word::Never, "") => Some((word, None)),
        (Word::Once | Word::Always, "") => Some((word, networks.first())),
        (Word::Once | Word::Always, _) => {
            let at: usize = number.parse().ok()?;
            Some((word, Some(networks.get(at.checked_sub(1)?)?)))
        }
        (Word::Never, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclear_answers_are_ignored() {
        assert_eq!(understand(" Yes\n", &[]), Some((Word::Once, None)));
        assert_eq!(understand("A\n", &[]), Some((Word::Always, None)));
        assert_eq!(understand("n\n", &[]), Some((Word::Never, None)));
        for open in ["", "\n", "yess", "maybe", "\u{4}", "y1", "n1"] {
            assert_eq!(understand(open, &[]), None, "{open:?}");
        }
        let networks = [NetMode::None, NetMode::Host];
        assert_eq!(understand("y\n", &networks), Some((Word::Once, Some(&NetMode::None))));
        assert_eq!(understand("y1\n", &networks), Some((Word::Once, Some(&NetMode::None))));
        assert_eq!(understand("always 2\n", &networks), Some((Word::Always, Some(&NetMode::Host))));
        assert_eq!(understand("n\n", &networks), Some((Word::Never, None)));
        for open in ["y0", "y3", "n2", "1", "a99999999999999999999"] {
            assert_eq!(understand(open, &networks), None, "{open:?}");
        }
    }
}
