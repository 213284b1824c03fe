//! Writes the requested reports, each atomically.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use avfs_lists::batch::{junit, markdown};
use avfs_wire::BatchCounts;

use super::BatchArgs;
use super::plan::Plan;
use super::results::Results;
use crate::error::EdgeError;
use crate::ui::Failure;
use crate::whole::write_whole;

/// The variable with the file in which GitHub expects a summary.
const GITHUB_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

pub fn write_reports(
    args: &BatchArgs,
    plan: &Plan,
    results: &Results,
    counts: &BatchCounts,
    took: Duration,
) -> Result<(), Failure> {
    let (name, seconds) = (plan.list_path(), took.as_secs_f64());
    let junit = |to: &mut dyn Write| junit::write(to, name, counts, seconds, results.read()?);
    let summary = |to: &mut dyn Write| markdown::write(to, name, counts, seconds, results.read()?);
    if let Some(path) = &args.junit {
        write_whole(path, |to| Ok(junit(to).map_err(EdgeError::host("write", path))?))?;
    }
    if let Some(path) = &args.summary {
        write_whole(path, |to| Ok(summary(to).map_err(EdgeError::host("write", path))?))?;
    }
    if let Some(path) = std::env::var_os(GITHUB_SUMMARY).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        let appended = File::options().append(true).create(true).open(&path).and_then(|file| {
            let mut to = BufWriter::new(file);
            summary(&mut to)?;
            to.flush()
        });
        appended.map_err(EdgeError::host("write", &path))?;
    }
    Ok(())
}
