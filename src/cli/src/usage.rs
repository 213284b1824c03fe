//! Arguments that cannot be parsed: help, version, and usage errors in both formats.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command};

use avfs_ops::OpError;
use avfs_present::Hint;
use avfs_request::JsonForm;
use avfs_run::option_meant;
use avfs_types::ids::{DrawnIdError, NameError};
use avfs_types::path::PathError;
use avfs_types::reference::{BadReference, Base, Reference};
use avfs_types::{UnitError, exit_code, printable};
use avfs_vault::VaultError;
use avfs_wire::ErrorBody;

use crate::cli::Verb;
use crate::commands::execute;
use crate::help;
use crate::ui::{Format, Ui, print_clap};
use crate::unknown_command;

/// The kind of the answer of a parsed command: `fork.create`.
pub fn kind_of(matches: &ArgMatches) -> String {
    let mut words = Vec::new();
    let mut at = matches;
    while let Some((name, beneath)) = at.subcommand() {
        words.push(name);
        at = beneath;
    }
    words.join(".")
}

/// Treats `avfs help --help` as a request for help.
pub fn help_of_help(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "--help" && word != "-h");
    }
    words
}

/// The command that the arguments name, as far as it can be determined, and its path below `avfs`.
fn command_of<'c>(root: &'c Command, words: &[OsString]) -> (&'c Command, Vec<&'c str>) {
    let mut at = root;
    let mut path = Vec::new();
    let mut skip_value = false;
    for word in words.iter().skip(1).map_while(|word| word.to_str()) {
        if std::mem::replace(&mut skip_value, word == "--vault") {
            continue;
        }
        match at.find_subcommand(word) {
            Some(verb) => {
                path.push(verb.get_name());
                at = verb;
            }
            None if word.starts_with('-') && word != "--" => {}
            None => break,
        }
    }
    (at, path)
}

/// Whether an argument requests JSON, in any form.
fn is_json(word: &OsString) -> bool {
    word == "--json" || word.as_encoded_bytes().starts_with(b"--json=")
}

/// Fails unless the verb supports the requested form of JSON.
pub fn check_form(ui: &Ui, form: Option<JsonForm>, verb: &Verb) -> Result<(), u8> {
    match (form, verb) {
        (Some(JsonForm::Compact), Verb::Run(_) | Verb::Proxy(_)) | (None | Some(JsonForm::Full), _) => Ok(()),
        (Some(JsonForm::Compact), _) => {
            let message = "--json=compact is available only for avfs run".to_owned();
            let hint = Some("use --json, or: avfs run --json=compact -- COMMAND".to_owned());
            ui.print_error_body(&ErrorBody { code: "usage".to_owned(), message, hint });
            Err(exit_code::USAGE)
        }
    }
}

/// Prints clap's error and returns the exit code.
pub fn explain(error: &clap::Error, words: &[OsString]) -> u8 {
    let json = words.iter().skip(1).take_while(|word| *word != "--").any(is_json);
    let format = if json { Format::Json } else { Format::Human };
    let root = help::command();
    let (command, path) = command_of(&root, words);
    let kind = if command.has_subcommands() { "usage".to_owned() } else { path.join(".") };
    let ui = Ui::new(format, kind.clone());
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return ui.conclude(print_clap(error).map(|()| exit_code::OK).map_err(OpError::of_output));
    }
    // `avfs run` is another name of `avfs-run`, with its answers and exit codes.
    match kind.as_str() {
        "run" => return execute::run_as(&["run"], &[]),
        "proxy.exec" => return execute::run_as(&["proxy", "exec"], &[]),
        _ => {}
    }
    if let Some(word) = word_of(error, ErrorKind::InvalidSubcommand, ContextKind::InvalidSubcommand) {
        ui.print_error_body(&unknown_command::explain(word, &root, command, &path));
        return exit_code::USAGE;
    }
    if let Some((message, hint)) = fork_by_option(error) {
        ui.print_error_body(&ErrorBody { code: "usage".to_owned(), message, hint: Some(hint) });
        return exit_code::USAGE;
    }
    let has = |long: &str| command.get_arguments().any(|known| known.get_long() == Some(long));
    let hint = option_meant(error, words, has).unwrap_or_else(|| options_hint(&path));
    match (refused_value(error), format) {
        (Some(refusal), _) => match version_for_fork(error, &kind) {
            Some((message, hint)) => {
                let code = refusal.code().to_owned();
                ui.print_error_body(&ErrorBody { code, message, hint: Some(hint) });
            }
            None => ui.print_error(refusal),
        },
        (None, Format::Json) => ui.print_error_json(&usage_body(error, hint)),
        // clap's message is the whole help. Errors are ignored: stderr may be closed.
        (None, Format::Human) if is_help(error) => drop(print_clap(error)),
        (None, Format::Human) => {
            // clap repeats arguments verbatim, so give it the escaped arguments.
            let shown = printable::words(words);
            let shown = shown.and_then(|words| help::command().try_get_matches_from(words).err());
            ui.print_usage_error(shown.as_ref().unwrap_or(error), &hint);
        }
    }
    exit_code::USAGE
}

/// An argument that the library rejected, with its own code and hint.
fn refused_value(error: &clap::Error) -> Option<&dyn Hint> {
    let source = std::error::Error::source(error)?;
    let name = source.downcast_ref::<NameError>().map(|error| error as &dyn Hint);
    name.or_else(|| source.downcast_ref::<PathError>().map(|error| error as &dyn Hint))
        .or_else(|| source.downcast_ref::<BadReference>().map(|error| error as &dyn Hint))
        .or_else(|| source.downcast_ref::<VaultError>().map(|error| error as &dyn Hint))
        .or_else(|| source.downcast_ref::<UnitError>().map(|error| error as &dyn Hint))
        .or_else(|| source.downcast_ref::<DrawnIdError>().map(|error| error as &dyn Hint))
}

/// The message and hint for a version where the verb needs a fork or a run.
fn version_for_fork(error: &clap::Error, verb: &str) -> Option<(String, String)> {
    let word = word_of(error, ErrorKind::ValueValidation, ContextKind::InvalidValue)?;
    let reference = Reference::parse(word).ok()?;
    let fork = match &reference.base {
        Base::Name(name) if reference.back > 0 => name.as_str(),
        Base::Checkpoint(fork, _) => fork.as_str(),
        Base::Name(_) | Base::Run(_) => return None,
    };
    let on = match fork {
        "main" | "last" => String::new(),
        fork => format!(" --fork {fork}"),
    };
    let (needed, hint) = match verb {
        "undo" | "redo" => ("a fork", format!("go to that version with: avfs restore {word}{on}")),
        "apply" => (
            "a fork or a run",
            format!(
                "show the changes of that version with: avfs diff {word}; write its files to a directory with: \
                 avfs export {word} DIR"
            ),
        ),
        "unapply" | "discard" => {
            ("a fork or a run", "list runs with: avfs runs list, forks with: avfs fork list".to_owned())
        }
        "sync" | "bisect" => ("a fork", format!("name the fork: avfs {verb} {fork}")),
        _ => return None,
    };
    Some((format!("{word} is a version; {verb} needs {needed}"), hint))
}

fn word_of(error: &clap::Error, kind: ErrorKind, context: ContextKind) -> Option<&str> {
    match error.get(context) {
        Some(ContextValue::String(word)) if error.kind() == kind => Some(word),
        _ => None,
    }
}

/// The usage line of the verb whose arguments are wrong.
fn usage_of(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => {
            usage.to_string().trim().strip_prefix("Usage: ").map(str::to_owned)
        }
        _ => None,
    }
}

/// Verbs that change a fork take it as an option; the others take it as an argument.
fn fork_by_option(error: &clap::Error) -> Option<(String, String)> {
    let word = word_of(error, ErrorKind::UnknownArgument, ContextKind::InvalidArg)?;
    let usage = usage_of(error)?;
    let takes_one = ["FORK", "REF", "[A]"].iter().any(|place| usage.contains(place));
    (word == "--fork" && takes_one).then(|| {
        (
            format!("this verb has no option {word}"),
            format!("name the fork as an argument: {}", usage.lines().next().unwrap_or_default()),
        )
    })
}

fn options_hint(path: &[&str]) -> String {
    let words: String = path.iter().map(|word| format!(" {word}")).collect();
    format!("see the options with: avfs{words} --help")
}

/// True for a missing subcommand.
fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand)
}

fn usage_body(error: &clap::Error, hint: String) -> ErrorBody {
    let text = error.render().to_string();
    let mut lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let first = lines.next().unwrap_or_default();
    let listed: Vec<&str> = lines.collect();
    let message = match first.strip_prefix("error: ").unwrap_or(first) {
        _ if is_help(error) => "missing subcommand".to_owned(),
        first if listed.is_empty() => first.to_owned(),
        first => format!("{first} {}", listed.join(", ")),
    };
    ErrorBody { code: "usage".to_owned(), message, hint: Some(hint) }
}
