//! File metadata from the kernel, reduced to the fields that a vault stores or compares.

use rustix::fs::{FileType, Stat, Timespec};

use avfs_types::clock::FileTime;

/// The coarse clock that the kernel uses for file times. It moves in steps: files written from now on have this
/// time or a later one. Before Linux 6.13, files written before have this time or an earlier one.
#[must_use]
pub fn file_clock() -> FileTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    FileTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The precise clock: no file time is later, unless the clock was set back since.
#[must_use]
pub fn wall_clock() -> FileTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    FileTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The time in the form used by system calls.
#[must_use]
pub fn timespec(time: FileTime) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanos) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostKind {
    File,
    Dir,
    Symlink,
    Fifo,
    /// A character device 0:0: the mark of overlayfs in an upper for a deleted name. Anywhere else it is an
    /// ordinary device node.
    Whiteout,
    /// A socket or a device node, which a vault cannot store.
    Special(&'static str),
}

/// The fields by which a changed file is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStat {
    pub kind: HostKind,
    /// Permission bits including setuid, setgid and sticky.
    pub mode: u32,
    pub size: u64,
    pub mtime: FileTime,
    pub ctime: FileTime,
    pub atime: FileTime,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub owner: u32,
    pub group: u32,
}

impl HostStat {
    #[must_use]
    pub fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => HostKind::File,
            FileType::Directory => HostKind::Dir,
            FileType::Symlink => HostKind::Symlink,
            FileType::Fifo => HostKind::Fifo,
            FileType::Socket => HostKind::Special("socket"),
            FileType::CharacterDevice if stat.st_rdev == 0 => HostKind::Whiteout,
            FileType::CharacterDevice => HostKind::Special("character device"),
            FileType::BlockDevice => HostKind::Special("block device"),
            FileType::Unknown => HostKind::Special("file of unknown kind"),
        };
        #[allow(
            clippy::unnecessary_cast,
            clippy::allow_attributes,
            reason = "field widths differ between targets"
        )]
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: file_time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            ctime: file_time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            atime: file_time(stat.st_atime as i64, stat.st_atime_nsec as u64),
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            links: stat.st_nlink as u64,
            owner: stat.st_uid,
            group: stat.st_gid,
        }
    }

    /// True if the file was not written between two calls of stat.
    #[must_use]
    pub fn same_state(&self, later: &Self) -> bool {
        self.size == later.size && self.mtime == later.mtime && self.ctime == later.ctime
    }
}

fn file_time(seconds: i64, nanos: u64) -> FileTime {
    FileTime { seconds, nanos: u32::try_from(nanos).unwrap_or(0) }
}
