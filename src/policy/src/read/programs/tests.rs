//! Invariants of every entry of `programs.toml`.

use std::path::Path;

use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

use super::{NAMES, Names, PROGRAMS, Program, SUBCOMMANDS, Verbs, When};
use crate::category::Category;
use crate::read::options::{Does, Opt, Takes};
use crate::reading::{Asked, OwnChoices, Reading};

fn read(command: &str) -> Reading {
    crate::read(&Asked {
        command: &CommandLine::Argv(command.split_whitespace().map(Into::into).collect()),
        fork: None,
        cwd: Path::new("/home/u/proj"),
        workspace: Path::new("/home/u/proj"),
        project: Path::new("/home/u/proj"),
        home: None,
        net: &NetMode::None,
        confinement: Confinement::DEFAULT,
        profile: Profile::Strict,
        timeout: ExecutionTimeout::None,
        rw: &[],
        provided: &[],
        secrets: &[],
        variables: &[],
        openings: &[],
        terminal: Terminal::None,
        editor: false,
        own: OwnChoices::NONE,
    })
}

fn is(command: &str, category: Category) -> bool {
    let reading = read(command);
    reading.commands.first().is_some_and(|judged| judged.categories.contains(category))
}

/// Every name with its entry.
fn entries() -> impl Iterator<Item = (&'static str, &'static Program)> {
    let all = |names: &'static Names| {
        names
            .index
            .iter()
            .enumerate()
            .map(|(at, (_, program))| (names.at(at), &PROGRAMS[usize::from(*program)]))
    };
    all(&NAMES).chain(all(&SUBCOMMANDS))
}

/// The category of a command with this effect; `None` if that depends on the value.
fn category(does: Does) -> Option<Category> {
    match does {
        Does::Nothing | Does::Looks | Does::Doubts(_) => None,
        Does::Writes(_) | Does::Mutates(_) | Does::Changes(_) | Does::RunsText(_) | Does::Pipes(_) => {
            Some(Category::Mutating)
        }
        Does::Destroys(_) => Some(Category::Destructive),
        Does::Networks(_) => Some(Category::Networked),
        Does::Escapes(_) | Does::Reaches(_) => Some(Category::HostEscapeRisk),
        Does::Talks(_) | Does::Edits(_) => Some(Category::Interactive),
    }
}

/// The option with its dashes.
fn dashed(name: &str) -> String {
    if name.chars().count() == 1 { format!("-{name}") } else { format!("--{name}") }
}

fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}

/// Entries that are judged by their table alone: a function may examine options itself.
fn by_table() -> impl Iterator<Item = (&'static str, &'static Program)> {
    entries().filter(|(_, program)| program.code.is_none())
}

#[test]
fn every_program_is_found_by_its_name() {
    for (name, program) in entries() {
        let names = if name.contains(' ') { &SUBCOMMANDS } else { &NAMES };
        assert!(names.find(name).is_some_and(|found| std::ptr::eq(found, program)), "{name}");
        assert!(names.find(&format!("{name}-not-known")).is_none(), "{name}");
    }
    assert!(NAMES.index.len() > 900, "only {} names", NAMES.index.len());
}

#[test]
fn bare_calls_do_what_the_table_says() {
    for (name, program) in
        by_table().filter(|(_, program)| program.rules.is_empty() && program.verbs.is_none())
    {
        for does in program.does {
            assert!(category(*does).is_none_or(|category| is(name, category)), "{name}");
        }
        if program.does.is_empty() {
            assert!(is(name, Category::ReadOnly), "{name} does nothing and is not read-only");
        }
    }
}

#[test]
fn options_do_what_the_table_says() {
    for (name, program) in by_table() {
        for Opt(names, takes, does) in program.options {
            for option in words(names) {
                let call = match (takes, option.chars().count()) {
                    (Takes::Attached, 1) => format!("{name} -{option}out"),
                    (Takes::Attached, _) => format!("{name} --{option}=out"),
                    (Takes::Nothing | Takes::Value, _) => format!("{name} {} out", dashed(option)),
                };
                let wanted = category(*does);
                assert!(
                    wanted.is_none_or(|category| is(&call, category)),
                    "{call}: {:?}",
                    read(&call).categories()
                );
            }
        }
    }
}

#[test]
fn harmless_options_change_nothing() {
    let looks =
        |program: &Program| program.does.is_empty() && program.rules.is_empty() && program.verbs.is_none();
    for (name, program) in by_table().filter(|(_, program)| looks(program)) {
        for Opt(names, _, does) in program.options {
            for option in words(names).filter(|_| matches!(does, Does::Nothing | Does::Looks)) {
                let call = format!("{name} {}", dashed(option));
                assert!(is(&call, Category::ReadOnly), "{call}: {:?}", read(&call).categories());
            }
        }
    }
}

#[test]
fn options_that_are_not_listed_mutate() {
    for (name, program) in by_table().filter(|(_, program)| program.is_closed()) {
        let stops = |program: &Program| program.rules.iter().any(|rule| rule.stop);
        let call = format!("{name} --not-known-to-anybody");
        assert!(is(&call, Category::Mutating), "{call}: {:?} {}", read(&call).categories(), stops(program));
    }
}

#[test]
fn any_option_is_used_only_with_options_that_write() {
    for (name, program) in entries().filter(|(_, program)| program.any_option) {
        assert!(program.options.iter().any(Opt::has_effect), "{name} needs no `any_option`");
    }
}

#[test]
fn subcommands_do_what_the_table_says() {
    let only_mutates = |verbs: &Verbs| verbs.other.iter().all(|does| category(*does).is_some());
    for (name, program) in by_table() {
        let Some(verbs) = program.verbs else { continue };
        assert!(only_mutates(verbs), "{name}: an unknown subcommand must count as writing");
        let call = format!("{name} not-known-to-anybody");
        assert!(is(&call, Category::Mutating), "{call}");
        for (list, does) in verbs.groups {
            for verb in words(list) {
                let call = format!("{name} {}", verb.replace('/', " "));
                for does in *does {
                    assert!(category(*does).is_none_or(|category| is(&call, category)), "{call}");
                }
            }
        }
    }
}

#[test]
fn subcommands_belong_to_programs_that_have_some() {
    for (name, _) in entries().filter(|(name, _)| name.contains(' ')) {
        let parent = name.rsplit_once(' ').map_or("", |(parent, _)| parent);
        let program = NAMES.find(parent).or_else(|| SUBCOMMANDS.find(parent));
        assert!(program.is_some_and(|program| program.verbs.is_some()), "{name}");
        let verb = name.rsplit(' ').next().unwrap_or_default();
        let listed =
            |verbs: &Verbs| verbs.groups.iter().any(|(list, _)| words(list).any(|word| word == verb));
        assert!(
            program.and_then(|program| program.verbs).is_some_and(|verbs| !listed(verbs)),
            "duplicate entry {name}"
        );
    }
}

/// A condition on names that no entry has would never be met.
#[test]
fn rules_name_programs_of_their_entry() {
    for (_, program) in entries() {
        for rule in program.rules {
            for when in rule.when {
                let When::Name(list) = when else { continue };
                for wanted in words(list) {
                    let is_one = |(name, other): (&str, &'static Program)| {
                        std::ptr::eq(other, program) && name.rsplit(' ').next() == Some(wanted)
                    };
                    assert!(entries().any(is_one), "{wanted} is not in the entry of its rule");
                }
            }
        }
    }
}

#[test]
fn every_rule_has_an_effect() {
    for (name, program) in entries() {
        for rule in program.rules {
            assert!(rule.stop || !rule.does.is_empty(), "{name} has a rule without an effect");
        }
    }
}
