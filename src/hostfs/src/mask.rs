//! The mask that new files lose their modes to.

use std::sync::OnceLock;

use rustix::fs::Mode;
use rustix::process::umask;

/// As it was when the process was started.
static FOUND: OnceLock<u32> = OnceLock::new();

/// From here on what is made stays open to its owner: with a mask of 0777 nobody could use what they have just made.
/// Gives the mask as it was found, which is for others. Called before there are threads.
pub fn set_umask() -> u32 {
    *FOUND.get_or_init(|| {
        let found = umask(Mode::RWXG | Mode::RWXO);
        umask(found & !Mode::RWXU);
        found.bits()
    })
}

/// The mask as it was found, for the program that this process becomes.
pub fn restore() {
    if let Some(found) = FOUND.get() {
        umask(Mode::from_raw_mode(*found));
    }
}
