//! Words that are no command where one is expected: which command was probably meant.

use clap::Command;

use avfs_types::toml_source::nearest;
use avfs_wire::ErrorBody;

/// Commands that other tools have, and the corresponding avfs commands.
const OF_OTHER_TOOLS: [(&[&str], &str); 17] = [
    (
        &["exec", "sh", "shell", "sandbox"],
        "run a command with: avfs run -- COMMAND; list runs with: avfs runs list",
    ),
    (&["commit", "add"], "record a directory as a new version with: avfs import"),
    (&["branch", "switch"], "create a fork with: avfs fork create NAME; list forks with: avfs fork list"),
    (&["checkout", "clone"], "write a version to a directory with: avfs export REF DIR"),
    (&["reset", "revert", "rollback"], "go back with: avfs restore REF, or: avfs undo FORK"),
    (&["history", "versions"], "list versions with: avfs log; list runs with: avfs runs list"),
    (&["ps", "jobs"], "list runs, also those in progress, with: avfs runs list"),
    (
        &["delete", "remove", "drop", "destroy"],
        "drop the changes of a run with: avfs discard RUN; delete with: avfs fork delete, avfs vault delete; \
         remove a file of a fork with: avfs rm PATH",
    ),
    (
        &["merge", "pull", "rebase"],
        "write changes to the directory with: avfs apply; merge the directory into a fork with: avfs sync FORK",
    ),
    (
        &["push", "backup"],
        "copy the vault with: avfs vault copy FILE; write changes to the directory with: avfs apply",
    ),
    (
        &["list"],
        "list with: avfs vault list, avfs fork list, avfs runs list; files of a version with: avfs ls REF",
    ),
    (&["tag", "snapshot", "save"], "label a version with: avfs checkpoint save NAME"),
    (&["info"], "see avfs status, avfs vault info, avfs runs show and avfs show REF"),
    (
        &["update", "upgrade"],
        "avfs does not update itself, and opens vaults of every older format; record a changed directory with: avfs import",
    ),
    (&["vault create", "vault init", "vault new", "vault add"], "create a vault with: avfs init"),
    (&["config set", "config edit"], "edit the file that avfs config show names for the setting"),
    (&["runs delete", "runs discard", "runs rm"], "drop the changes of a run with: avfs discard RUN"),
];

/// Words with the same meaning, below a command such as `avfs fork`.
const SYNONYMS: [&[&str]; 5] = [
    &["list", "ls", "all"],
    &["show", "info", "get", "view", "describe"],
    &["create", "save", "start", "new", "add", "init", "make"],
    &["delete", "remove", "rm", "drop", "del", "discard", "forget"],
    &["copy", "clone", "cp", "backup"],
];

/// The error for a word that is no command of `parent`. `path` is the path of `parent`: `fork`, or nothing for `avfs`.
pub fn explain(word: &str, root: &Command, parent: &Command, path: &[&str]) -> ErrorBody {
    let above = command_line(path);
    let hint =
        meant(word, root, parent, path).unwrap_or_else(|| format!("list the commands with: {above} --help"));
    ErrorBody {
        code: "usage".to_owned(),
        message: format!("{above} has no command {word:?}"),
        hint: Some(hint),
    }
}

fn meant(word: &str, root: &Command, parent: &Command, path: &[&str]) -> Option<String> {
    let words = [path, &[word]].concat().join(" ");
    if let Some((_, hint)) = OF_OTHER_TOOLS.iter().find(|(commands, _)| commands.contains(&words.as_str())) {
        return Some((*hint).to_owned());
    }
    let found: Vec<String> = if path.is_empty() {
        let groups = root.get_subcommands().filter(|group| names(group).any(|name| name == word));
        groups.map(|group| command_line(&[group.get_name(), word])).collect()
    } else {
        let synonyms = SYNONYMS.iter().find(|group| group.contains(&word));
        let same = names(parent).find(|name| synonyms.is_some_and(|group| group.contains(name)));
        same.map(|name| command_line(&[path, &[name]].concat())).into_iter().collect()
    };
    if !found.is_empty() {
        return Some(format!("did you mean: {}", found.join(", ")));
    }
    let near = nearest(word, names(parent))?;
    Some(format!("did you mean: {}", command_line(&[path, &[near]].concat())))
}

fn command_line(path: &[&str]) -> String {
    std::iter::once("avfs").chain(path.iter().copied()).collect::<Vec<_>>().join(" ")
}

fn names(command: &Command) -> impl Iterator<Item = &str> {
    command.get_subcommands().map(Command::get_name)
}
