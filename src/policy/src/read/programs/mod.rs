//! The programs that are known, and how each is judged: by what it is told to do, not by its name alone.

mod archives;
mod awk;
mod build;
mod builtins;
mod files;
mod find;
mod git;
mod host;
mod interpreters;
mod network;
mod packages;
mod sed;
mod shells;
mod subcommands;
mod text;
mod wrappers;

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::found::{Call, Found};
use super::options::{Does, Spec};
use super::reader::Reader;

pub type Judging = fn(&Call<'_>, &mut Found, &mut Reader<'_>);

/// How a program is judged.
pub enum Judge {
    /// No option makes it write.
    Looks,
    /// It does this, whatever its options.
    Does(&'static [Does]),
    /// Its options tell.
    Table(&'static Spec),
    By(Judging),
}

/// Names separated by blanks, and how they are judged.
pub struct Row(pub &'static str, pub Judge);

const FAMILIES: &[&[Row]] = &[
    archives::ROWS,
    build::ROWS,
    builtins::ROWS,
    files::ROWS,
    find::ROWS,
    git::ROWS,
    host::ROWS,
    interpreters::ROWS,
    network::ROWS,
    packages::ROWS,
    shells::ROWS,
    text::ROWS,
    wrappers::ROWS,
];

/// Names that are looked for before a table pays: most commands are short, and a table costs more than reading on.
const SCANS_MAX: usize = 8;

static SCANS: AtomicUsize = AtomicUsize::new(0);

static PROGRAMS: LazyLock<HashMap<&'static str, &'static Judge>> = LazyLock::new(|| {
    rows()
        .flat_map(|Row(names, judge)| names.split_ascii_whitespace().map(move |name| (name, judge)))
        .collect()
});

fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

fn named(name: &str) -> Option<&'static Judge> {
    if SCANS.fetch_add(1, Ordering::Relaxed) >= SCANS_MAX {
        return PROGRAMS.get(name).copied();
    }
    let is_named = |row: &&Row| row.0.split_ascii_whitespace().any(|one| one == name);
    rows().find(is_named).map(|row| &row.1)
}

pub fn find(name: &str) -> Option<&'static Judge> {
    named(name).or_else(|| {
        // `python3.12`, `gcc-13`, `clang++-18`: the version says nothing.
        let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let plain = plain.strip_suffix('-').unwrap_or(plain);
        (plain != name).then(|| named(plain)).flatten()
    })
}

/// What a program does whatever its options.
pub fn always(does: Does, name: &str, found: &mut Found) {
    let say = |why: &str| format!("`{name}` {why}");
    match does {
        Does::Nothing | Does::Looks => {}
        Does::Writes(why) | Does::Mutates(why) | Does::RunsText(why) => found.mutates(say(why)),
        Does::Destroys(why) => found.destroys(say(why)),
        Does::Networks(why) => found.networks(say(why)),
        Does::Escapes(why) => {
            found.mutates(say(why));
            found.escapes(say(why));
        }
        Does::Talks(why) => found.talks(say(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::FAMILIES;

    #[test]
    fn a_program_is_judged_in_one_place() {
        let mut names: Vec<&str> = FAMILIES
            .iter()
            .flat_map(|family| family.iter())
            .flat_map(|row| row.0.split_whitespace())
            .collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
