//! Files of other users, which a command cannot write if they are the lower layer of its overlay.
//!
//! A sandbox of root maps all users, but its command has no capabilities, so that it may not write their files
//! (EACCES). Any other user can map only itself: the kernel refuses to copy up a file of another user or group
//! (EOVERFLOW), or a file whose ACL names one (EINVAL).

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{fgetxattr, lgetxattr};
use rustix::io::Errno;

const ACCESS_LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// Large enough for nearly every ACL.
const LIST_BYTES_USUAL: usize = 512;
/// More than the largest ACL that a file system stores.
const LIST_BYTES_MAX: usize = 64 << 10;
const LIST_HEAD_BYTES: usize = 4;
const LIST_ENTRY_BYTES: usize = 8;
/// The tags of ACL entries that name a user or a group.
const NAMED_USER: u16 = 0x02;
const NAMED_GROUP: u16 = 0x08;

/// The users and groups whose files a command can write as their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writable {
    All,
    /// The files of root, of any group.
    Root,
    Only {
        user: u32,
        group: u32,
    },
}

impl Writable {
    #[must_use]
    pub fn here() -> Self {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        if user.is_root() {
            return Self::Root;
        }
        Self::Only { user: user.as_raw(), group: group.as_raw() }
    }

    /// True if the owner and the group of a file are among them.
    #[must_use]
    pub fn has(self, owner: u32, owning_group: u32) -> bool {
        match self {
            Self::All => true,
            Self::Root => owner == 0,
            Self::Only { user, group } => (owner, owning_group) == (user, group),
        }
    }

    /// True if an ACL of the file names a user or group that is not among them. An unreadable ACL counts as naming
    /// none.
    #[must_use]
    pub fn lacks_listed(self, file: BorrowedFd<'_>) -> bool {
        self.lacks_one_of(|name, list| fgetxattr(file, name, list))
    }

    /// Like [`Self::lacks_listed`], for a path that is not a symlink.
    #[must_use]
    pub fn lacks_listed_at(self, path: &Path) -> bool {
        self.lacks_one_of(|name, list| lgetxattr(path, name, list))
    }

    fn lacks_one_of(self, read: impl Fn(&str, &mut [u8]) -> rustix::io::Result<usize>) -> bool {
        let Self::Only { user, group } = self else { return false };
        ACCESS_LISTS.iter().any(|name| {
            let mut short = [0; LIST_BYTES_USUAL];
            match read(name, &mut short) {
                Ok(length) => names_another(&short[..length.min(LIST_BYTES_USUAL)], user, group),
                Err(Errno::RANGE) => {
                    let mut list = vec![0; LIST_BYTES_MAX];
                    let length = read(name, &mut list).unwrap_or(0);
                    names_another(&list[..length.min(LIST_BYTES_MAX)], user, group)
                }
                Err(_) => false,
            }
        })
    }
}

fn names_another(list: &[u8], user: u32, group: u32) -> bool {
    let entries = list.get(LIST_HEAD_BYTES..).unwrap_or_default().chunks_exact(LIST_ENTRY_BYTES);
    entries.into_iter().any(|entry| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        match tag {
            NAMED_USER => id != user,
            NAMED_GROUP => id != group,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(6_u16.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn acls_naming_other_users_or_groups_are_detected() {
        const NOBODY: u32 = u32::MAX;
        let plain = [(0x01, NOBODY), (0x04, NOBODY), (0x10, NOBODY), (0x20, NOBODY)];
        assert!(!names_another(&list(&plain), 7, 8));
        assert!(!names_another(&list(&[(NAMED_USER, 7), (NAMED_GROUP, 8)]), 7, 8));
        assert!(names_another(&list(&[(NAMED_USER, 8)]), 7, 8));
        assert!(names_another(&list(&[(NAMED_USER, 7), (NAMED_GROUP, 7)]), 7, 8));
        assert!(!names_another(&[], 7, 8) && !names_another(&[2, 0, 0, 0, 2, 0, 6], 7, 8));
    }

    #[test]
    fn a_file_of_another_group_is_not_writable() {
        let only = Writable::Only { user: 7, group: 8 };
        assert!(only.has(7, 8) && !only.has(7, 9) && !only.has(6, 8));
        assert!(Writable::All.has(1, 2));
        assert!(Writable::Root.has(0, 2) && !Writable::Root.has(1, 0));
    }
}
