//! The memory of all processes in the sandbox, read from its own /proc.
//!
//! Cheap checks first: resident memory is an upper bound, and only if it is close to the limit are the processes
//! examined in detail. Pages shared between processes are counted once before the command is stopped.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

use avfs_hostfs::beneath;

/// The sandbox's /proc, of which only the numeric entries are read.
pub struct Processes {
    proc: OwnedFd,
    page_bytes: u64,
    /// If the host swaps, resident memory is not an upper bound.
    swaps: bool,
    /// The device of files without a name: those of memfd_create(2) and of shared memory.
    nameless: Option<u64>,
}

/// Open files that no longer have a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nameless {
    /// In memory.
    pub memory_bytes: u64,
    /// In the workspace.
    pub disk_bytes: u64,
}

/// Used memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    own: u64,
    /// Mapped pages of files in memory.
    files: u64,
}

impl Used {
    fn and(self, other: Self) -> Self {
        Self { own: self.own.saturating_add(other.own), files: self.files.saturating_add(other.files) }
    }

    /// Nameless files may also be mapped, and then are in both numbers: the larger one is a safe lower bound.
    fn total(self, nameless_bytes: u64) -> u64 {
        self.own.saturating_add(self.files.max(nameless_bytes))
    }
}

impl Processes {
    #[must_use]
    pub fn new(proc: OwnedFd) -> Self {
        let nameless = rustix::fs::memfd_create(c"avfs", rustix::fs::MemfdFlags::CLOEXEC);
        let nameless = nameless.and_then(rustix::fs::fstat).ok().map(|stat| stat.st_dev);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            proc,
            page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            swaps: kib(&meminfo, "SwapTotal:") > 0,
            nameless,
        }
    }

    /// True if all processes together use more than `limit`, including `nameless_bytes` in files without a name.
    #[must_use]
    pub fn are_beyond(&self, limit: u64, nameless_bytes: u64) -> bool {
        let places = self.places();
        let sum = |of: fn(&Self, &[u8]) -> Used| {
            places.iter().fold(Used::default(), |sum, place| sum.and(of(self, place))).total(nameless_bytes)
        };
        let may_be = self.swaps || sum(Self::resident) > limit;
        may_be && sum(Self::own) > limit && sum(Self::share) > limit
    }

    /// The directory of each process.
    fn places(&self) -> Vec<Vec<u8>> {
        self.numbers(b"").into_iter().map(|pid| self.place(pid)).collect()
    }

    /// The directory of the process, or that of another thread if its first thread has exited and shows neither
    /// memory nor files.
    fn place(&self, pid: Vec<u8>) -> Vec<u8> {
        if self.has_memory(&pid) {
            return pid;
        }
        let tasks = [&pid[..], b"/task"].concat();
        let mut threads = self.numbers(&tasks).into_iter().map(|tid| [&tasks[..], b"/", &tid].concat());
        threads.find(|thread| self.has_memory(thread)).unwrap_or(pid)
    }

    /// Decided by the total address space: a process that is swapped out has no resident pages.
    fn has_memory(&self, place: &[u8]) -> bool {
        let text = self.read(place, "statm");
        text.split_whitespace().next().is_some_and(|pages| pages != "0")
    }

    /// The entries of a directory that are processes or threads.
    fn numbers(&self, path: &[u8]) -> Vec<Vec<u8>> {
        // Opened again: a descriptor remembers its read position.
        let dir = beneath::open(self.proc.as_fd(), path, beneath::DIR);
        let names = dir.and_then(|dir| beneath::names(dir.as_fd())).unwrap_or_default();
        let numbers = names.into_iter().map(|listed| listed.name);
        numbers.filter(|name| name.iter().all(u8::is_ascii_digit)).collect()
    }

    /// A file of a process; empty if the process has ended.
    fn read(&self, place: &[u8], file: &str) -> String {
        let path = [place, b"/", file.as_bytes()].concat();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut text = String::new();
        if let Ok(fd) = openat(&self.proc, OsStr::from_bytes(&path), flags, Mode::empty()) {
            // A process that dies while it is read has no memory any more.
            let _ = std::fs::File::from(fd).read_to_string(&mut text);
        }
        text
    }

    /// Including pages of files and shared pages: never less than the process uses.
    fn resident(&self, place: &[u8]) -> Used {
        let text = self.read(place, "statm");
        let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        Used { own: pages.unwrap_or(0).saturating_mul(self.page_bytes), files: 0 }
    }

    /// Without pages of files, but including shared pages.
    fn own(&self, place: &[u8]) -> Used {
        let text = self.read(place, "status");
        Used { own: kib_sum(&text, &["RssAnon:", "VmSwap:"]), files: kib_sum(&text, &["RssShmem:"]) }
    }

    /// Shared pages count proportionally.
    fn share(&self, place: &[u8]) -> Used {
        let text = self.read(place, "smaps_rollup");
        if text.is_empty() {
            // A process that cannot be inspected counts with all its pages.
            return self.own(place);
        }
        Used { own: kib_sum(&text, &["Pss_Anon:", "SwapPss:"]), files: kib_sum(&text, &["Pss_Shmem:"]) }
    }

    /// Nameless files that a process holds open: in memory, and in the workspace, whose files are on an overlay or on
    /// the file system `disk`.
    pub fn nameless(&self, disk: Option<u64>) -> Nameless {
        let mut found = Nameless::default();
        let mut seen = HashSet::new();
        for place in self.places() {
            let path = [&place[..], b"/fd"].concat();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(fds) = openat(&self.proc, OsStr::from_bytes(&path), flags, Mode::empty()) else {
                continue;
            };
            for listed in beneath::names(fds.as_fd()).unwrap_or_default() {
                let name = OsStr::from_bytes(&listed.name);
                let Ok(stat) = statat(&fds, name, AtFlags::empty()) else { continue };
                let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                if !file || stat.st_nlink > 0 || !seen.insert((stat.st_dev, stat.st_ino)) {
                    continue;
                }
                let bytes = blocks(stat.st_blocks);
                if Some(stat.st_dev) == self.nameless {
                    found.memory_bytes = found.memory_bytes.saturating_add(bytes);
                } else if Some(stat.st_dev) == disk || is_on_overlay(fds.as_fd(), name) {
                    found.disk_bytes = found.disk_bytes.saturating_add(bytes);
                }
            }
        }
        found
    }
}

/// An overlay reports device numbers for its files that stat(2) shows nowhere else.
fn is_on_overlay(fds: BorrowedFd<'_>, name: &OsStr) -> bool {
    const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
    let file = openat(fds, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let kind = file.and_then(rustix::fs::fstatfs).ok().and_then(|fs| u64::try_from(fs.f_type).ok());
    kind == Some(OVERLAYFS_MAGIC)
}

/// The disk usage of a file, from its number of blocks in stat(2).
pub fn blocks(blocks: i64) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    u64::try_from(blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES)
}

fn kib(text: &str, word: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(word));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn kib_sum(text: &str, words: &[&str]) -> u64 {
    words.iter().map(|word| kib(text, word)).sum::<u64>().saturating_mul(1024)
}

/// The device number of a directory's file system.
pub fn device(dir: BorrowedFd<'_>) -> Option<u64> {
    rustix::fs::fstat(dir).ok().map(|stat| stat.st_dev)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_machine() -> Processes {
        Processes::new(beneath::open_root(std::path::Path::new("/proc")).unwrap())
    }

    #[test]
    fn memory_of_a_process_is_found() {
        let processes = of_this_machine();
        let us = std::process::id().to_string();
        let before = processes.share(us.as_bytes());
        let held = vec![1_u8; 64 << 20];
        assert!(processes.own(us.as_bytes()).own >= 64 << 20);
        assert!(processes.share(us.as_bytes()).own >= before.own + (60 << 20), "{}", held.len());
        assert!(processes.resident(us.as_bytes()).own >= 64 << 20);
    }

    #[test]
    fn the_sum_of_all_processes_is_compared_with_the_limit() {
        let processes = of_this_machine();
        assert!(processes.are_beyond(4096, 0));
        assert!(!processes.are_beyond(1 << 50, 0));
        assert!(processes.are_beyond(1 << 50, 1 << 51), "files without a name are not counted");
    }

    #[test]
    fn a_mapped_file_is_not_counted_twice() {
        let used = Used { own: 10, files: 300 };
        assert_eq!((used.total(0), used.total(300), used.total(400)), (310, 310, 410));
    }

    #[test]
    fn unmapped_files_in_memory_are_found() {
        // Only the threads of this process: others open and close files at any time.
        let own = std::path::Path::new("/proc/self/task");
        let processes = Processes::new(beneath::open_root(own).unwrap());
        let file = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, &vec![1; 8 << 20]).unwrap();
        assert!(processes.nameless(None).memory_bytes >= 8 << 20);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let open = std::fs::File::open(&path).unwrap();
        let disk = device(beneath::open_root(dir.path()).unwrap().as_fd());
        let named = processes.nameless(disk).disk_bytes;
        std::fs::remove_file(&path).unwrap();
        assert!(processes.nameless(disk).disk_bytes >= named + (1 << 20), "{open:?}");
    }

    #[test]
    fn numbers_are_read_from_their_lines() {
        let text = "Name:\tx\nRssAnon:\t     100 kB\nRssShmem:\t 28 kB\nVmSwap:\t 0 kB\n";
        assert_eq!(kib_sum(text, &["RssAnon:", "RssShmem:", "VmSwap:"]), 128 << 10);
        assert_eq!(kib(text, "RssFile:"), 0);
    }
}
