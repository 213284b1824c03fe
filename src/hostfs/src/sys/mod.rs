//! System calls that rustix has no safe function for.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{Getter, ioctl, opcode};

/// `struct fsuuid2` of the kernel.
#[repr(C)]
struct FsUuid {
    length: u8,
    bytes: [u8; 16],
}

/// `FS_IOC_GETFSUUID`, of Linux 6.9.
const GET_FS_UUID: rustix::ioctl::Opcode = opcode::read::<FsUuid>(0x15, 0);

/// The UUID of the file system of an open directory.
pub(crate) fn fs_uuid(dir: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    // SAFETY: the request number contains the size of `FsUuid`, which has the layout of the kernel's struct and is
    // valid for every value of its bytes.
    let request = unsafe { Getter::<GET_FS_UUID, FsUuid>::new() };
    // SAFETY: the kernel writes at most the size in the request number, into memory that the getter owns. A driver that
    // gives the number another meaning is not reached: the caller passes a directory.
    let uuid = unsafe { ioctl(dir, request) }?;
    if usize::from(uuid.length) == uuid.bytes.len() && uuid.bytes != [0; 16] {
        Ok(uuid.bytes)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}
