//! Where a path lies, by its name alone.
//!
//! Nothing is looked up: a link in the workspace that leads out of it is the sandbox's to stop.

use std::path::Path;

use super::super::reading::{Asked, Word};

/// Where a path lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathLocation {
    /// Where writing is what the workspace is for.
    Inside,
    /// `/dev/null`, the command's own streams.
    Stream,
    /// `/dev/tcp/…`, which bash makes a connection of.
    Network,
    Outside,
    /// It cannot be told.
    Unknown,
}

/// Directories that are the command's own, whatever is written there.
const SCRATCH: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];

/// How a word begins that names a file in a directory for temporary files.
const SCRATCH_WORDS: &[&str] = &["$TMPDIR", "${TMPDIR", "$(mktemp", "`mktemp"];

/// Files that are streams or nothing.
const STREAMS: &[&str] =
    &["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full"];

/// Locates the paths of one request.
pub struct PathLocator<'a> {
    asked: &'a Asked<'a>,
    pub home: Option<String>,
    /// The working directory of the command being judged, of the texts around it beneath. Nothing if it is not known.
    cwds: Vec<Option<String>>,
}

impl<'a> PathLocator<'a> {
    pub fn new(asked: &'a Asked<'a>) -> Self {
        let home = asked.home.and_then(Path::to_str).map(str::to_owned);
        Self { asked, home, cwds: vec![asked.cwd.to_str().map(str::to_owned)] }
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
        let mut ours = SCRATCH.iter().map(Path::new).chain(self.asked.rw.iter().copied());
        let path = Path::new(&path);
        if path.starts_with(self.asked.workspace) || ours.any(|directory| path.starts_with(directory)) {
            PathLocation::Inside
        } else {
            PathLocation::Outside
        }
    }

    /// Of a word that is not known, as far as its beginning tells.
    fn of_written(&self, written: &str) -> PathLocation {
        let written = written.strip_prefix('"').unwrap_or(written);
        if SCRATCH_WORDS.iter().any(|word| written.starts_with(word)) {
            return PathLocation::Inside;
        }
        if ["~", "$HOME", "${HOME"].iter().any(|home| written.starts_with(home)) {
            return PathLocation::Outside;
        }
        let plain = written.split(['$', '`', '*', '?', '[', '{', '"', '\'', '\\']).next().unwrap_or("");
        // The part up to the last slash is certain.
        match plain.rsplit_once('/') {
            Some(("", _)) => PathLocation::Outside,
            Some((directory, _)) => self.of_path(directory),
            None => PathLocation::Unknown,
        }
    }
}
