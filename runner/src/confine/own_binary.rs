//! Protects avfs-run's own file if it is in a directory that a command may write to: the next run would execute a
//! file that the command left there.

use std::path::{Path, PathBuf};

use avfs_engine::Access;

/// A mount over a writable path.
#[derive(Debug, PartialEq, Eq)]
pub struct Seal {
    pub source: PathBuf,
    pub path: PathBuf,
    pub access: Access,
}

/// The mounts that protect the file if `source` is shown at `path`: the file itself, read-only. The directories on
/// the way become mount points, since those cannot be renamed or removed.
#[must_use]
pub fn seals(own: &Path, source: &Path, path: &Path) -> Vec<Seal> {
    let Ok(source) = source.canonicalize() else { return Vec::new() };
    let Ok(below) = own.strip_prefix(&source) else { return Vec::new() };
    let mut seals = Vec::new();
    let (mut from, mut at) = (source, path.to_owned());
    for name in below {
        from.push(name);
        at.push(name);
        seals.push(Seal { source: from.clone(), path: at.clone(), access: Access::ReadWrite });
    }
    match seals.last_mut() {
        Some(last) => last.access = Access::ReadOnly,
        // The path shows the file itself.
        None => seals.push(Seal { source: from, path: at, access: Access::ReadOnly }),
    }
    seals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_sealed_and_its_parents_cannot_be_moved() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("opt/bin")).unwrap();
        let own = root.join("opt/bin/avfs-run");
        std::fs::write(&own, "").unwrap();
        let found = seals(&own, &root, Path::new("/shown"));
        let seal = |below: &str, access| Seal {
            source: root.join(below),
            path: Path::new("/shown").join(below),
            access,
        };
        let expected = [
            seal("opt", Access::ReadWrite),
            seal("opt/bin", Access::ReadWrite),
            seal("opt/bin/avfs-run", Access::ReadOnly),
        ];
        assert_eq!(found, expected);
        let itself = [Seal { source: own.clone(), path: "/x".into(), access: Access::ReadOnly }];
        assert_eq!(seals(&own, &own, Path::new("/x")), itself);
        assert!(seals(Path::new("/elsewhere/avfs-run"), &root, Path::new("/shown")).is_empty());
    }
}
