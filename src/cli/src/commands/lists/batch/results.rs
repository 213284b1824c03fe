//! The results of a batch: lines of JSON in a file, written as items end and read again for the reports.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::beneath::READ;
use avfs_hostfs::new_file::NewFile;
use avfs_hostfs::random;
use avfs_ops::{OpError, WorkplaceError};
use avfs_types::ids::VersionId;
use avfs_types::printable;
use avfs_vault::backend::RunRecord;
use avfs_wire::{BatchItemResult, ItemState, LongText};

use super::plan::Plan;
use crate::lists::shown_command;
use crate::whole::{Target, beside};

/// The number of bytes kept of each stream: the end usually has the reason of a failure.
pub const TAIL_BYTES: usize = 16 * 1024;

pub struct Results {
    file: BufWriter<File>,
    /// The path for messages.
    path: PathBuf,
    /// A target that cannot be read back, such as a pipe: lines are written to it in addition to the file.
    copy: Option<File>,
    /// The lines of the old file of a resumed batch, until the valid ones are in the new file.
    old: Option<OldLines>,
}

/// The positions of the lines of successful runs.
struct OldLines {
    file: File,
    of_run: HashMap<String, (u64, usize)>,
    /// The new file until it replaces the old one, and the name of the old one.
    new: NewFile,
    name: OsString,
}

impl Results {
    /// Opens a new file. For a resumed batch it keeps the lines of successful items. Without a path the file
    /// is an unlinked temporary file.
    pub fn open(path: Option<&Path>, plan: &Plan) -> Result<Self, OpError> {
        let Some(path) = path else {
            let path = std::env::temp_dir();
            let file = unnamed(&path)?;
            return Ok(Self { file, path, copy: None, old: None });
        };
        let io = |operation| WorkplaceError::host(operation, path);
        let at = path.to_owned();
        let place = match Target::open(path)? {
            Target::File(place) => place,
            Target::Stream(copy) => {
                let file = unnamed(&std::env::temp_dir())?;
                return Ok(Self { file, path: at, copy: Some(copy), old: None });
            }
        };
        if place.there.is_some() && plan.resumed {
            let file = File::from(place.open(READ, 0).map_err(io("read"))?);
            let of_run = succeeded_lines(&file).map_err(io("read"))?;
            let new = beside(&place).map_err(io("create a file next to"))?;
            let lines = new.file().try_clone().map_err(io("write"))?;
            let old = Some(OldLines { file, of_run, new, name: place.name });
            return Ok(Self { file: BufWriter::new(lines), path: at, copy: None, old });
        }
        let file = Target::File(place).emptied().map_err(io("write"))?;
        Ok(Self { file: BufWriter::new(file), path: at, copy: None, old: None })
    }

    /// Adds a line and flushes it, so that readers of the file see it at once.
    pub fn add(&mut self, result: &BatchItemResult) -> Result<(), OpError> {
        let line = printable::json_line(result).map_err(self.io())?;
        avfs_types::pause::point("result");
        self.line(&line)?;
        if self.old.is_none() {
            self.finish()?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), OpError> {
        let copied = match &mut self.copy {
            Some(copy) => copy.write_all(line),
            None => Ok(()),
        };
        Ok(copied.and_then(|()| self.file.write_all(line)).map_err(self.io())?)
    }

    fn io(&self) -> impl FnOnce(io::Error) -> WorkplaceError {
        WorkplaceError::host("write", &self.path)
    }

    pub fn finish(&mut self) -> Result<(), OpError> {
        Ok(self.file.flush().map_err(self.io())?)
    }

    /// All lines, from the first.
    pub fn read(&self) -> io::Result<impl Iterator<Item = io::Result<BatchItemResult>> + use<>> {
        let mut file = self.file.get_ref().try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        let lines = BufReader::new(file).lines();
        Ok(lines.map(|line| serde_json::from_str(&line?).map_err(io::Error::other)))
    }

    /// The result of an item about which nothing is known yet.
    pub fn blank(plan: &Plan, item: u32, command: &str) -> BatchItemResult {
        BatchItemResult {
            item: u64::from(item) + 1,
            id: plan.list.id(item as usize).to_owned(),
            command: command.to_owned(),
            state: ItemState::NotRun,
            cached: false,
            exit_code: None,
            signal: None,
            timed_out: false,
            attempts: 0,
            run_id: None,
            fork: None,
            version: None,
            duration_ms: 0.0,
            stdout: None,
            stderr: None,
            approval_id: None,
            reason: None,
            code: None,
            hint: None,
            allow_rule: None,
            notes: Vec::new(),
        }
    }

    /// The result of an item that succeeded, from its run.
    pub fn of_run(plan: &Plan, item: u32, run: &RunRecord) -> Result<BatchItemResult, OpError> {
        let command = plan.list.item(item as usize).map(|read| shown_command(&read))?;
        let mut result = Self::blank(plan, item, &command);
        result.state = ItemState::Succeeded;
        result.attempts = 1;
        result.exit_code = run.exit_code;
        result.run_id = Some(run.id.to_string());
        result.fork = run.version_after.map(|_| run.fork.to_string());
        result.version = run.version_after.or(run.version_before).map(|version: VersionId| version.to_hex());
        let lasted = run.ended_at.map_or(0, |ended| ended.0 - run.started_at.0);
        // The journal's clock counts nanoseconds.
        result.duration_ms = std::time::Duration::from_nanos(lasted.unsigned_abs()).as_secs_f64() * 1e3;
        Ok(result)
    }

    /// The result of an item that succeeded before: its old line, or the data of the journal.
    pub fn of_before(&mut self, plan: &Plan, item: u32, run: &RunRecord) -> Result<BatchItemResult, OpError> {
        let line = match &self.old {
            Some(old) => old.line(run.id.as_str()).map_err(WorkplaceError::host("read", &self.path))?,
            None => None,
        };
        let known = line.as_ref().and_then(|line| serde_json::from_slice::<BatchItemResult>(line).ok());
        if let (Some(mut line), Some(known)) = (line, known)
            && known.item == u64::from(item) + 1
        {
            line.push(b'\n');
            self.line(&line)?;
            return Ok(known);
        }
        let result = Self::of_run(plan, item, run)?;
        self.add(&result)?;
        Ok(result)
    }

    /// Called when all earlier results have their lines: the new file replaces the old one.
    pub fn begin(&mut self) -> Result<(), OpError> {
        self.finish()?;
        if let Some(old) = self.old.take() {
            old.new.place(old.name.as_bytes()).map_err(self.io())?;
        }
        Ok(())
    }

    /// The end of a command's output.
    pub fn tail(text: &LongText, encoding: &str) -> String {
        if encoding != "utf-8" {
            return "(not text)".to_owned();
        }
        text.tail(TAIL_BYTES).to_string()
    }
}

impl OldLines {
    fn line(&self, run: &str) -> io::Result<Option<Vec<u8>>> {
        let Some((offset, length)) = self.of_run.get(run) else { return Ok(None) };
        let mut line = vec![0; *length];
        self.file.read_exact_at(&mut line, *offset)?;
        Ok(Some(line))
    }
}

/// The positions of the lines of successful items. A crash may leave a partial last line, which is ignored.
fn succeeded_lines(old: &File) -> io::Result<HashMap<String, (u64, usize)>> {
    let (mut lines, mut line, mut offset) = (BufReader::new(old), Vec::new(), 0);
    let mut of_run = HashMap::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(of_run);
        }
        let length = line.trim_ascii_end().len();
        if let Ok(BatchItemResult { state: ItemState::Succeeded, run_id: Some(run), .. }) =
            serde_json::from_slice(&line)
        {
            of_run.insert(run, (offset, length));
        }
        offset += read as u64;
    }
}

/// An unlinked temporary file in a directory.
fn unnamed(dir: &Path) -> Result<BufWriter<File>, WorkplaceError> {
    let make = || {
        let name = dir.join(format!("avfs-batch-{}", random::suffix()?));
        let file = File::options().read(true).write(true).create_new(true).open(&name)?;
        std::fs::remove_file(&name)?;
        Ok(BufWriter::new(file))
    };
    make().map_err(WorkplaceError::host("write a file in", dir))
}
