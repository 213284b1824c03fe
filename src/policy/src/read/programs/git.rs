//! `git`: options before the subcommand, settings on the command line, and addresses that run a program.

use super::judge::by_table;
use super::rules::is_local_path;
use super::verbs;
use super::{Program, SUBCOMMANDS, data};
use crate::read::findings::{Call, Findings, shown};
use crate::read::options::{self, Order, lists, parse};
use crate::read::path_location::PathLocation;
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// Settings that name the editor.
const EDITOR_SETTINGS: &str = "core.editor sequence.editor";

/// Options of `git push` that neither take a value nor name another repository.
const PUSH_FLAGS: &str = "f force u set-upstream n dry-run q quiet v verbose tags follow-tags d delete mirror prune \
                          atomic no-verify porcelain progress force-with-lease";

pub fn git(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, program.options, Order::OptionsFirst);
    reader.paths.enter();
    let mut redirected = call.redirected;
    for given in &parsed.given {
        match (given.name, &given.value) {
            ("c", Some(value)) => {
                setting(value, found, reader);
                redirected |= value.known().is_none_or(names_addresses);
            }
            ("config-env", _) => {
                reader.choose_editor(&Word::Unknown(String::new()));
                found.mutates("`git --config-env` can make git run a program");
            }
            ("exec-path", Some(_)) => found.mutates("`git --exec-path` makes git run other programs"),
            ("C" | "work-tree", Some(directory)) => reader.paths.change(directory.known()),
            ("git-dir", Some(directory))
                if matches!(reader.paths.of(directory), PathLocation::Outside | PathLocation::Home) =>
            {
                // It has the settings of another repository.
                found.mutates("`git --git-dir` uses the settings of another repository");
            }
            _ => {}
        }
    }
    let args = call.args.get(parsed.before_operands..).unwrap_or_default();
    match args {
        [Word::Unknown(_), ..] => {
            found.mutates("the subcommand of `git` is not known");
            reader.doubt("the subcommand of `git` is not known");
        }
        [] => {}
        [_, Word::Known(only)] if lists("-h --help", only) => {}
        [Word::Known(verb), rest @ ..] => {
            if let Some(verbs) = program.verbs {
                verbs::judge(verbs, &Call { name: "git", args, redirected, ..*call }, found, reader);
            }
            // Options of `git log` have the same effect in the other subcommands.
            if let Some(log) = SUBCOMMANDS.find("git log").filter(|_| verb != "log") {
                let name = format!("git {}", shown(verb));
                by_table(log, &Call { name: &name, args: rest, ..*call }, found, reader);
            }
        }
    }
    reader.paths.leave();
}

/// `-c key=value`.
fn setting(setting: &Word, found: &mut Findings, reader: &mut Reader<'_>) {
    let Word::Known(text) = setting else {
        found.mutates("the setting of `git -c` is not known");
        return;
    };
    let (key, value) = text.split_once('=').unwrap_or((text, "true"));
    let key = key.to_ascii_lowercase();
    if lists(EDITOR_SETTINGS, &key) {
        reader.choose_editor(&Word::Known(value.to_owned()));
    }
    let begins = |list: &str| list.split(' ').any(|known| key.starts_with(known));
    // `diff.renamesx.command` is a different setting.
    let is_harmless = lists(data::GIT_HARMLESS_SETTINGS, &key) || begins(data::GIT_HARMLESS_SECTIONS);
    if is_harmless || key.starts_with("core.pager") && matches!(value, "cat" | "" | "less") {
        return;
    }
    found.mutates(format!("`git -c {}` can make git run a program", shown(&key)));
    let ends = |list: &str| list.split(' ').any(|known| key.ends_with(known));
    let command = value.strip_prefix('!');
    let text = match command {
        None if key.starts_with("alias.") => format!("git {value}"),
        _ if key.starts_with("alias.")
            || begins(data::GIT_PROGRAM_SETTINGS)
            || ends(data::GIT_PROGRAM_ENDINGS) =>
        {
            command.unwrap_or(value).to_owned()
        }
        _ => return,
    };
    reader.text(&Word::Known(text), Dialect::Sh);
}

/// True for a setting that changes the meaning of an address or a path.
fn names_addresses(setting: &str) -> bool {
    let setting = setting.to_ascii_lowercase();
    ["url.", "remote.", "include.", "includeif."].iter().any(|section| setting.starts_with(section))
}

/// Subcommands that connect to another repository: its location, and the command that its address runs.
pub fn connects(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    let parsed = parse(call.args, program.options, Order::Any);
    for text in parsed.operands.iter().filter_map(|word| word.shown().strip_prefix("ext::")) {
        found.mutates("an address with `ext::` runs a command");
        reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
    }
    let is_path = |word: &&Word| is_local_path(word.shown()) || word.shown().starts_with("file://");
    let may_be_local = match call.name {
        "git clone" | "git ls-remote" | "git fetch" | "git pull" => true,
        // An unknown option may take the path as its value.
        "git push" => {
            parsed.operands.first().is_some_and(|word| reader.paths.of(word) == PathLocation::Inside)
                && parsed.given.iter().all(|given| lists(PUSH_FLAGS, given.name))
        }
        _ => false,
    };
    // Submodules and further remotes have their own addresses.
    let elsewhere = call.redirected
        || parsed.hidden.is_some()
        || parsed.given.iter().any(|given| {
            ["recurse", "recursive", "all", "multiple"].iter().any(|start| given.name.starts_with(start))
        });
    if elsewhere || !may_be_local || !parsed.operands.first().is_some_and(is_path) {
        found.networks(format!("`{}` connects to another machine", call.name));
    }
    if let ("git clone", [_, directory]) = (call.name, parsed.operands.as_slice()) {
        options::writes("`git clone`", directory, found, reader);
    }
}

/// A setting persists, and git runs it later.
pub fn config(program: &'static Program, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    by_table(program, call, found, reader);
    let operands: Vec<&str> =
        call.args.iter().map(Word::shown).filter(|word| !word.starts_with('-')).collect();
    if let Some(at) = operands.iter().position(|key| lists(EDITOR_SETTINGS, &key.to_ascii_lowercase())) {
        let value = operands.get(at + 1).map(|value| (*value).to_owned());
        reader.choose_editor(&value.map_or_else(|| Word::Unknown(String::new()), Word::Known));
    }
    if let [key, .., value] = operands.as_slice()
        && key.to_ascii_lowercase().starts_with("alias.")
        && let Some(text) = value.strip_prefix('!')
    {
        reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
    }
}
