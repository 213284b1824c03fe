//! The sandbox's own directories at the end of a run: those in which something lies are handed to the supervisor.
//!
//! Nothing here allocates.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, fstat, open, stat};

use crate::control::Channel;
use crate::outside_writes::PRIVATE_DIRS_MAX;

/// Room for a few names: one is enough to know.
const BUFFER_BYTES: usize = 1024;

/// Private directories, and which files they were at the start.
pub struct PrivateDirs<'a> {
    paths: &'a [CString],
    ids: [Option<(u64, u64)>; PRIVATE_DIRS_MAX],
}

impl<'a> PrivateDirs<'a> {
    /// Before the command can have put something else in their place.
    pub fn note(paths: &'a [CString]) -> Self {
        let mut ids = [None; PRIVATE_DIRS_MAX];
        for (id, path) in ids.iter_mut().zip(paths) {
            *id = stat(path.as_c_str()).ok().map(|stat| (stat.st_dev, stat.st_ino));
        }
        Self { paths, ids }
    }

    /// Nobody is left inside: gives the supervisor every directory that is not empty.
    pub fn hand_over(&self, control: &Channel<'_>) {
        for (number, (path, id)) in (0_u8..).zip(self.paths.iter().zip(self.ids)) {
            let Some(dir) = id.and_then(|id| opened(path, id)) else { continue };
            if !is_empty(&dir) {
                // Failing to print progress must not end the run.
                let _ = control.send_written(number, dir.as_fd());
            }
        }
    }
}

/// The directory, if it is the one that was there at the start.
fn opened(path: &CStr, id: (u64, u64)) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(path, flags, Mode::empty()).ok()?;
    let stat = fstat(&dir).ok()?;
    ((stat.st_dev, stat.st_ino) == id).then_some(dir)
}

fn is_empty(dir: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut listing = RawDir::new(dir, &mut buffer);
    while let Some(entry) = listing.next() {
        match entry {
            Ok(entry) if entry.file_name() == c"." || entry.file_name() == c".." => {}
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    true
}
