//! Records which directories are being filled, so that the next process finds and removes the leftovers of a killed
//! one.
//!
//! ```text
//! CACHE/unfinished/base-X      locked by a process that builds in CACHE/base
//! CACHE/unfinished/layer-X     the same for CACHE/layer
//! CACHE/unfinished/export-X    names the directory of an export's staging directory; locked by the exporter
//! ```
//!
//! The check for leftovers lists one directory, which is usually empty.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use avfs_hostfs::lock::{FileLock, LockError, Mode};
use avfs_hostfs::{make, random};

use super::export;
use super::shelf::Shelf;
use crate::Result;

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
    _alive: FileLock,
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
                Filled::Staging(dir) => ("export", std::path::absolute(dir)?.into_os_string().into_vec()),
            };
            let path = dir.join(format!("{kind}-{}", random::suffix()?));
            let locked = FileLock::acquire(&path, Mode::Exclusive, Duration::ZERO);
            let alive = match locked {
                Ok(alive) => alive,
                // A sweep holds the lock at this moment.
                Err(LockError::TimedOut(_)) => continue,
                Err(error) => return Err(io::Error::other(error)),
            };
            let note = Note { path, _alive: alive };
            std::fs::write(&note.path, text)?;
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
                    let dir = PathBuf::from(OsString::from_vec(text));
                    if dir.is_absolute() && !dir.as_os_str().as_bytes().contains(&0) {
                        export::sweep(&dir);
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
