//! Lists the files that a command left in the sandbox's private directories, such as its home and /tmp, before they
//! are dropped.
//!
//! Reads them through a descriptor of each file system once no process inside is left that could change them. The
//! command controls the names and the shape of the tree: depth, number of entries and listed paths are bounded, and
//! symlinks are not followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, CString, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2, statat};

use avfs_engine::{OutsideWrite, OutsideWrites, TmpfsSize, ViewStep};

/// The maximum number of private directories of a sandbox: the home, /tmp, /var/tmp and those of `--tmpfs`.
pub const PRIVATE_DIRS_MAX: usize = 16;
/// Entries that are examined in all directories together.
const ENTRIES_MAX: u64 = 10_000;
/// Levels of directories that are examined.
const DEPTH_MAX: usize = 64;
/// Paths that are listed.
const PATHS_MAX: usize = 20;
/// Longer paths are counted, but not listed.
const PATH_BYTES_MAX: usize = 1024;
const BUFFER_BYTES: usize = 32 << 10;

/// The directories of a view that are private and empty at the start. A directory below another mount is not.
pub fn private_dirs(view: &[ViewStep]) -> Vec<&Path> {
    let covers = |step: &ViewStep, path: &Path| match step {
        ViewStep::Bind { path: over, .. }
        | ViewStep::Overlaid { path: over, .. }
        | ViewStep::Tmpfs { path: over, .. } => over == path,
        ViewStep::Dir { .. }
        | ViewStep::File { .. }
        | ViewStep::Symlink { .. }
        | ViewStep::Proc { .. }
        | ViewStep::Devices { .. }
        | ViewStep::Workspace(_)
        | ViewStep::Hide { .. }
        | ViewStep::MountPoint { .. }
        | ViewStep::Pin { .. }
        | ViewStep::Secrets { .. }
        | ViewStep::Seal { .. } => false,
    };
    let is_covered = |place: usize, path: &Path| view[place + 1..].iter().any(|later| covers(later, path));
    let private = view.iter().enumerate().filter_map(|(place, step)| {
        let ViewStep::Tmpfs { path, size: TmpfsSize::Default, .. } = step else { return None };
        Some(path.as_path()).filter(|path| !is_covered(place, path))
    });
    private.take(PRIVATE_DIRS_MAX).collect()
}

/// The files in these directories that the view did not create.
pub fn look(dirs: &[(&Path, OwnedFd)], view: &[ViewStep]) -> OutsideWrites {
    let mut looking = Looking { made: made(view), found: OutsideWrites::default(), entries: 0 };
    // Files in the home, such as .bashrc, must not be hidden by many files in a directory for temporary ones.
    let is_temporary = |path: &Path| ["/tmp", "/var/tmp"].iter().any(|tmp| path == Path::new(tmp));
    let (temporary, others): (Vec<_>, Vec<_>) = dirs.iter().partition(|(path, _)| is_temporary(path));
    for (path, dir) in others.into_iter().chain(temporary) {
        looking.walk(path, dir.as_fd());
    }
    looking.found
}

/// The paths that the view creates: directories on the way to its mounts, and the mounts themselves.
fn made(view: &[ViewStep]) -> Made<'_> {
    let mut made = Made::default();
    for step in view {
        match step {
            ViewStep::Dir { path, .. } | ViewStep::MountPoint { path } => {
                made.dirs.insert(path);
            }
            ViewStep::File { path, bytes } => {
                made.files.insert(path, bytes);
            }
            ViewStep::Symlink { path, .. }
            | ViewStep::Bind { path, .. }
            | ViewStep::Overlaid { path, .. }
            | ViewStep::Tmpfs { path, .. }
            | ViewStep::Proc { path }
            | ViewStep::Devices { path }
            | ViewStep::Secrets { path }
            | ViewStep::Hide { path } => {
                made.others.insert(path);
            }
            ViewStep::Workspace(mount) => {
                made.others.insert(mount.path());
            }
            ViewStep::Pin { .. } | ViewStep::Seal { .. } => {}
        }
    }
    made
}

#[derive(Default)]
struct Made<'v> {
    dirs: BTreeSet<&'v Path>,
    others: BTreeSet<&'v Path>,
    /// With their content, since the command may have changed it.
    files: BTreeMap<&'v Path, &'v [u8]>,
}

struct Looking<'v> {
    made: Made<'v>,
    found: OutsideWrites,
    entries: u64,
}

/// A directory that has not been listed yet.
struct Pending {
    dir: OwnedFd,
    path: PathBuf,
    depth: usize,
}

impl Looking<'_> {
    /// Breadth first: deep files are more likely caches.
    fn walk(&mut self, path: &Path, dir: BorrowedFd<'_>) {
        let Some(dir) = open_dir(dir, c".") else {
            self.found.is_complete = false;
            return;
        };
        let mut pending = VecDeque::from([Pending { dir, path: path.to_owned(), depth: 0 }]);
        while let Some(at) = pending.pop_front() {
            for name in self.names(&at) {
                self.entry(&at, &name, &mut pending);
            }
        }
    }

    /// The names in a directory, sorted, up to the limit.
    fn names(&mut self, at: &Pending) -> Vec<CString> {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut listing = RawDir::new(&at.dir, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = listing.next() {
            let Ok(entry) = entry else {
                self.found.is_complete = false;
                break;
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.entries == ENTRIES_MAX {
                self.found.is_complete = false;
                break;
            }
            self.entries += 1;
            names.push(name.to_owned());
        }
        names.sort();
        names
    }

    fn entry(&mut self, at: &Pending, name: &CString, pending: &mut VecDeque<Pending>) {
        let path = at.path.join(OsStr::from_bytes(name.as_bytes()));
        if self.made.others.contains(path.as_path()) {
            return;
        }
        let Ok(stat) = statat(&at.dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) else {
            self.found.is_complete = false;
            return;
        };
        if self.made.files.get(path.as_path()).is_some_and(|bytes| holds(at.dir.as_fd(), name, bytes)) {
            return;
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            self.found.files += 1;
            self.found.bytes = self.found.bytes.saturating_add(size);
            self.list(path, Some(size));
            return;
        }
        if !self.made.dirs.contains(path.as_path()) {
            self.found.dirs += 1;
        }
        match open_dir(at.dir.as_fd(), name).filter(|_| at.depth < DEPTH_MAX) {
            Some(dir) => pending.push_back(Pending { dir, path, depth: at.depth + 1 }),
            // A directory that its owner cannot read, or that is too deep, is listed instead of its content.
            None => {
                self.found.is_complete = false;
                self.list(path, None);
            }
        }
    }

    fn list(&mut self, path: PathBuf, size: Option<u64>) {
        if self.found.paths.len() < PATHS_MAX && path.as_os_str().len() <= PATH_BYTES_MAX {
            self.found.paths.push(OutsideWrite { path, size });
        } else {
            self.found.left_off += 1;
        }
    }
}

/// True for a regular file with exactly this content.
fn holds(dir: BorrowedFd<'_>, name: &CStr, bytes: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let Ok(file) = openat2(dir, name, flags, Mode::empty(), resolve) else { return false };
    let file = std::fs::File::from(file);
    let mut read = Vec::new();
    file.metadata().is_ok_and(|found| found.is_file() && found.len() == bytes.len() as u64)
        && file.take(bytes.len() as u64 + 1).read_to_end(&mut read).is_ok()
        && read == bytes
}

/// Opens a directory of the same file system without following symlinks.
fn open_dir(dir: BorrowedFd<'_>, name: &CStr) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(dir, name, flags, Mode::empty(), resolve).ok()
}

#[cfg(test)]
mod tests {
    use avfs_engine::WorkspaceMount;

    use super::*;

    fn tmpfs(path: &Path) -> ViewStep {
        ViewStep::Tmpfs { path: path.to_owned(), mode: 0o700, size: TmpfsSize::Default }
    }

    fn looked(root: &Path, view: &[ViewStep]) -> OutsideWrites {
        let dir = OwnedFd::from(std::fs::File::open(root).unwrap());
        look(&[(root, dir)], view)
    }

    #[test]
    fn paths_created_by_the_view_are_not_reported() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        std::fs::create_dir_all(home.join("src/work")).unwrap();
        std::fs::create_dir_all(home.join(".cargo/bin")).unwrap();
        let view = [
            tmpfs(home),
            ViewStep::Dir { path: home.join("src"), mode: 0o755 },
            ViewStep::Workspace(WorkspaceMount::ReadOnly { path: home.join("src/work"), lowers: vec![] }),
            ViewStep::Dir { path: home.join(".cargo"), mode: 0o755 },
            ViewStep::Dir { path: home.join(".cargo/bin"), mode: 0o755 },
            ViewStep::File { path: home.join(".gitconfig"), bytes: b"[user]\n".to_vec() },
        ];
        std::fs::write(home.join(".gitconfig"), "[user]\n").unwrap();
        let nothing = looked(home, &view);
        assert_eq!((nothing.files, nothing.dirs, nothing.is_complete), (0, 0, true));
        std::fs::write(home.join("src/work/kept"), "in the workspace").unwrap();
        std::fs::write(home.join(".cargo/credentials"), "abc").unwrap();
        std::fs::write(home.join(".bashrc"), "x").unwrap();
        std::fs::write(home.join(".gitconfig"), "[core]\n").unwrap();
        std::fs::create_dir(home.join("empty")).unwrap();
        let found = looked(home, &view);
        assert_eq!((found.files, found.dirs, found.bytes, found.left_off), (3, 1, 11, 0));
        let listed: Vec<_> = found.paths.iter().map(|one| (one.path.clone(), one.size)).collect();
        let expected = [(".bashrc", 1), (".gitconfig", 7), (".cargo/credentials", 3)];
        assert_eq!(listed, expected.map(|(name, size)| (home.join(name), Some(size))));
    }

    #[test]
    fn files_in_tmp_do_not_hide_those_in_the_home() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(home.path().join(".bashrc"), "x").unwrap();
        for number in 0..2 * PATHS_MAX {
            std::fs::write(tmp.path().join(number.to_string()), "").unwrap();
        }
        let open = |dir: &tempfile::TempDir| OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        let (at_tmp, at_home) = (Path::new("/tmp"), Path::new("/a/deep/home"));
        let found = look(&[(at_tmp, open(&tmp)), (at_home, open(&home))], &[tmpfs(at_tmp), tmpfs(at_home)]);
        assert_eq!(found.paths[0].path, at_home.join(".bashrc"));
        assert_eq!(found.left_off, PATHS_MAX as u64 + 1);
    }

    #[test]
    fn hostile_trees_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::os::unix::fs::symlink("/", root.join("link")).unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", 100).collect();
        std::fs::create_dir_all(root.join(&deep)).unwrap();
        for number in 0..200 {
            std::fs::write(root.join(format!("\x1b[31m{number}")), "").unwrap();
        }
        let found = looked(root, &[tmpfs(root)]);
        assert_eq!((found.files, found.paths.len()), (201, PATHS_MAX));
        assert!(!found.is_complete && found.left_off > 0 && found.dirs <= 66, "{found:?}");
    }

    #[test]
    fn a_directory_under_another_mount_is_not_private() {
        let home = Path::new("/home/u");
        let kept = ViewStep::Bind {
            source: "/cache".into(),
            path: home.into(),
            access: avfs_engine::Access::ReadWrite,
            lookup: avfs_engine::Lookup::FollowLinks,
        };
        assert_eq!(private_dirs(&[tmpfs(home), tmpfs(Path::new("/tmp"))]), [home, Path::new("/tmp")]);
        assert_eq!(private_dirs(&[tmpfs(home), kept]), [] as [&Path; 0]);
        assert_eq!(private_dirs(&[tmpfs(home), tmpfs(home)]), [home]);
    }
}
