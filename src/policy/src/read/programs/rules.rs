//! Conditions on the arguments of a program.

use super::{Program, When};
use crate::read::found::Call;
use crate::read::options::{self, Parsed, lists, may_be_option};
use crate::reading::Word;

pub fn holds(when: &When, program: &Program, call: &Call<'_>, parsed: &Parsed<'_>) -> bool {
    let mut words = call.args.iter().map(Word::shown);
    let first = call.args.first().map_or("", Word::shown);
    let operand = parsed.operands.first().map(|word| word.shown());
    let each = |list: &'static str| list.split_ascii_whitespace();
    match *when {
        // Of a subcommand, without the program.
        When::Name(list) => call.name.rsplit(' ').next().is_some_and(|name| lists(list, name)),
        When::Any(list) => words.any(|word| lists(list, word)),
        When::Without(list) => !words.any(|word| lists(list, word)),
        When::Starts(list) => words.any(|word| each(list).any(|start| word.starts_with(start))),
        When::Contains(list) => words.any(|word| each(list).any(|part| word.contains(part))),
        When::First(list) => lists(list, first),
        When::FirstNot(list) => !lists(list, first),
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
        When::ArgsMin(count) => call.args.len() >= count,
        When::ArgsMax(count) => call.args.len() <= count,
        When::OperandsMin(count) => parsed.operands.len() >= count,
        When::OperandsMax(count) => parsed.operands.len() <= count,
    }
}

/// `host:path`.
pub fn is_remote(path: &str) -> bool {
    path.split('/').next().unwrap_or_default().contains(':')
}
