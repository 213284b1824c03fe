//! Detects a write lock that this process could not release.
//!
//! SQLite ignores it if fcntl(2) fails to release a lock. The lock then belongs to this process, so that no writer of
//! it gets the lock again, until SQLite closes the file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::sibling;

/// The byte of the `-shm` file that stands for the write lock (WAL_WRITE_LOCK).
const WRITE_LOCK: u64 = 120;

/// True if this process holds the write lock of a vault. The lock is looked up in /proc: asking the kernel about it
/// needs a descriptor, and closing that would release all locks of this process.
pub(crate) fn is_held(vault: &Path) -> bool {
    let Ok(meta) = std::fs::metadata(sibling(vault, "-shm")) else { return false };
    let Ok(locks) = std::fs::read("/proc/locks") else { return false };
    let holder = std::process::id().to_string();
    String::from_utf8_lossy(&locks).lines().any(|line| is_own(line, &holder, meta.ino()))
}

/// `1: POSIX  ADVISORY  WRITE 4711 08:01:262213 120 120`
fn is_own(line: &str, holder: &str, inode: u64) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "WRITE", pid, file, first, last] = words[..] else { return false };
    let is_at = |text: &str| text.parse().is_ok_and(|first: u64| first <= WRITE_LOCK);
    let ends_at = last.parse().map_or(last == "EOF", |last: u64| last >= WRITE_LOCK);
    pid == holder && file.rsplit(':').next() == Some(&*inode.to_string()) && is_at(first) && ends_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_write_lock_of_this_process_counts() {
        for (line, own) in [
            ("1: POSIX  ADVISORY  WRITE 7 08:01:262213 120 120", true),
            ("1: POSIX  ADVISORY  WRITE 7 08:01:262213 0 EOF", true),
            ("1: POSIX  ADVISORY  READ 7 08:01:262213 120 120", false),
            ("1: POSIX  ADVISORY  WRITE 7 08:01:262213 121 122", false),
            ("1: POSIX  ADVISORY  WRITE 8 08:01:262213 120 120", false),
            ("1: POSIX  ADVISORY  WRITE 7 08:01:62213 120 120", false),
            ("1: -> POSIX  ADVISORY  WRITE 7 08:01:262213 120 120", false),
            ("1: FLOCK  ADVISORY  WRITE 7 08:01:262213 0 EOF", false),
        ] {
            assert_eq!(is_own(line, "7", 262_213), own, "{line}");
        }
    }
}
