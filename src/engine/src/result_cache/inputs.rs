//! The content of host files and directories that a result depends on.
//!
//! Times and owners are ignored; names, kinds, modes and content count.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use avfs_types::encode::put_bytes;
use walkdir::WalkDir;

use super::MemoError;

/// Permission bits.
const MODE_BITS: u32 = 0o7777;

/// All inputs, as bytes that differ whenever an input differs.
pub fn inputs(paths: &[PathBuf]) -> Result<Vec<u8>, MemoError> {
    let mut paths: Vec<&PathBuf> = paths.iter().collect();
    paths.sort();
    paths.dedup();
    let mut bytes = Vec::new();
    for path in paths {
        put_bytes(&mut bytes, path.as_os_str().as_bytes());
        put_bytes(&mut bytes, &input(path)?);
    }
    Ok(bytes)
}

/// A symlink given as an input is followed. Inside a directory, symlinks are not followed.
fn input(path: &Path) -> Result<Vec<u8>, MemoError> {
    let real = std::fs::canonicalize(path).map_err(unreadable(path))?;
    let mut bytes = Vec::new();
    // Sorted, because the bytes must not depend on the order in which a file system lists names.
    for entry in WalkDir::new(&real).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(&real).to_owned();
            // Only a loop has no cause, and loops cannot occur if symlinks are not followed.
            let source = error.into_io_error().unwrap_or_else(|| ErrorKind::Other.into());
            MemoError::Input { path, source }
        })?;
        let path = entry.path();
        let below = path.strip_prefix(&real).unwrap_or(path);
        put_bytes(&mut bytes, below.as_os_str().as_bytes());
        let meta = path.symlink_metadata().map_err(unreadable(path))?;
        let mode = (meta.permissions().mode() & MODE_BITS).to_be_bytes();
        if meta.is_symlink() {
            let target = std::fs::read_link(path).map_err(unreadable(path))?;
            put_bytes(&mut bytes, b"link");
            put_bytes(&mut bytes, target.as_os_str().as_bytes());
        } else if meta.is_dir() {
            put_bytes(&mut bytes, b"dir");
            put_bytes(&mut bytes, &mode);
        } else if meta.is_file() {
            let mut hasher = blake3::Hasher::new();
            let file = File::open(path).map_err(unreadable(path))?;
            hasher.update_reader(file).map_err(unreadable(path))?;
            put_bytes(&mut bytes, b"file");
            put_bytes(&mut bytes, &mode);
            put_bytes(&mut bytes, hasher.finalize().as_bytes());
        } else {
            return Err(MemoError::OddInput { path: path.to_owned() });
        }
    }
    Ok(bytes)
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> MemoError {
    let path = path.to_owned();
    move |source| MemoError::Input { path, source }
}

#[cfg(test)]
mod tests {
    use avfs_types::diagnose::Diagnose;

    use super::*;

    #[test]
    fn any_readable_difference_changes_the_input() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("in/sub")).unwrap();
        std::fs::write(at("in/sub/a"), "1").unwrap();
        let now = || inputs(&[at("in")]).unwrap();
        let mut seen = vec![now()];
        let changes: [&dyn Fn(); 5] = [
            &|| std::fs::write(at("in/sub/a"), "2").unwrap(),
            &|| std::fs::rename(at("in/sub/a"), at("in/sub/b")).unwrap(),
            &|| std::fs::create_dir(at("in/empty")).unwrap(),
            &|| std::os::unix::fs::symlink("b", at("in/sub/l")).unwrap(),
            &|| std::fs::set_permissions(at("in/sub/b"), PermissionsExt::from_mode(0o700)).unwrap(),
        ];
        for change in changes {
            change();
            assert!(!seen.contains(&now()), "change number {} is not detected", seen.len());
            seen.push(now());
        }
        // Times do not count, nor does naming an input twice.
        let file = File::options().append(true).open(at("in/sub/b")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(seen.last(), Some(&now()));
        assert_eq!(inputs(&[at("in"), at("in")]).unwrap(), now());
        assert_eq!(inputs(&[at("none")]).unwrap_err().code(), "cache.input_unreadable");
        let odd = inputs(&["/dev/null".into()]).unwrap_err();
        assert_eq!(odd.code(), "cache.input_odd");
    }

    #[test]
    fn bytes_do_not_depend_on_the_order_of_file_creation() {
        let made = |names: [&str; 4]| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("a")).unwrap();
            names.iter().for_each(|name| std::fs::write(dir.path().join(name), name).unwrap());
            input(dir.path()).unwrap()
        };
        let bytes = made(["a/z", "a/b", "a-b", "b"]);
        assert_eq!(made(["b", "a-b", "a/b", "a/z"]), bytes);
        let at = |name: &[u8]| {
            let mut wanted = Vec::new();
            put_bytes(&mut wanted, name);
            put_bytes(&mut wanted, b"file");
            bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
        };
        assert!([b"a/b", b"a/z", b"a-b"].map(|name| at(name)).is_sorted());
    }
}
