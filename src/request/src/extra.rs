//! What a command sees beside the workspace: how much of the host, and what the request adds or hides.

use std::path::{Path, PathBuf};

use avfs_hostfs::held::HeldFile;
use avfs_types::words;

words!(
    /// How much of the host is to be seen.
    Profile, "profile", {
        /// The system and toolchains.
        Strict = "strict",
        /// Everything the caller may read, read-only.
        Host = "host",
    }
);

/// A path of the host that a request names, resolved once: what is judged is what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// As it was named, and as it is seen inside.
    pub path: PathBuf,
    /// The same without symlinks.
    pub real: PathBuf,
    /// What was there when it was resolved.
    pub file: HeldFile,
}

impl HostPath {
    pub fn resolve(path: PathBuf) -> std::io::Result<Self> {
        let real = path.canonicalize()?;
        let file = HeldFile::open(&real)?;
        Ok(Self { path, real, file })
    }
}

/// A change to the view that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extra {
    ReadOnly(HostPath),
    ReadWrite(HostPath),
    /// An empty file system in memory.
    Tmpfs(PathBuf),
    Hide(PathBuf),
    /// A directory that persists between runs, shown at a path inside.
    Cache {
        source: PathBuf,
        path: PathBuf,
    },
}

impl Extra {
    /// The path inside that is not the workspace's any more.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::ReadOnly(HostPath { path, .. }) | Self::ReadWrite(HostPath { path, .. }) => path,
            Self::Tmpfs(path) | Self::Hide(path) | Self::Cache { path, .. } => path,
        }
    }

    /// What is shown there.
    #[must_use]
    pub fn source(&self) -> &Path {
        match self {
            Self::ReadOnly(HostPath { real, .. }) | Self::ReadWrite(HostPath { real, .. }) => real,
            Self::Tmpfs(path) | Self::Hide(path) => path,
            Self::Cache { source, .. } => source,
        }
    }

    /// One word for what it does.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::ReadOnly(_) => "ro",
            Self::ReadWrite(_) => "rw",
            Self::Tmpfs(_) => "tmpfs",
            Self::Hide(_) => "hide",
            Self::Cache { .. } => "cache",
        }
    }

    /// Whether a directory is shown there.
    #[must_use]
    pub fn shows_a_dir(&self) -> bool {
        match self {
            Self::ReadOnly(shown) | Self::ReadWrite(shown) => shown.file.is_dir(),
            Self::Tmpfs(_) | Self::Cache { .. } => true,
            Self::Hide(_) => false,
        }
    }
}
