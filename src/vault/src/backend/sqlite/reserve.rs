//! The reserve (`-reserve`): space on the vault's disk that no change can use. A verb that frees space needs some
//! itself, so on a full disk it gives the reserve up first, and makes it again afterwards.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FallocateFlags;

use super::connect::sibling;
use super::head::{open_beside, open_or_make_beside};

/// The size of the reserve. A run is started only if as much is free.
pub(crate) const BYTES: u64 = 1 << 20;
/// The smallest reserve worth making.
const BYTES_LEAST: u64 = 64 << 10;
/// With less free space than this, changes are made in small batches, and the log is checkpointed after each. More than
/// the longest log, whose pages a checkpoint may have to add to the file.
const SHORT_BYTES: u64 = 64 << 20;

const SUFFIX: &str = "-reserve";

/// The free space on the disk of a file; `None` if the file system does not report it.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    // For root too: the remaining free blocks may be reserved for the file system itself.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

pub(crate) fn is_short(free: u64) -> bool {
    free < SHORT_BYTES
}

pub(crate) fn is_full(vault: &Path) -> bool {
    free_bytes(vault).is_some_and(|free| free < BYTES)
}

fn is_complete(vault: &Path) -> bool {
    // A copy of the vault's directory may have a sparse file here.
    let meta = sibling(vault, SUFFIX).symlink_metadata();
    meta.is_ok_and(|meta| meta.is_file() && meta.len() >= BYTES && meta.blocks().saturating_mul(512) >= BYTES)
}

/// Makes the reserve of a vault unless the disk is nearly full: another process may just have given it up. Without a
/// reserve the vault works as well, until its disk is full.
pub(crate) fn make(vault: &Path) {
    if !is_complete(vault) && free_bytes(vault).is_some_and(|free| free >= 2 * BYTES) {
        log_failure(allocate(vault, BYTES));
    }
}

/// Makes the reserve again after it was given up, smaller if not all of it fits.
fn restore(vault: &Path) {
    if is_complete(vault) {
        return;
    }
    let mut bytes = BYTES;
    let mut made = allocate(vault, bytes);
    while made.is_err() && bytes > BYTES_LEAST {
        bytes /= 2;
        made = allocate(vault, bytes);
    }
    log_failure(made);
}

/// Returns true if there was a reserve, whose space is free now.
fn give_up(vault: &Path) -> bool {
    std::fs::remove_file(sibling(vault, SUFFIX)).is_ok()
}

/// Opens the vault at `vault` and frees space in it. If the disk is full, this gives up the reserve, and makes it again
/// when `free` has closed the vault.
pub fn with_reserve<T, E>(
    vault: &Path,
    is_disk_full: impl FnOnce(&E) -> bool,
    mut free: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut is_given_up = is_full(vault) && give_up(vault);
    let mut freed = free();
    // A quota of the file system is not visible in its free space.
    if !is_given_up && freed.as_ref().is_err_and(is_disk_full) && give_up(vault) {
        is_given_up = true;
        freed = free();
    }
    if is_given_up {
        restore(vault);
    }
    freed
}

fn allocate(vault: &Path, bytes: u64) -> io::Result<()> {
    let file = open_or_make_beside(vault, SUFFIX)?;
    let made = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes);
    if made.is_err()
        && open_beside(vault, SUFFIX).and_then(|file| file.metadata()).is_ok_and(|it| it.blocks() == 0)
    {
        give_up(vault);
    }
    Ok(made?)
}

fn log_failure(made: io::Result<()>) {
    if let Err(error) = made {
        tracing::debug!(%error, "cannot make the reserve of the vault");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_takes_space_and_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let vault = dir.path().join("vault.db");
        std::fs::write(&vault, "").unwrap();
        assert!(!give_up(&vault));
        let taken = || sibling(&vault, SUFFIX).metadata().map_or(0, |meta| meta.blocks() * 512);
        make(&vault);
        assert!(is_complete(&vault) && taken() >= BYTES);
        // As `cp --sparse` writes it.
        std::fs::remove_file(sibling(&vault, SUFFIX)).unwrap();
        std::fs::File::create(sibling(&vault, SUFFIX)).unwrap().set_len(BYTES).unwrap();
        assert!(!is_complete(&vault));
        make(&vault);
        assert!(is_complete(&vault) && taken() >= BYTES);
        assert!(give_up(&vault) && !is_complete(&vault));
        restore(&vault);
        assert!(is_complete(&vault));
    }

    #[test]
    fn reserve_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (vault, other) = (dir.path().join("vault.db"), dir.path().join("other"));
        std::fs::write(&vault, "").unwrap();
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, sibling(&vault, SUFFIX)).unwrap();
        make(&vault);
        restore(&vault);
        assert!(!is_complete(&vault));
        assert!(give_up(&vault));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
    }
}
