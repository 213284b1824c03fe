//! How overlayfs marks things in its layers where it is mounted without privileges (`userxattr`).
//!
//! Its own attributes begin with `user.overlay.`; a user's attribute of such a name has one `overlay.` more
//! on the disk. A name that is gone is a character device 0:0, which any user may make.

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

/// Whether a directory of a layer shows what the layers beneath have under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    Beneath,
    /// It is opaque: only itself.
    Itself,
}

/// Takes overlayfs's own marks away, which are of the layer they are on; a user's attributes stay as they are held.
pub fn without_marks(xattrs: &mut Xattrs) {
    xattrs.retain(|(name, _)| !name.starts_with(PREFIX) || name.starts_with(ESCAPED));
}

/// Attributes as a layer has to hold them for overlayfs to show them as they are.
pub fn escape(xattrs: &mut Xattrs) {
    for (name, _) in xattrs {
        if let Some(rest) = name.strip_prefix(PREFIX) {
            *name = [ESCAPED, rest].concat();
        }
    }
}

/// What a user sees of the attributes in a layer, and whether the directory is opaque.
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

/// True if something was copied up into this directory, or moved there after that.
#[must_use]
pub fn holds_copies(dir: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    fgetxattr(dir, OsStr::from_bytes(IMPURE), &mut value[..]) == Ok(1) && value == *b"y"
}

/// True if this directory of a layer hides what the layers beneath have under its name.
#[must_use]
pub fn is_opaque(dir: BorrowedFd<'_>) -> bool {
    let mut value = [0; 1];
    fgetxattr(dir, OsStr::from_bytes(OPAQUE), &mut value[..]) == Ok(1) && value == *b"y"
}

/// Marks that `name` is gone, whatever the layers beneath have there.
pub fn whiteout(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(mknodat(dir, OsStr::from_bytes(name), FileType::CharacterDevice, Mode::empty(), 0)?)
}

/// Makes a directory hide what the layers beneath have under its name.
pub fn make_opaque(dir: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fsetxattr(dir, OsStr::from_bytes(OPAQUE), b"y", XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_attributes_survive_a_layer_and_overlayfs_own_do_not() {
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
