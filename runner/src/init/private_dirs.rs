//! The sandbox's private directories at the end of a run: those that are not empty are handed to the supervisor.
//!
//! Must not allocate.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, fstat, open, stat};

use crate::control::Channel;
use crate::outside_writes::PRIVATE_DIRS_MAX;

/// Room for a few names: one is enough.
const BUFFER_BYTES: usize = 1024;

/// Private directories, with their device and inode numbers at the start.
pub struct PrivateDirs<'a> {
    paths: &'a [CString],
    ids: [Option<(u64, u64)>; PRIVATE_DIRS_MAX],
}

impl<'a> PrivateDirs<'a> {
    /// Called before the command can replace them.
    pub fn note(paths: &'a [CString]) -> Self {
        let mut ids = [None; PRIVATE_DIRS_MAX];
        for (id, path) in ids.iter_mut().zip(paths) {
            *id = stat(path.as_c_str()).ok().map(|stat| (stat.st_dev, stat.st_ino));
        }
        Self { paths, ids }
    }

    /// Called when no other process is left inside: sends the supervisor every directory that is not empty.
    pub fn hand_over(&self, control: &Channel<'_>) {
        for (number, (path, id)) in (0_u8..).zip(self.paths.iter().zip(self.ids)) {
            let Some(dir) = id.and_then(|id| opened(path, id)) else { continue };
            if !is_empty(&dir) {
                // A failure to send must not end the run.
                let _ = control.send_written(number, dir.as_fd());
            }
        }
    }
}

/// Opens the directory, if it is still the one from the start.
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
