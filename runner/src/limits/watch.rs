//! A thread that looks at what the command uses where no mechanism of the kernel bounds it, and says when it is
//! too much.
//!
//! It never stops anybody itself: the supervisor does. A look is taken more rarely the longer it takes, so
//! that looking costs about a twentieth of one processor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstatvfs;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use avfs_request::LimitKind;
use avfs_types::pause;

use super::footprint::{Enough, Footprint, measure};
use super::processes::{Processes, device};

/// Between two looks at the memory.
const MEMORY_PERIOD: Duration = Duration::from_millis(50);
/// However many processes there are: a bomb needs no longer.
const MEMORY_PERIOD_MAX: Duration = Duration::from_millis(500);
/// Who is beyond the limit for a moment only (two processes that share everything until one of them execs) is
/// not stopped.
const MEMORY_CONFIRMED_AFTER: Duration = Duration::from_millis(10);
/// Between two looks at how full the disk is, which tells when a walk is due.
const DISK_PERIOD: Duration = Duration::from_millis(100);
const DISK_PERIOD_MAX: Duration = Duration::from_secs(5);
/// Between two walks though the disk seems as full as before: some file systems tell what was written only later,
/// and btrfs never how many files there are.
const DISK_STILL_PERIOD: Duration = Duration::from_secs(2);
const DISK_STILL_PERIOD_MAX: Duration = Duration::from_secs(60);
/// Of the time a look takes, how often it must pass until the next.
const COST_SHARE: u32 = 20;
/// The same when the disk is being filled.
const COST_SHARE_URGENT: u32 = 2;

/// What is watched.
pub struct Looks {
    pub memory: Option<u64>,
    pub disk: Option<DiskLook>,
    /// Nothing where they cannot be seen.
    pub processes: Option<Processes>,
}

/// A directory tree that must not grow beyond its limits.
pub struct DiskLook {
    pub root: OwnedFd,
    pub bytes: Option<u64>,
    pub files: Option<u64>,
    /// What was there before the command.
    pub before: Footprint,
    /// How full the disk was then.
    pub filled: Filled,
}

/// A watch that goes on.
pub struct Watch {
    ours: OwnedFd,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Looks>,
}

impl Watch {
    pub fn start(looks: Looks) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let watching = move || {
            let mut watcher = Watcher::new(looks, &stopping);
            if let Some(kind) = watcher.until_beyond(theirs.as_fd()) {
                // If nobody listens any more the command is gone.
                let _ = rustix::net::send(&theirs, &[place(kind)], SendFlags::NOSIGNAL);
            }
            watcher.looks
        };
        let thread = std::thread::Builder::new().name("limits".to_owned()).spawn(watching)?;
        Ok(Self { ours, stop, thread })
    }

    /// Readable when a limit is exceeded.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// The limit that was exceeded.
    #[must_use]
    pub fn exceeded(&self) -> Option<LimitKind> {
        let mut byte = [0];
        match rustix::net::recv(&self.ours, &mut byte, rustix::net::RecvFlags::empty()) {
            Ok((1, _)) => LimitKind::ALL.get(usize::from(byte[0])).copied(),
            Ok(_) | Err(_) => None,
        }
    }

    /// Ends the watch, and gives back what it looked at.
    #[must_use]
    pub fn finish(self) -> Option<Looks> {
        let Self { ours, stop, thread } = self;
        stop.store(true, Ordering::Relaxed);
        drop(ours);
        thread.join().ok()
    }
}

/// A limit as a byte.
fn place(kind: LimitKind) -> u8 {
    let at = LimitKind::ALL.iter().position(|it| *it == kind);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

impl Looks {
    /// The limit of the disk that is exceeded, with nobody left who writes: a quick command may have ended before
    /// anybody looked.
    #[must_use]
    pub fn exceeded_in_the_end(&self) -> Option<LimitKind> {
        let disk = self.disk.as_ref()?;
        disk.beyond(disk.footprint(&AtomicBool::new(false))?, 0)
    }
}

struct Watcher<'a> {
    looks: Looks,
    stop: &'a AtomicBool,
    memory_at: Instant,
    disk_at: Instant,
    pace: DiskPace,
}

/// When to walk next.
struct DiskPace {
    /// How full the disk was at the last walk.
    filled: Filled,
    /// What may still be written, as of the last walk.
    room_bytes: u64,
    room_files: u64,
    walked_at: Instant,
    cost: Duration,
}

/// What others say of a file system: cheap, but of everybody on it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    free_bytes: u64,
    free_files: u64,
}

impl Filled {
    #[must_use]
    pub fn look(dir: BorrowedFd<'_>) -> Self {
        let Ok(fs) = fstatvfs(dir) else { return Self::default() };
        Self { free_bytes: fs.f_bfree.saturating_mul(fs.f_frsize), free_files: fs.f_ffree }
    }
}

impl<'a> Watcher<'a> {
    fn new(looks: Looks, stop: &'a AtomicBool) -> Self {
        let now = Instant::now();
        // No disk was ever this empty: the first look is a walk.
        let filled = Filled { free_bytes: u64::MAX, free_files: u64::MAX };
        let pace = DiskPace { filled, room_bytes: 0, room_files: 0, walked_at: now, cost: Duration::ZERO };
        Self { looks, stop, memory_at: now + MEMORY_PERIOD, disk_at: now + DISK_PERIOD, pace }
    }

    /// Looks again and again; nothing when the supervisor has hung up.
    fn until_beyond(&mut self, supervisor: BorrowedFd<'_>) -> Option<LimitKind> {
        loop {
            let next = match (self.looks.memory, &self.looks.disk) {
                (Some(_), Some(_)) => self.memory_at.min(self.disk_at),
                (Some(_), None) => self.memory_at,
                (None, Some(_)) => self.disk_at,
                (None, None) => return None,
            };
            if hung_up_before(supervisor, next) {
                return None;
            }
            let now = Instant::now();
            if let Some(limit) = self.looks.memory.filter(|_| now >= self.memory_at) {
                if self.is_beyond_memory(limit) {
                    if hung_up_before(supervisor, Instant::now() + MEMORY_CONFIRMED_AFTER) {
                        return None;
                    }
                    if self.is_beyond_memory(limit) {
                        return Some(LimitKind::Memory);
                    }
                }
                pause::point("memory-checked");
                let cost = now.elapsed();
                self.memory_at = Instant::now() + (cost * COST_SHARE).clamp(MEMORY_PERIOD, MEMORY_PERIOD_MAX);
            }
            if now >= self.disk_at {
                if let Some(kind) = self.look_at_disk() {
                    return Some(kind);
                }
                self.disk_at = Instant::now() + DISK_PERIOD;
            }
        }
    }

    fn is_beyond_memory(&self, limit: u64) -> bool {
        let Some(processes) = &self.looks.processes else { return false };
        // Files in memory that have no name are nobody's pages until somebody maps them.
        let nameless = processes.nameless(None).memory_bytes;
        processes.are_beyond(limit, nameless)
    }

    fn look_at_disk(&mut self) -> Option<LimitKind> {
        let Self { looks, stop, pace, .. } = self;
        let disk = looks.disk.as_ref()?;
        let filled = Filled::look(disk.root.as_fd());
        if !pace.is_due(filled, pace.walked_at.elapsed()) {
            return None;
        }
        let begun = Instant::now();
        let mut found = disk.footprint(stop)?;
        if found.closed > 0 {
            // What is in a closed directory is at most what the whole disk has lost meanwhile.
            let lost = |before: u64, now: u64| before.saturating_sub(now);
            let bytes = lost(disk.filled.free_bytes, filled.free_bytes).saturating_add(disk.before.bytes);
            let files = lost(disk.filled.free_files, filled.free_files).saturating_add(disk.before.files);
            found.bytes = found.bytes.max(bytes);
            found.files = found.files.max(files);
        }
        let device = device(disk.root.as_fd());
        let nameless = looks.processes.as_ref().map_or(0, |seen| seen.nameless(device).disk_bytes);
        let beyond = disk.beyond(found, nameless);
        pace.walked(disk, found, nameless, filled, begun.elapsed());
        beyond
    }
}

impl DiskPace {
    /// Whether to walk now, so long after the last walk.
    fn is_due(&self, now: Filled, since_walk: Duration) -> bool {
        let still = now == self.filled;
        let urgent = self.filled.free_bytes.saturating_sub(now.free_bytes) >= self.room_bytes
            || self.filled.free_files.saturating_sub(now.free_files) >= self.room_files;
        let pause = match (still, urgent) {
            (true, _) => (self.cost * COST_SHARE).clamp(DISK_STILL_PERIOD, DISK_STILL_PERIOD_MAX),
            (false, true) => self.cost * COST_SHARE_URGENT,
            (false, false) => (self.cost * COST_SHARE).min(DISK_PERIOD_MAX),
        };
        since_walk >= pause
    }

    fn walked(&mut self, disk: &DiskLook, found: Footprint, nameless: u64, filled: Filled, cost: Duration) {
        let room = |limit: Option<u64>, used: u64| limit.map_or(u64::MAX, |limit| limit.saturating_sub(used));
        self.room_bytes = room(disk.bytes, disk.grown(found).bytes.saturating_add(nameless));
        self.room_files = room(disk.files, disk.grown(found).files);
        self.filled = filled;
        self.walked_at = Instant::now();
        self.cost = cost;
    }
}

impl DiskLook {
    /// Walks the tree, as far as is needed to see that it is too large.
    fn footprint(&self, stop: &AtomicBool) -> Option<Footprint> {
        let enough = |limit: Option<u64>, before: u64| limit.map_or(u64::MAX, |it| it.saturating_add(before));
        let enough = Enough {
            bytes: enough(self.bytes, self.before.bytes),
            files: enough(self.files, self.before.files),
        };
        measure(&self.root, enough, stop)
    }

    fn grown(&self, found: Footprint) -> Footprint {
        Footprint {
            bytes: found.bytes.saturating_sub(self.before.bytes),
            files: found.files.saturating_sub(self.before.files),
            closed: found.closed,
        }
    }

    /// The limit that is exceeded, with so many bytes beside what the walk found.
    fn beyond(&self, found: Footprint, nameless: u64) -> Option<LimitKind> {
        let grown = self.grown(found);
        if self.bytes.is_some_and(|limit| grown.bytes.saturating_add(nameless) > limit) {
            return Some(LimitKind::Disk);
        }
        self.files.is_some_and(|limit| grown.files > limit).then_some(LimitKind::Files)
    }
}

/// Waits; true as soon as the supervisor has hung up.
fn hung_up_before(supervisor: BorrowedFd<'_>, moment: Instant) -> bool {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        let Ok(wait) = Timespec::try_from(left) else { return true };
        let mut fds = [PollFd::from_borrowed_fd(supervisor, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use avfs_hostfs::beneath;

    use super::*;

    fn look(dir: &std::path::Path, bytes: Option<u64>, files: Option<u64>) -> DiskLook {
        let root = beneath::open_root(dir).unwrap();
        let filled = Filled::look(root.as_fd());
        DiskLook { root, bytes, files, before: Footprint::default(), filled }
    }

    /// Waits for the watch to report.
    fn exceeded(watch: &Watch) -> Option<LimitKind> {
        poll(&mut [PollFd::new(&watch.ours, PollFlags::IN)], None).unwrap();
        watch.exceeded()
    }

    #[test]
    fn a_tree_that_grows_too_large_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let looks = || {
            let disk = Some(look(dir.path(), Some(1 << 20), Some(5)));
            Looks { memory: None, disk, processes: None }
        };
        std::fs::write(dir.path().join("small"), [1; 10]).unwrap();
        assert_eq!(
            Watcher::new(looks(), &AtomicBool::new(false)).look_at_disk(),
            None,
            "a small file is too much"
        );
        let watch = Watch::start(looks()).unwrap();
        std::fs::write(dir.path().join("large"), vec![1; 3 << 20]).unwrap();
        assert_eq!(exceeded(&watch), Some(LimitKind::Disk));
        let looks = watch.finish().unwrap();
        assert_eq!(looks.exceeded_in_the_end(), Some(LimitKind::Disk));
        std::fs::remove_file(dir.path().join("large")).unwrap();
        assert_eq!(looks.exceeded_in_the_end(), None);
        for number in 0..5 {
            std::fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(looks.exceeded_in_the_end(), Some(LimitKind::Files));
    }

    #[test]
    fn memory_that_is_too_much_is_seen() {
        let looks = || {
            let proc = beneath::open_root(std::path::Path::new("/proc")).unwrap();
            Looks { memory: Some(4096), disk: None, processes: Some(Processes::new(proc)) }
        };
        assert!(!Watcher::new(looks(), &AtomicBool::new(false)).is_beyond_memory(1 << 50));
        let watch = Watch::start(looks()).unwrap();
        assert_eq!(exceeded(&watch), Some(LimitKind::Memory));
    }

    #[test]
    fn a_walk_is_due_when_somebody_wrote_and_sooner_the_less_room_there_is() {
        let filled = Filled { free_bytes: 1000, free_files: 100 };
        let after = Duration::from_secs;
        let walked =
            |cost| DiskPace { filled, room_bytes: 500, room_files: 50, walked_at: Instant::now(), cost };
        let pace = walked(Duration::ZERO);
        assert!(!pace.is_due(filled, after(1)), "nothing was written");
        assert!(pace.is_due(filled, after(3)), "a file system that reports nothing is not walked");
        assert!(!walked(after(1)).is_due(filled, after(3)));
        assert!(walked(after(60)).is_due(filled, after(61)), "no bound in time");
        assert!(pace.is_due(Filled { free_bytes: 999, ..filled }, after(1)));
        let pace = walked(Duration::from_millis(300));
        assert!(
            !pace.is_due(Filled { free_bytes: 999, ..filled }, after(1)),
            "a slow walk comes again too soon"
        );
        assert!(pace.is_due(Filled { free_bytes: 400, ..filled }, after(1)), "the room may be used up");
        assert!(pace.is_due(Filled { free_files: 40, ..filled }, after(1)));
        let nothing_left = Filled { free_bytes: 0, free_files: 0 };
        assert!(!walked(after(60)).is_due(nothing_left, after(1)), "nothing but walks");
    }

    #[test]
    fn limits_cross_as_a_byte() {
        for kind in LimitKind::ALL {
            assert_eq!(LimitKind::ALL.get(usize::from(place(*kind))), Some(kind));
        }
    }
}
