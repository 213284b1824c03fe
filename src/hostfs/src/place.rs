//! The place of a file or directory to write, at a path that a person, a setting or a variable names.
//!
//! The path is resolved once. From then on the caller uses the descriptor of the directory, so that another user, or a
//! command that can write a directory on the way, cannot redirect the write. A symlink is followed only if root
//! owns it and the directory that has it, and nobody else can write that directory. A command that root runs in a
//! sandbox has the uid 0 as well, so root follows only the links of `SYSTEM_DIRS`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, openat2};
use rustix::io::Errno;

use crate::beneath;
use crate::beneath::DIR;
use crate::held::FileId;
use crate::stat::HostStat;

/// The directories of the system that have symlinks on the way to other directories, such as /var/run.
const SYSTEM_DIRS: [&str; 6] = ["/", "/dev", "/proc", "/run", "/usr", "/var"];
/// As in the kernel.
const LINKS_MAX: u32 = 40;
const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OTHERS_WRITE: u32 = 0o022;

/// Why the place of a path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("{} is a symbolic link, which is not followed", link.display())]
    Link {
        link: PathBuf,
        /// The path to name instead: the same file or directory without symlinks.
        real: PathBuf,
    },
    #[error("cannot open {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What a path leads to, beyond a directory that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The path is the directory itself.
    Nothing,
    /// An entry of the directory that is neither a directory nor a symlink.
    File { name: OsString, stat: HostStat },
    /// Names that do not exist yet, each in the one before.
    Missing { names: Vec<OsString> },
}

/// The last existing directory on the way of a path, and the rest of the path.
#[derive(Debug)]
pub struct Place {
    /// Without permission to list the directory.
    pub dir: OwnedFd,
    /// The path of the directory without symlinks.
    pub real: PathBuf,
    pub rest: Rest,
}

impl Place {
    /// Resolves a path.
    pub fn find(path: &Path) -> Result<Self, PlaceError> {
        let failed = |at: &Path| PlaceError::io(at);
        let absolute = std::path::absolute(path).map_err(failed(path))?;
        let mut waiting = names_of(&absolute);
        let mut real = PathBuf::from("/");
        let mut dir = open_real(&real).map_err(failed(&real))?;
        let mut links = 0;
        while let Some(name) = waiting.pop() {
            if name == ".." {
                // Not through the descriptor: the directory may have been moved meanwhile.
                real.pop();
                dir = open_real(&real).map_err(failed(&real))?;
                continue;
            }
            let at = real.join(&name);
            let found = match rustix::fs::openat(&dir, &name, HANDLE, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let names: Vec<OsString> =
                        std::iter::once(name).chain(waiting.into_iter().rev()).collect();
                    return match names.iter().any(|name| name == "..") {
                        true => Err(failed(&at)(Errno::NOENT.into())),
                        false => Ok(Self { dir, real, rest: Rest::Missing { names } }),
                    };
                }
                opened => opened.map_err(|errno| failed(&at)(errno.into()))?,
            };
            let stat = stat_of(&found).map_err(failed(&at))?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => (dir, real) = (found, at),
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(failed(&at)(Errno::LOOP.into()));
                    }
                    if !is_followed(&stat_of(&dir).map_err(failed(&real))?, &real, &stat) {
                        return Err(PlaceError::Link { real: real_path(&at, &waiting), link: at });
                    }
                    let target = beneath::read_link(found.as_fd(), b"").map_err(failed(&at))?;
                    let target = PathBuf::from(OsString::from_vec(target));
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                        dir = open_real(&real).map_err(failed(&real))?;
                    }
                    waiting.extend(names_of(&target));
                }
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => {
                    return match waiting.is_empty() {
                        true => Ok(Self { dir, real, rest: Rest::File { name, stat: HostStat::of(&stat) } }),
                        false => Err(failed(&at)(Errno::NOTDIR.into())),
                    };
                }
            }
        }
        Ok(Self { dir, real, rest: Rest::Nothing })
    }

    /// Opens an existing directory by its path.
    pub fn open_dir(path: &Path) -> Result<OwnedFd, PlaceError> {
        let failed = PlaceError::io(path);
        let place = Self::find(path)?;
        match place.rest {
            Rest::Nothing => readable(place.dir.as_fd()).map_err(failed),
            Rest::File { .. } => Err(failed(Errno::NOTDIR.into())),
            Rest::Missing { .. } => Err(failed(Errno::NOENT.into())),
        }
    }

    /// Finds the directory of a file to write, and creates the missing ones on the way.
    pub fn of_file_in_new_dirs(path: &Path, owner: NewOwner) -> Result<FilePlace, PlaceError> {
        let place = Self::find(path)?;
        let Self { dir, real, rest: Rest::Missing { mut names } } = place else { return place.file(path) };
        let Some(name) = names.pop() else { return Err(PlaceError::io(path)(Errno::ISDIR.into())) };
        let (made, dir) = MadeDirs::make(dir, &names, 0o700, owner).map_err(PlaceError::io(path))?;
        made.keep();
        Ok(FilePlace {
            dir,
            path: real.join(names.iter().collect::<PathBuf>()).join(&name),
            name,
            there: None,
        })
    }

    fn file(self, path: &Path) -> Result<FilePlace, PlaceError> {
        let Self { dir, real, rest } = self;
        let failed = |errno: Errno| Err(PlaceError::io(path)(errno.into()));
        match rest {
            Rest::Nothing => failed(Errno::ISDIR),
            Rest::File { name, stat } => {
                Ok(FilePlace { dir, path: real.join(&name), name, there: Some(stat) })
            }
            Rest::Missing { mut names } => match (names.pop(), names.is_empty()) {
                (Some(name), true) => Ok(FilePlace { dir, path: real.join(&name), name, there: None }),
                (Some(_) | None, _) => failed(Errno::NOENT),
            },
        }
    }
}

impl PlaceError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// The place of a file to write.
#[derive(Debug)]
pub struct FilePlace {
    pub dir: OwnedFd,
    pub name: OsString,
    /// The path without symlinks, for messages.
    pub path: PathBuf,
    /// The existing file.
    pub there: Option<HostStat>,
}

impl FilePlace {
    /// Finds the place of a file in an existing directory.
    pub fn find(path: &Path) -> Result<Self, PlaceError> {
        Place::find(path)?.file(path)
    }

    /// Opens the file, or creates it with this mode if `flags` has `CREATE`.
    pub fn open(&self, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let (name, mode) = (self.name.as_bytes(), Mode::from_raw_mode(mode));
        beneath::create(self.dir.as_fd(), name, flags | OFlags::NOCTTY, mode)
    }
}

/// True for a path that names an open file of this process: no file system has these links.
#[must_use]
pub fn is_own_descriptor(path: &Path) -> bool {
    let named = |dir: &str| {
        let number = path.strip_prefix(dir).ok().and_then(Path::to_str);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    [Path::new("/dev/stdout"), Path::new("/dev/stderr")].contains(&path)
        || named("/dev/fd")
        || named("/proc/self/fd")
}

/// Opens a directory for listing that is open for traversal.
pub fn readable(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    beneath::open(dir, b"", DIR)
}

/// The owner of new directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewOwner {
    Caller,
    /// If the caller is root, the owner of the directory above.
    OfParent,
}

/// Directories that were created for a file or directory in them. Dropping this removes those that are empty.
#[derive(Debug)]
pub struct MadeDirs {
    base: OwnedFd,
    /// The path of each beneath `base`, outermost first.
    made: Vec<(Vec<u8>, FileId)>,
}

impl MadeDirs {
    /// Creates directories, each in the one before, unless they exist. Returns the last one.
    pub fn make(
        base: OwnedFd,
        names: &[OsString],
        mode: u32,
        owner: NewOwner,
    ) -> io::Result<(Self, OwnedFd)> {
        let mut dir = base.try_clone()?;
        let mut dirs = Self { base, made: Vec::new() };
        let mut path = Vec::new();
        for name in names {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.as_bytes());
            let is_new = match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(mode)) {
                Err(Errno::EXIST) => false,
                made => made.map(|()| true)?,
            };
            let inner = beneath::open(dir.as_fd(), name.as_bytes(), OFlags::PATH | OFlags::DIRECTORY)?;
            if is_new {
                dirs.made.push((path.clone(), FileId::of(&inner)?));
                if owner == NewOwner::OfParent {
                    give_to_owner_of(dir.as_fd(), inner.as_fd())?;
                }
            }
            dir = inner;
        }
        Ok((dirs, dir))
    }

    /// The directories stay.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for (path, id) in self.made.iter().rev() {
            let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&[][..], path.as_slice()),
            };
            let Ok(above) = beneath::open(self.base.as_fd(), above, OFlags::PATH | OFlags::DIRECTORY) else {
                return;
            };
            // A directory that another process has filled or replaced stays, as do those above it.
            if !id.is_at(above.as_fd(), name).unwrap_or(false)
                || rustix::fs::unlinkat(&above, OsStr::from_bytes(name), AtFlags::REMOVEDIR).is_err()
            {
                return;
            }
        }
    }
}

/// Gives a directory that root has just created to the owner of the one above. That user could have put another
/// directory in its place: one that has entries, or is not root's, is not given away.
fn give_to_owner_of(above: BorrowedFd<'_>, made: BorrowedFd<'_>) -> io::Result<()> {
    let above = stat_of(above)?;
    if !rustix::process::geteuid().is_root() || above.st_uid == 0 {
        return Ok(());
    }
    if stat_of(made)?.st_uid == 0 && beneath::is_empty(readable(made)?.as_fd())? {
        let (user, group) = (Uid::from_raw(above.st_uid), Gid::from_raw(above.st_gid));
        rustix::fs::chownat(made, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn stat_of(file: impl AsFd) -> io::Result<Stat> {
    Ok(rustix::fs::fstat(file)?)
}

/// The names of a path, the first one last.
fn names_of(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// Opens a directory by a path without symlinks.
fn open_real(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

fn is_followed(dir: &Stat, dir_path: &Path, link: &Stat) -> bool {
    let is_of_root = link.st_uid == 0 && dir.st_uid == 0 && dir.st_mode & OTHERS_WRITE == 0;
    let is_of_system = || SYSTEM_DIRS.iter().any(|system| dir_path == Path::new(system));
    is_of_root && (!rustix::process::geteuid().is_root() || is_of_system())
}

/// The path without symlinks, for the hint: it is resolved by name and not used.
fn real_path(link: &Path, waiting: &[OsString]) -> PathBuf {
    let mut path = link.to_owned();
    path.extend(waiting.iter().rev());
    for _ in 0..LINKS_MAX {
        let existing = |above: &Path| Some((above.canonicalize().ok()?, path.strip_prefix(above).ok()?));
        let Some((real, missing)) = path.ancestors().find_map(existing) else { break };
        let mut names = missing.components();
        let first = names.next();
        // Only a dangling link is missing and can be read.
        match first.map(|name| std::fs::read_link(real.join(name))) {
            None => return real,
            Some(Ok(target)) => path = real.join(target).join(names.as_path()),
            Some(Err(_)) => return real.join(missing),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(path: &Path) -> (PathBuf, PathBuf) {
        match Place::find(path).unwrap_err() {
            PlaceError::Link { link, real } => (link, real),
            PlaceError::Io { path, source } => panic!("{}: {source}", path.display()),
        }
    }

    #[test]
    fn links_of_the_caller_are_refused_with_the_real_path() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("real/sub")).unwrap();
        symlink("real", dir.join("link")).unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
        assert_eq!(refused(&dir.join("link")), (dir.join("link"), dir.join("real")));
        assert_eq!(refused(&dir.join("link/sub/new")), (dir.join("link"), dir.join("real/sub/new")));
        assert_eq!(refused(&dir.join("dangling")), (dir.join("dangling"), dir.join("nowhere")));
        // The path in the hint is real, for any target.
        for (name, target, real) in [
            ("above", "real/sub/../../nope", "nope"),
            ("through", "link/sub/nope", "real/sub/nope"),
            ("twice", "above", "nope"),
            ("nested", "dangling/nope", "nowhere/nope"),
        ] {
            symlink(target, dir.join(name)).unwrap();
            assert_eq!(refused(&dir.join(name)), (dir.join(name), dir.join(real)));
            assert_eq!(refused(&dir.join(name).join("x")).1, dir.join(real).join("x"));
        }
        assert_eq!(refused(&dir.join("link/../new")).1, dir.join("new"));
        symlink("loop", dir.join("loop")).unwrap();
        assert_eq!(refused(&dir.join("loop")).0, dir.join("loop"));
        // The control: by name, the kernel follows it.
        assert!(beneath::open_root(&dir.join("link/sub")).is_ok());
        let found = Place::find(&dir.join("real/sub/../../real/./sub/new/deep")).unwrap();
        assert_eq!(
            (found.real, found.rest),
            (dir.join("real/sub"), Rest::Missing { names: vec!["new".into(), "deep".into()] })
        );
    }

    #[test]
    fn links_of_the_system_are_followed() {
        // Wherever they lead on this machine.
        for link in
            ["/proc/self", "/bin", "/var/run"].map(Path::new).into_iter().filter(|link| link.is_symlink())
        {
            assert_eq!(Place::find(link).unwrap().real, link.canonicalize().unwrap(), "{}", link.display());
        }
        // But not the magic links there.
        assert_eq!(refused(Path::new("/proc/self/root/etc")).1, Path::new("/etc"));
    }

    #[test]
    fn place_of_a_file_is_the_directory_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(at("a")).unwrap();
        std::fs::create_dir(at("b")).unwrap();
        let place = FilePlace::find(&at("a/file")).unwrap();
        std::fs::rename(at("a"), at("moved")).unwrap();
        symlink("b", at("a")).unwrap();
        place.open(OFlags::WRONLY | OFlags::CREATE, 0o600).unwrap();
        assert!(at("moved/file").exists() && !at("b/file").exists());
        // The control: by path, the other directory is used.
        std::fs::write(at("a/file"), "").unwrap();
        assert!(at("b/file").exists());
        for (path, kind) in [("moved", io::ErrorKind::IsADirectory), ("no/file", io::ErrorKind::NotFound)] {
            match FilePlace::find(&at(path)).unwrap_err() {
                PlaceError::Io { source, .. } => assert_eq!(source.kind(), kind),
                PlaceError::Link { link, .. } => panic!("{}", link.display()),
            }
        }
    }

    #[test]
    fn made_directories_are_removed_unless_they_are_kept_filled_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let names = ["a", "b", "c"].map(OsString::from);
        let make = || {
            let base = beneath::open_root(dir.path()).unwrap();
            MadeDirs::make(base, &names, 0o700, NewOwner::Caller).unwrap()
        };
        drop(make());
        assert!(!at("a").exists());
        let (made, _) = make();
        std::fs::write(at("a/file"), "").unwrap();
        drop(made);
        assert!(at("a/file").exists() && !at("a/b").exists());
        let (made, _) = make();
        std::fs::rename(at("a/b/c"), at("moved")).unwrap();
        std::fs::create_dir(at("a/b/c")).unwrap();
        drop(made);
        assert!(at("moved").exists() && at("a/b/c").exists());
        make().0.keep();
        assert!(at("a/b/c").exists());
    }

    #[test]
    fn only_descriptors_of_this_process_are_recognised() {
        for own in ["/dev/stdout", "/dev/stderr", "/dev/fd/63", "/proc/self/fd/1"] {
            assert!(is_own_descriptor(Path::new(own)), "{own}");
        }
        for other in ["/dev/fd", "/dev/fd/x", "/dev/fd/1/x", "/proc/1/fd/1", "stdout", "/tmp/dev/stdout"] {
            assert!(!is_own_descriptor(Path::new(other)), "{other}");
        }
    }
}
