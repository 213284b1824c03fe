//! What the kernel says of a file, reduced to what a vault keeps or compares.

use rustix::fs::{FileType, Stat, Timespec};

use avfs_types::clock::FileTime;

/// The time by the clock that the kernel stamps files with. It moves in steps: what is written from now on has this stamp
/// or a later one, and what was written before has this one or an earlier one.
#[must_use]
pub fn file_clock() -> FileTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    FileTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The time by the precise clock: no stamp of a file is later, unless the clock was set back since.
#[must_use]
pub fn wall_clock() -> FileTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    FileTime { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The time as system calls take it.
#[must_use]
pub fn timespec(time: FileTime) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanos) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    File,
    Dir,
    Symlink,
    Fifo,
    /// A character device 0:0: how overlayfs says in an upper that a name is gone. Anywhere else it is a
    /// device node like any other.
    Whiteout,
    /// A socket or a device node: nothing a vault can keep.
    Special(&'static str),
}

/// The fields by which a change of a file is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStat {
    pub kind: HostKind,
    /// Permission bits with setuid, setgid and sticky.
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

    /// True when nothing about the file was written between two looks.
    #[must_use]
    pub fn same_state(&self, later: &Self) -> bool {
        self.size == later.size && self.mtime == later.mtime && self.ctime == later.ctime
    }
}

fn file_time(seconds: i64, nanos: u64) -> FileTime {
    FileTime { seconds, nanos: u32::try_from(nanos).unwrap_or(0) }
}
