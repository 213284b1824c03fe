//! What commands are found to do: a corpus of them, texts that try to break the reading of it, and what must hold whatever
//! is read.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail at once")]

mod corpus;
mod limits;
mod properties;
mod shells;

use std::path::Path;

use avfs_policy::{Asked, Category, Reading, read};
use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

/// The workspace of every test, with one more directory that may be written to.
fn reading(command: &CommandLine) -> Reading {
    let rw = [Path::new("/data")];
    read(&Asked {
        command,
        fork: None,
        cwd: Path::new("/home/u/proj"),
        workspace: Path::new("/home/u/proj"),
        project: Path::new("/home/u/proj"),
        home: Some(Path::new("/home/u")),
        net: &NetMode::None,
        confinement: Confinement::DEFAULT,
        profile: Profile::Strict,
        timeout: ExecutionTimeout::None,
        rw: &rw,
        secrets: &[],
        variables: &[],
        openings: &[],
        terminal: Terminal::None,
    })
}

fn shell(text: &str) -> Reading {
    reading(&CommandLine::Shell(text.into()))
}

fn argv(words: &[&str]) -> Reading {
    reading(&CommandLine::Argv(words.iter().map(Into::into).collect()))
}

/// Whether `wide` is at least as strict a reading as `narrow`. A doubt is: nobody is let past it.
fn is_as_strict(wide: &Reading, narrow: &Reading) -> bool {
    if !wide.doubts.is_empty() {
        return true;
    }
    let (wide_is, narrow_is) = (wide.categories(), narrow.categories());
    let keeps = |category: Category| category == Category::ReadOnly || wide_is.contains(category);
    narrow.doubts.is_empty() && narrow_is.iter().all(keeps)
}
