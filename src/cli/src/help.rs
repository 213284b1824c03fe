//! The help of `avfs` itself: its verbs under headings, all of them in `--help`, the everyday ones in `-h`.

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The verbs that follow a heading.
struct Heading {
    title: &'static str,
    /// Shown by `-h` and `--help`.
    everyday: &'static [&'static str],
    /// Shown by `--help` only: verbs for scripts and rare occasions.
    other: &'static [&'static str],
}

const HEADINGS: [Heading; 7] = [
    Heading { title: "Run", everyday: &["run", "runs", "approvals"], other: &["recover", "cache", "proxy"] },
    Heading {
        title: "Review",
        everyday: &["diff", "apply", "unapply", "discard", "status"],
        other: &["sync"],
    },
    Heading {
        title: "History",
        everyday: &["log", "show", "undo", "redo", "restore", "fork", "checkpoint"],
        other: &[],
    },
    Heading {
        title: "Files",
        everyday: &["ls", "import", "export"],
        other: &["cat", "tree", "find", "grep", "write", "mkdir", "rm", "mv", "cp", "materialize"],
    },
    Heading { title: "Lists", everyday: &["batch", "replay"], other: &["record", "bisect", "race"] },
    Heading {
        title: "Vault",
        everyday: &["init", "vault", "gc"],
        other: &["audit", "prune", "compact", "fsck", "stats", "quota"],
    },
    Heading {
        title: "Host",
        everyday: &["doctor", "config"],
        other: &["policy", "du", "clean", "schema", "completions", "man", "help"],
    },
];

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}";
const SHORT_END: &str = "\
Options: --vault <PATH|NAME>, --json[=compact], -h, --help, -V, --version
All commands and options: avfs --help. Help of one command: avfs COMMAND -h";
/// Columns of a line of help.
const WIDTH: usize = 80;
const INDENT: &str = "          ";

/// The command line of `avfs`, with its help.
pub fn command() -> Command {
    let root = Cli::command();
    let (short, long) = (short(&root), long(&root));
    root.help_template(TEMPLATE).before_help(short).before_long_help(long)
}

fn short(root: &Command) -> String {
    let mut text = String::new();
    for heading in &HEADINGS {
        text.push_str(&format!("{}:\n", heading.title));
        list(&mut text, root, heading.everyday);
    }
    text + SHORT_END
}

fn long(root: &Command) -> String {
    let mut text = String::new();
    for heading in &HEADINGS {
        text.push_str(&format!("{}:\n", heading.title));
        list(&mut text, root, heading.everyday);
        list(&mut text, root, heading.other);
        text.push('\n');
    }
    text.push_str("Options:\n");
    for option in root.get_arguments() {
        let long = option.get_long().unwrap_or_default();
        let value = option.get_value_names().map(|names| names.join("> <")).unwrap_or_default();
        let value =
            if option.is_require_equals_set() { format!("[=<{value}>]") } else { format!(" <{value}>") };
        text.push_str(&format!("  --{long}{value}\n"));
        wrap(&mut text, &option.get_help().map(ToString::to_string).unwrap_or_default());
    }
    text.push_str(
        "  -h, --help\n          Print help; -h prints a summary\n  -V, --version\n          Print version",
    );
    let examples = root.get_after_long_help().map(ToString::to_string);
    examples.into_iter().fold(text, |text, examples| format!("{text}\n\n{examples}"))
}

fn list(text: &mut String, root: &Command, verbs: &[&str]) {
    for verb in verbs {
        let about = root.find_subcommand(verb).and_then(Command::get_about);
        let about = about.map_or_else(|| "Print the help of a command".to_owned(), ToString::to_string);
        text.push_str(&format!("  {verb:<12}{about}\n"));
    }
}

/// Adds an indented paragraph.
fn wrap(text: &mut String, paragraph: &str) {
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && INDENT.len() + line.len() + 1 + word.len() > WIDTH {
            text.push_str(&format!("{INDENT}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&format!("{INDENT}{line}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs(root: &Command) -> Vec<String> {
        root.get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
    }

    #[test]
    fn every_verb_is_under_exactly_one_heading() {
        let mut listed: Vec<&str> = HEADINGS
            .iter()
            .flat_map(|heading| heading.everyday.iter().chain(heading.other))
            .copied()
            .collect();
        listed.sort_unstable();
        let mut verbs = verbs(&Cli::command());
        verbs.push("help".to_owned());
        verbs.sort_unstable();
        assert_eq!(listed, verbs);
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        let text = command().render_help().to_string();
        assert!(text.trim_end().lines().count() <= 40, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn long_help_lists_every_verb_within_the_width() {
        let text = command().render_long_help().to_string();
        for verb in verbs(&Cli::command()) {
            assert!(text.contains(&format!("\n  {verb} ")), "{verb} is missing in {text}");
        }
        let too_long = |line: &&str| line.starts_with("  ") && line.chars().count() > WIDTH;
        assert_eq!(text.lines().filter(too_long).collect::<Vec<_>>(), Vec::<&str>::new());
    }

    #[test]
    fn help_of_every_verb_ends_with_an_example() {
        let mut waiting = vec![("avfs".to_owned(), Cli::command())];
        while let Some((name, command)) = waiting.pop() {
            let beneath: Vec<&Command> = command.get_subcommands().collect();
            let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
            let examples = after.unwrap_or_default();
            let (_, examples) = examples.split_once("Examples:\n").unwrap_or_default();
            assert!(!examples.is_empty(), "the help of `{name}` has no examples");
            assert!(examples.lines().all(|line| line.starts_with("  ")), "`{name}` ends with: {examples}");
            waiting
                .extend(beneath.iter().map(|verb| (format!("{name} {}", verb.get_name()), (*verb).clone())));
        }
    }
}
