//! Determines the workspace of a run, and its path in the sandbox.

use std::path::{Component, Path, PathBuf};

use avfs_hostfs::stat::HostStat;
use avfs_hostfs::{beneath, overlay, xattr};
use avfs_request::{ExecutionRequest, ForkChoice, Retention};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::ForkName;

use crate::git::repository::CommonDir;
use crate::launcher::UpperRoot;

/// The path in the sandbox of a workspace that is not bound to a directory.
pub const UNBOUND_PATH: &str = "/workspace";

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceRootError {
    #[error("the workspace cannot be mounted at {}: it is not an absolute path below /", path.display())]
    BadPlace { path: PathBuf },
    #[error("the working directory {} is not inside the workspace {}", cwd.display(), workspace.display())]
    CwdOutside { cwd: PathBuf, workspace: PathBuf },
    #[error("{} cannot be the live base of the run: {why}", dir.display())]
    NotLive { dir: PathBuf, why: String },
    #[error("a run from a version, or with a vault that has no directory, has no live base")]
    NothingLive,
    #[error("--apply has no directory to write to: the vault is not bound to one")]
    NoApplyDir,
    #[error("a run cannot work on the fork main of a directory: main has the states of the directory itself")]
    Main,
    #[error("cannot access {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl Diagnose for WorkspaceRootError {
    fn code(&self) -> &'static str {
        match self {
            Self::BadPlace { .. } => "request.bad_place",
            Self::CwdOutside { .. } => "request.cwd_outside",
            Self::NotLive { .. } | Self::NothingLive => "request.no_live_base",
            Self::NoApplyDir => "vault.unbound",
            Self::Main => "request.main",
            Self::Io { .. } => "workspace.io",
        }
    }
}

/// Fails if a run would work on the main fork of a directory. Imports of the directory go there, so the run would not
/// see the directory before the first import, and the next import would revert its changes.
pub fn check_fork(fork: &ForkName, bound: Option<&Path>) -> Result<(), WorkspaceRootError> {
    match bound.is_some() && *fork == ForkName::main() {
        true => Err(WorkspaceRootError::Main),
        false => Ok(()),
    }
}

/// Fails for a request on a fork that no run can work on.
pub fn check_request(request: &ExecutionRequest, bound: Option<&Path>) -> Result<(), WorkspaceRootError> {
    match &request.fork {
        ForkChoice::Persistent { name, .. } => check_fork(name, bound),
        ForkChoice::Ephemeral { .. } => Ok(()),
    }
}

/// The paths of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The directory the vault is bound to.
    pub bound: Option<PathBuf>,
    /// The path of the workspace in the sandbox.
    pub workspace: PathBuf,
    pub cwd: PathBuf,
}

impl Places {
    /// The working directory in the sandbox is the same as outside, if that is in the workspace.
    pub fn find(
        request: &ExecutionRequest,
        bound: Option<PathBuf>,
        cwd_outside: &Path,
    ) -> Result<Self, WorkspaceRootError> {
        if bound.is_none() && request.retention == Retention::Apply {
            return Err(WorkspaceRootError::NoApplyDir);
        }
        let workspace = match (&request.at, &bound) {
            (Some(at), _) => at.clone(),
            (None, Some(bound)) => bound.clone(),
            (None, None) => PathBuf::from(UNBOUND_PATH),
        };
        let plain =
            |path: &Path| path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
        if !plain(&workspace) || workspace == Path::new("/") {
            return Err(WorkspaceRootError::BadPlace { path: workspace });
        }
        let cwd = match &request.cwd {
            Some(cwd) => workspace.join(cwd),
            None => {
                let below = bound.as_ref().and_then(|bound| cwd_outside.strip_prefix(bound).ok());
                workspace.join(below.unwrap_or(Path::new("")))
            }
        };
        let cwd: PathBuf = cwd.components().collect();
        if !plain(&cwd) || !cwd.starts_with(&workspace) {
            return Err(WorkspaceRootError::CwdOutside { cwd, workspace });
        }
        Ok(Self { bound, workspace, cwd })
    }
}

impl Places {
    /// The repository that a command sees because the bound directory is a linked worktree.
    pub fn common_dir(&self) -> Option<CommonDir> {
        CommonDir::of(self.bound.as_deref()?).ok()
    }

    /// The working directory relative to the root of the workspace; `.` for the root itself.
    pub fn cwd_below(&self) -> PathBuf {
        let below = self.cwd.strip_prefix(&self.workspace).unwrap_or(&self.cwd);
        if below.as_os_str().is_empty() { PathBuf::from(".") } else { below.to_owned() }
    }
}

/// The mounts beneath a directory, from mountinfo. Not parsed by the procfs crate, which fails on a mount point
/// that is not UTF-8 and does not decode the kernel's escapes.
pub(crate) fn mounts_beneath(mountinfo: &[u8], dir: &Path) -> impl Iterator<Item = PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let points =
        mountinfo.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let paths = points.map(|point| PathBuf::from(std::ffi::OsString::from_vec(unescape(point))));
    paths.filter(move |path| path != dir && path.starts_with(dir))
}

/// The kernel escapes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let octal = || {
            let digits = std::str::from_utf8(after.get(..3)?).ok()?;
            u8::from_str_radix(digits, 8).ok()
        };
        match (*byte == b'\\').then(octal).flatten() {
            Some(code) => {
                plain.push(code);
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

/// How attributes are stored in the directory whose metadata the upper gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// As set by the user.
    Plain,
    /// As stored by overlayfs.
    Stored,
}

/// The metadata of the root of an upper over `dir`.
pub fn upper_root(
    dir: &Path,
    names: Names,
    whiteouts: Vec<Vec<u8>>,
) -> Result<UpperRoot, WorkspaceRootError> {
    let io = |source| WorkspaceRootError::Io { path: dir.to_owned(), source };
    let fd = beneath::open_root(dir).map_err(io)?;
    let fd = std::os::fd::AsFd::as_fd(&fd);
    let HostStat { mode, mtime, .. } = beneath::fstat(fd).map_err(io)?;
    let mut xattrs = xattr::read(fd).map_err(io)?;
    match names {
        Names::Plain => overlay::escape(&mut xattrs),
        Names::Stored => overlay::without_marks(&mut xattrs),
    }
    Ok(UpperRoot { mode, mtime, xattrs, whiteouts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_beneath_a_directory_are_found() {
        let list = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /home/a\\040b/data rw - ext4 /dev/b rw\n";
        let first = |dir: &Path| mounts_beneath(list, dir).next();
        assert_eq!(first(Path::new("/home/a b")), Some("/home/a b/data".into()));
        assert_eq!(first(Path::new("/home/a")), None);
        // A directory that is itself a mount can be a layer.
        assert_eq!(first(Path::new("/home/a b/data")), None);
    }

    #[test]
    fn attributes_in_the_namespace_of_overlayfs_are_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let fd = beneath::open_root(dir.path()).unwrap();
        let fd = std::os::fd::AsFd::as_fd(&fd);
        let set = [(b"user.overlay.x".to_vec(), b"1".to_vec()), (b"user.y".to_vec(), b"2".to_vec())];
        if xattr::write(fd, &set).is_err() {
            // A file system without user attributes has nothing to escape.
            return;
        }
        let root = upper_root(dir.path(), Names::Plain, Vec::new()).unwrap();
        let names: Vec<_> = root.xattrs.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [&b"user.overlay.overlay.x"[..], b"user.y"]);
        let stored = upper_root(dir.path(), Names::Stored, Vec::new()).unwrap();
        assert_eq!(stored.xattrs.len(), 1);
    }
}
