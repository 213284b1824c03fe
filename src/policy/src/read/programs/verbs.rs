//! Programs with subcommands.

use super::{Runs, SUBCOMMANDS, Verbs, judge::judge as judge_program};
use crate::read::findings::{Call, Findings, shown};
use crate::read::options::{Does, apply, lists};
use crate::read::reader::Reader;
use crate::reading::Word;

/// Options without a value that may precede any subcommand.
const FLAGS: &str = "-q --quiet -s --silent -v --verbose --offline --no-color --color=never --color=always \
                     --color=auto --frozen --locked -y --yes --no-input --no-cache --json -g --global";

/// Arguments with which a read-only subcommand asks for the latest versions.
const NEWEST: &str = "--outdated --latest --remote";

/// Options that ask about the program itself.
const QUESTIONS: &str = "-V -v -h --version --help --list";

/// The subcommand, the words after it, and whether no option before it may have consumed a value.
struct Split<'c> {
    verb: Option<&'c Word>,
    rest: &'c [Word],
    /// The option `--offline` before the subcommand.
    offline: Option<&'c Word>,
    is_sure: bool,
}

fn split<'c>(verbs: &Verbs, args: &'c [Word]) -> Split<'c> {
    let (mut is_sure, mut offline, mut at) = (true, None, 0);
    while let Some(word) = args.get(at) {
        let text = word.shown();
        if text.starts_with('-') {
            if lists(verbs.values, text) {
                at += 1;
            } else if !text.contains('=') && !lists(FLAGS, text) && !lists(verbs.flags, text) {
                is_sure = false;
            } else if text == "--offline" {
                // To npm, `true` or `false` after it is its value.
                let has_value = args.get(at + 1).is_some_and(|next| lists("true false", next.shown()));
                offline = Some(word).filter(|_| !has_value);
                at += usize::from(has_value);
            }
        } else if !text.starts_with('+') {
            let rest = args.get(at + 1..).unwrap_or_default();
            return Split { verb: Some(word), rest, offline, is_sure };
        }
        at += 1;
    }
    Split { verb: None, rest: &[], offline, is_sure }
}

pub fn judge(verbs: &'static Verbs, call: &Call<'_>, found: &mut Findings, reader: &mut Reader<'_>) {
    let Split { verb, rest, offline, is_sure } = split(verbs, call.args);
    let name = format!("`{}`", call.name);
    let escapes = |does: &Does| matches!(does, Does::Escapes(_));
    let asks = call.args.iter().any(|word| lists(QUESTIONS, word.shown()));
    let verb = match verb {
        None if asks && !verbs.other.iter().any(escapes) => return,
        None if verbs.alone.is_empty() && call.args.is_empty() => return,
        None if verbs.alone.is_empty() => return note(verbs.other, &name, found, reader),
        // `yarn --offline` is `yarn install --offline`.
        None if offline.is_some() => {
            let full = format!("{} install", call.name);
            return match SUBCOMMANDS.find(&full) {
                Some(install) => judge_program(install, &Call { name: &full, ..*call }, found, reader),
                None => note(verbs.alone, &name, found, reader),
            };
        }
        None => return note(verbs.alone, &name, found, reader),
        Some(Word::Unknown(_)) => return note(verbs.other, &name, found, reader),
        Some(Word::Known(verb)) => verb,
    };
    let full = format!("{} {}", call.name, verb);
    let what = format!("`{}`", shown(&full));
    let group = |verb: &str| verbs.groups.iter().find(|(list, _)| lists(list, verb)).map(|(_, does)| *does);
    let pair = rest.first().and_then(Word::known).and_then(|next| group(&format!("{verb}/{next}")));
    let does = pair.or_else(|| group(verb));
    let is_help = matches!(rest, [Word::Known(only)] if only == "--help");
    let subcommand = SUBCOMMANDS.find(&full).filter(|subcommand| subcommand.code.is_none());
    let known = does.or_else(|| subcommand.filter(|it| it.runs == Runs::Nothing).map(|it| it.does));
    if is_help && is_sure && known.is_some_and(|does| !does.iter().any(escapes)) {
        return;
    }
    match (does, SUBCOMMANDS.find(&full)) {
        (None, Some(subcommand)) => {
            // `npm --offline ci` is `npm ci --offline`.
            let offline = offline.filter(|_| is_sure).into_iter();
            let args: Vec<Word> = offline.chain(rest).cloned().collect();
            judge_program(subcommand, &Call { name: &full, args: &args, ..*call }, found, reader);
        }
        (None, None) => note(verbs.other, &what, found, reader),
        (Some(does), _) => {
            note(does, &what, found, reader);
            let writes = does.iter().any(|does| matches!(does, Does::Mutates(_)));
            if !writes && rest.iter().any(|word| lists(NEWEST, word.shown())) {
                found.networks(format!("{what} asks a registry for the latest versions"));
            }
        }
    }
    if !is_sure {
        // The real subcommand may follow an option's value.
        found.mutates(format!("{what} may not be the real subcommand"));
        for does in rest.iter().filter_map(|word| group(word.shown())) {
            note(does, &name, found, reader);
        }
    }
}

fn note(all: &[Does], what: &str, found: &mut Findings, reader: &mut Reader<'_>) {
    all.iter().for_each(|does| apply(*does, what, None, found, reader));
}
