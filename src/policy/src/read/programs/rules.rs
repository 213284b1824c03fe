//! Conditions on the arguments of a program.

use avfs_request::NestedUserns;

use super::{Program, When, data, loopback};
use crate::read::findings::Call;
use crate::read::options::{self, Parsed, lists, may_be_option};
use crate::reading::Word;

pub fn holds(when: &When, program: &Program, call: &Call<'_>, parsed: &Parsed<'_>) -> bool {
    let mut words = call.args.iter().map(Word::shown);
    let first = call.args.first().map_or("", Word::shown);
    let operand = parsed.operands.first().map(|word| word.shown());
    let each = |list: &'static str| list.split_ascii_whitespace();
    match *when {
        // For a subcommand, without the program.
        When::Name(list) => call.name.rsplit(' ').next().is_some_and(|name| lists(list, name)),
        When::Any(list) => words.any(|word| lists(list, word)),
        When::Without(list) => !words.any(|word| lists(list, word)),
        When::Starts(list) => words.any(|word| each(list).any(|start| word.starts_with(start))),
        When::Contains(list) => words.any(|word| each(list).any(|part| word.contains(part))),
        When::First(list) => lists(list, first),
        When::FirstNot(list) => !lists(list, first),
        When::Second(list) => call.args.get(1).is_some_and(|second| lists(list, second.shown())),
        When::NoBoolean => !words.any(reads_as_boolean),
        When::Only(list) => call.args.len() == 1 && lists(list, first),
        When::Leading(list) => {
            words.take_while(|word| word.starts_with('-')).any(|option| lists(list, option))
        }
        When::Flags(list) => words.any(|word| {
            let name = word.split('=').next().unwrap_or_default();
            word.starts_with('-') && lists(list, name.trim_start_matches('-'))
        }),
        When::Letters(list) => words.any(|word| {
            let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            let letters = letters.and_then(|letters| letters.split('=').next()).unwrap_or_default();
            each(list).any(|letter| letters.contains(letter))
        }),
        When::Given(list) => parsed.has(list),
        When::Absent(list) => !parsed.has(list),
        When::Unlisted => {
            parsed.given.iter().any(|given| options::find(program.options, given.name).is_none())
        }
        When::Listed => {
            is_listed(program, call, parsed) && call.args.iter().all(|word| word.known().is_some())
        }
        When::Set(list) => each(list).all(|name| {
            let mut given = parsed.given.iter().filter(|given| given.name == name).peekable();
            given.peek().is_some() && given.all(|given| given.value.is_none())
        }),
        When::Lacks(list) => !words.any(|word| each(list).any(|part| word.contains(part))),
        When::LocalPaths => {
            let editable = parsed.given.iter().filter(|given| lists("e editable", given.name));
            let mut paths =
                parsed.operands.iter().copied().chain(editable.filter_map(|it| it.value.as_ref()));
            paths.clone().next().is_some() && paths.all(|word| is_local_path(word.shown()))
        }
        When::Loopback => {
            is_certain(program, call, parsed)
                && !parsed.operands.is_empty()
                && parsed.operands.iter().all(|word| loopback::is_loopback(word))
        }
        When::Wheels => {
            names_listed(program, call, parsed)
                && !parsed.operands.is_empty()
                && parsed.operands.iter().all(|word| is_wheel(word))
                && call.args.iter().all(|word| word.known().is_some() || is_wheel(word))
        }
        When::LoopbackFirst => {
            is_certain(program, call, parsed)
                && parsed.operands.first().is_some_and(|host| is_this_machine(host))
        }
        When::LoopbackDefault(list) => {
            let is_here = |host: &Word| is_this_machine(host) || host.shown().starts_with('/');
            is_certain(program, call, parsed) && values(parsed, list).all(|host| host.is_some_and(is_here))
        }
        When::Plain(list) => {
            let operands = parsed.operands.iter().map(|word| Some(*word));
            operands.chain(values(parsed, list)).all(|word| word.and_then(Word::known).is_some_and(is_name))
        }
        When::Operand(list) => operand.is_some_and(|operand| lists(list, operand)),
        When::OperandNot(list) => operand.is_some_and(|operand| !lists(list, operand)),
        When::Names => {
            parsed.operands.iter().any(|word| word.known().is_some_and(|text| !text.starts_with('+')))
        }
        When::Remote => parsed.operands.iter().any(|word| is_remote(word.shown())),
        When::Address => words.any(|word| word.contains("://") && !word.starts_with("file:")),
        When::Unknown => call.args.iter().any(|word| word.known().is_none()),
        When::Hidden => call.args.iter().any(|word| word.known().is_none() && may_be_option(word)),
        When::Asks => call.may_ask(),
        When::NoUserns => call.userns == NestedUserns::Refused,
        When::ForeignHome => !call.has_own_home,
        When::ArgsMin(count) => call.args.len() >= count,
        When::ArgsMax(count) => call.args.len() <= count,
        When::OperandsMin(count) => parsed.operands.len() >= count,
        When::OperandsMax(count) => parsed.operands.len() <= count,
    }
}

/// The values of these options; `None` for an option without one.
fn values<'p>(parsed: &'p Parsed<'_>, list: &'static str) -> impl Iterator<Item = Option<&'p Word>> {
    parsed.given.iter().filter(move |given| lists(list, given.name)).map(|given| given.value.as_ref())
}

/// A host without brackets: programs that take a URL read `::1` in different ways.
fn is_this_machine(host: &Word) -> bool {
    loopback::is_loopback(host) || host.known() == Some("::1")
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// True if it connects to the addresses in its arguments, and every option is known.
fn is_certain(program: &Program, call: &Call<'_>, parsed: &Parsed<'_>) -> bool {
    !call.redirected && is_listed(program, call, parsed)
}

/// The file of a package, or a pattern of such files.
fn is_wheel(word: &Word) -> bool {
    let text = word.shown();
    text.ends_with(".whl") && !text.contains([':', '$', '`']) && !text.starts_with(['*', '?', '['])
}

/// True if the table has every option by its full name, and no word can expand to several or to an option.
fn is_listed(program: &Program, call: &Call<'_>, parsed: &Parsed<'_>) -> bool {
    let certain =
        |word: &Word| !options::may_split(word) || loopback::is_bracketed(word) || loopback::is_query(word);
    names_listed(program, call, parsed) && call.args.iter().all(certain)
}

/// True if the table has every option by its full name, and no unknown word is one.
fn names_listed(program: &Program, call: &Call<'_>, parsed: &Parsed<'_>) -> bool {
    let is_known = |name: &str| program.options.iter().any(|option| lists(option.0, name));
    let long = call.args.iter().map(Word::shown).take_while(|word| *word != "--");
    let mut long = long.filter_map(|word| word.strip_prefix("--"));
    parsed.hidden.is_none()
        && parsed.given.iter().all(|given| is_known(given.name))
        // An abbreviation may mean another option to the program.
        && long.all(|word| is_known(word.split('=').next().unwrap_or_default()))
}

/// Whether apt takes a word after a flag for its value; it reads a number at the beginning of a word.
fn reads_as_boolean(word: &str) -> bool {
    let number = word.trim_start().trim_start_matches(['+', '-']);
    number.starts_with(|c: char| c.is_ascii_digit()) || lists(data::APT_BOOLEANS, &word.to_ascii_lowercase())
}

/// `.`, `./x`, `../x`, `/x`: no package, remote or host can have such a name.
pub fn is_local_path(path: &str) -> bool {
    matches!(path, "." | "..") || [".[", "./", "../", "/"].iter().any(|start| path.starts_with(start))
}

/// `host:path`.
pub fn is_remote(path: &str) -> bool {
    path.split('/').next().unwrap_or_default().contains(':')
}
