//! Resolves the paths of a rename as the kernel will: in the root of the caller.
//!
//! The root of the supervisor is another one: a symlink of the workspace that it follows there leads to a file of the
//! host. Even in the root of the caller a lookup can wait for ever, for a file system that does not answer.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;

use avfs_types::path::TreePath;

use crate::sys::read_memory;

const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: usize = 4096;
/// How often a lookup is repeated that a rename elsewhere on the machine has disturbed.
const TRIES_MAX: u32 = 100;
/// Names that mean another file to the supervisor than to the caller.
const OF_THE_CALLER: [&[u8]; 3] = [b"/proc/self/", b"/proc/thread-self/", b"/dev/fd/"];
const ONLY_PATH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A path argument: its directory, `None` for the working directory, and the address of the path.
pub type Argument = (Option<u64>, u64);

/// Why a path has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The kernel refuses it too.
    Absent,
    /// The kernel may resolve it.
    Unknown,
}

/// A path as the caller wrote it, with the directory that it is relative to.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    base: Option<Vec<u8>>,
    path: Vec<u8>,
}

/// A name in a directory of the caller. A rename of the directory does not change it.
#[derive(Debug)]
pub struct Place {
    pub parent: OwnedFd,
    pub name: OsString,
    parent_device: u64,
}

/// The root of a thread.
pub fn root_of(thread: u32) -> Result<OwnedFd, Unresolved> {
    open(format!("/proc/{thread}/root"), ONLY_PATH, Mode::empty()).map_err(|_| Unresolved::Unknown)
}

impl Written {
    /// Reads an argument of a thread; looks up nothing.
    pub fn read(thread: u32, (dir, at): Argument) -> Result<Self, Unresolved> {
        let path = read_path(thread, at).ok_or(Unresolved::Absent)?;
        if path.starts_with(b"/") {
            return Ok(Self { base: None, path });
        }
        // The kernel treats the lower half as a signed number.
        let number = dir.map(|dir| {
            let [a, b, c, d, ..] = dir.to_le_bytes();
            i32::from_le_bytes([a, b, c, d])
        });
        let link = match number {
            None | Some(libc::AT_FDCWD) => format!("/proc/{thread}/cwd"),
            Some(number) => format!("/proc/{thread}/fd/{number}"),
        };
        match readlinkat(CWD, link, Vec::new()) {
            Ok(base) if base.as_bytes().starts_with(b"/") => Ok(Self { base: Some(base.into_bytes()), path }),
            // A pipe, or no descriptor of this number.
            Ok(_) | Err(Errno::NOENT) => Err(Unresolved::Absent),
            Err(_) => Err(Unresolved::Unknown),
        }
    }

    /// Looks up the directory of the path. Symlinks on the way are followed in the root.
    pub fn resolve(&self, root: &OwnedFd) -> Result<Place, Unresolved> {
        let (above, name) = split(&self.path).ok_or(Unresolved::Absent)?;
        let joined = match &self.base {
            None => above.to_vec(),
            Some(base) => [base, &b"/"[..], above].concat(),
        };
        let parent = open_in(root, &joined).map_err(|errno| self.reason(root, &joined, errno))?;
        let parent_device = device_of(&parent).ok_or(Unresolved::Unknown)?;
        Ok(Place { parent, name: name.to_owned(), parent_device })
    }

    fn reason(&self, root: &OwnedFd, joined: &[u8], errno: Errno) -> Unresolved {
        let is_of_the_caller = OF_THE_CALLER.iter().any(|prefix| joined.starts_with(prefix));
        let is_absent = match errno {
            Errno::NOENT | Errno::NOTDIR => {
                !is_of_the_caller && self.base.as_ref().is_none_or(|base| open_in(root, base).is_ok())
            }
            Errno::ACCESS => true,
            // The joined path can be too long where the caller's is not.
            Errno::NAMETOOLONG => self.base.is_none(),
            // A magic link, or an error of a file system.
            _ => false,
        };
        if is_absent { Unresolved::Absent } else { Unresolved::Unknown }
    }
}

/// Opens a directory in a root, through no magic link: such a link of /proc leads anywhere.
pub fn open_in(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { b"/" } else { path };
    let mut tries = 0;
    loop {
        match openat2(root, OsStr::from_bytes(path), ONLY_PATH, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES_MAX => tries += 1,
            opened => return opened,
        }
    }
}

pub fn device_of(file: &OwnedFd) -> Option<u64> {
    #[allow(
        clippy::unnecessary_cast,
        clippy::allow_attributes,
        reason = "field widths differ between targets"
    )]
    Some(fstat(file).ok()?.st_dev as u64)
}

impl Place {
    /// True if its directory is on the file system with this number.
    pub const fn is_on(&self, device: u64) -> bool {
        self.parent_device == device
    }

    /// `None` if nothing has this name.
    pub fn stat(&self) -> rustix::io::Result<Option<Stat>> {
        match statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// True for a directory without entries.
    pub fn is_empty(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(&self.parent, &self.name, flags, Mode::empty());
        let Ok(mut dir) = dir.and_then(Dir::new) else { return false };
        let is_own = |name: &[u8]| name == b"." || name == b"..";
        dir.all(|entry| entry.is_ok_and(|entry| is_own(entry.file_name().to_bytes())))
    }

    /// The current path below a directory of the sandbox, given by its path inside.
    pub fn below(&self, dir: &Path) -> Option<TreePath> {
        let link = format!("/proc/self/fd/{}", self.parent.as_raw_fd());
        let seen = readlinkat(CWD, link, Vec::new()).ok()?;
        let seen = PathBuf::from(OsString::from_vec(seen.into_bytes()));
        let below = seen.strip_prefix(dir).ok()?.join(&self.name);
        TreePath::parse(below.as_os_str().as_bytes()).ok()
    }
}

/// The directory and the last name of a path; `None` if no rename can have that name.
fn split(path: &[u8]) -> Option<(&[u8], &OsStr)> {
    let end = path.iter().rposition(|byte| *byte != b'/')? + 1;
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let name = &path[start..end];
    (name != b"." && name != b"..").then(|| (&path[..start], OsStr::from_bytes(name)))
}

/// Reads a path from the memory of a thread, page by page: the next page may not be mapped.
fn read_path(thread: u32, at: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    while path.len() < PATH_BYTES_MAX {
        let from = at.checked_add(path.len() as u64)?;
        let page = PAGE_BYTES - usize::try_from(from % PAGE_BYTES as u64).ok()?;
        let mut bytes = [0; PAGE_BYTES];
        let read = read_memory(thread, from, &mut bytes[..page]).ok().filter(|read| *read > 0)?;
        match bytes[..read].iter().position(|byte| *byte == 0) {
            Some(end) => {
                path.extend_from_slice(&bytes[..end]);
                return Some(path).filter(|path| !path.is_empty() && path.len() < PATH_BYTES_MAX);
            }
            None => path.extend_from_slice(&bytes[..read]),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_up_to_its_terminating_nul() {
        let text = [&[b'x'; 5000][..], b"/name\0more"].concat();
        let read = |at: usize| read_path(std::process::id(), text[at..].as_ptr() as u64);
        assert_eq!(read(4990).as_deref(), Some(&b"xxxxxxxxxx/name"[..]));
        assert_eq!(read(5005), None, "an empty path");
        assert_eq!(read(0), None, "a path that is too long");
        assert_eq!(read_path(std::process::id(), 8), None);
    }

    #[test]
    fn symlinks_are_followed_in_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        std::fs::create_dir_all(at("root/etc/real")).unwrap();
        std::fs::create_dir_all(at("root/w/sub")).unwrap();
        std::os::unix::fs::symlink("/etc", at("root/w/absolute")).unwrap();
        std::os::unix::fs::symlink("../../../../etc", at("root/w/relative")).unwrap();
        std::os::unix::fs::symlink("loop", at("root/w/loop")).unwrap();
        let root = open(at("root"), ONLY_PATH, Mode::empty()).unwrap();
        let resolve = |base: Option<&str>, path: &str| {
            let written =
                Written { base: base.map(|base| base.as_bytes().to_vec()), path: path.as_bytes().to_vec() };
            let place = written.resolve(&root)?;
            let found = place.below(&at("root")).map(|path| path.to_string());
            Ok(found.unwrap_or_else(|| "outside".to_owned()))
        };
        for (base, path, found) in [
            (None, "/w/sub", Ok("w/sub")),
            (None, "/w/absolute/real//", Ok("etc/real")),
            (None, "/w/relative/new", Ok("etc/new")),
            (None, "/../../w/new", Ok("w/new")),
            (Some("/w"), "sub", Ok("w/sub")),
            (Some("/w/sub"), "../absolute/x", Ok("etc/x")),
            (Some("/w"), "missing/x", Err(Unresolved::Absent)),
            (Some("/w"), "..", Err(Unresolved::Absent)),
            (None, "/", Err(Unresolved::Absent)),
            (Some("/w/gone (deleted)"), "x", Err(Unresolved::Unknown)),
            (None, "/w/loop/x", Err(Unresolved::Unknown)),
            (None, "/proc/self/cwd/x", Err(Unresolved::Unknown)),
        ] {
            assert_eq!(resolve(base, path), found.map(str::to_owned), "{base:?} {path}");
        }
    }

    #[test]
    fn magic_links_are_not_followed() {
        let root = open("/", ONLY_PATH, Mode::empty()).unwrap();
        let path = format!("/proc/{}/cwd/x", std::process::id());
        let written = Written { base: None, path: path.into_bytes() };
        assert_eq!(written.resolve(&root).unwrap_err(), Unresolved::Unknown);
    }
}
