//! Notes that are given once for each fork and subject: which ones were given is kept in the cache, beside the
//! directories of the fork.
//!
//! A loss of the file repeats notes, and never suppresses one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use avfs_request::ForkChoice;
use avfs_types::ids::ForkName;

use super::fork_dirs::ForkDirs;

/// The name of the file with the notes that were given on a fork: one line for each, with its code and subject.
pub(super) const NOTED: &str = "noted";
/// Maximum bytes of that file; after that no such note is given on the fork.
const NOTED_BYTES_MAX: u64 = 64 << 10;

/// Whether the caller of a run shows its notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteDelivery {
    Shown,
    /// `--quiet`, and workers of lists, which show the notes of some runs.
    Dropped,
}

impl ForkDirs {
    /// The subjects of a note that were not noted on the fork before; records them if the note is shown. Runs without
    /// a fork start from the directory: they share the notes of main.
    ///
    /// A subject has no line end. If the record cannot be read or written, the note is given again.
    pub(crate) fn first_notes<'s>(
        &self,
        fork: &ForkChoice,
        code: &str,
        subjects: &[&'s str],
        delivery: NoteDelivery,
    ) -> Vec<&'s str> {
        let fork = match fork {
            ForkChoice::Persistent { name, .. } => name.clone(),
            ForkChoice::Ephemeral { .. } => ForkName::main(),
        };
        let known = self.noted(&fork).unwrap_or_else(|error| {
            tracing::debug!(%error, "cannot read which notes were given");
            String::new()
        });
        if known.len() as u64 > NOTED_BYTES_MAX {
            return Vec::new();
        }
        let line = |subject: &str| format!("{code} {subject}");
        let is_new = |subject: &&&str| !known.lines().any(|noted| noted == line(subject));
        let first: Vec<&str> = subjects.iter().filter(is_new).copied().collect();
        let lines: String = first.iter().map(|subject| line(subject) + "\n").collect();
        if !lines.is_empty()
            && delivery == NoteDelivery::Shown
            && let Err(error) = self.append_noted(&fork, &lines)
        {
            tracing::debug!(%error, "cannot record which notes were given");
        }
        first
    }

    /// Forgets the notes of an earlier fork of the same name.
    pub(crate) fn forget_notes(&self, fork: &ForkName) {
        let removed = std::fs::remove_file(self.of(fork).join(NOTED));
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "cannot forget the notes of an earlier fork");
        }
    }

    fn noted(&self, fork: &ForkName) -> io::Result<String> {
        let mut text = Vec::new();
        match File::open(self.of(fork).join(NOTED)) {
            Ok(file) => file.take(NOTED_BYTES_MAX + 1).read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// One write, so that runs at the same time do not mix their lines.
    fn append_noted(&self, fork: &ForkName, lines: &str) -> io::Result<()> {
        self.make_private(fork)?;
        let path = self.of(fork).join(NOTED);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(lines.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_new_once_for_a_fork_and_a_code() {
        let cache = tempfile::tempdir().unwrap();
        let dirs = ForkDirs::new(cache.path(), "0123456789");
        let fork = |name: &str| ForkChoice::Persistent { name: ForkName::parse(name).unwrap(), from: None };
        let without = ForkChoice::Ephemeral { from: None };
        let first = |fork: &ForkChoice, code: &str, subjects: &[&'static str]| {
            dirs.first_notes(fork, code, subjects, NoteDelivery::Shown)
        };
        // A note that is not shown is given again.
        let dropped = || dirs.first_notes(&fork("one"), "a.b", &["X"], NoteDelivery::Dropped);
        assert_eq!((dropped(), dropped()), (vec!["X"], vec!["X"]));
        assert_eq!(first(&fork("one"), "a.b", &["X", "Y"]), ["X", "Y"]);
        assert_eq!(first(&fork("one"), "a.b", &["X", "Z"]), ["Z"]);
        assert_eq!(first(&fork("one"), "a.b", &["X"]), [""; 0]);
        assert_eq!(first(&fork("one"), "a.c", &["X"]), ["X"]);
        assert_eq!(first(&fork("other"), "a.b", &["X"]), ["X"]);
        assert_eq!(first(&without, "a.b", &["X"]), ["X"]);
        assert_eq!(first(&without, "a.b", &["X"]), [""; 0]);
        dirs.forget_notes(&ForkName::parse("one").unwrap());
        assert_eq!(first(&fork("one"), "a.b", &["X"]), ["X"]);
        dirs.remove(&ForkName::parse("other").unwrap()).unwrap();
        assert_eq!(first(&fork("other"), "a.b", &["X"]), ["X"]);
        // A file that has grown beyond its limit ends the notes, not the run.
        dirs.append_noted(&ForkName::main(), &"x\n".repeat(40_000)).unwrap();
        assert_eq!(first(&without, "a.b", &["N"]), [""; 0]);
    }
}
