//! The operations with which init sets up the root, in order: each is a few system calls.

use std::ffi::CString;

use avfs_engine::Lookup;
use avfs_hostfs::held::FileId;

use crate::sys::MountAttr;

/// An operation. Paths of the view are relative to the new root, which is the working directory.
pub enum Op {
    Mkdir {
        path: CString,
        mode: u32,
    },
    /// An empty file as a mount point for a file.
    Touch {
        path: CString,
    },
    Symlink {
        path: CString,
        target: CString,
    },
    Bind {
        source: CString,
        path: CString,
        attr: MountAttr,
        lookup: Lookup,
    },
    /// Makes an existing path read-only.
    Seal {
        path: CString,
    },
    /// Mounts an existing path over itself.
    Pin {
        path: CString,
    },
    Mount {
        kind: CString,
        path: CString,
        options: CString,
        exec: Execution,
    },
    /// A value for a kernel parameter.
    Set {
        path: CString,
        value: CString,
    },
    /// The overlay of the layers that were opened before.
    Overlay {
        path: CString,
    },
    /// A directory of the host through a read-only overlay.
    Overlaid {
        source: CString,
        path: CString,
        file: FileId,
    },
    /// A single layer, read-only.
    Layer {
        path: CString,
    },
    /// Sets the kernel parameter that forbids user namespaces in this one.
    NoUserNamespaces {
        path: CString,
        otherwise: Otherwise,
    },
    Hide {
        path: CString,
    },
    MountPoint {
        path: CString,
    },
    /// A file with this content.
    File {
        path: CString,
        bytes: Vec<u8>,
        mode: u32,
        if_there: IfThere,
    },
    /// Remounts one of our file systems read-only.
    SealMount {
        path: CString,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Allowed,
    Refused,
}

/// What to do if the file already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfThere {
    Keep,
    Fail,
}

/// The fallback if the kernel parameter cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The filter also refuses the calls.
    Filtered,
    Allowed,
}

/// The layers of the workspace.
pub struct Layers {
    /// Topmost first.
    pub lowers: Vec<CString>,
    pub upper: Upper,
}

pub enum Upper {
    None,
    Disk { upper: CString, work: CString },
    Memory { at: CString, options: CString, root: UpperFace },
}

impl Upper {
    #[must_use]
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }
}

/// [`avfs_engine::UpperRoot`] as C strings.
pub struct UpperFace {
    pub mode: u32,
    pub mtime: (i64, u32),
    pub xattrs: Vec<(CString, Vec<u8>)>,
    pub whiteouts: Vec<CString>,
}
