//! A process that enters the sandbox's namespaces and replaces a directory with one in the upper that has the same
//! entries.
//!
//! overlayfs can move files, and directories that exist only in the upper. So a new directory next to the old one
//! takes its entries one by one and then its name. A failure is undone: the directory stays unchanged.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod,
    fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, mkdirat, openat, renameat_with, stat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space, set_capabilities,
};

use avfs_hostfs::random;

/// The first argument of the helper. Its standard streams are the user namespace, the mount namespace, and the
/// directory that the path is relative to.
pub const WORD: &str = "--avfs-move-directory";
/// Each level holds open descriptors.
const DEPTH_MAX: usize = 256;
const XATTR_BYTES_MAX: usize = 64 << 10;

type Result<T> = rustix::io::Result<T>;

/// Executes the helper with the arguments after [`WORD`]; returns the exit code.
pub fn run(words: &[OsString]) -> u8 {
    let [workspace, path] = words else { return 2 };
    u8::from(enter_and_move(workspace.as_ref(), path).is_err())
}

fn enter_and_move(workspace: &Path, path: &OsStr) -> Result<()> {
    // It must not continue in a sandbox that is no longer supervised.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    move_into_link_name_space(rustix::stdio::stdin(), Some(LinkNameSpaceType::User))?;
    move_into_link_name_space(rustix::stdio::stdout(), Some(LinkNameSpaceType::Mount))?;
    // rename(2) does not check the modes of a directory's content either.
    let kept = CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::FOWNER
        | CapabilitySet::FSETID
        | CapabilitySet::SETFCAP;
    set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?;
    rustix::process::umask(Mode::empty());
    let path = trimmed(path.as_bytes());
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b"."[..], path),
    };
    if name.is_empty() || name == b"." || name == b".." {
        return Err(Errno::INVAL);
    }
    let parent = openat(rustix::stdio::stderr(), OsStr::from_bytes(above), DIRECTORY, Mode::empty())?;
    if fstat(&parent)?.st_dev != stat(workspace)?.st_dev {
        return Err(Errno::XDEV);
    }
    make_movable(&parent, OsStr::from_bytes(name))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

fn open_dir(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
    openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

fn make_movable(parent: &OwnedFd, name: &OsStr) -> Result<()> {
    let before = fstat(parent)?;
    let suffix = random::suffix().map_err(|_| Errno::IO)?;
    let staged = OsString::from(format!(".avfs-moved-{suffix}"));
    let from = open_dir(parent, name)?;
    let looks = fstat(&from)?;
    mkdirat(parent, &staged, Mode::RWXU)?;
    let to = open_dir(parent, &staged)?;
    let moved = move_entries(&from, &to, 0)
        .and_then(|()| dress(&from, &to, &looks))
        .and_then(|()| unlinkat(parent, name, AtFlags::REMOVEDIR));
    let done = match moved {
        Ok(()) => renameat_with(parent, &staged, parent, name, RenameFlags::NOREPLACE),
        Err(errno) => {
            let undone = move_entries(&to, &from, 0)
                .and_then(|()| unlinkat(parent, &staged, AtFlags::REMOVEDIR))
                .and_then(|()| set_times(&from, &looks));
            undone.and(Err(errno))
        }
    };
    set_times(parent, &before)?;
    done
}

/// Moves all entries from one directory to another; a directory that cannot be moved is created again there.
fn move_entries(from: &OwnedFd, to: &OwnedFd, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    // Listed first: moving entries changes the listing.
    let mut names = Vec::new();
    for entry in Dir::read_from(from)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    for name in &names {
        let name = OsStr::from_bytes(name);
        match renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
            // Another process removed it in the meantime.
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::XDEV) => mkdirat(to, name, Mode::RWXU)?,
            // Only while undoing a failure.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let (inner_from, inner_to) = (open_dir(from, name)?, open_dir(to, name)?);
        let looks = fstat(&inner_from)?;
        move_entries(&inner_from, &inner_to, depth + 1)?;
        dress(&inner_from, &inner_to, &looks)?;
        unlinkat(from, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Copies owner, mode, attributes and times to a directory. `looks` is the state of `from` before its entries were
/// moved.
fn dress(from: &OwnedFd, to: &OwnedFd, looks: &Stat) -> Result<()> {
    let now = fstat(to)?;
    if (now.st_uid, now.st_gid) != (looks.st_uid, looks.st_gid) {
        fchown(to, Some(Uid::from_raw(looks.st_uid)), Some(Gid::from_raw(looks.st_gid)))?;
    }
    let mut names = vec![0; XATTR_BYTES_MAX];
    let length = match flistxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        other => other?,
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(name);
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = fgetxattr(from, name, &mut value[..])?;
        fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    // After the attributes: setting an ACL changes the mode.
    fchmod(to, Mode::from_raw_mode(looks.st_mode & 0o7777))?;
    set_times(to, looks)
}

fn set_times(dir: &OwnedFd, looks: &Stat) -> Result<()> {
    let time = |seconds, nanos: u64| Timespec { tv_sec: seconds, tv_nsec: i64::try_from(nanos).unwrap_or(0) };
    let times = Timestamps {
        last_access: time(looks.st_atime, looks.st_atime_nsec),
        last_modification: time(looks.st_mtime, looks.st_mtime_nsec),
    };
    futimens(dir, &times)
}
