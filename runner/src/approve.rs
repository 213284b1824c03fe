//! Asks whoever sits at the terminal whether a command may be run.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};

use avfs::backend::ApprovalRecord;
use avfs::runtime::envelope::journal_value;
use avfs::runtime::{Approver, ExecutionDecision, RememberFor, Remembered};
use avfs::vault::approval::Answer;
use serde_json::Value;

use crate::render;

/// The person at the controlling terminal, whatever the streams are.
pub struct AtTerminal<'a> {
    pub place: RememberFor<'a>,
}

/// What a person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Once,
    Always,
    Never,
}

impl Approver for AtTerminal<'_> {
    fn ask(&self, approval: &ApprovalRecord, decision: &ExecutionDecision) -> Option<Answer> {
        let mut terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        let always = Remembered::plan(approval, None, &self.place);
        let question = question(approval, decision, always.as_ref().ok());
        // What was typed before the question was seen is no answer to it.
        rustix::termios::tcflush(&terminal, rustix::termios::QueueSelector::IFlush).ok()?;
        terminal.write_all(question.as_bytes()).ok()?;
        let mut answer = String::new();
        BufReader::new(&terminal).read_line(&mut answer).ok()?;
        match (understand(&answer)?, always) {
            (Word::Once, _) => Some(Answer::Approve),
            (Word::Never, _) => Some(Answer::Deny),
            (Word::Always, Ok(rules)) => match rules.write() {
                Ok(()) => Some(Answer::Approve),
                Err(error) => {
                    // The yes was meant for good: what could not be kept is for the person to decide again.
                    let _ = terminal.write_all(render::failure(&error, "").as_bytes());
                    None
                }
            },
            (Word::Always, Err(_)) => None,
        }
    }
}

fn question(approval: &ApprovalRecord, decision: &ExecutionDecision, always: Option<&Remembered>) -> String {
    let choice = match always {
        Some(rules) => {
            let prefixes: Vec<String> = rules.prefixes.iter().map(|words| words.join(" ")).collect();
            format!("Run it? [y] this once, [a] always {:?} here, [n] no: ", prefixes.join(", "))
        }
        None => "Run it this once? [y/n]: ".to_owned(),
    };
    let categories: Vec<&str> = decision.categories.iter().map(|category| category.word()).collect();
    let hint = decision.hint.as_ref().map(|hint| format!("  hint:     {}\n", hint.escape_debug()));
    let hint = hint.unwrap_or_default();
    format!(
        "avfs-run: this command needs your approval ({}):\n{}  reason:   {}\n  found:    {}\n{hint}{choice}",
        approval.id,
        asked_for(&journal_value(&approval.request)),
        approval.reason.escape_debug(),
        categories.join(", "),
    )
}

/// The request as it is written down: all of the command, and what else it is given. Nobody can say yes to what
/// they do not see.
fn asked_for(request: &Value) -> String {
    let words = |value: &Value| match value {
        Value::String(line) => line.escape_debug().to_string(),
        Value::Array(words) => {
            let words = words.iter().filter_map(Value::as_str).map(|word| format!("{word:?}"));
            words.collect::<Vec<_>>().join(" ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    };
    let lines = [
        ("command", "command"),
        ("net", "network"),
        ("rw", "writes to"),
        ("secrets", "secrets"),
        ("secret_files", "as files"),
    ];
    let opened = [
        ("profile", Value::from("host"), "--profile host"),
        ("seccomp", Value::from("off"), "--seccomp off"),
        ("landlock", Value::from("off"), "--landlock off"),
        ("allow_userns", Value::from(true), "--allow-userns"),
        ("allow_secret_files", Value::from(true), "--allow-secret-files"),
    ];
    let opened = opened.into_iter().filter(|(key, open, _)| request[*key] == *open);
    let opened: Vec<&str> = opened.map(|(_, _, option)| option).collect();
    let lines = lines.into_iter().map(|(key, shown)| (shown, words(&request[key])));
    let lines = lines.chain([("held less", opened.join(" "))]);
    lines.filter(|(_, text)| !text.is_empty()).map(|(shown, text)| format!("  {shown:<9} {text}\n")).collect()
}

/// Anything but a clear word leaves the question open.
fn understand(answer: &str) -> Option<Word> {
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(Word::Once),
        "a" | "always" => Some(Word::Always),
        "n" | "no" => Some(Word::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_what_is_asked_for_is_shown_and_moves_no_cursor() {
        let long = format!("curl {} \u{1b}[2K", "x".repeat(300));
        let request = serde_json::json!({"command": long, "net": "host", "rw": ["/srv"], "secrets": []});
        let shown = asked_for(&request);
        assert_eq!(
            shown,
            format!(
                "  command   curl {} \\u{{1b}}[2K\n  network   host\n  writes to \"/srv\"\n",
                "x".repeat(300)
            )
        );
        let words = serde_json::json!({"command": ["curl", "a b\n"], "seccomp": "default"});
        assert_eq!(asked_for(&words), "  command   \"curl\" \"a b\\n\"\n");
        let open =
            serde_json::json!({"command": "x", "seccomp": "off", "landlock": "auto", "allow_userns": true});
        assert_eq!(asked_for(&open), "  command   x\n  held less --seccomp off --allow-userns\n");
    }

    #[test]
    fn only_a_clear_word_is_an_answer() {
        assert_eq!(understand(" Yes\n"), Some(Word::Once));
        assert_eq!(understand("A\n"), Some(Word::Always));
        assert_eq!(understand("n\n"), Some(Word::Never));
        for open in ["", "\n", "yess", "maybe", "\u{4}"] {
            assert_eq!(understand(open), None, "{open:?}");
        }
    }
}
