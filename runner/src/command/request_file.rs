//! `--request`: reads a request in JSON and converts it to options.
//!
//! The command line takes precedence over the file. Under the profile `agent` a file outside of the workspace is not
//! opened: the message about its errors would show its content.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::beneath;
use avfs_policy::Verdict;
use avfs_present::hint;
use avfs_request::spec::{REQUEST_BYTES_MAX, RunSpec, SpecError};
use avfs_types::diagnose::Diagnose;
use rustix::io::Errno;

use crate::command::args::Args;
use crate::command::error::RunError;
use crate::command::invocation::{VaultAt, surroundings};
use avfs_workplace::policy;

#[derive(Debug, thiserror::Error)]
pub enum BadRequest {
    #[error("cannot read the request {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("invalid request {}: {problem}", path.display())]
    Malformed { path: PathBuf, problem: SpecError },
}

impl Diagnose for BadRequest {
    fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "request.unreadable",
            Self::Malformed { .. } => "request.malformed",
        }
    }
}

hint!(BadRequest, |error, _| match error {
    Self::Unreadable { .. } => None,
    Self::Malformed { .. } => Some("list all keys with: avfs schema, under RequestFile".to_owned()),
});

/// The options, merged with those of the request file, if any.
pub fn with_request(args: Args) -> Result<Args, RunError> {
    let Some(path) = args.request.clone() else { return Ok(args) };
    let unreadable = |source| BadRequest::Unreadable { path: path.clone(), source };
    let text = match path == Path::new("-") {
        true => bounded(std::io::stdin().lock()),
        false => bounded(match fence(&args, &path)? {
            None => File::open(&path).map_err(unreadable)?,
            Some(fence) => fence.open(&path).map_err(unreadable)?.ok_or(RunError::refused(fence.refusal))?,
        }),
    };
    let below = RunSpec::parse(&text.map_err(unreadable)?);
    Ok(over(args, below, &path)?)
}

/// The only directory that a request may be read from.
struct Fence {
    cwd: PathBuf,
    /// `None` if the vault is not bound to a directory.
    workspace: Option<PathBuf>,
    /// The verdict on a file elsewhere.
    refusal: Verdict,
}

/// The fence around requests in files, if the profile `agent` applies.
fn fence(args: &Args, path: &Path) -> Result<Option<Fence>, RunError> {
    let around = surroundings()?;
    let vault = around.locate(args.spec.vault.as_ref().map(|vault| vault.as_os_str())).ok();
    let policy = policy(&around, vault.as_ref().map(|vault| vault.path.as_path()))?;
    let Some(refusal) = policy.with_profiles(&args.spec.policy).profiles().foreign_request(path) else {
        return Ok(None);
    };
    let workspace = VaultAt::find(args, &around)?.bound()?;
    Ok(Some(Fence { cwd: around.cwd, workspace, refusal }))
}

impl Fence {
    /// Opens a file of the workspace, without following symlinks; `None` if it is elsewhere.
    fn open(&self, path: &Path) -> std::io::Result<Option<File>> {
        let Some(workspace) = &self.workspace else { return Ok(None) };
        let path = self.cwd.join(path);
        // The path of the caller may begin with a symlink that the bound directory does not have.
        let real = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        let below = |path: &Path| path.strip_prefix(workspace).ok().map(Path::to_owned);
        let Some(below) = below(&path).or_else(|| below(&real()?)) else { return Ok(None) };
        let root = beneath::open_root(workspace)?;
        match beneath::open(root.as_fd(), below.as_os_str().as_bytes(), beneath::READ) {
            Ok(file) => Ok(Some(file.into())),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Merges the options over a request, and rejects an invalid combination.
pub fn over(args: Args, below: Result<RunSpec, SpecError>, path: &Path) -> Result<Args, BadRequest> {
    let malformed = |problem| BadRequest::Malformed { path: path.to_owned(), problem };
    let spec = args.spec.over(below.map_err(malformed)?);
    spec.check().map_err(malformed)?;
    Ok(Args { spec, ..args })
}

fn bounded(source: impl Read) -> std::io::Result<Vec<u8>> {
    // Read one byte more than allowed, to detect a request that is too long.
    let bound = REQUEST_BYTES_MAX as u64 + 1;
    let mut text = Vec::new();
    source.take(bound).read_to_end(&mut text)?;
    Ok(text)
}
