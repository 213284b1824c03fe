//! process_vm_readv(2): reads the memory of another process.

use super::{Errno, Result, check};

/// Reads bytes of another process, starting at an address, up to the end of the buffer or of the mapped memory.
pub fn read_memory(thread: u32, from: u64, bytes: &mut [u8]) -> Result<usize> {
    let pid = libc::pid_t::try_from(thread).map_err(|_| Errno::SRCH)?;
    let address = usize::try_from(from).map_err(|_| Errno::FAULT)?;
    let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // Never dereferenced in this process: an address in the other one.
    let there = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: `here` is the buffer, borrowed for writing and as long as `iov_len`; the kernel checks `there`, and
    // both records live through the call.
    let read = unsafe { libc::process_vm_readv(pid, &raw const here, 1, &raw const there, 1, 0) };
    let read = check(libc::c_long::try_from(read).map_err(|_| Errno::OVERFLOW)?)?;
    usize::try_from(read).map_err(|_| Errno::OVERFLOW)
}
