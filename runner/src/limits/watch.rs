//! A thread that watches resources for which the kernel enforces no limit, and reports when a limit is exceeded.
//!
//! It never stops a process itself: the supervisor does. The longer a check takes, the less often it is done, so that
//! watching costs about a twentieth of one processor.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstatvfs;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use avfs_request::LimitKind;
use avfs_types::pause;

use super::footprint::{Enough, Footprint, is_there, measure};
use super::processes::{Processes, device};

/// The interval between checks of the memory.
const MEMORY_PERIOD: Duration = Duration::from_millis(50);
/// The maximum interval, for any number of processes: a fork bomb does not need longer.
const MEMORY_PERIOD_MAX: Duration = Duration::from_millis(500);
/// A limit exceeded only for a moment (two processes that share everything until one of them execs) does not stop the
/// command.
const MEMORY_CONFIRMED_AFTER: Duration = Duration::from_millis(10);
/// The interval between checks of the free disk space, which show when a walk is due.
const DISK_PERIOD: Duration = Duration::from_millis(100);
const DISK_PERIOD_MAX: Duration = Duration::from_secs(5);
/// The interval between walks if the free disk space has not changed: some file systems report writes only later, and
/// btrfs never reports the number of files.
const DISK_STILL_PERIOD: Duration = Duration::from_secs(2);
const DISK_STILL_PERIOD_MAX: Duration = Duration::from_secs(60);
/// The minimum interval between checks, as a multiple of the time that a check takes.
const COST_SHARE: u32 = 20;
/// The same while the disk is filling up.
const COST_SHARE_URGENT: u32 = 2;

/// The watched resources.
pub struct Looks {
    pub memory: Option<u64>,
    pub disk: Option<DiskLook>,
    /// `None` if they cannot be inspected.
    pub processes: Option<Processes>,
}

/// A directory tree that must not grow beyond its limits.
pub struct DiskLook {
    pub root: OwnedFd,
    pub bytes: Option<u64>,
    pub files: Option<u64>,
    /// The usage before the command.
    pub before: Footprint,
    /// The paths beneath the root that only the sandbox's own mounts create, if at all.
    pub mounted_later: BTreeSet<PathBuf>,
    /// The free disk space before the command.
    pub filled: Filled,
}

/// A running watch.
pub struct Watch {
    ours: OwnedFd,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Looks>,
}

impl Watch {
    /// `beyond` is called when a limit is exceeded.
    pub fn start(looks: Looks, beyond: impl FnOnce(LimitKind) + Send + 'static) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let watching = move || {
            let mut watcher = Watcher::new(looks, &stopping);
            if let Some(kind) = watcher.until_beyond(theirs.as_fd()) {
                beyond(kind);
                // If the supervisor no longer listens, the command is gone.
                let _ = rustix::net::send(&theirs, &[place(kind)], SendFlags::NOSIGNAL);
            }
            watcher.looks
        };
        let thread = std::thread::Builder::new().name("limits".to_owned()).spawn(watching)?;
        Ok(Self { ours, stop, thread })
    }

    /// Readable once a limit is exceeded.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// The exceeded limit.
    #[must_use]
    pub fn exceeded(&self) -> Option<LimitKind> {
        let mut byte = [0];
        match rustix::net::recv(&self.ours, &mut byte, rustix::net::RecvFlags::empty()) {
            Ok((1, _)) => LimitKind::ALL.get(usize::from(byte[0])).copied(),
            Ok(_) | Err(_) => None,
        }
    }

    /// Ends the watch and returns its resources.
    #[must_use]
    pub fn finish(self) -> Option<Looks> {
        let Self { ours, stop, thread } = self;
        stop.store(true, Ordering::Relaxed);
        drop(ours);
        thread.join().ok()
    }
}

/// A limit, encoded as a byte.
fn place(kind: LimitKind) -> u8 {
    let at = LimitKind::ALL.iter().position(|it| *it == kind);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

impl Looks {
    /// The disk limit that is exceeded after all processes have ended: a short command may end before the first
    /// check.
    #[must_use]
    pub fn exceeded_in_the_end(&self) -> Option<LimitKind> {
        let disk = self.disk.as_ref()?;
        let filled = Filled::look(disk.root.as_fd());
        disk.beyond(disk.estimate(filled, &AtomicBool::new(false))?, 0)
    }
}

struct Watcher<'a> {
    looks: Looks,
    stop: &'a AtomicBool,
    memory_at: Instant,
    disk_at: Instant,
    pace: DiskPace,
}

/// Decides when to walk next.
struct DiskPace {
    /// The free disk space at the last walk.
    filled: Filled,
    /// The remaining room as of the last walk.
    room_bytes: u64,
    room_files: u64,
    walked_at: Instant,
    cost: Duration,
}

/// The free space of a file system: cheap to read, but it covers all users of the file system.
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
        // More free space than any disk has, so that the first check is a walk.
        let filled = Filled { free_bytes: u64::MAX, free_files: u64::MAX };
        let pace = DiskPace { filled, room_bytes: 0, room_files: 0, walked_at: now, cost: Duration::ZERO };
        Self { looks, stop, memory_at: now + MEMORY_PERIOD, disk_at: now + DISK_PERIOD, pace }
    }

    /// Checks repeatedly; `None` once the supervisor has hung up.
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
        // Pages of nameless files in memory belong to no process until one maps them.
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
        let found = disk.estimate(filled, stop)?;
        let device = device(disk.root.as_fd());
        let nameless = looks.processes.as_ref().map_or(0, |seen| seen.nameless(device).disk_bytes);
        let beyond = disk.beyond(found, nameless);
        pace.walked(disk, found, nameless, filled, begun.elapsed());
        beyond
    }
}

impl DiskPace {
    /// Whether to walk now, given the time since the last walk.
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
    /// Counts the mount points that exist now as those from before the command. It cannot remove them.
    #[must_use]
    pub fn with_mount_points(mut self) -> Self {
        let made = self.mounted_later.iter().filter(|path| is_there(&self.root, path)).count();
        self.before.files = self.before.files.saturating_add(u64::try_from(made).unwrap_or(u64::MAX));
        self
    }

    /// Walks the tree until it is clear whether it is too large.
    fn footprint(&self, stop: &AtomicBool) -> Option<Footprint> {
        let enough = |limit: Option<u64>, before: u64| limit.map_or(u64::MAX, |it| it.saturating_add(before));
        let enough = Enough {
            bytes: enough(self.bytes, self.before.bytes),
            files: enough(self.files, self.before.files),
        };
        measure(&self.root, enough, stop)
    }

    /// Walks the tree, and counts the content of directories that cannot be read as the space that the whole disk has
    /// lost since, which is at least as much.
    fn estimate(&self, filled: Filled, stop: &AtomicBool) -> Option<Footprint> {
        let mut found = self.footprint(stop)?;
        if found.closed > 0 {
            let lost = |before: u64, now: u64| before.saturating_sub(now);
            let bytes = lost(self.filled.free_bytes, filled.free_bytes).saturating_add(self.before.bytes);
            let files = lost(self.filled.free_files, filled.free_files).saturating_add(self.before.files);
            found.bytes = found.bytes.max(bytes);
            found.files = found.files.max(files);
        }
        Some(found)
    }

    fn grown(&self, found: Footprint) -> Footprint {
        Footprint {
            bytes: found.bytes.saturating_sub(self.before.bytes),
            files: found.files.saturating_sub(self.before.files),
            closed: found.closed,
        }
    }

    /// The exceeded limit, with `nameless` bytes in addition to those found by the walk.
    fn beyond(&self, found: Footprint, nameless: u64) -> Option<LimitKind> {
        let grown = self.grown(found);
        if self.bytes.is_some_and(|limit| grown.bytes.saturating_add(nameless) > limit) {
            return Some(LimitKind::Disk);
        }
        self.files.is_some_and(|limit| grown.files > limit).then_some(LimitKind::Files)
    }
}

/// Waits until `moment`; returns true as soon as the supervisor has hung up.
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
        DiskLook { root, bytes, files, before: Footprint::default(), mounted_later: BTreeSet::new(), filled }
    }

    /// Waits for the watch to report.
    fn exceeded(watch: &Watch) -> Option<LimitKind> {
        poll(&mut [PollFd::new(&watch.ours, PollFlags::IN)], None).unwrap();
        watch.exceeded()
    }

    #[test]
    fn a_tree_that_grows_too_large_is_reported() {
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
        let watch = Watch::start(looks(), drop).unwrap();
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
    fn excessive_memory_is_reported() {
        let looks = || {
            let proc = beneath::open_root(std::path::Path::new("/proc")).unwrap();
            Looks { memory: Some(4096), disk: None, processes: Some(Processes::new(proc)) }
        };
        assert!(!Watcher::new(looks(), &AtomicBool::new(false)).is_beyond_memory(1 << 50));
        let watch = Watch::start(looks(), drop).unwrap();
        assert_eq!(exceeded(&watch), Some(LimitKind::Memory));
    }

    #[test]
    fn a_walk_is_due_after_writes_and_sooner_with_less_room() {
        let filled = Filled { free_bytes: 1000, free_files: 100 };
        let after = Duration::from_secs;
        let walked =
            |cost| DiskPace { filled, room_bytes: 500, room_files: 50, walked_at: Instant::now(), cost };
        let pace = walked(Duration::ZERO);
        assert!(!pace.is_due(filled, after(1)), "nothing was written");
        assert!(pace.is_due(filled, after(3)), "no walk on a file system that reports nothing");
        assert!(!walked(after(1)).is_due(filled, after(3)));
        assert!(walked(after(60)).is_due(filled, after(61)), "the interval is unbounded");
        assert!(pace.is_due(Filled { free_bytes: 999, ..filled }, after(1)));
        let pace = walked(Duration::from_millis(300));
        assert!(
            !pace.is_due(Filled { free_bytes: 999, ..filled }, after(1)),
            "a slow walk is repeated too soon"
        );
        assert!(pace.is_due(Filled { free_bytes: 400, ..filled }, after(1)), "the limit may be reached");
        assert!(pace.is_due(Filled { free_files: 40, ..filled }, after(1)));
        let nothing_left = Filled { free_bytes: 0, free_files: 0 };
        assert!(!walked(after(60)).is_due(nothing_left, after(1)), "walks take all the time");
    }

    #[test]
    fn limits_are_encoded_as_a_byte() {
        for kind in LimitKind::ALL {
            assert_eq!(LimitKind::ALL.get(usize::from(place(*kind))), Some(kind));
        }
    }
}
