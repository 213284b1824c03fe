//! Reads the ignore file of a directory, also while another process writes it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use avfs_hostfs::beneath;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::path::TreePath;

use super::ImportError;
use super::host::Host;
use crate::ignore;
use crate::ignore::{FILE_NAME, Rules, Text};
use crate::transfer::Result;
use crate::transfer::scan::Shared;

/// Pause before an ignore file that is being written is read again, and the maximum number of reads. The limit counts
/// reads, so that a stalled machine is not mistaken for a file that keeps changing.
const IGNORE_FILE_PAUSE: Duration = Duration::from_millis(2);
const IGNORE_FILE_READS_MAX: usize = 250;
/// How long a recently changed ignore file must stay empty before it is accepted as empty: rewriting a file starts with
/// an empty one.
const EMPTY_HOLDS: Duration = Duration::from_millis(100);

impl Shared<'_, Host<'_>> {
    /// The rules in a directory that has an ignore file. An ignore file that cannot be read, or keeps changing, fails
    /// the import even with [`OnTrouble::KeepGoing`](super::OnTrouble): without its rules, paths would be stored that
    /// they should exclude.
    pub(super) fn with_ignore_file(&self, rules: &Rules, dir: &OwnedFd, path: &TreePath) -> Result<Rules> {
        let file = path.join(FILE_NAME);
        let mut last: Option<(HostStat, Text, Instant)> = None;
        let mut gone = false;
        for _ in 0..IGNORE_FILE_READS_MAX {
            let text = match read_ignore_file(dir) {
                Ok(IgnoreFile::NoFile) => return Ok(rules.clone()),
                Ok(IgnoreFile::Read(stat, text)) if self.is_settled(&stat) => text,
                Ok(IgnoreFile::Read(stat, text)) => {
                    let same =
                        last.take().filter(|(before, read, _)| stat.same_state(before) && text == *read);
                    let since = same.map_or_else(Instant::now, |(_, _, since)| since);
                    let holds = if text.is_empty() { EMPTY_HOLDS } else { IGNORE_FILE_PAUSE };
                    if since.elapsed() < holds {
                        last = Some((stat, text, since));
                        avfs_types::pause::point("ignore-file");
                        std::thread::sleep(IGNORE_FILE_PAUSE);
                        continue;
                    }
                    text
                }
                Ok(IgnoreFile::Unquiet) => {
                    last = None;
                    std::thread::sleep(IGNORE_FILE_PAUSE);
                    continue;
                }
                Err(error) => match Cause::of(&error) {
                    Cause::NoPermission => return Err(ImportError::NoPermission { path: file }.into()),
                    Cause::Unreadable => {
                        let io = ImportError::Io { operation: "read", path: file, source: error };
                        return Err(io.into());
                    }
                    // It may be in the middle of a replacement.
                    Cause::NotFound if !gone => {
                        gone = true;
                        std::thread::sleep(IGNORE_FILE_PAUSE);
                        continue;
                    }
                    Cause::NotFound
                    | Cause::Link
                    | Cause::Exists
                    | Cause::NotADirectory
                    | Cause::ReadOnly
                    | Cause::DiskFull
                    | Cause::Other => {
                        self.tolerate(Err::<(), _>(error), "read", || file)?;
                        return Ok(rules.clone());
                    }
                },
            };
            let rules = match text {
                Text::None => return Ok(rules.clone()),
                Text::Read(text) => rules.with(path, &text),
                Text::TooLong => Err(ignore::too_long()),
            };
            return Ok(rules.map_err(|source| ImportError::BadIgnore { path: file, source })?);
        }
        Err(ImportError::Torn { path: file }.into())
    }
}

/// The result of one attempt to read an ignore file.
enum IgnoreFile {
    /// A symlink or a directory of that name is an ordinary entry, as in git.
    NoFile,
    /// It was written or replaced while it was read.
    Unquiet,
    Read(HostStat, Text),
}

fn read_ignore_file(dir: &OwnedFd) -> std::io::Result<IgnoreFile> {
    let before = beneath::stat(dir.as_fd(), FILE_NAME)?;
    if before.kind != HostKind::File {
        return Ok(IgnoreFile::NoFile);
    }
    let text = ignore::read(dir.as_fd())?;
    let after = beneath::stat(dir.as_fd(), FILE_NAME)?;
    let quiet = before.same_state(&after) && before.inode == after.inode;
    Ok(if quiet { IgnoreFile::Read(after, text) } else { IgnoreFile::Unquiet })
}
