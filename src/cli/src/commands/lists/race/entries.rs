//! The requests of the attempts of a race, all from the same version.

use std::path::PathBuf;

use avfs_lists::list::ListFile;
use avfs_ops::OpError;
use avfs_request::{Retention, RunSpec};
use avfs_types::reference::Reference;

use super::RaceArgs;
use super::error::RaceError;
use crate::run_options::command_request;

/// The requests of the attempts, in order, without their start version.
pub fn requests(args: &RaceArgs) -> Result<Vec<RunSpec>, OpError> {
    match (&args.list, args.what.line()) {
        (Some(list), _) => of_list(list),
        (None, line) => {
            let request = line.map(|line| command_request(&line)).unwrap_or_default();
            Ok(vec![request; args.number.map_or(1, usize::from)])
        }
    }
}

fn of_list(path: &std::path::Path) -> Result<Vec<RunSpec>, OpError> {
    let list = ListFile::open(path, &std::env::temp_dir())?;
    if list.is_empty() {
        return Err(RaceError::Empty { list: path.to_owned() }.into());
    }
    let at = list.header().and_then(|header| header.at.clone()).map(PathBuf::from);
    let mut requests = Vec::with_capacity(list.len());
    for number in 0..list.len() {
        let item = list.item(number)?;
        if !item.needs.is_empty() {
            return Err(RaceError::Needs { id: item.id }.into());
        }
        let mut request = item.request;
        // Options that the race sets itself.
        (request.vault, request.fork) = (None, None);
        request.at = request.at.or_else(|| at.clone());
        requests.push(request);
    }
    Ok(requests)
}

/// The request of an attempt that starts at a version.
pub fn from_version(request: RunSpec, attempt: u64, version: Reference, retention: Retention) -> RunSpec {
    let mut env = request.env;
    env.insert("AVFS_ATTEMPT".to_owned(), attempt.to_string());
    RunSpec { from: Some(version), retention: Some(retention), env, ..request }
}
