//! `awk`: a program that prints only looks; one that has files, pipes or `system` in it does more.

use crate::read::found::{Call, Found, shown};
use crate::read::options::{Does, Opt, Order, Takes, parse};
use crate::read::reader::Reader;
use crate::reading::Word;

const OPTS: &[Opt] = &[
    Opt("F field-separator v assign", Takes::Value, Does::Nothing),
    Opt("f file e source E exec i include l load W", Takes::Value, Does::Nothing),
    Opt("o pretty-print d dump-variables p profile D debug", Takes::Attached, Does::Nothing),
];

/// Options that bring code from elsewhere or write files.
const DOES_MORE: &[&str] = &[
    "f",
    "file",
    "E",
    "exec",
    "i",
    "include",
    "l",
    "load",
    "o",
    "pretty-print",
    "d",
    "dump-variables",
    "p",
    "profile",
    "D",
    "debug",
    "W",
];

pub fn judge(call: &Call<'_>, found: &mut Found, _: &mut Reader<'_>) {
    let parsed = parse(call.args, OPTS, Order::OptionsFirst);
    for given in &parsed.given {
        let cut_short = given.name.len() > 1
            && DOES_MORE.iter().any(|long| long.len() > 1 && long.starts_with(given.name));
        if DOES_MORE.contains(&given.name) || cut_short {
            found.mutates(format!(
                "`{} -{}` does what a file says, or writes one",
                call.name,
                shown(given.name)
            ));
        }
    }
    let sources = parsed.given.iter().filter(|given| matches!(given.name, "e" | "source"));
    let mut programs: Vec<&Word> = sources.filter_map(|given| given.value.as_ref()).collect();
    if programs.is_empty() {
        programs.extend(parsed.operands.first());
    }
    for program in programs {
        match program {
            Word::Known(text) if only_prints(text) => {}
            Word::Known(text) => {
                found.mutates(format!("this program of `{}` writes files or runs commands", call.name));
                if text.contains("/inet") {
                    found.networks(format!("this program of `{}` makes connections", call.name));
                }
            }
            Word::Unknown(_) => {
                found.mutates(format!("it is not known what the program of `{}` does", call.name))
            }
        }
    }
}

/// Whether there is neither a file, nor a pipe, nor a call beyond awk in it.
fn only_prints(program: &str) -> bool {
    if program.contains("system") {
        return false;
    }
    let mut rest = program.chars().peekable();
    // The last character that was not blank tells a division from a pattern.
    let (mut last, mut word, mut before) = ('\n', String::new(), String::new());
    let (mut printing, mut open) = (false, 0_i32);
    while let Some(found) = rest.next() {
        if found.is_alphanumeric() || found == '_' {
            word.push(found);
            last = found;
            continue;
        }
        if matches!(word.as_str(), "print" | "printf") {
            (printing, open) = (true, 0);
        }
        if !word.is_empty() {
            before = std::mem::take(&mut word);
        }
        match found {
            '"' => {
                while let Some(inside) = rest.next() {
                    match inside {
                        '\\' => drop(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            // After these it can be either, and where what follows ends depends on it.
            '/' if matches!(last, ')' | '"' | '+' | '-') && rest.clone().any(|later| later == '/') => {
                return false;
            }
            '/' if begins_pattern(last, &before) => {
                let mut in_class = false;
                while let Some(inside) = rest.next() {
                    match inside {
                        '\\' => drop(rest.next()),
                        '[' => in_class = true,
                        ']' => in_class = false,
                        // Whether it ends here is not the same for every awk.
                        '/' if in_class => return false,
                        '/' => break,
                        _ => {}
                    }
                }
            }
            '#' => while rest.next_if(|inside| *inside != '\n').is_some() {},
            '|' if rest.next_if_eq(&'|').is_some() => {}
            '|' | '@' | '`' => return false,
            '>' if printing && open == 0 => return false,
            '(' => open += 1,
            ')' => open -= 1,
            // A line may go on after a comma or a backslash.
            ';' | '}' | '{' => printing = false,
            _ => {}
        }
        if !found.is_whitespace() {
            last = found;
        }
    }
    true
}

fn begins_pattern(last: char, word: &str) -> bool {
    let after_value = last.is_alphanumeric() || matches!(last, '_' | ')' | ']' | '$' | '"');
    let after_keyword =
        matches!(word, "return" | "print" | "printf" | "in" | "case" | "getline" | "else" | "do");
    !after_value || after_keyword && last.is_alphanumeric()
}
