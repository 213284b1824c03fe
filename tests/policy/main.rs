//! Classification of commands: a corpus of them, texts that try to break the parser, and properties of every reading.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should fail immediately")]

mod corpus;
mod home;
mod limits;
mod properties;
mod shells;

use std::path::Path;

use avfs_policy::{Asked, Category, OwnChoices, Reading, read};
use avfs_request::{Confinement, ExecutionTimeout, NetMode, Profile, Terminal};
use avfs_types::CommandLine;

/// Reads a command in the workspace of every test, with one more writable directory.
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
        provided: &[],
        secrets: &[],
        variables: &[],
        openings: &[],
        terminal: Terminal::None,
        editor: false,
        own: OwnChoices::NONE,
    })
}

fn shell(text: &str) -> Reading {
    reading(&CommandLine::Shell(text.into()))
}

fn argv(words: &[&str]) -> Reading {
    reading(&CommandLine::Argv(words.iter().map(Into::into).collect()))
}

/// Whether `wide` is at least as strict a reading as `narrow`. A doubt is at least mutating, never read-only.
fn is_as_strict(wide: &Reading, narrow: &Reading) -> bool {
    let (wide_is, narrow_is) = (wide.categories(), narrow.categories());
    let keeps = |category: Category| category == Category::ReadOnly || wide_is.contains(category);
    assert!(wide.doubts.is_empty() || !wide_is.contains(Category::ReadOnly), "{wide:?}");
    (!wide.doubts.is_empty() || narrow.doubts.is_empty()) && narrow_is.iter().all(keeps)
}
