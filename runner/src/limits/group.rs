//! The control group of one run: a directory that is created, locked while the run lives, and removed.
//!
//! Only touches directories with our prefix. The kernel does not remove a group that contains processes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::sys::Pid;

const PREFIX: &str = "avfs-";
const NAMES_MAX: u32 = 100;
/// The kernel may need a moment to notice that the last process of a group is gone.
const REMOVING_TRIES: u32 = 40;
const REMOVING_PAUSE: Duration = Duration::from_millis(5);

/// A control group, removed on drop.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    /// Marks the group as in use; the kernel releases the lock if this process dies.
    _lock: File,
}

/// A file of a control group that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}", path.display())]
pub struct GroupError {
    pub operation: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

impl Group {
    /// Creates a group below `parent`, after removing those of killed runners.
    pub fn make(parent: &Path) -> Result<Self, GroupError> {
        sweep(parent);
        let failed = |path: &Path, source: io::Error| GroupError {
            operation: "create the control group",
            path: path.to_owned(),
            source,
        };
        let pid = std::process::id();
        for number in 0..NAMES_MAX {
            let dir = parent.join(format!("{PREFIX}{pid}-{number}"));
            match std::fs::create_dir(&dir) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(|source| failed(&dir, source))?,
            }
            // Until it is locked, another process may sweep it as a leftover; then try the next name.
            let Ok(lock) = File::open(&dir) else { continue };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if dir.exists() => return Ok(Self { dir, _lock: lock }),
                Ok(()) | Err(Errno::WOULDBLOCK) => {}
                Err(errno) => return Err(failed(&dir, errno.into())),
            }
        }
        Err(failed(parent, io::Error::from(io::ErrorKind::AlreadyExists)))
    }

    pub fn set(&self, file: &str, value: &str) -> Result<(), GroupError> {
        write(&self.dir.join(file), value)
    }

    #[must_use]
    pub fn has(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    /// Moves a process into the group; its children start in it.
    pub fn take_in(&self, pid: Pid) -> Result<(), GroupError> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// The number after a key in a file of events; zero if the key is missing.
    #[must_use]
    pub fn count(&self, file: &str, word: &str) -> u64 {
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        count(&text, word)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVING_TRIES {
            match std::fs::remove_dir(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(REMOVING_PAUSE);
                }
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(error) => {
                    tracing::warn!(%error, group = %self.dir.display(), "cannot remove a control group");
                    return;
                }
            }
        }
        tracing::warn!(group = %self.dir.display(), "cannot remove a control group");
    }
}

/// Writes a value to a file of a control group.
pub fn write(path: &Path, value: &str) -> Result<(), GroupError> {
    std::fs::write(path, value).map_err(|source| GroupError {
        operation: "write",
        path: path.to_owned(),
        source,
    })
}

fn count(text: &str, word: &str) -> u64 {
    let number = text.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    number.unwrap_or(0)
}

/// Removes groups that no process has locked. A group that cannot be removed belongs to another user.
fn sweep(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())) {
        let dir = entry.path();
        let Ok(lock) = File::open(&dir) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted() {
        let text = "low 0\noom 3\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(count(text, "oom_kill "), 2);
        assert_eq!(count(text, "max "), 0);
    }

    #[test]
    fn sweeping_removes_leftovers_but_not_locked_groups() {
        let parent = tempfile::tempdir().unwrap();
        let held = Group::make(parent.path()).unwrap();
        for left in ["avfs-1-0", "other"] {
            std::fs::create_dir(parent.path().join(left)).unwrap();
        }
        let second = Group::make(parent.path()).unwrap();
        assert!(held.dir.exists() && second.dir.exists() && held.dir != second.dir);
        assert!(!parent.path().join("avfs-1-0").exists(), "the leftover was not removed");
        assert!(parent.path().join("other").exists(), "a foreign directory was removed");
        let dir = held.dir.clone();
        drop(held);
        assert!(!dir.exists());
    }
}
