//! Values of directories that follow from the directory above.
//!
//! Those on the way to the last path are kept: for paths in sorted order, each directory is asked about at most twice,
//! and memory depends on the depth alone.

use avfs_types::path::TreePath;

/// The values on the way to the last path.
#[derive(Clone, Debug)]
pub struct Way<T> {
    path: Vec<u8>,
    /// The length of the path of each directory, without the root, and its value.
    levels: Vec<(usize, T)>,
}

impl<T> Default for Way<T> {
    fn default() -> Self {
        Self { path: Vec::new(), levels: Vec::new() }
    }
}

impl<T: Copy> Way<T> {
    /// The value of a path. `next` makes it from the value of the directory above; the root has `root`.
    pub fn value<E>(
        &mut self,
        path: &TreePath,
        root: T,
        mut next: impl FnMut(&TreePath, T) -> Result<T, E>,
    ) -> Result<T, E> {
        let bytes = path.as_bytes();
        let same = bytes.iter().zip(&self.path).take_while(|(new, old)| new == old).count();
        self.levels.truncate(self.levels.partition_point(|(length, _)| *length <= same));
        let is_above = |length: usize| bytes.get(length).is_none_or(|byte| *byte == b'/');
        self.levels.pop_if(|(length, _)| !is_above(*length));
        let (mut at, mut value) = self.levels.last().map_or((0, root), |(length, value)| (*length, *value));
        self.path.truncate(at);
        self.path.extend_from_slice(&bytes[at..]);
        while at < bytes.len() {
            let name = at + usize::from(at > 0);
            let length = bytes[name..].iter().position(|byte| *byte == b'/').unwrap_or(bytes.len() - name);
            at = name + length;
            value = next(&TreePath::root().join(&bytes[..at]), value)?;
            self.levels.push((at, value));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_on_the_way_is_asked_about_once() {
        let mut way = Way::default();
        let mut asked = Vec::new();
        let mut depth = |path: &str| {
            let path = TreePath::parse(path.as_bytes()).unwrap();
            way.value(&path, 0, |at, above| {
                asked.push(at.to_string());
                Ok::<usize, ()>(above + 1)
            })
        };
        for path in ["", "a", "a/b/c", "a/b/d", "a/bc", "a/bc/d", "a-b", "a/b", "b"] {
            let levels = path.split('/').filter(|name| !name.is_empty()).count();
            assert_eq!(depth(path), Ok(levels), "{path}");
        }
        assert_eq!(asked, ["a", "a/b", "a/b/c", "a/b/d", "a/bc", "a/bc/d", "a-b", "a", "a/b", "b"]);
    }

    #[test]
    fn an_error_is_not_kept() {
        let mut way = Way::default();
        let path = TreePath::parse(b"a/b").unwrap();
        assert_eq!(way.value(&path, 0, |at, _| if at.depth() == 2 { Err(()) } else { Ok(1) }), Err(()));
        assert_eq!(way.value(&path, 0, |_, above| Ok::<_, ()>(above + 1)), Ok(2));
    }
}
