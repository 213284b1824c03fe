//! Settings that `git` is given on the way: some make it run a program.

use crate::read::found::{Found, shown};
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

/// Settings that only change how things look; one that ends with a dot stands for all that begin so.
const HARMLESS: &[&str] = &[
    "color.",
    "column.",
    "advice.",
    "log.",
    "user.name",
    "user.email",
    "core.quotepath",
    "core.abbrev",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.ignorecase",
    "core.longpaths",
    "core.preloadindex",
    "diff.renames",
    "diff.renamelimit",
    "diff.algorithm",
    "diff.noprefix",
    "diff.mnemonicprefix",
    "diff.context",
    "status.",
    "init.defaultbranch",
    "commit.gpgsign",
    "tag.gpgsign",
    "safe.directory",
    "grep.",
    "blame.",
    "gc.auto",
    "fetch.prune",
    "pull.rebase",
    "pull.ff",
    "merge.ff",
    "push.default",
    "rebase.autostash",
    "merge.conflictstyle",
    "rerere.enabled",
    "pack.",
    "index.",
    "feature.",
    "http.lowspeedlimit",
    "http.lowspeedtime",
    "protocol.version",
];

/// `-c key=value`.
pub fn judge(setting: &Word, found: &mut Found, reader: &mut Reader<'_>) {
    let Word::Known(text) = setting else {
        found.mutates("it is not known what `git -c` sets");
        return;
    };
    let (key, value) = text.split_once('=').unwrap_or((text, "true"));
    let lower = key.to_ascii_lowercase();
    // `diff.renamesx.command` is a setting of its own.
    let is_harmless =
        |known: &&str| if known.ends_with('.') { lower.starts_with(*known) } else { lower == **known };
    if HARMLESS.iter().any(is_harmless) {
        return;
    }
    if lower.starts_with("core.pager") && matches!(value, "cat" | "" | "less") {
        return;
    }
    found.mutates(format!("`git -c {}` can make git run something", shown(key)));
    let value = Word::Known(value.to_owned());
    if let Some(alias) = lower.strip_prefix("alias.").map(|_| value.shown()) {
        let text = alias.strip_prefix('!').map_or_else(|| format!("git {alias}"), str::to_owned);
        reader.text(&Word::Known(text), Dialect::Sh);
    } else if [
        "core.pager",
        "core.sshcommand",
        "core.editor",
        "sequence.editor",
        "diff.external",
        "core.fsmonitor",
        "gpg.program",
        "credential.helper",
        "core.askpass",
        "pager.",
    ]
    .iter()
    .any(|key| lower.starts_with(key))
        || [".command", ".textconv", ".cmd", ".driver", ".clean", ".smudge", ".process", ".program"]
            .iter()
            .any(|key| lower.ends_with(key))
    {
        let text = value.shown().strip_prefix('!').unwrap_or(value.shown()).to_owned();
        reader.text(&Word::Known(text), Dialect::Sh);
    }
}
