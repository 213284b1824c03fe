//! Setuid and setgid bits of regular files: plain data in a version and inside a run, but not on the host, where they
//! would run a program with the rights of whoever wrote it. On directories setgid only passes a group on, and setuid
//! does nothing.

pub use avfs_hostfs::make::SET_ID_BITS;

use crate::page::Node;

/// What becomes of the bits of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIds {
    /// They are written.
    Kept,
    /// They are cleared.
    Stripped,
}

impl SetIds {
    /// The mode of a new file.
    #[must_use]
    pub const fn mode_of_new(self, mode: u32) -> u32 {
        match self {
            Self::Kept => mode,
            Self::Stripped => mode & !SET_ID_BITS,
        }
    }

    /// The mode of a file that is there with the right content: bits that it has already may stay.
    #[must_use]
    pub const fn mode_of_present(self, mode: u32, present: u32) -> u32 {
        self.mode_of_new(mode) | (mode & present & SET_ID_BITS)
    }

    /// Whether a file loses bits.
    #[must_use]
    pub fn strips(self, node: &Node) -> bool {
        match node {
            Node::File(file) => self.mode_of_new(file.mode) != file.mode,
            Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_) => false,
        }
    }
}

/// Whether a file of the host has a version's mode, but for bits that were stripped.
#[must_use]
pub const fn has_mode(host: u32, version: u32) -> bool {
    host | (version & SET_ID_BITS) == version
}
