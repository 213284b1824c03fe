//! A set of paths that takes 16 bytes for each, so that an apply of a million changes stays small.

use std::hash::{BuildHasher, RandomState};

use avfs_types::path::TreePath;

/// Digests of paths with random keys: nobody can choose two paths with the same one.
#[derive(Default)]
pub struct PathDigests {
    keys: [RandomState; 2],
    sorted: Vec<[u64; 2]>,
}

impl PathDigests {
    fn digest(&self, path: &TreePath) -> [u64; 2] {
        self.keys.each_ref().map(|keys| keys.hash_one(path.as_bytes()))
    }

    /// Adds paths.
    pub fn extend<E>(&mut self, paths: impl Iterator<Item = Result<TreePath, E>>) -> Result<(), E> {
        for path in paths {
            self.push(&path?);
        }
        self.sort();
        Ok(())
    }

    /// Adds a path, which is found once the set is sorted.
    pub fn push(&mut self, path: &TreePath) {
        let digest = self.digest(path);
        self.sorted.push(digest);
    }

    /// Sorts the set.
    pub fn sort(&mut self) {
        self.sorted.sort_unstable();
        self.sorted.dedup();
    }

    pub fn contains(&self, path: &TreePath) -> bool {
        self.sorted.binary_search(&self.digest(path)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_exactly_the_added_paths() {
        let path = |number: u32| TreePath::parse(format!("d/{number}").as_bytes()).unwrap();
        let mut set = PathDigests::default();
        for half in [0..500, 250..1000] {
            set.extend(half.map(|number| Ok::<_, ()>(path(number * 2)))).unwrap();
        }
        assert_eq!(set.sorted.len(), 1000);
        assert!((0..2000).all(|number| set.contains(&path(number)) == (number % 2 == 0)));
    }
}
