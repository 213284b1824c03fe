//! Finds other paths through which hidden paths would be visible. Compares by device and inode, since the host
//! may have mounted a directory in several places.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::workspace_root::mounts_beneath;

/// Device major and minor number, and inode.
type FileId = (u32, u32, u64);

/// The identity of a path; `None` if it cannot be read, or not without waiting for a server.
fn id(path: &Path) -> Option<FileId> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = statx(CWD, path, flags, StatxFlags::INO).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// The paths in the sandbox other than its own at which one of `secret` would be visible.
pub fn aliases(shown: &[(&Path, &Path)], secret: &[PathBuf]) -> std::io::Result<Vec<PathBuf>> {
    let mut found = visible_at(shown, secret)?;
    found.retain(|path| !secret.contains(path));
    Ok(found)
}

/// Paths in the sandbox at which one of `secret` would be visible. `shown` are pairs of a host directory and
/// its path in the sandbox.
pub fn visible_at(shown: &[(&Path, &Path)], secret: &[PathBuf]) -> std::io::Result<Vec<PathBuf>> {
    if shown.is_empty() {
        return Ok(Vec::new());
    }
    let mut below: HashMap<FileId, Vec<PathBuf>> = HashMap::new();
    for path in secret.iter().filter_map(|path| path.canonicalize().ok()) {
        for above in path.ancestors() {
            if let (Some(id), Ok(rest)) = (id(above), path.strip_prefix(above)) {
                below.entry(id).or_default().push(rest.to_owned());
            }
        }
    }
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mut found = Vec::new();
    for (source, path) in shown {
        let mut places = vec![source.to_path_buf()];
        places.extend(mounts_beneath(&mounts, source));
        for place in places {
            let Some(rests) = id(&place).and_then(|id| below.get(&id)) else { continue };
            let at = path.join(place.strip_prefix(source).unwrap_or(Path::new("")));
            // Joining an empty path would add a trailing slash.
            found.extend(rests.iter().map(|rest| at.join(rest).components().collect::<PathBuf>()));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}
