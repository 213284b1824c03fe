//! Owner, group, ACL and other attributes of a file, to be transferred to its replacement.
//!
//! The user's own attributes (`user.`) and the mode are not included: for versions, those are content.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Gid, IFlags, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::beneath::{self, READ};
use crate::xattr::{self, Xattrs};

/// Attributes that the kernel removes when a file is written, or that are checksums of its content.
const OF_CONTENT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];
/// Flags (`chattr`) that can be set on any file.
const FLAGS_KEPT: IFlags = IFlags::NODUMP.union(IFlags::NOATIME).union(IFlags::SYNC);
/// Flags of a file that cannot be replaced.
const FLAGS_FIXED: IFlags = IFlags::IMMUTABLE.union(IFlags::APPEND);

/// The caller's permissions on files of other users.
#[derive(Clone, Debug)]
pub struct Caller {
    user: u32,
    groups: Vec<u32>,
    may_give_away: bool,
    may_adjust_all: bool,
}

impl Caller {
    pub fn now() -> io::Result<Self> {
        let mut groups: Vec<u32> = rustix::process::getgroups()?.iter().map(|group| group.as_raw()).collect();
        groups.push(rustix::process::getegid().as_raw());
        let has = rustix::thread::capabilities(None)?.effective;
        Ok(Self {
            user: rustix::process::geteuid().as_raw(),
            groups,
            may_give_away: has.contains(CapabilitySet::CHOWN),
            may_adjust_all: has.contains(CapabilitySet::FOWNER),
        })
    }

    /// Whether the mode and the times of a file of this owner can be set.
    #[must_use]
    pub fn may_adjust(&self, owner: u32) -> bool {
        owner == self.user || self.may_adjust_all
    }
}

/// An attribute of a file that cannot be transferred to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    Owner,
    Group,
    /// The file is immutable or append-only.
    Fixed,
}

/// The attributes of a file that its replacement must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    owner: u32,
    group: u32,
    xattrs: Xattrs,
    flags: IFlags,
}

impl Ownership {
    /// The attributes of `name` in `dir`.
    pub fn of(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Self> {
        let stat = rustix::fs::statat(dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)?;
        let (mut xattrs, mut flags) = (Xattrs::new(), IFlags::empty());
        if has_attributes(stat.st_mode) {
            let file = beneath::open(dir, name, READ)?;
            xattrs = others(file.as_fd())?;
            flags = flags_of(file.as_fd())?;
        }
        Ok(Self { owner: stat.st_uid, group: stat.st_gid, xattrs, flags })
    }

    /// The attribute that the caller cannot give to a new file; `None` if all of them can be tried.
    #[must_use]
    pub fn unkept(&self, caller: &Caller) -> Option<Unkept> {
        if self.flags.intersects(FLAGS_FIXED) {
            return Some(Unkept::Fixed);
        }
        if caller.may_give_away {
            return None;
        }
        if self.owner != caller.user {
            return Some(Unkept::Owner);
        }
        (!caller.groups.contains(&self.group)).then_some(Unkept::Group)
    }

    /// Sets the attributes on `name` in `dir`, a new file, directory or symlink with this mode.
    pub fn give(&self, dir: BorrowedFd<'_>, name: &[u8], mode: Option<u32>) -> io::Result<()> {
        let shown = OsStr::from_bytes(name);
        let stat = rustix::fs::statat(dir, shown, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_other = (stat.st_uid, stat.st_gid) != (self.owner, self.group);
        if is_other {
            let (user, group) = (Uid::from_raw(self.owner), Gid::from_raw(self.group));
            rustix::fs::chownat(dir, shown, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let Some(mode) = mode.filter(|_| is_other || !self.xattrs.is_empty() || !self.flags.is_empty())
        else {
            return Ok(());
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(dir, shown, flags, Mode::empty())?;
        if has_attributes(stat.st_mode) {
            // Give the owner access for this; the mode is set last in any case.
            crate::make::set_mode(handle.as_fd(), mode & 0o777 | 0o600)?;
            let file = beneath::open(dir, name, READ)?;
            self.give_attributes(file.as_fd())?;
        }
        // Changing the owner clears the setuid and setgid bits, and the mask of an ACL is stored in the mode.
        crate::make::set_mode(handle.as_fd(), mode)
    }

    fn give_attributes(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let there = others(file)?;
        for (name, value) in &self.xattrs {
            if !there.iter().any(|(other, same)| (other, same) == (name, value)) {
                rustix::fs::fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty())?;
            }
        }
        let wanted = self.flags & FLAGS_KEPT;
        let now = flags_of(file)?;
        if now & FLAGS_KEPT != wanted {
            // Keep unnamed bits: without its extent bit, ext4 would convert a file to block maps.
            let all = now.bits() & !FLAGS_KEPT.bits() | wanted.bits();
            rustix::fs::ioctl_setflags(file, IFlags::from_bits_retain(all))?;
        }
        Ok(())
    }
}

const DEFAULT_ACL: &str = "system.posix_acl_default";
const SETGID: u32 = 0o2000;

/// What a new entry of a directory inherits from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// The group of a setgid directory; otherwise the entry gets the group of the process.
    group: Option<u32>,
    default_acl: Option<Vec<u8>>,
}

impl Inheritance {
    /// What entries of `dir` inherit.
    pub fn of(dir: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = rustix::fs::fstat(dir)?;
        let group = (stat.st_mode & SETGID != 0).then_some(stat.st_gid);
        let default_acl = match xattr::value(dir, DEFAULT_ACL.as_bytes()) {
            Ok(value) => value.filter(|value| !value.is_empty()),
            Err(error) if has_no_acls(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { group, default_acl })
    }

    /// Whether [`Inheritance::give`] can succeed: a user cannot give a directory to a group of others.
    #[must_use]
    pub fn can_be_given(&self, caller: &Caller) -> bool {
        self.group.is_none_or(|group| caller.may_give_away || caller.groups.contains(&group))
    }

    /// Makes new entries of `dir`, an empty directory of the caller, inherit this.
    pub fn give(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        if *self == Self::of(dir)? {
            return Ok(());
        }
        match &self.default_acl {
            Some(acl) => rustix::fs::fsetxattr(dir, DEFAULT_ACL, acl, XattrFlags::empty())?,
            None => match rustix::fs::fremovexattr(dir, DEFAULT_ACL) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno.into()),
            },
        }
        let group = self.group.map_or_else(rustix::process::getegid, Gid::from_raw);
        rustix::fs::fchown(dir, None, Some(group))?;
        let setgid = if self.group.is_some() { SETGID } else { 0 };
        rustix::fs::fchmod(dir, Mode::from_raw_mode(0o700 | setgid))?;
        // The kernel drops the bit silently if the process is not in the group.
        if *self == Self::of(dir)? { Ok(()) } else { Err(Errno::PERM.into()) }
    }
}

/// Whether a file of this mode can have more than an owner and a group: the flags of other files cannot be read.
fn has_attributes(mode: u32) -> bool {
    matches!(FileType::from_raw_mode(mode), FileType::RegularFile | FileType::Directory)
}

fn has_no_acls(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}

/// Attributes outside the user namespace, sorted by name.
fn others(file: BorrowedFd<'_>) -> io::Result<Xattrs> {
    let mut names = Vec::new();
    xattr::read_noting(file, |name| names.push(name.to_vec()))?;
    names.retain(|name| !OF_CONTENT.contains(&name.as_slice()));
    names.sort();
    let mut found = Xattrs::new();
    for name in names {
        if let Some(value) = xattr::value(file, &name)? {
            found.push((name, value));
        }
    }
    Ok(found)
}

/// The flags of a file; empty if the file system does not support them.
fn flags_of(file: BorrowedFd<'_>) -> io::Result<IFlags> {
    match rustix::fs::ioctl_getflags(file) {
        Ok(flags) => Ok(flags),
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(IFlags::empty()),
        Err(errno) => Err(errno.into()),
    }
}
