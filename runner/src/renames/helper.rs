//! A process that enters the sandbox's namespaces and replaces a directory with one in the upper that has the same
//! entries.
//!
//! overlayfs can move files, and directories that exist only in the upper. So a new directory next to the old one
//! takes its entries one by one and then its name. The directories in it are replaced first, each in its place: after
//! a failure, at most the entries of one directory have to be moved back, and the tree is the same as before. Neither
//! depends on the depth.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, move_into_link_name_space, set_capabilities,
};

use avfs_hostfs::random;

/// The first argument of the helper. Its standard streams are the user namespace, the mount namespace, and the
/// directory that has the one to move. It gets no path: a lookup on the way could wait for ever, and a helper is always
/// waited for.
pub const WORD: &str = "--avfs-move-directory";
/// The maximum size of the names of directories that are held at a time.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// The maximum number of entries that are listed at a time.
const LISTED_MAX: usize = 65_536;
const ATTEMPTS_MAX: usize = 16;
const XATTR_BYTES_MAX: usize = 64 << 10;

type Result<T> = rustix::io::Result<T>;

/// Executes the helper with the arguments after [`WORD`]; returns the exit code.
pub fn run(words: &[OsString]) -> u8 {
    let [name] = words else { return 2 };
    // Another process removed or renamed it: nothing to move is left.
    u8::from(!matches!(enter_and_move(name), Ok(()) | Err(Errno::NOENT)))
}

fn enter_and_move(name: &OsStr) -> Result<()> {
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
    let parent = openat(rustix::stdio::stderr(), ".", DIRECTORY, Mode::empty())?;
    make_movable(&parent, name)
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_dir(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd> {
    openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// A directory on the way down.
struct Level {
    name: OsString,
    /// The directories in it that were not visited yet.
    dirs: Vec<OsString>,
}

/// Replaces a directory and all directories in it, the innermost first: then each one has only entries that can be
/// moved. The path down is remembered by names; only the directory at its end is open.
fn make_movable(parent: &OwnedFd, name: &OsStr) -> Result<()> {
    let probe = Probe::new(parent)?;
    let mut replaced = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS_MAX {
        replaced = replace_all(parent, name, &probe);
        // Only if another process moved a directory on the way. Those that were replaced are movable now.
        if !matches!(replaced, Err(Errno::AGAIN | Errno::NOENT)) {
            break;
        }
    }
    replaced.and(probe.remove())
}

fn replace_all(parent: &OwnedFd, name: &OsStr, probe: &Probe<'_>) -> Result<()> {
    if probe.is_movable(parent, name)? {
        return Ok(());
    }
    let mut bytes = 0;
    let mut dir = open_dir(parent, name)?;
    let mut levels = vec![Level { name: name.to_owned(), dirs: dirs_in(&dir, &mut bytes)? }];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.dirs.pop() {
            bytes -= held_bytes(&name);
            if !probe.is_movable(&dir, &name)? {
                dir = open_dir(&dir, &name)?;
                levels.push(Level { name, dirs: dirs_in(&dir, &mut bytes)? });
            }
            continue;
        }
        let name = std::mem::take(&mut level.name);
        levels.pop();
        let above =
            if levels.is_empty() { open_dir(parent, ".".as_ref())? } else { open_dir(&dir, "..".as_ref())? };
        let (here, there) = (fstat(&dir)?, statat(&above, &name, AtFlags::SYMLINK_NOFOLLOW)?);
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) {
            return Err(Errno::AGAIN);
        }
        replace(&above, &name, &dir)?;
        dir = above;
    }
    Ok(())
}

/// A directory with an entry: no directory can be renamed to it, and overlayfs refuses directories of a lower layer
/// before it checks that.
struct Probe<'a> {
    parent: &'a OwnedFd,
    name: OsString,
    before: Stat,
}

impl<'a> Probe<'a> {
    fn new(parent: &'a OwnedFd) -> Result<Self> {
        let before = fstat(parent)?;
        let name = staged_name()?;
        mkdirat(parent, &name, Mode::RWXU)?;
        let probe = Self { parent, name, before };
        match mkdirat(parent, probe.inner(), Mode::RWXU) {
            Ok(()) => Ok(probe),
            Err(errno) => probe.remove().and(Err(errno)),
        }
    }

    fn inner(&self) -> PathBuf {
        Path::new(&self.name).join("entry")
    }

    fn is_movable(&self, dir: &OwnedFd, name: &OsStr) -> Result<bool> {
        match renameat(dir, name, self.parent, &self.name) {
            Err(Errno::XDEV) => Ok(false),
            // Another process removed it, or replaced it with a file.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::ISDIR) => Ok(true),
            Err(errno) => Err(errno),
            // Another process removed the entry.
            Ok(()) => renameat(self.parent, &self.name, dir, name).and(Err(Errno::BUSY)),
        }
    }

    fn remove(self) -> Result<()> {
        for name in [self.inner().as_os_str(), &self.name] {
            match unlinkat(self.parent, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        set_times(self.parent, &self.before)
    }
}

fn staged_name() -> Result<OsString> {
    let suffix = random::suffix().map_err(|_| Errno::IO)?;
    Ok(OsString::from(format!(".avfs-moved-{suffix}")))
}

/// The directories in a directory.
fn dirs_in(dir: &OwnedFd, bytes: &mut usize) -> Result<Vec<OsString>> {
    let mut dirs = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if entry.file_type() == FileType::Directory && name != "." && name != ".." {
            *bytes += held_bytes(name);
            if *bytes > NAMES_BYTES_MAX {
                return Err(Errno::NOMEM);
            }
            dirs.push(name.to_owned());
        }
    }
    Ok(dirs)
}

fn held_bytes(name: &OsStr) -> usize {
    name.len() + size_of::<OsString>()
}

/// Replaces a directory of a lower layer, `from`, whose entries can all be moved. After a failure it has the same
/// entries as before.
fn replace(parent: &OwnedFd, name: &OsStr, from: &OwnedFd) -> Result<()> {
    let (before, looks) = (fstat(parent)?, fstat(from)?);
    let staged = staged_name()?;
    mkdirat(parent, &staged, Mode::RWXU)?;
    let replaced = open_dir(parent, &staged).and_then(|to| {
        let mut moved = Err(Errno::NOTEMPTY);
        for _ in 0..ATTEMPTS_MAX {
            // The old directory is not empty if another process created an entry in the meantime.
            if !matches!(moved, Err(Errno::NOTEMPTY | Errno::EXIST)) {
                break;
            }
            moved = move_entries(from, &to)
                .and_then(|()| dress(from, &to, &looks))
                .and_then(|()| renameat(parent, &staged, parent, name));
        }
        moved.or_else(|errno| move_entries(&to, from).and(Err(errno)))
    });
    let replaced = replaced.or_else(|errno| {
        let undone = unlinkat(parent, &staged, AtFlags::REMOVEDIR).and_then(|()| set_times(from, &looks));
        undone.and(Err(errno))
    });
    set_times(parent, &before)?;
    replaced
}

/// Moves all entries from one directory to another, except names that exist there.
fn move_entries(from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    loop {
        // Listed first: moving entries changes the listing.
        let mut names = Vec::new();
        for entry in Dir::read_from(from)? {
            let name = entry?.file_name().to_owned();
            if name.as_bytes() != b"." && name.as_bytes() != b".." {
                names.push(name);
            }
            if names.len() == LISTED_MAX {
                break;
            }
        }
        let mut moved = Ok(());
        for name in &names {
            match renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
                // Another process removed it in the meantime.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::EXIST) => moved = Err(Errno::EXIST),
                Err(errno) => return Err(errno),
            }
        }
        if moved.is_err() || names.len() < LISTED_MAX {
            return moved;
        }
    }
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
