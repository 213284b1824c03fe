//! The location of a path, by its name alone.
//!
//! Nothing is looked up: stopping a symlink that leads out of the workspace is the sandbox's job.

use std::path::Path;

use avfs_request::Profile;

use super::super::reading::{Asked, Word};

/// The location of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLocation {
    /// In the workspace or in scratch directories, where writing is expected.
    Inside,
    /// In the private home, which is removed with the run.
    Home,
    /// `/dev/null`, the command's own streams.
    Stream,
    /// `/dev/tcp/…`, for which bash opens a connection.
    Network,
    Outside,
    /// It cannot be determined.
    Unknown,
}

/// Private directories of the command, where any write is harmless.
const SCRATCH: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];

/// Prefixes of words that name a temporary file.
const SCRATCH_WORDS: &[&str] = &["$TMPDIR", "${TMPDIR", "$(mktemp", "`mktemp"];

/// Where writing works, for a path in the home and for any other path.
const INSTEAD_OF_HOME: &str =
    "write to the workspace or to /tmp, or keep the files of the home with --fork NAME --home persistent";
const INSTEAD: &str = "write to the workspace or to /tmp, or make a host directory writable with --rw DIR";

/// Devices that are streams, or discard their input.
const STREAMS: &[&str] =
    &["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full"];

/// Locates the paths of one request.
pub struct PathLocator<'a> {
    asked: &'a Asked<'a>,
    pub home: Option<String>,
    /// The working directory of the command being judged, on top of those of the enclosing texts. `None` if unknown.
    cwds: Vec<Option<String>>,
    /// A variable names another home.
    moved_home: bool,
}

impl<'a> PathLocator<'a> {
    pub fn new(asked: &'a Asked<'a>) -> Self {
        let home = asked.home.and_then(Path::to_str).map(str::to_owned);
        Self { asked, home, cwds: vec![asked.cwd.to_str().map(str::to_owned)], moved_home: false }
    }

    pub fn enter(&mut self) {
        let here = self.cwds.last().cloned().flatten();
        self.cwds.push(here);
    }

    pub fn leave(&mut self) {
        if self.cwds.len() > 1 {
            self.cwds.pop();
        }
    }

    /// `cd`.
    pub fn change(&mut self, to: Option<&str>) {
        let next = to.and_then(|to| self.absolute(to));
        if let Some(here) = self.cwds.last_mut() {
            *here = next;
        }
    }

    fn absolute(&self, path: &str) -> Option<String> {
        let joined = match self.cwds.last()? {
            _ if path.starts_with('/') => path.to_owned(),
            Some(cwd) => format!("{cwd}/{path}"),
            None => return None,
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in joined.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        Some(format!("/{}", parts.join("/")))
    }

    pub fn of(&self, word: &Word) -> PathLocation {
        match word {
            Word::Known(path) => self.of_path(path),
            Word::Unknown(written) => self.of_written(written),
        }
    }

    pub fn of_path(&self, path: &str) -> PathLocation {
        let Some(path) = self.absolute(path) else { return PathLocation::Unknown };
        if STREAMS.contains(&path.as_str())
            || path.starts_with("/dev/fd/")
            || path.starts_with("/proc/self/fd/")
        {
            return PathLocation::Stream;
        }
        if path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/") {
            return PathLocation::Network;
        }
        let given = self.asked.rw.iter().chain(self.asked.provided).copied();
        let mut ours = SCRATCH.iter().map(Path::new).chain(given);
        let path = Path::new(&path);
        if path.starts_with(self.asked.workspace) || ours.any(|directory| path.starts_with(directory)) {
            PathLocation::Inside
        } else if self.private_home().is_some_and(|home| path.starts_with(home))
            && !self.is_above_others(path)
        {
            PathLocation::Home
        } else {
            PathLocation::Outside
        }
    }

    /// From here on, the home is another directory.
    pub fn move_home(&mut self) {
        self.moved_home = true;
    }

    /// The home, if it is an empty directory that is made for the run.
    fn private_home(&self) -> Option<&Path> {
        let is_made = self.asked.profile == Profile::Strict && !self.moved_home;
        let home = self.home.as_deref().map(Path::new).filter(|_| is_made)?;
        let is_apart =
            home.is_absolute() && home != Path::new("/") && !home.starts_with(self.asked.workspace);
        is_apart.then_some(home)
    }

    /// Whether a directory contains the workspace, or another one that outlives the run.
    fn is_above_others(&self, path: &Path) -> bool {
        let given = self.asked.rw.iter().chain(self.asked.provided).copied();
        given.chain([self.asked.workspace]).any(|directory| directory.starts_with(path))
    }

    /// Whether the home is one of the run: private, or kept by the fork.
    pub fn has_own_home(&self) -> bool {
        let home = self.home.as_deref().map(Path::new);
        let is_kept = |home: &Path| self.asked.provided.iter().any(|directory| home.starts_with(directory));
        self.private_home().is_some() || home.is_some_and(is_kept)
    }

    /// Where a command can write instead of to a path outside.
    pub fn where_to_write(&self, word: &Word) -> &'static str {
        let is_in_home = match word {
            Word::Known(path) => {
                let path = self.absolute(path);
                path.zip(self.home.as_deref()).is_some_and(|(path, home)| Path::new(&path).starts_with(home))
            }
            Word::Unknown(written) => below_home(written.strip_prefix('"').unwrap_or(written)).is_some(),
        };
        if is_in_home { INSTEAD_OF_HOME } else { INSTEAD }
    }

    /// The location of an unknown word, as far as its beginning shows.
    fn of_written(&self, written: &str) -> PathLocation {
        let written = written.strip_prefix('"').unwrap_or(written);
        if SCRATCH_WORDS.iter().any(|word| written.starts_with(word)) {
            return PathLocation::Inside;
        }
        if let Some(below) = below_home(written) {
            let home = self.home.as_deref().filter(|_| self.has_own_home());
            return match (home, below) {
                (Some(home), Below::Path(rest)) => self.of_written(&format!("{home}/{rest}")),
                (Some(_) | None, Below::Path(_) | Below::Unclear) => PathLocation::Outside,
            };
        }
        let plain = written.split(['$', '`', '*', '?', '[', '{', '"', '\'', '\\']).next().unwrap_or("");
        // The part up to the last slash is known.
        match plain.rsplit_once('/') {
            Some(("", _)) => PathLocation::Outside,
            Some((directory, _)) => self.of_path(directory),
            None => PathLocation::Unknown,
        }
    }
}

/// The part of an unknown word after the home directory.
enum Below<'w> {
    Path(&'w str),
    /// `~user`, `$HOMES`, `${HOME:-x}`.
    Unclear,
}

/// The part of an unknown word after the home directory, if it begins with one.
fn below_home(written: &str) -> Option<Below<'_>> {
    let rest = ["~", "$HOME", "${HOME"].iter().find_map(|home| written.strip_prefix(home))?;
    let rest = rest.strip_prefix('}').unwrap_or(rest);
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    Some(rest.strip_prefix('/').map_or(Below::Unclear, Below::Path))
}
