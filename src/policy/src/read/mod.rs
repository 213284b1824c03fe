//! Parses a command: which programs it runs, and what each of them does.
//!
//! Closed-world: anything that is not understood is a doubt, never skipped. Total and bounded: any text is parsed in
//! time linear in its length.

mod arithmetic;
mod assignments;
mod findings;
mod limits;
mod options;
mod path_location;
mod programs;
mod reader;
mod shell;
mod variables;

use std::path::Path;

use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

use super::reading::{Asked, Judged, OwnChoices, Reading, Word};

pub use assignments::EDITOR_VARIABLES;
pub use findings::shown;
pub use limits::{BRACE_WORDS_MAX, COMMANDS_MAX, NESTING_MAX, TEXT_BYTES_MAX};
pub use programs::{NoRule, always, fills_screen};

/// What a command may read of its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentUse {
    /// The variables whose values its shell texts use, except those that the texts set themselves.
    pub variables: Vec<String>,
    /// The variables that it sets.
    pub assigned: Vec<String>,
    /// The names of the programs that it starts, without their directories.
    pub programs: Vec<String>,
}

/// What a command may read of its environment.
#[must_use]
pub fn environment_use(command: &CommandLine) -> EnvironmentUse {
    let nowhere = Path::new("/");
    let asked = Asked {
        command,
        fork: None,
        cwd: nowhere,
        workspace: nowhere,
        project: nowhere,
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
    };
    let Reading { commands, variables, assigned, doubts: _ } = read(&asked);
    let name = |command: &Judged| Some(command.words.first()?.known()?.rsplit('/').next()?.to_owned());
    EnvironmentUse { variables, assigned, programs: commands.iter().filter_map(name).collect() }
}

/// Judges every simple command of a request.
#[must_use]
pub fn read(asked: &Asked<'_>) -> Reading {
    let mut reader = reader::Reader::new(asked);
    asked.variables.iter().for_each(|(name, value)| reader.given(name, value));
    match asked.command {
        CommandLine::Shell(text) => reader.os_text(text, shell::Dialect::Sh),
        CommandLine::Argv(words) if words.is_empty() => reader.doubt("the command is empty"),
        CommandLine::Argv(words) => {
            if words.iter().map(|word| word.len()).sum::<usize>() > TEXT_BYTES_MAX {
                reader.doubt(format!("the arguments are longer than {TEXT_BYTES_MAX} bytes"));
            }
            let words: Vec<Word> =
                words.iter().map(|word| Word::Known(word.to_string_lossy().into_owned())).collect();
            reader.inner(&words, findings::Input::Inherited);
        }
    }
    reader.finish()
}
