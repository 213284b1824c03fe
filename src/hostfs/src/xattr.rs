//! User extended attributes of an open file or directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// The prefix of attributes that can be stored: those that any owner may set.
pub const USER_PREFIX: &[u8] = b"user.";

/// Name (with its `user.` prefix) and value, sorted by name.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The user attributes of an open file; empty if the file system does not support them.
pub fn read(file: BorrowedFd<'_>) -> io::Result<Xattrs> {
    read_noting(file, |_| {})
}

/// Like [`read`]; also passes the names of attributes outside the user namespace to `other`.
pub fn read_noting(file: BorrowedFd<'_>, mut other: impl FnMut(&[u8])) -> io::Result<Xattrs> {
    let mut names = [0_u8; 1024];
    let listed = match flistxattr(file, &mut names[..]) {
        Ok(length) => names[..length].to_vec(),
        Err(Errno::RANGE) => grow(|buffer| flistxattr(file, buffer))?,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    let mut xattrs = Vec::new();
    for name in listed.split(|b| *b == 0).filter(|name| !name.is_empty()) {
        if !name.starts_with(USER_PREFIX) {
            other(name);
            continue;
        }
        // `None` if it was removed since it was listed; the caller's check of ctime detects that.
        if let Some(value) = value(file, name)? {
            xattrs.push((name.to_vec(), value));
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// One attribute of an open file; `None` if it does not exist.
pub fn value(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match grow(|buffer| fgetxattr(file, OsStr::from_bytes(name), buffer)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Repeats the call with a larger buffer until the result fits.
fn grow(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 4096];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 24 => buffer = vec![0_u8; buffer.len() * 4],
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sets each attribute on an open file; refuses any outside the user namespace.
pub fn write(file: BorrowedFd<'_>, xattrs: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
    for (name, value) in xattrs {
        if !name.starts_with(USER_PREFIX) {
            return Err(Errno::PERM.into());
        }
        fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty())?;
    }
    Ok(())
}

/// Removes every user attribute of an open file.
pub fn clear(file: BorrowedFd<'_>) -> io::Result<()> {
    for (name, _) in read(file)? {
        fremovexattr(file, OsStr::from_bytes(&name))?;
    }
    Ok(())
}
