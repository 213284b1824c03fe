//! Atomic writes of whole files: to a temporary file next to the target, then renamed.

use std::fs::File;
use std::io;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use avfs_hostfs::new_file::NewFile;
use avfs_hostfs::place::{FilePlace, is_own_descriptor};
use avfs_hostfs::random;
use avfs_hostfs::stat::HostKind;
use avfs_ops::{OpError, WorkplaceError};

/// The mode of a new file, which the umask limits.
pub const NEW_MODE: u32 = 0o666;

/// Where a report is written. Its directory is opened once: a command that is running meanwhile cannot redirect it.
pub enum Target {
    /// A regular file, or no file yet.
    File(FilePlace),
    /// A device, a pipe or an open file of this process, which cannot be replaced.
    Stream(File),
}

impl Target {
    pub fn open(path: &Path) -> Result<Self, WorkplaceError> {
        if is_own_descriptor(path) {
            let opened = File::options().write(true).open(path);
            return Ok(Self::Stream(opened.map_err(WorkplaceError::host("write", path))?));
        }
        let place = FilePlace::find(path).map_err(WorkplaceError::place("write"))?;
        match place.there.is_none_or(|there| there.kind == HostKind::File) {
            true => Ok(Self::File(place)),
            false => {
                let opened = place.open(OFlags::WRONLY, 0).map_err(WorkplaceError::host("write", path))?;
                Ok(Self::Stream(opened.into()))
            }
        }
    }
}

impl Target {
    /// Opens it for lines that readers see at once: a file is created or emptied.
    pub fn emptied(self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
        match self {
            Self::File(place) => Ok(place.open(flags, NEW_MODE)?.into()),
            Self::Stream(file) => Ok(file),
        }
    }

    /// Fails if the file could not be written, before there is anything to write.
    fn check(&self) -> io::Result<()> {
        match self {
            Self::File(place) => beside(place).map(drop),
            Self::Stream(_) => Ok(()),
        }
    }
}

/// A report that is written later.
pub struct Report {
    path: PathBuf,
    target: Target,
}

impl Report {
    pub fn open(path: &Path) -> Result<Self, WorkplaceError> {
        let target = Target::open(path)?;
        target.check().map_err(WorkplaceError::host("write", path))?;
        Ok(Self { path: path.to_owned(), target })
    }

    pub fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OpError> {
        let failed = |error| OpError::from(WorkplaceError::host("write", &self.path)(error));
        write_to(&self.target, |to| write(to).map_err(failed), failed)
    }
}

/// A new file next to the place of another one.
pub fn beside(place: &FilePlace) -> io::Result<NewFile> {
    let name = [b".", place.name.as_bytes(), b".", random::suffix()?.as_bytes()].concat();
    NewFile::create(place.dir.as_fd(), &name, NEW_MODE)
}

pub fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, OpError>,
) -> Result<T, OpError> {
    write_to(&Target::open(path)?, write, |error| OpError::from(WorkplaceError::host("write", path)(error)))
}

fn write_to<T>(
    target: &Target,
    write: impl FnOnce(&mut dyn Write) -> Result<T, OpError>,
    failed: impl Fn(io::Error) -> OpError,
) -> Result<T, OpError> {
    let buffered = |file: &File| {
        let mut to = BufWriter::new(file);
        let value = write(&mut to)?;
        to.flush().map_err(&failed)?;
        Ok(value)
    };
    match target {
        Target::File(place) => {
            let new = beside(place).map_err(&failed)?;
            let value = buffered(new.file())?;
            new.file().sync_all().and_then(|()| new.place(place.name.as_bytes())).map_err(&failed)?;
            Ok(value)
        }
        Target::Stream(file) => buffered(file),
    }
}
