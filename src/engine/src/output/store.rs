//! Where the bytes of a stream are stored: in memory, then in an unnamed file.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use avfs_hostfs::random;

/// Bytes of a stream kept in memory. A longer stream uses a file.
pub const MEMORY_BYTES: u64 = 4 << 20;
pub const PIECE_BYTES: usize = 64 << 10;

/// Where the bytes of a stream are stored.
#[derive(Debug)]
pub enum Store {
    Memory(Vec<u8>),
    /// An unnamed file, and the directory in which to create another one.
    File(File, PathBuf),
}

impl Default for Store {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Store {
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Memory(_) => None,
            Self::File(_, dir) => Some(dir),
        }
    }

    /// Reads at least one byte of the kept bytes at `offset`, unless `buffer` is empty.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        match self {
            Self::Memory(bytes) => {
                let held = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
                let held = held.filter(|held| !held.is_empty()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
                let length = held.len().min(buffer.len());
                buffer[..length].copy_from_slice(&held[..length]);
                Ok(length)
            }
            Self::File(file, _) => loop {
                match file.read_at(buffer, offset) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    other => return other,
                }
            },
        }
    }

    /// A read error means a broken disk, since the file is our own: the rest is missing, and the error is logged.
    pub fn read(&self, mut range: Range<u64>, each: &mut dyn FnMut(&[u8])) {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        match self {
            Self::Memory(bytes) => {
                let bytes = bytes.get(at(range.start)..at(range.end)).unwrap_or_default();
                bytes.chunks(PIECE_BYTES).for_each(each);
            }
            Self::File(..) => {
                let mut piece = vec![0; PIECE_BYTES];
                while range.start < range.end {
                    let wanted = piece.len().min(at(range.end - range.start));
                    match self.read_at(range.start, &mut piece[..wanted]) {
                        Err(error) => return tracing::error!(%error, "cannot read output that was kept"),
                        Ok(length) => {
                            each(&piece[..length]);
                            range.start += length as u64;
                        }
                    }
                }
            }
        }
    }

    /// Writes at or before the current end. Stores up to [`MEMORY_BYTES`] in memory, then uses a file in `dir`.
    pub fn write(&mut self, offset: u64, bytes: &[u8], dir: Option<&Path>) -> std::io::Result<()> {
        let end = offset + bytes.len() as u64;
        if let (Self::Memory(held), Some(dir), true) = (&mut *self, dir, end > MEMORY_BYTES) {
            let file = without_a_name(dir)?;
            file.write_all_at(held, 0)?;
            *self = Self::File(file, dir.to_owned());
        }
        match self {
            Self::File(file, _) => file.write_all_at(bytes, offset),
            Self::Memory(held) => {
                let (from, to) = (
                    usize::try_from(offset).unwrap_or(usize::MAX),
                    usize::try_from(end).unwrap_or(usize::MAX),
                );
                if held.len() < to {
                    held.resize(to, 0);
                }
                held[from..to].copy_from_slice(bytes);
                Ok(())
            }
        }
    }
}

fn without_a_name(dir: &Path) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(fd) = rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        return Ok(File::from(fd));
    }
    // Some file systems have no O_TMPFILE.
    let name = dir.join(format!(".output-{}", random::suffix()?));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}
