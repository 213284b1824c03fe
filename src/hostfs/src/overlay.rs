//! The marks of overlayfs in its layers when it is mounted without privileges (`userxattr`).
//!
//! Its own attributes begin with `user.overlay.`; a user's attribute with such a name is stored with an additional
//! `overlay.`. A deleted name is a character device 0:0, which any user may create.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, XattrFlags, fgetxattr, fsetxattr, mknodat};

use crate::xattr::Xattrs;

const PREFIX: &[u8] = b"user.overlay.";
const ESCAPED: &[u8] = b"user.overlay.overlay.";
const IMPURE: &[u8] = b"user.overlay.impure";
const OPAQUE: &[u8] = b"user.overlay.opaque";

/// Whether a directory of a layer shows the directories of the same name in lower layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    Beneath,
    /// The directory is opaque: it shows only its own entries.
    Itself,
}

/// Removes overlayfs's own marks, which belong to the layer they are on; a user's attributes keep their stored
/// names.
pub fn without_marks(xattrs: &mut Xattrs) {
    xattrs.retain(|(name, _)| !name.starts_with(PREFIX) || name.starts_with(ESCAPED));
}

/// Escapes attributes for storing them in a layer, so that overlayfs shows the original names.
pub fn escape(xattrs: &mut Xattrs) {
    for (name, _) in xattrs {
        if let Some(rest) = name.strip_prefix(PREFIX) {
            *name = [ESCAPED, rest].concat();
        }
    }
}

/// The attributes in a layer as shown to a user, and whether the directory is opaque.
#[must_use]
pub fn unescape(xattrs: Xattrs) -> (Xattrs, Shows) {
    let mut shows = Shows::Beneath;
    let mut seen = Xattrs::new();
    for (name, value) in xattrs {
        if let Some(rest) = name.strip_prefix(ESCAPED) {
            seen.push(([PREFIX, rest].concat(), value));
        } else if !name.starts_with(PREFIX) {
            seen.push((name, value));
        } else if name == OPAQUE && value == b"y" {
            shows = Shows::Itself;
        }
    }
    (seen, shows)
}

/// True if a file was copied up into this directory, or moved there afterwards.
#[must_use]
pub fn holds_copies(dir: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    fgetxattr(dir, OsStr::from_bytes(IMPURE), &mut value[..]) == Ok(1) && value == *b"y"
}

/// True if this directory of a layer hides the directories of the same name in lower layers.
#[must_use]
pub fn is_opaque(dir: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    fgetxattr(dir, OsStr::from_bytes(OPAQUE), &mut value[..]) == Ok(1) && value == *b"y"
}

/// Marks `name` as deleted, hiding any file of that name in lower layers.
pub fn whiteout(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(mknodat(dir, OsStr::from_bytes(name), FileType::CharacterDevice, Mode::empty(), 0)?)
}

/// Makes a directory hide the directories of the same name in lower layers.
pub fn make_opaque(dir: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fsetxattr(dir, OsStr::from_bytes(OPAQUE), b"y", XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_keeps_user_attributes_and_drops_overlayfs_marks() {
        let pair = |name: &str| (name.as_bytes().to_vec(), b"y".to_vec());
        let users: Xattrs =
            ["user.a", "user.overlay.opaque", "user.overlay.overlay.x", "user.z"].map(pair).to_vec();
        let mut held = users.clone();
        escape(&mut held);
        assert_eq!(held[1].0, b"user.overlay.overlay.opaque");
        assert!(held.is_sorted());
        assert_eq!(unescape(held.clone()), (users.clone(), Shows::Beneath));
        held.extend(["user.overlay.impure", "user.overlay.opaque", "user.overlay.origin"].map(pair));
        assert_eq!(unescape(held), (users, Shows::Itself));
        let not_opaque = vec![(OPAQUE.to_vec(), b"x".to_vec())];
        assert_eq!(unescape(not_opaque), (Xattrs::new(), Shows::Beneath));
    }

    #[test]
    fn a_whiteout_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let root = super::super::beneath::open_root(dir.path()).unwrap();
        whiteout(std::os::fd::AsFd::as_fd(&root), b"gone").unwrap();
        let stat = super::super::beneath::stat(std::os::fd::AsFd::as_fd(&root), b"gone").unwrap();
        assert_eq!(stat.kind, super::super::stat::HostKind::Whiteout);
    }
}
