//! What init does to make the root, one after the other: each a few calls to the kernel.

use std::ffi::CString;

use avfs_engine::Lookup;
use avfs_hostfs::held::FileId;

use crate::sys::MountAttr;

/// One call or a few of them; paths of the view are relative to the new root, which is the working directory.
pub enum Op {
    Mkdir {
        path: CString,
        mode: u32,
    },
    /// An empty file to mount a file on.
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
    /// Read-only what is there already, if it is.
    Seal {
        path: CString,
    },
    Mount {
        kind: CString,
        path: CString,
        options: CString,
        exec: Execution,
    },
    /// A value for a file of the kernel's.
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
    /// One layer alone, read-only.
    Layer {
        path: CString,
    },
    /// Writes to the kernel's setting that no user namespaces may be made in this one.
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
    /// Remounts a file system of ours so that nothing can be made in it.
    SealMount {
        path: CString,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Allowed,
    Refused,
}

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfThere {
    Keep,
    Fail,
}

/// What holds if the kernel's setting cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The filter refuses the calls too.
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
