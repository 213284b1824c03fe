//! Detects locks that this process could not release.
//!
//! SQLite ignores it if fcntl(2) fails to release a lock. The lock then belongs to this process, so that no transaction
//! of it gets the lock again, until SQLite closes the file.

use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::sibling;

/// The byte of the `-shm` file that stands for the write lock (WAL_WRITE_LOCK).
const WRITE_LOCK: RangeInclusive<u64> = 120..=120;
/// The bytes of the marks of readers (WAL_READ_LOCK). A transaction has such a lock exclusively only for a moment.
const MARKS: RangeInclusive<u64> = 123..=127;

/// True if this process holds the write lock of a vault.
pub(crate) fn is_held(vault: &Path) -> bool {
    holds(vault, &WRITE_LOCK)
}

/// True if this process exclusively holds the mark of a reader.
pub(crate) fn is_mark_held(vault: &Path) -> bool {
    holds(vault, &MARKS)
}

/// The locks are looked up in /proc: asking the kernel about them needs a descriptor, and closing that would release
/// all locks of this process.
fn holds(vault: &Path, bytes: &RangeInclusive<u64>) -> bool {
    let Ok(meta) = std::fs::metadata(sibling(vault, "-shm")) else { return false };
    let Ok(locks) = std::fs::read("/proc/locks") else { return false };
    let holder = std::process::id().to_string();
    String::from_utf8_lossy(&locks).lines().any(|line| is_own(line, &holder, meta.ino(), bytes))
}

/// `1: POSIX  ADVISORY  WRITE 4711 08:01:262213 120 120`
fn is_own(line: &str, holder: &str, inode: u64, bytes: &RangeInclusive<u64>) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "WRITE", pid, file, first, last] = words[..] else { return false };
    let begins = first.parse().is_ok_and(|first: u64| first <= *bytes.end());
    let ends = last.parse().map_or(last == "EOF", |last: u64| last >= *bytes.start());
    pid == holder && file.rsplit(':').next() == Some(&*inode.to_string()) && begins && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exclusive_locks_of_this_process_count() {
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
            assert_eq!(is_own(line, "7", 262_213, &WRITE_LOCK), own, "{line}");
        }
        for (range, own) in [("124 124", true), ("120 120", false), ("120 123", true), ("128 128", false)] {
            let line = format!("1: POSIX  ADVISORY  WRITE 7 08:01:262213 {range}");
            assert_eq!(is_own(&line, "7", 262_213, &MARKS), own, "{line}");
        }
    }
}
