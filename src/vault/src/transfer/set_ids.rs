//! Setuid and setgid bits of regular files. In a version and inside a run they are plain data; on the host they would
//! run a program with the rights of the user who wrote it. On directories setgid only makes new entries inherit the
//! group, and setuid has no effect.

pub use avfs_hostfs::make::SET_ID_BITS;

use crate::page::Node;

/// Whether written files keep their setuid and setgid bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetIds {
    /// Keep the bits.
    Kept,
    /// Clear the bits.
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

    /// The mode of an existing file with the right content: bits that it already has may stay.
    #[must_use]
    pub const fn mode_of_present(self, mode: u32, present: u32) -> u32 {
        self.mode_of_new(mode) | (mode & present & SET_ID_BITS)
    }

    /// True if a file loses bits.
    #[must_use]
    pub fn strips(self, node: &Node) -> bool {
        match node {
            Node::File(file) => self.mode_of_new(file.mode) != file.mode,
            Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_) => false,
        }
    }
}

/// True if a file of the host has a version's mode, apart from stripped bits.
#[must_use]
pub const fn has_mode(host: u32, version: u32) -> bool {
    host | (version & SET_ID_BITS) == version
}
