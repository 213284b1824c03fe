//! Makes files and directories that their owner cannot read readable during a capture.
//!
//! Before a mode is changed, the original mode is appended to a journal, so that a killed capture leaves no wrong modes
//! behind: the next capture takes the modes from the journal and restores them. Modes are restored only at the end,
//! because several jobs may read the hard links of one file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;

use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::{beneath, make};
use avfs_types::encode::{put_bytes, put_number};
use avfs_types::path::TreePath;

use super::CaptureError;
use crate::codec::Decoder;

/// Mode bits that a capture needs on a file and on a directory.
const FILE_BITS: u32 = 0o400;
const DIR_BITS: u32 = 0o500;

pub(crate) struct Modes {
    journal: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<File>,
    /// In the order of the changes: parents before their entries.
    opened: Vec<(TreePath, u32)>,
    by_inode: HashMap<(u64, u64), u32>,
}

/// True if the owner lacks the permissions that a capture needs.
#[must_use]
pub(crate) fn is_closed(stat: &HostStat) -> bool {
    stat.mode & bits_for(stat.kind) != bits_for(stat.kind)
}

fn bits_for(kind: HostKind) -> u32 {
    match kind {
        HostKind::File => FILE_BITS,
        HostKind::Dir => DIR_BITS,
        HostKind::Symlink | HostKind::Fifo | HostKind::Whiteout | HostKind::Special(_) => 0,
    }
}

impl Modes {
    /// Loads the journal that an earlier capture of the same upper may have left.
    pub(crate) fn load(journal: &Path, root: BorrowedFd<'_>) -> Result<Self, CaptureError> {
        let fail = |operation| CaptureError::journal(operation, journal);
        let modes = Self { journal: journal.to_owned(), state: Mutex::default() };
        let mut file = match File::options().read(true).append(true).open(journal) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(modes),
            other => other.map_err(fail("open"))?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail("read"))?;
        let (records, length) = decode(&bytes);
        // A partial record of a killed writer must not precede the next record.
        file.set_len(length as u64).map_err(fail("truncate"))?;
        modes.lock().file = Some(file);
        for (path, mode) in records {
            let opened = with_target(root, &path, |fd, stat| {
                modes.lock().remember(&path, stat, mode);
                make::set_mode(fd, mode | bits_for(stat.kind))
            });
            match opened {
                // The earlier capture restored it and it was removed since, or it was never changed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.map_err(fail("replay"))?,
            }
        }
        Ok(modes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `path` readable to its owner, after recording its original mode.
    pub(crate) fn open_up(&self, root: BorrowedFd<'_>, path: &TreePath) -> io::Result<()> {
        with_target(root, path, |fd, stat| {
            let mut state = self.lock();
            if !state.by_inode.contains_key(&(stat.device, stat.inode)) {
                self.note(&mut state, path, stat.mode).map_err(|error| {
                    // Wrapped, so that an error of the journal is not attributed to the file.
                    let journal = self.journal.display();
                    io::Error::other(format!("cannot write the journal of modes {journal}: {error}"))
                })?;
                state.remember(path, stat, stat.mode);
            }
            make::set_mode(fd, stat.mode | bits_for(stat.kind))
        })
    }

    fn note(&self, state: &mut State, path: &TreePath, mode: u32) -> io::Result<()> {
        let file = match &mut state.file {
            Some(file) => file,
            None => {
                let mut options = File::options();
                state.file.insert(options.create(true).append(true).mode(0o600).open(&self.journal)?)
            }
        };
        file.write_all(&encode(path, mode))
    }

    /// The original mode of a file.
    pub(crate) fn true_mode(&self, stat: &HostStat) -> u32 {
        let known = self.lock().by_inode.get(&(stat.device, stat.inode)).copied();
        known.unwrap_or(stat.mode)
    }

    /// Restores all modes and removes the journal.
    pub(crate) fn restore(&self, root: BorrowedFd<'_>) -> Result<(), CaptureError> {
        let opened = std::mem::take(&mut self.lock().opened);
        if opened.is_empty() && !self.journal.exists() {
            return Ok(());
        }
        for (path, mode) in opened.iter().rev() {
            with_target(root, path, |fd, _| make::set_mode(fd, *mode))
                .map_err(CaptureError::journal("restore a mode from", &self.journal))?;
        }
        match std::fs::remove_file(&self.journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CaptureError::journal("remove", &self.journal)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Makes all files readable, and leaves them so, for a caller that copies the upper. The journal is copied too, and the
/// capture of the copy takes the original modes from it.
pub(crate) fn open_up_all(upper: BorrowedFd<'_>, journal: &Path) -> Result<(), CaptureError> {
    let modes = Modes::load(journal, upper)?;
    open_up_root(upper, &modes)?;
    let mut dirs = vec![TreePath::root()];
    while let Some(path) = dirs.pop() {
        let name: &[u8] = if path.is_root() { b"." } else { path.as_bytes() };
        let dir = beneath::open(upper, name, beneath::DIR).map_err(io(&path))?;
        for listed in beneath::names(dir.as_fd()).map_err(io(&path))? {
            let child = path.join(&listed.name);
            let stat = beneath::stat(dir.as_fd(), &listed.name).map_err(io(&child))?;
            if is_closed(&stat) {
                modes.open_up(upper, &child).map_err(io(&child))?;
            }
            if stat.kind == HostKind::Dir {
                dirs.push(child);
            }
        }
    }
    Ok(())
}

pub(crate) fn open_up_root(upper: BorrowedFd<'_>, modes: &Modes) -> Result<(), CaptureError> {
    let root = TreePath::root();
    if is_closed(&beneath::fstat(upper).map_err(io(&root))?) {
        modes.open_up(upper, &root).map_err(io(&root))?;
    }
    Ok(())
}

fn io(path: &TreePath) -> impl FnOnce(io::Error) -> CaptureError + use<> {
    let path = path.clone();
    move |source| CaptureError::Io { operation: "change the mode of", path, source }
}

impl State {
    fn remember(&mut self, path: &TreePath, stat: &HostStat, mode: u32) {
        self.by_inode.insert((stat.device, stat.inode), mode);
        self.opened.push((path.clone(), mode));
    }
}

/// Opens a file with `O_PATH`, which needs no permission on the file. The root is already open.
fn with_target(
    root: BorrowedFd<'_>,
    path: &TreePath,
    act: impl FnOnce(BorrowedFd<'_>, &HostStat) -> io::Result<()>,
) -> io::Result<()> {
    if path.is_root() {
        return act(root, &beneath::fstat(root)?);
    }
    let fd = beneath::open(root, path.as_bytes(), OFlags::PATH)?;
    act(fd.as_fd(), &beneath::fstat(fd.as_fd())?)
}

fn encode(path: &TreePath, mode: u32) -> Vec<u8> {
    let mut record = Vec::new();
    put_number(&mut record, u64::from(mode));
    put_bytes(&mut record, path.as_bytes());
    record
}

/// The records of a journal and their total length. A partial record is from a writer that died while writing it: the
/// mode was not changed yet.
fn decode(bytes: &[u8]) -> (Vec<(TreePath, u32)>, usize) {
    let mut decoder = Decoder::new(bytes);
    let (mut records, mut length) = (Vec::new(), 0);
    while let (Ok(mode), Ok(path)) = (decoder.small(), decoder.bytes()) {
        let Ok(path) = TreePath::parse(path) else { break };
        length += encode(&path, mode).len();
        records.push((path, mode));
    }
    (records, length)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn modes_are_restored_after_a_killed_capture() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("modes");
        let upper = dir.path().join("upper");
        std::fs::create_dir_all(upper.join("closed")).unwrap();
        std::fs::write(upper.join("closed/secret\n"), "x").unwrap();
        for (path, mode) in [("closed/secret\n", 0o2040), ("closed", 0o011)] {
            std::fs::set_permissions(upper.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let root = beneath::open_root(&upper).unwrap();
        let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let killed = Modes::load(&journal, root.as_fd()).unwrap();
        killed.open_up(root.as_fd(), &path("closed")).unwrap();
        killed.open_up(root.as_fd(), &path("closed/secret\n")).unwrap();
        assert_eq!(mode_of(&upper.join("closed")), 0o511);
        assert_eq!(mode_of(&upper.join("closed/secret\n")), 0o2440);
        drop(killed);
        // It died while writing its next record.
        let mut torn = std::fs::File::options().append(true).open(&journal).unwrap();
        torn.write_all(&encode(&path("closed/other"), 0)[..4]).unwrap();

        let next = Modes::load(&journal, root.as_fd()).unwrap();
        assert_eq!(decode(&std::fs::read(&journal).unwrap()).0.len(), 2);
        let stat = beneath::stat(root.as_fd(), b"closed").unwrap();
        assert_eq!((stat.mode, next.true_mode(&stat)), (0o511, 0o011));
        next.restore(root.as_fd()).unwrap();
        assert_eq!(mode_of(&upper.join("closed")), 0o011);
        assert!(!journal.exists());
        std::fs::set_permissions(upper.join("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(mode_of(&upper.join("closed/secret\n")), 0o2040);
    }
}
