//! The owner of files that root creates among another user's files: that user, who could not use them otherwise.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};

/// Creates a file that can be used by exactly the users who can use `like`, no matter who creates it. Its mode has
/// those of the bits that `like` has.
pub fn create_like(path: &Path, like: &Metadata, bits: u32) -> io::Result<File> {
    let mode = like.mode() & bits;
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(path)?;
    // If the file system stores no modes or owners, or this user may not change the owner, the file has fewer
    // permissions than intended, never more.
    let user = rustix::process::geteuid().is_root().then(|| Uid::from_raw(like.uid()));
    let _ = rustix::fs::fchown(&file, user, Some(Gid::from_raw(like.gid())));
    let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(mode));
    Ok(file)
}

/// Gives a file or directory created by root to the owner of `beside`; does nothing for other users. `path` must be
/// a real path.
///
/// The directory may be under another user's control, so no symlink is followed, and a file is given away only if
/// root owns it and it has no other hard link.
pub fn hand_over(path: &Path, beside: &Metadata) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() || beside.uid() == 0 {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if stat.st_uid == 0 && (is_directory || stat.st_nlink == 1) {
        let (user, group) = (Uid::from_raw(beside.uid()), Gid::from_raw(beside.gid()));
        rustix::fs::chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}
