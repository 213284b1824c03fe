//! The identity of a file that stays the same when its disk gets another device number: at a reboot, when a container
//! restarts, or when an image is mounted again.
//!
//! A file system can reuse the inode of a deleted file: the birth time distinguishes the two. Inode and birth together
//! are unique within a file system, which is identified by its device number or by its own id.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fstat, fstatfs, fstatvfs, statx};

use crate::sys;

/// The file systems that are known to keep ids across mounts, by the magic numbers of statfs(2). In others, such as
/// those of the network and of FUSE, a server could choose every property of a file.
const LOCAL: [u32; 7] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x794c_7630, // overlay
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs
    0x2fc1_2fc1, // ZFS
];

/// The id of a file system, independent of its device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemId {
    /// `f_fsid` of statfs(2).
    Fsid(u64),
    /// The UUID, where `f_fsid` is only the device number.
    Uuid([u8; 16]),
}

impl Display for FileSystemId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fsid(id) => write!(f, "fsid:{id:016x}"),
            Self::Uuid(id) => write!(f, "uuid:{:032x}", u128::from_be_bytes(*id)),
        }
    }
}

impl FileSystemId {
    fn parse(text: &str) -> Option<Self> {
        let (kind, digits) = text.split_once(':')?;
        match (kind, digits.len()) {
            ("fsid", 16) => Some(Self::Fsid(u64::from_str_radix(digits, 16).ok()?)),
            ("uuid", 32) => Some(Self::Uuid(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())),
            _ => None,
        }
    }
}

/// The identity of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    /// Nanoseconds since 1970; 0 if the file system does not record it.
    pub birth: u128,
    /// `None` if the file system has no id that can be relied on.
    pub file_system: Option<FileSystemId>,
}

impl FileIdentity {
    /// The identity of the file at `path`; the last component is not followed.
    pub fn of(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        let born = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok();
        let born = born.filter(|it| StatxFlags::from_bits_retain(it.stx_mask).contains(StatxFlags::BTIME));
        let birth = born.and_then(|it| {
            let seconds = u128::try_from(it.stx_btime.tv_sec).ok()?;
            Some(seconds * 1_000_000_000 + u128::from(it.stx_btime.tv_nsec))
        });
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let dir = || open_dir(&file, is_dir, path, stat.st_dev);
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            birth: birth.unwrap_or(0),
            file_system: file_system(&file, stat.st_dev, dir),
        })
    }

    /// Whether a file found now is the one that was recorded as `self`.
    #[must_use]
    pub fn is_of(&self, found: &Self) -> bool {
        let same_id = self.birth != 0 && self.file_system.is_some() && self.file_system == found.file_system;
        (self.inode, self.birth) == (found.inode, found.birth) && (self.device == found.device || same_id)
    }

    /// Reads the words that [`Display`] writes.
    pub fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let (device, inode) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let birth = words.next()?.parse().ok()?;
        let file_system = match words.next()? {
            "-" => None,
            text => Some(FileSystemId::parse(text)?),
        };
        Some(Self { device, inode, birth, file_system })
    }
}

/// Four words: device, inode, birth, and the id of the file system or `-`.
impl Display for FileIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { device, inode, birth, file_system } = self;
        write!(f, "{device} {inode} {birth} ")?;
        match file_system {
            Some(id) => write!(f, "{id}"),
            None => f.write_str("-"),
        }
    }
}

fn file_system(
    file: &OwnedFd,
    device: u64,
    dir: impl FnOnce() -> io::Result<OwnedFd>,
) -> Option<FileSystemId> {
    let magic = u32::try_from(fstatfs(file).ok()?.f_type & 0xffff_ffff).ok()?;
    if !LOCAL.contains(&magic) {
        return None;
    }
    let fsid = fstatvfs(file).ok()?.f_fsid;
    if fsid != 0 && fsid != encoded(device) {
        return Some(FileSystemId::Fsid(fsid));
    }
    Some(FileSystemId::Uuid(sys::fs_uuid(dir().ok()?.as_fd()).ok()?))
}

/// The device number as the kernel encodes it in `f_fsid` of file systems without another id, such as XFS.
fn encoded(device: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    u64::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

/// A directory of the same file system that can be read: the file itself, or the one that contains it. A vault file is
/// not opened: closing it would release the locks of this process on it.
fn open_dir(file: &OwnedFd, is_dir: bool, path: &Path, device: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match is_dir {
        true => rustix::fs::openat(file, ".", flags, Mode::empty())?,
        false => rustix::fs::openat(CWD, path.parent().unwrap_or(Path::new("/")), flags, Mode::empty())?,
    };
    match fstat(&dir)?.st_dev == device {
        true => Ok(dir),
        false => Err(io::ErrorKind::CrossesDevices.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: FileIdentity =
        FileIdentity { device: 7, inode: 12, birth: 99, file_system: Some(FileSystemId::Fsid(0xabc)) };

    #[test]
    fn device_or_file_system_must_agree() {
        let found = RECORDED;
        assert!(RECORDED.is_of(&found));
        assert!(RECORDED.is_of(&FileIdentity { device: 8, ..found }));
        assert!(RECORDED.is_of(&FileIdentity { file_system: Some(FileSystemId::Fsid(1)), ..found }));
        assert!(RECORDED.is_of(&FileIdentity { file_system: None, ..found }));
        for other in [
            FileIdentity { inode: 13, ..found },
            FileIdentity { birth: 98, ..found },
            FileIdentity { birth: 0, ..found },
            FileIdentity { device: 8, file_system: Some(FileSystemId::Fsid(1)), ..found },
            FileIdentity { device: 8, file_system: None, ..found },
        ] {
            assert!(!RECORDED.is_of(&other), "{other:?}");
        }
    }

    #[test]
    fn without_birth_or_id_the_device_must_agree() {
        let no_birth = FileIdentity { birth: 0, ..RECORDED };
        assert!(no_birth.is_of(&no_birth));
        assert!(!no_birth.is_of(&FileIdentity { device: 8, ..no_birth }));
        let no_id = FileIdentity { file_system: None, ..RECORDED };
        assert!(no_id.is_of(&no_id));
        assert!(!no_id.is_of(&FileIdentity { device: 8, ..no_id }));
    }

    #[test]
    fn written_words_read_back_unchanged() {
        let uuid = Some(FileSystemId::Uuid([0x1f; 16]));
        for identity in [
            RECORDED,
            FileIdentity { file_system: None, ..RECORDED },
            FileIdentity { file_system: uuid, inode: u64::MAX, ..RECORDED },
        ] {
            let text = identity.to_string();
            assert_eq!(FileIdentity::parse(&mut text.split(' ')), Some(identity));
        }
        assert_eq!(FileIdentity::parse(&mut "1 2 3 fsid:12".split(' ')), None);
        assert_eq!(FileIdentity::parse(&mut "1 2 3".split(' ')), None);
    }

    #[test]
    fn ids_of_file_systems_are_those_of_the_kernel() {
        // As XFS reports the device 8:1, and 259:300, in `f_fsid`.
        assert_eq!(encoded(rustix::fs::makedev(8, 1)), 0x801);
        assert_eq!(encoded(rustix::fs::makedev(259, 300)), 0x11_032c);
        let uuid = |path: &Path| sys::fs_uuid(crate::beneath::open_root(path).unwrap().as_fd()).ok();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("below")).unwrap();
        assert_eq!(uuid(dir.path()), uuid(&dir.path().join("below")));
        assert_eq!(uuid(Path::new("/proc")), None);
    }

    #[test]
    fn identity_is_of_the_link_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let identity = FileIdentity::of(&file).unwrap();
        assert_eq!(FileIdentity::of(&file).unwrap(), identity);
        assert!(!identity.is_of(&FileIdentity::of(&link).unwrap()));
        assert_eq!(FileIdentity::of(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
