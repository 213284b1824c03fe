//! `git`: by subcommand and option, and by the settings it is given on the way.

mod others;
mod settings;
mod verbs;

use super::builtins::joined;
use super::subcommands::lists;
use super::{Judge, Row};
use crate::read::found::{Call, Found, shown};
use crate::read::options;
use crate::read::options::{Does, Operands, Opt, Order, Parsed, Spec, Takes, parse};
use crate::read::places::Place;
use crate::read::reader::Reader;
use crate::read::shell::Dialect;
use crate::reading::Word;

pub const ROWS: &[Row] = &[
    Row("git", Judge::By(git)),
    Row("hg svn bzr fossil jj sl cvs", Judge::By(others::judge)),
    Row(
        "tig lazygit gitui gitk git-gui",
        Judge::Does(&[Does::Mutates("changes the repository"), Does::Talks("takes the terminal")]),
    ),
];

/// They never write, but for the options in `LOOKING`.
const LOOKS: &str = "status log show diff blame annotate shortlog describe rev-parse rev-list ls-files ls-tree cat-file grep diff-tree diff-index \
    diff-files merge-base name-rev for-each-ref show-ref show-branch whatchanged cherry range-diff count-objects check-ignore check-attr \
    check-ref-format check-mailmap var version help verify-commit verify-tag verify-pack stripspace column patch-id get-tar-commit-id \
    ls-remote archive";

const NETWORKED: &str = "fetch pull push clone ls-remote request-pull send-email imap-send svn p4 fetch-pack send-pack remote-https daemon \
    instaweb http-backend cvsimport";

/// Options of commands that otherwise look.
const LOOKING: &[Opt] = &[
    Opt("output", Takes::Value, Does::Writes("writes a file")),
    Opt("ext-diff", Takes::Nothing, Does::Mutates("runs the program of a setting")),
    Opt("textconv filters", Takes::Nothing, Does::Mutates("runs the program of a setting")),
    Opt("no-ext-diff no-textconv", Takes::Nothing, Does::Nothing),
    Opt("upload-pack exec receive-pack", Takes::Value, Does::RunsText("runs a program to connect with")),
    Opt("write-object lost-found", Takes::Nothing, Does::Mutates("writes objects")),
    Opt(
        "G S n L since until author grep format pretty date after before max-count",
        Takes::Attached,
        Does::Nothing,
    ),
];

static LOOKING_SPEC: Spec = Spec { base: &[], opts: LOOKING, operands: Operands::Ignored };

const GREP: &[Opt] = &[
    Opt("O open-files-in-pager", Takes::Attached, Does::Nothing),
    Opt("e f A B C m", Takes::Value, Does::Nothing),
];

/// Options of commands that connect.
const CONNECTING: &[Opt] =
    &[Opt("upload-pack exec receive-pack", Takes::Value, Does::RunsText("runs a program to connect with"))];

const GLOBAL: &[Opt] = &[
    Opt("C c git-dir work-tree namespace config-env super-prefix attr-source", Takes::Value, Does::Nothing),
    Opt("exec-path", Takes::Attached, Does::Nothing),
];

fn git(call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let parsed = parse(call.args, GLOBAL, Order::OptionsFirst);
    reader.places.enter();
    for given in &parsed.given {
        match (given.name, &given.value) {
            ("c", Some(setting)) => settings::judge(setting, found, reader),
            ("config-env", _) => found.mutates("`git --config-env` can make git run something"),
            ("exec-path", Some(_)) => found.mutates("`git --exec-path` makes git run other programs"),
            ("C" | "work-tree" | "git-dir", Some(Word::Known(directory))) if given.name != "git-dir" => {
                reader.places.change(Some(directory));
            }
            ("C" | "work-tree", Some(Word::Unknown(_))) => reader.places.change(None),
            ("git-dir", Some(directory)) if reader.places.of(directory) == Place::Outside => {
                // Its settings are not the workspace's own.
                found.mutates("`git --git-dir` uses the settings of another repository");
            }
            _ => {}
        }
    }
    match parsed.operands.split_first() {
        None => {}
        Some((Word::Known(verb), _)) => {
            let rest = call.args.get(parsed.before_operands + 1..).unwrap_or_default();
            let verb_call = Call { name: "git", args: rest, ..*call };
            subcommand(verb, &verb_call, found, reader);
        }
        Some((Word::Unknown(_), _)) => {
            found.mutates("it is not known what `git` is told to do");
            reader.doubt("it is not known what `git` is told to do");
        }
    }
    reader.places.leave();
}

fn subcommand(verb: &str, call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    if let [Word::Known(only)] = call.args
        && matches!(only.as_str(), "-h" | "--help")
    {
        return;
    }
    let opts = if lists(LOOKS, verb) { LOOKING } else { CONNECTING };
    let parsed = parse(call.args, opts, Order::Any);
    if lists(NETWORKED, verb) {
        network(verb, &parsed, found, reader);
    }
    if lists(LOOKS, verb) {
        return looking(verb, call, &parsed, found, reader);
    }
    if verbs::is_asking(verb, &parsed) {
        // `git stash show --output=x` writes as `git diff` would.
        return options::judge(&LOOKING_SPEC, call, found, reader);
    }
    found.mutates(format!("`git {}` changes the repository", shown(verb)));
    if reader.places.of_path(".") == Place::Outside {
        found.escapes(format!("`git {}` changes a repository outside of the workspace", shown(verb)));
    }
    // `git checkout -- f` overwrites f.
    let names_paths = verb == "checkout" && call.args.iter().any(|word| word.shown() == "--");
    if names_paths || verbs::destroys(verb, &parsed) {
        found.destroys(format!("`git {verb}` can throw work away"));
    }
    if verbs::talks(verb, &parsed) {
        found.talks(format!("`git {verb}` opens an editor or asks"));
    }
    runs(verb, call, found, reader);
}

fn looking(verb: &str, call: &Call<'_>, parsed: &Parsed<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    options::judge(&LOOKING_SPEC, call, found, reader);
    match verb {
        "archive" => {
            if let Some(file) =
                call.args.iter().position(|word| word.shown() == "-o").and_then(|at| call.args.get(at + 1))
            {
                options::writes("`git archive -o`", file, found, reader);
            } else if call.args.iter().any(|word| word.shown().starts_with("-o")) {
                found.mutates("`git archive -o` writes a file");
            }
            if call.args.iter().any(|word| word.shown().starts_with("--remote")) {
                found.networks("`git archive --remote` asks another machine");
            }
        }
        "grep" => {
            let parsed = parse(call.args, GREP, Order::Any);
            let opens = |name: &str| name == "O" || name.len() > 1 && "open-files-in-pager".starts_with(name);
            for given in parsed.given.iter().filter(|given| opens(given.name)) {
                found.mutates("`git grep -O` runs a program");
                if let Some(text) = &given.value {
                    reader.text(text, Dialect::Sh);
                }
            }
        }
        "help" if parsed.has(&["w", "web"]) => found.mutates("`git help -w` runs a browser"),
        _ => {}
    }
}

fn network(verb: &str, parsed: &Parsed<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    for word in &parsed.operands {
        if let Some(text) = word.shown().strip_prefix("ext::") {
            found.mutates("an address with `ext::` runs a command");
            reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
        }
    }
    for given in &parsed.given {
        if let (Some(text), true) = (
            &given.value,
            "upload-pack receive-pack exec"
                .split(' ')
                .any(|long| given.name.len() > 3 && long.starts_with(given.name)),
        ) {
            found.mutates(format!("`git {verb} --{}` runs a program", given.name));
            reader.text(text, Dialect::Sh);
        }
        if matches!((verb, given.name), ("clone", "u" | "c" | "config" | "template")) {
            found.mutates("`git clone` with settings can run a program");
        }
    }
    let is_local =
        |word: &&&Word| word.shown().starts_with(['.', '/']) || word.shown().starts_with("file://");
    let local =
        matches!(verb, "clone" | "ls-remote") && parsed.operands.first().as_ref().is_some_and(is_local);
    if !local {
        found.networks(format!("`git {verb}` talks to another machine"));
    }
    if let ("clone", [_, directory]) = (verb, parsed.operands.as_slice()) {
        options::writes("`git clone`", directory, found, reader);
    }
}

/// What a subcommand runs for its caller.
fn runs(verb: &str, call: &Call<'_>, found: &mut Found, reader: &mut Reader<'_>) {
    let args = call.args;
    let first = args.first().map_or("", Word::shown);
    let after_first = args.get(1..).unwrap_or_default();
    match (verb, first) {
        ("bisect", "run") => reader.inner(after_first, call.input),
        ("submodule", _) => {
            let verb = args.iter().position(|word| !word.shown().starts_with('-'));
            let Some(at) = verb else { return };
            let rest = args.get(at + 1..).unwrap_or_default();
            match args.get(at).map_or("", Word::shown) {
                "foreach" => {
                    let flags = rest.iter().take_while(|word| word.shown().starts_with('-')).count();
                    reader.text(&joined(rest.get(flags..).unwrap_or_default()), Dialect::Sh);
                }
                "update" | "add" => found.networks("`git submodule` fetches repositories"),
                _ => {}
            }
        }
        ("remote", "update" | "show" | "prune") => {
            found.networks(format!("`git remote {first}` talks to another machine"))
        }
        ("lfs", "pull" | "push" | "fetch") => {
            found.networks(format!("`git lfs {first}` talks to another machine"))
        }
        ("rebase" | "filter-branch" | "difftool", _) => {
            let mut words = args.iter();
            while let Some(word) = words.next() {
                let text = word.shown();
                let is_text = matches!(text, "-x" | "--exec" | "--extcmd")
                    || text.starts_with("--") && text.ends_with("-filter");
                let attached = ["--exec=", "--extcmd=", "-x"]
                    .iter()
                    .find_map(|flag| text.strip_prefix(flag))
                    .filter(|text| !text.is_empty());
                if let Some(text) = attached {
                    reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
                } else if is_text && let Some(text) = words.next() {
                    reader.text(text, Dialect::Sh);
                }
            }
        }
        ("config", _) => {
            // A setting stays, and later git runs it.
            let operands: Vec<&Word> = args.iter().filter(|word| !word.shown().starts_with('-')).collect();
            if let [key, .., value] = operands.as_slice()
                && key.shown().to_ascii_lowercase().starts_with("alias.")
                && let Some(text) = value.shown().strip_prefix('!')
            {
                reader.text(&Word::Known(text.to_owned()), Dialect::Sh);
            }
            let has = |flag: &str| args.iter().any(|word| word.shown() == flag);
            if has("--global") || has("--system") {
                found.escapes("`git config --global` writes outside of the workspace");
            }
        }
        _ => {}
    }
}
