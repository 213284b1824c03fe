//! The files under a run: the directory itself, or a version as layers or as a copy.

use std::path::{Path, PathBuf};

use avfs_hostfs::foreign::Writable;
use avfs_request::{BackendChoice, BaseChoice, CacheMode, ExecutionRequest, ForkChoice};
use avfs_types::ids::TreeId;
use avfs_vault::capture::UpperKind;
use avfs_vault::layers::{Made, Stack};

use super::workspace_root::{Places, WorkspaceRootError, mounts_beneath};
use crate::run::{Backend, BaseUsed, Before};

/// The base of a run.
pub(crate) enum RunBase {
    /// The directory itself; its version is created while the command runs.
    Live(PathBuf),
    /// The directory itself; the paths that the command touched are imported after the command has ended.
    Touched(PathBuf),
    /// Layers of a version. The lowest can be the directory, if its version is near to that one.
    Stacked { stack: Stack, version: Before },
    /// A copy of a version in the scratch, which the command changes in place.
    Copied { version: Before },
}

impl RunBase {
    /// The directory itself as the base; `None` for a request that starts from a version.
    pub fn of_dir(request: &ExecutionRequest, lower: Option<PathBuf>) -> Option<Self> {
        let dir = lower.filter(|_| matches!(request.fork, ForkChoice::Ephemeral { from: None }))?;
        Some(match request.base {
            BaseChoice::Touched => Self::Touched(dir),
            BaseChoice::Auto | BaseChoice::Live | BaseChoice::Cached => Self::Live(dir),
        })
    }

    /// The version that is known before the command runs.
    pub fn version(&self) -> Option<Before> {
        match self {
            Self::Live(_) | Self::Touched(_) => None,
            Self::Stacked { version, .. } | Self::Copied { version } => Some(*version),
        }
    }

    /// The directory that is a lower layer, and its tree as far as the run knows it.
    pub fn host<'b>(&'b self, before: &'b Before) -> Option<(&'b Path, &'b TreeId)> {
        match self {
            Self::Live(dir) | Self::Touched(dir) => Some((dir, &before.root.tree)),
            Self::Stacked { stack, .. } => stack.host_dir(),
            Self::Copied { .. } => None,
        }
    }

    pub fn upper_kind(&self) -> UpperKind {
        match self {
            Self::Live(_) | Self::Touched(_) | Self::Stacked { .. } => UpperKind::Layer,
            Self::Copied { .. } => UpperKind::Whole,
        }
    }

    /// The reported form.
    pub fn used(&self) -> BaseUsed {
        match self {
            Self::Live(_) => BaseUsed::Live,
            Self::Touched(_) => BaseUsed::Touched,
            Self::Stacked { stack, .. } => match stack.made {
                Made::Reused => BaseUsed::Reused,
                Made::Layered => BaseUsed::Layered,
                Made::Materialized => BaseUsed::Materialized,
                Made::OverHost => BaseUsed::Live,
            },
            Self::Copied { .. } => BaseUsed::Materialized,
        }
    }

    pub fn backend(&self) -> Backend {
        match self {
            Self::Live(_) | Self::Touched(_) | Self::Stacked { .. } => Backend::Overlay,
            Self::Copied { .. } => Backend::Copy,
        }
    }
}

/// Whether a command can write every file of a directory that is its lower layer, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    #[default]
    Writable,
    /// Some files belong to another user or group, or have ACLs that name one.
    Foreign,
}

/// The directory, if it can be a lower layer of the run: as its base, or for a run on a fork beneath layers.
pub fn lower_dir(
    request: &ExecutionRequest,
    places: &Places,
    cache_dir: &Path,
    files: Files,
) -> Result<Option<PathBuf>, WorkspaceRootError> {
    let is_required = match request.base {
        BaseChoice::Cached => return Ok(None),
        BaseChoice::Auto => false,
        BaseChoice::Live | BaseChoice::Touched => true,
    };
    let is_touched = request.base == BaseChoice::Touched;
    let has_dir = match &request.fork {
        ForkChoice::Ephemeral { from } => from.is_none(),
        ForkChoice::Persistent { .. } => !is_touched,
    };
    let is_cached = request.cache != CacheMode::Off;
    let has_dir = has_dir && request.backend != BackendChoice::Copy && !(is_touched && is_cached);
    let Some(dir) = places.bound.as_ref().filter(|_| has_dir) else {
        return if is_required { Err(WorkspaceRootError::NothingLive) } else { Ok(None) };
    };
    let why = if is_cached {
        // The cache key contains the base version, so there must be one.
        Some("with --cache a run needs a version as its base".to_owned())
    } else if files == Files::Foreign && !is_required {
        // A required base is accepted: only writing to those files fails.
        Some("a command could not write files of other users".to_owned())
    } else {
        why_not_live(dir, cache_dir)?
    };
    match why {
        None => Ok(Some(dir.clone())),
        Some(why) if is_required => Err(WorkspaceRootError::NotLive { dir: dir.clone(), why }),
        Some(why) => {
            tracing::debug!(%why, "the directory cannot be a lower layer");
            Ok(None)
        }
    }
}

/// Why a directory cannot be a lower layer.
fn why_not_live(dir: &Path, cache_dir: &Path) -> Result<Option<String>, WorkspaceRootError> {
    let io = |source| WorkspaceRootError::Io { path: dir.to_owned(), source };
    let uid = rustix::process::geteuid();
    let meta = std::fs::metadata(dir).map_err(io)?;
    // Root maps all users.
    if !uid.is_root() {
        let owner = std::os::unix::fs::MetadataExt::uid(&meta);
        if owner != uid.as_raw() {
            return Ok(Some(format!("it belongs to uid {owner}")));
        }
        let group = std::os::unix::fs::MetadataExt::gid(&meta);
        if !Writable::here().has(owner, group) {
            return Ok(Some(format!("it belongs to group {group}")));
        }
    }
    if cache_dir.starts_with(dir) {
        return Ok(Some("the cache directory is in it".to_owned()));
    }
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(io)?;
    Ok(mounts_beneath(&mounts, dir).next().map(|at| format!("{} is mounted in it", at.display())))
}
