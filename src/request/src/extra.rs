//! The view of a command outside of the workspace: how much of the host is visible, and what the request adds or hides.

use std::path::{Component, Path, PathBuf};

use avfs_hostfs::held::HeldFile;
use avfs_types::words;

words!(
    /// How much of the host is visible.
    Profile, "profile", {
        /// The system and toolchains.
        Strict = "strict",
        /// Everything the caller can read, read-only.
        Host = "host",
    }
);

/// A host path that a request names, resolved once, so that the policy judges the same file that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPath {
    /// The path as named, without `..`. It is also the path in the sandbox.
    pub path: PathBuf,
    /// The path without symlinks.
    pub real: PathBuf,
    /// The file that was found when the path was resolved.
    pub file: HeldFile,
}

impl HostPath {
    pub fn resolve(path: PathBuf) -> std::io::Result<Self> {
        let real = path.canonicalize()?;
        let file = HeldFile::open(&real)?;
        Ok(Self { path: without_parents(path)?, real, file })
    }
}

/// The path without `..`. Where that leads depends on symlinks, which the sandbox may not have: everything before the
/// last `..` is resolved.
fn without_parents(path: PathBuf) -> std::io::Result<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else { return Ok(path) };
    let (above, below) = parts.split_at(last + 1);
    let above = above.iter().collect::<PathBuf>().canonicalize()?;
    Ok(above.join(below.iter().collect::<PathBuf>()).components().collect())
}

/// A requested change to the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extra {
    ReadOnly(HostPath),
    ReadWrite(HostPath),
    /// An empty tmpfs.
    Tmpfs(PathBuf),
    Hide(PathBuf),
    /// A directory that persists between runs, mounted at `path` in the sandbox.
    Cache {
        source: PathBuf,
        path: PathBuf,
    },
}

impl Extra {
    /// The path in the sandbox that no longer belongs to the workspace.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::ReadOnly(HostPath { path, .. }) | Self::ReadWrite(HostPath { path, .. }) => path,
            Self::Tmpfs(path) | Self::Hide(path) | Self::Cache { path, .. } => path,
        }
    }

    /// The host path that is mounted there.
    #[must_use]
    pub fn source(&self) -> &Path {
        match self {
            Self::ReadOnly(HostPath { real, .. }) | Self::ReadWrite(HostPath { real, .. }) => real,
            Self::Tmpfs(path) | Self::Hide(path) => path,
            Self::Cache { source, .. } => source,
        }
    }

    /// One word for the kind of change.
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

    /// True if a directory is mounted there.
    #[must_use]
    pub fn shows_a_dir(&self) -> bool {
        match self {
            Self::ReadOnly(shown) | Self::ReadWrite(shown) => shown.file.is_dir(),
            Self::Tmpfs(_) | Self::Cache { .. } => true,
            Self::Hide(_) => false,
        }
    }
}
