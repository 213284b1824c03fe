//! Atomic writes of whole files: to a temporary file next to the target, then renamed.

use std::fs::File;
use std::io;
use std::io::{BufWriter, Write};
use std::path::Path;

use avfs_hostfs::random;

use crate::error::EdgeError;
use crate::ui::Failure;

/// Fails if the file could not be written, before there is anything to write.
pub fn check_place(path: &Path) -> Result<(), Failure> {
    write_whole_in(path, |_| Ok(()), |beside, _| std::fs::remove_file(beside))
}

pub fn write_whole<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    write_whole_in(path, write, |beside, path| std::fs::rename(beside, path))
}

fn write_whole_in<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
    place: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> Result<T, Failure> {
    let failed = |source: io::Error| Failure::from(EdgeError::host("write", path)(source));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", random::suffix().map_err(failed)?));
    let file = File::create_new(&beside).map_err(failed)?;
    let written = (|| {
        let mut to = BufWriter::new(file);
        let value = write(&mut to)?;
        let file = to.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().and_then(|()| place(&beside, path)).map_err(failed)?;
        Ok(value)
    })();
    if written.is_err() {
        // The first error counts.
        let _ = std::fs::remove_file(&beside);
    }
    written
}
