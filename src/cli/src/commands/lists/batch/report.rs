//! Writes the requested reports, each atomically.

use std::fs::File;
use std::io;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use avfs_lists::batch::{junit, markdown};
use avfs_ops::{OpError, WorkplaceError};
use avfs_wire::BatchCounts;

use super::BatchArgs;
use super::plan::Plan;
use super::results::Results;
use crate::whole::{NEW_MODE, Report};

/// The variable with the file in which GitHub expects a summary.
const GITHUB_SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// The requested reports. Their places are found before the commands of the batch can change the way to them.
pub struct Reports {
    junit: Option<Report>,
    summary: Option<Report>,
}

impl Reports {
    pub fn open(args: &BatchArgs) -> Result<Self, WorkplaceError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(Report::open).transpose();
        Ok(Self { junit: open(&args.junit)?, summary: open(&args.summary)? })
    }
}

pub fn write_reports(
    reports: &Reports,
    plan: &Plan,
    results: &Results,
    counts: &BatchCounts,
    took: Duration,
) -> Result<(), OpError> {
    let (name, seconds) = (plan.list_path(), took.as_secs_f64());
    let junit = |to: &mut dyn Write| junit::write(to, name, counts, seconds, results.read()?);
    let summary = |to: &mut dyn Write| markdown::write(to, name, counts, seconds, results.read()?);
    if let Some(report) = &reports.junit {
        report.write(junit)?;
    }
    if let Some(report) = &reports.summary {
        report.write(summary)?;
    }
    if let Some(path) = std::env::var_os(GITHUB_SUMMARY).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        // The runner that sets it chose the way to the file, which may have symlinks.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::from_raw_mode(NEW_MODE)).map_err(io::Error::from);
        let appended = opened.map(File::from).and_then(|file| {
            let mut to = BufWriter::new(file);
            summary(&mut to)?;
            to.flush()
        });
        appended.map_err(WorkplaceError::host("write", &path))?;
    }
    Ok(())
}
