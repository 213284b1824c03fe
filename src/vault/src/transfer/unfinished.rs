//! Records which directories are being filled, so that the next process finds and removes the leftovers of a killed
//! one.
//!
//! ```text
//! CACHE/unfinished/base-X      locked by a process that builds in CACHE/base
//! CACHE/unfinished/layer-X     the same for CACHE/layer
//! CACHE/unfinished/export-X    identifies the staging directory of an export or an apply, and names the directory that
//!                              it is in; locked by the process that fills it
//! ```
//!
//! The check for leftovers lists one directory, which is usually empty.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, StatxFlags, statx};

use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::{make, random};

use super::export::{self, Swept};
use super::shelf::Shelf;
use crate::transfer::Result;

/// The notes of one cache directory.
#[derive(Clone, Debug)]
pub struct Unfinished {
    cache: PathBuf,
}

/// A directory that is being filled.
#[derive(Clone, Copy, Debug)]
pub enum Filled<'a> {
    /// An item on a shelf of the cache: `base` or `layer`.
    Shelf(&'a str),
    /// A staging directory in this directory.
    Staging(&'a Path),
}

/// A note that is removed on drop, and stays if the process is killed.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
    /// The directory with the staging directory; empty for an item on a shelf.
    place: Vec<u8>,
    _alive: FileLock,
}

/// The identity of a directory: another one can get its inode number when it is removed, but not its time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirIdentity {
    device: (u32, u32),
    inode: u64,
    birth: (i64, u32),
}

impl DirIdentity {
    /// Fails on a file system that records no times of birth.
    pub(crate) fn of(dir: BorrowedFd<'_>) -> io::Result<Self> {
        let stat = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::BTIME)?;
        if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::INO | StatxFlags::BTIME) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            birth: (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        })
    }

    fn text(&self) -> String {
        let Self { device: (major, minor), inode, birth: (seconds, nanos) } = self;
        format!("{major} {minor} {inode} {seconds} {nanos}")
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let mut word = || words.next();
        Some(Self {
            device: (word()?.parse().ok()?, word()?.parse().ok()?),
            inode: word()?.parse().ok()?,
            birth: (word()?.parse().ok()?, word()?.parse().ok()?),
        })
    }
}

impl Note {
    /// Notes the identity of a staging directory before it is filled. Without it, a sweep removes only an empty one.
    pub(crate) fn identify(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
        let id = match DirIdentity::of(dir) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(()),
            id => id?,
        };
        std::fs::write(&self.path, [id.text().as_bytes(), &self.place].join(&0))
    }

    /// Keeps the note, which the next sweep finds when this process has ended.
    pub(crate) fn leave(self) {
        // Until then the lock shows that its directory is in use.
        std::mem::forget(self);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // If this fails, the next sweep removes the file.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Unfinished {
    /// The notes in a cache directory.
    #[must_use]
    pub fn new(cache: &Path) -> Self {
        Self { cache: cache.to_owned() }
    }

    fn dir(&self) -> PathBuf {
        self.cache.join("unfinished")
    }

    /// Records that a directory is about to be filled.
    pub fn note(&self, filled: Filled<'_>) -> io::Result<Note> {
        let dir = self.dir();
        make::private_dirs(&dir)?;
        loop {
            let (kind, text) = match filled {
                Filled::Shelf(name) => (name, Vec::new()),
                // The real path: the working directory and symlinks may be others when it is swept.
                Filled::Staging(dir) => ("export", dir.canonicalize()?.into_os_string().into_vec()),
            };
            let path = dir.join(format!("{kind}-{}", random::suffix()?));
            let locked = FileLock::acquire(&path, Mode::Exclusive, Duration::ZERO);
            let alive = match locked {
                Ok(alive) => alive,
                // A sweep holds the lock at this moment.
                Err(LockError::TimedOut(_)) => continue,
                Err(error) => return Err(io::Error::other(error)),
            };
            let note = Note { path, place: text, _alive: alive };
            std::fs::write(&note.path, &note.place)?;
            // A sweep may have found and removed it before it was locked.
            if note._alive.is_at(&note.path).unwrap_or(false) {
                return Ok(note);
            }
        }
    }

    /// Removes the unfinished directories of dead processes. Returns the number of removed notes.
    pub fn sweep(&self) -> Result<u64> {
        let listing = match std::fs::read_dir(self.dir()) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(super::shelf::host("list", &self.dir())(error)),
        };
        let mut swept = 0;
        for path in listing.flatten().map(|entry| entry.path()) {
            let Ok(Some(_dead)) = FileLock::try_existing(&path, Mode::Exclusive) else { continue };
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            match name.split_once('-').map_or("", |(kind, _)| kind) {
                kind @ ("base" | "layer") => Shelf { dir: self.cache.join(kind) }.sweep()?,
                "export" => {
                    let text = std::fs::read(&path).map_err(super::shelf::host("read", &path))?;
                    // Without an identity, the process was killed before it filled the directory.
                    let (id, dir) = match text.iter().position(|byte| *byte == 0) {
                        Some(end) => (DirIdentity::parse(&text[..end]), text[end + 1..].to_vec()),
                        None => (None, text),
                    };
                    let dir = PathBuf::from(OsString::from_vec(dir));
                    let is_path = dir.is_absolute() && !dir.as_os_str().as_bytes().contains(&0);
                    // The next sweep tries again.
                    if is_path && export::sweep_noted(&dir, id) == Swept::Partly {
                        continue;
                    }
                }
                _ => {}
            }
            match std::fs::remove_file(&path) {
                Ok(()) => swept += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(super::shelf::host("remove", &path)(error)),
            }
        }
        Ok(swept)
    }
}
