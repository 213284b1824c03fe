//! Text files written by people. A device or a pipe at such a path may never end.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// More than any such file contains.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// The content of a text file of at most 16 MiB.
pub fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    match text.len() > TEXT_BYTES_MAX {
        true => Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {TEXT_BYTES_MAX} bytes"))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_never_ends_is_refused() {
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read(Path::new("/dev/null")).unwrap(), "");
    }
}
