//! The process umask.

use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::process::umask;

/// The umask at the start of the process.
static FOUND: OnceLock<u32> = OnceLock::new();

/// Clears the owner's bits in the umask: with a umask of 0777 the process could not use the files it has just
/// created. Returns the original umask, which is meant for other programs. Call it before starting threads.
pub fn set_umask() -> u32 {
    *FOUND.get_or_init(|| {
        let found = umask(Mode::RWXG | Mode::RWXO);
        umask(found & !Mode::RWXU);
        found.bits()
    })
}

/// Restores the original umask, before this process executes another program.
pub fn restore() {
    if let Some(found) = FOUND.get() {
        umask(Mode::from_raw_mode(*found));
    }
}
