//! The owner of files that root creates among another user's files: that user, who could not use them otherwise.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, StatxFlags, Timespec, Uid, statx};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use rustix::time::ClockId;

use crate::beneath;

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

/// Gives a new file to the owner of `beside` if root created it; does nothing for other users. `made` is the descriptor
/// that created the file: another user can control the directory, so what has its name now may be another file.
pub fn give(made: impl AsFd, beside: &Metadata) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() || beside.uid() == 0 {
        return Ok(());
    }
    let stat = rustix::fs::fstat(&made)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file && stat.st_uid == 0 && stat.st_nlink == 1 {
        let (user, group) = (Uid::from_raw(beside.uid()), Gid::from_raw(beside.gid()));
        rustix::fs::fchown(&made, Some(user), Some(group))?;
    }
    Ok(())
}

/// Creates a directory that only its owner can use. If root creates it, the owner is that of the directory above it.
pub fn make_dir(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(above, flags, Mode::empty())?;
    let since = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o700))?;
    avfs_types::pause::point("dir-made");
    let owner = rustix::fs::fstat(&above)?;
    if !rustix::process::geteuid().is_root() || owner.st_uid == 0 {
        return Ok(());
    }
    let made = rustix::fs::openat(&above, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    if is_new_dir(made.as_fd(), since)? {
        let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
        rustix::fs::chownat(&made, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// True for an empty directory of root that was created since: the owner of the directory above can rename another one
/// to its name.
fn is_new_dir(dir: BorrowedFd<'_>, since: Timespec) -> io::Result<bool> {
    let stat = statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let birth = (stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec));
    let knows_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let is_old = knows_birth && birth < (since.tv_sec, since.tv_nsec);
    Ok(stat.stx_uid == 0
        && !is_old
        && beneath::names(beneath::open(dir, b"", beneath::DIR)?.as_fd())?.is_empty())
}

/// While this exists, the thread changes no owner of a file. SQLite, run by root, gives any file with the name of its
/// log to the owner of the database.
#[derive(Debug)]
pub struct OwnersKept(Option<CapabilitySets>);

impl OwnersKept {
    /// Begins. Does nothing for other users than root.
    pub fn begin() -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        let all = capabilities(None)?;
        let mut without = all;
        without.effective.remove(CapabilitySet::CHOWN);
        set_capabilities(None, without)?;
        Ok(Self(Some(all)))
    }
}

impl Drop for OwnersKept {
    fn drop(&mut self) {
        if let Some(all) = self.0 {
            // They are still permitted, so this cannot fail.
            let _ = set_capabilities(None, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_directory_made_since_is_new() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let open = |name: &str| beneath::open_root(&root.path().join(name)).unwrap();
        let is_new = |name: &str, since| is_new_dir(open(name).as_fd(), since).unwrap();
        let begun = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        std::fs::create_dir_all(root.path().join("full/empty")).unwrap();
        assert!(is_new("full/empty", begun));
        assert!(!is_new("full", begun));
        let later = Timespec { tv_sec: begun.tv_sec + 3600, ..begun };
        let stat = statx(open("full"), "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).unwrap();
        let knows_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        assert_eq!(is_new("full/empty", later), !knows_birth);
        rustix::fs::chown(root.path().join("full/empty"), Some(Uid::from_raw(1)), None).unwrap();
        assert!(!is_new("full/empty", begun));
    }
}
