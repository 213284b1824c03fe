//! Opens directories beneath a root, one after the other in the order of a walk. Some of those on the way stay open, so
//! that each open takes few calls and few steps of the kernel, no matter how deep the directory is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::beneath;
use crate::beneath::{DIR, HOP_BYTES_MAX};

/// Components between two directories that stay open. A path of 10,000 components holds 156 descriptors.
const HOP_NAMES_MAX: usize = 64;

/// The directories that stay open. They are those that were found first: if another process moves one, its old path
/// leads to it until [`Walk::forget`] is called.
#[derive(Debug, Default)]
pub struct Walk {
    /// The path of the last one.
    path: Vec<u8>,
    /// The length of the path of each, and the directory.
    held: Vec<(usize, OwnedFd)>,
}

impl Walk {
    /// Opens a directory beneath `root`, which is the same in each call; without symlinks, as [`beneath::open`].
    pub fn open(&mut self, root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
        let same = path.iter().zip(&self.path).take_while(|(new, old)| new == old).count();
        let is_above = |length: usize| length <= same && path.get(length).is_none_or(|byte| *byte == b'/');
        let kept = self.held.iter().rposition(|(length, _)| is_above(*length));
        self.held.truncate(kept.map_or(0, |last| last + 1));
        loop {
            let (length, from) = match self.held.last() {
                Some((length, dir)) => (*length, dir.as_fd()),
                None => (0, root),
            };
            let rest = path[length..].strip_prefix(b"/").unwrap_or(&path[length..]);
            let Some(hop) = hop(rest) else { return beneath::open(from, rest, DIR) };
            let dir = beneath::open(from, &rest[..hop], DIR)?;
            let end = path.len() - rest.len() + hop;
            self.path.truncate(length);
            self.path.extend_from_slice(&path[length..end]);
            self.held.push((end, dir));
        }
    }

    /// Closes all directories: the next paths are resolved again.
    pub fn forget(&mut self) {
        self.held.clear();
    }
}

/// The length of the first part of a path, after which a directory stays open; `None` for a short path.
fn hop(path: &[u8]) -> Option<usize> {
    let slashes = || path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let by_names = slashes().nth(HOP_NAMES_MAX - 1);
    if path.len() <= HOP_BYTES_MAX {
        return by_names;
    }
    let by_bytes = path[..HOP_BYTES_MAX].iter().rposition(|byte| *byte == b'/');
    by_names.into_iter().chain(by_bytes).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::FileId;

    fn ids(walk: &mut Walk, root: &OwnedFd, path: &str) -> (FileId, FileId) {
        let walked = walk.open(root.as_fd(), path.as_bytes()).unwrap();
        let opened = beneath::open(root.as_fd(), path.as_bytes(), DIR).unwrap();
        (FileId::of(walked).unwrap(), FileId::of(opened).unwrap())
    }

    #[test]
    fn walk_opens_the_same_directories_as_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let root = beneath::open_root(dir.path()).unwrap();
        for name in
            ["d", "a-long-name-of-a-directory-with-a-hundred-bytes-or-so-to-reach-the-limit-of-bytes-first"]
        {
            let mut at = root.try_clone().unwrap();
            let mut paths = vec![String::new()];
            for _ in 0..200 {
                for name in [name, "other"] {
                    rustix::fs::mkdirat(&at, name, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
                }
                at = beneath::open(at.as_fd(), name.as_bytes(), DIR).unwrap();
                let last = paths.last().unwrap();
                paths.push(if last.is_empty() { name.to_owned() } else { format!("{last}/{name}") });
            }
            let mut walk = Walk::default();
            let beside = paths.iter().map(|path| match path.rsplit_once('/') {
                Some((above, _)) => format!("{above}/other"),
                None => "other".to_owned(),
            });
            let down = paths.iter().cloned().zip(beside).flat_map(|(path, beside)| [path, beside]);
            let down: Vec<String> = down.collect();
            for path in down.iter().chain(down.iter().rev()) {
                let (walked, opened) = ids(&mut walk, &root, path);
                assert_eq!(walked, opened, "{path}");
                assert!(walk.held.len() <= 200 / 30, "{}", walk.held.len());
            }
            assert!(walk.open(root.as_fd(), format!("{}/missing", paths[100]).as_bytes()).is_err());
            // Names that only share a prefix.
            std::fs::create_dir_all(dir.path().join("other-one")).unwrap();
            let (walked, opened) = ids(&mut walk, &root, "other-one");
            assert_eq!(walked, opened);
            std::fs::remove_dir_all(dir.path().join("other")).unwrap();
        }
    }

    #[test]
    fn moved_directory_is_found_at_its_new_path_after_forgetting() {
        let dir = tempfile::tempdir().unwrap();
        let root = beneath::open_root(dir.path()).unwrap();
        let deep = vec!["d"; 100].join("/");
        std::fs::create_dir_all(dir.path().join(&deep)).unwrap();
        let mut walk = Walk::default();
        let old = FileId::of(walk.open(root.as_fd(), deep.as_bytes()).unwrap()).unwrap();
        std::fs::rename(dir.path().join("d"), dir.path().join("moved")).unwrap();
        std::fs::create_dir_all(dir.path().join(&deep)).unwrap();
        walk.forget();
        let (walked, opened) = ids(&mut walk, &root, &deep);
        assert!(walked == opened && walked != old);
        assert!(
            beneath::open(root.as_fd(), b"d/..", DIR).is_ok() && walk.open(root.as_fd(), b"../x").is_err()
        );
    }
}
