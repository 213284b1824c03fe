//! Holds a program at one of its pause points (`avfs_types::pause`): a test waits until the program is there, acts, and
//! releases the program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::wait::wait_for;

pub struct Pauses {
    dir: PathBuf,
}

impl Pauses {
    /// Uses a separate directory in `parent`.
    pub fn new(parent: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("pauses-").tempdir_in(parent).unwrap();
        Self { dir: dir.keep() }
    }

    /// Makes a program stop at them.
    pub fn set<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let (name, dir) = self.variable();
        command.env(name, dir)
    }

    /// The environment variable that makes a program stop at them.
    pub fn variable(&self) -> (&'static str, &Path) {
        ("AVFS_TEST_PAUSE", &self.dir)
    }

    fn file(&self, what: &str, point: &str) -> PathBuf {
        self.dir.join(format!("{what}-{point}"))
    }

    /// Makes the program stop at this point: `NAME`, `NAME#N` for the N-th time, or `#N` for the N-th point of all.
    pub fn hold(&self, point: &str) -> &Self {
        std::fs::write(self.file("hold", point), "").unwrap();
        self
    }

    /// Lets the program continue from this point.
    #[track_caller]
    pub fn release(&self, point: &str) {
        std::fs::remove_file(self.file("hold", point)).unwrap();
    }

    pub fn is_held(&self, point: &str) -> bool {
        self.file("held", point).exists()
    }

    /// Waits until the program is held; fails if it ends without reaching the point.
    #[track_caller]
    pub fn wait(&self, point: &str, child: &mut Child) {
        assert!(
            self.reaches(point, child),
            "the program ended without reaching {point}; it reached {:?}",
            self.reached()
        );
    }

    /// Waits until the program is held (true) or has ended (false).
    #[track_caller]
    pub fn reaches(&self, point: &str, child: &mut Child) -> bool {
        let mut ended = false;
        wait_for(point, || {
            // In this order: the program may end right after it was held.
            ended = child.try_wait().unwrap().is_some();
            ended || self.is_held(point)
        });
        self.is_held(point)
    }

    /// The points that were reached, in order.
    pub fn reached(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.join("points")).unwrap_or_default();
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}
