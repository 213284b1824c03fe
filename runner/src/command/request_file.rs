//! `--request`: reads a request in JSON and converts it to options.
//!
//! The command line takes precedence over the file.

use std::io::Read;
use std::path::{Path, PathBuf};

use avfs_present::hint;
use avfs_request::spec::{REQUEST_BYTES_MAX, RunSpec, SpecError};
use avfs_types::diagnose::Diagnose;

use crate::command::args::Args;

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
pub fn with_request(args: Args) -> Result<Args, BadRequest> {
    let Some(path) = args.request.clone() else { return Ok(args) };
    let text = read(&path).map_err(|source| BadRequest::Unreadable { path: path.clone(), source })?;
    let below = RunSpec::parse(&text);
    over(args, below, &path)
}

/// Merges the options over a request, and rejects an invalid combination.
pub fn over(args: Args, below: Result<RunSpec, SpecError>, path: &Path) -> Result<Args, BadRequest> {
    let malformed = |problem| BadRequest::Malformed { path: path.to_owned(), problem };
    let spec = args.spec.over(below.map_err(malformed)?);
    spec.check().map_err(malformed)?;
    Ok(Args { spec, ..args })
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    // Read one byte more than allowed, to detect a request that is too long.
    let bound = REQUEST_BYTES_MAX as u64 + 1;
    let mut text = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(bound).read_to_end(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(bound).read_to_end(&mut text)?;
    }
    Ok(text)
}
