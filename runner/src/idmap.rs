//! The id map of a new user namespace: the caller keeps its own ids inside.

use std::path::PathBuf;

use caps::{CapSet, Capability};

use crate::sys::Pid;

/// The file that could not be written, for the administrator who has to allow it.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct MapError {
    pub path: PathBuf,
    #[source]
    pub source: std::io::Error,
}

/// Writes the id maps of a process that waits for them.
///
/// Root maps every id it has, so that files of other users can be copied up. Other users can map only their own id.
pub fn write(pid: Pid) -> Result<(), MapError> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    // Checked first: a map can be written only once, so a failed attempt after the first file could not be reverted.
    if uid.is_root() && may_map_others() && write_all_ids(pid).is_ok() {
        return Ok(());
    }
    // The kernel requires this of unprivileged processes: otherwise a group that denies access could be dropped.
    put(pid, "setgroups", "deny")?;
    put(pid, "uid_map", &format!("{uid} {uid} 1\n"))?;
    put(pid, "gid_map", &format!("{gid} {gid} 1\n"))
}

/// Root of a container may lack the capabilities; then only its own id is mapped.
fn may_map_others() -> bool {
    let has = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
    has(Capability::CAP_SETUID) && has(Capability::CAP_SETGID)
}

fn write_all_ids(pid: Pid) -> Result<(), MapError> {
    for map in ["uid_map", "gid_map"] {
        let own = PathBuf::from("/proc/self").join(map);
        let text = std::fs::read_to_string(&own).map_err(|source| MapError { path: own, source })?;
        put(pid, map, &identity(&text))?;
    }
    Ok(())
}

/// Maps every id of the namespace that a map describes to itself.
fn identity(map: &str) -> String {
    let mut lines = String::new();
    for line in map.lines() {
        let mut numbers = line.split_whitespace();
        if let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) {
            lines.push_str(&format!("{first} {first} {count}\n"));
        }
    }
    lines
}

fn put(pid: Pid, file: &str, text: &str) -> Result<(), MapError> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    std::fs::write(&path, text).map_err(|source| MapError { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_mapped_to_themselves() {
        assert_eq!(identity("         0     100000      65536\n"), "0 0 65536\n");
        assert_eq!(identity("0 0 1\n1 5 9\n"), "0 0 1\n1 1 9\n");
    }
}
