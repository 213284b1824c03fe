//! Random bytes from the kernel.

use std::io;

pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// A random suffix that no other process chooses.
pub fn suffix() -> io::Result<String> {
    Ok(avfs_types::ids::to_hex(&bytes::<8>()?))
}
