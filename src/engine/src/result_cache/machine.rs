//! The machine that a command runs on, as far as its result depends on it: release, packages, programs on PATH.
//!
//! Read once: a long-lived [`Machine`] does not notice an upgrade.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use avfs_types::encode::put_bytes;

use crate::view::toolchains;

/// Files that change with every package that is installed, upgraded or removed.
const PACKAGES: [&str; 10] = [
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
    "/var/lib/pacman/local",
    "/nix/var/nix/db/db.sqlite",
    "/run/current-system",
    "/etc/ld.so.cache",
    "/etc/alternatives",
];
const RELEASE: &str = "/etc/os-release";
/// Maximum names to read in a toolchain directory.
const NAMES_MAX: usize = 512;

/// The search paths: the command's own PATH, and the one whose toolchains it sees.
pub struct SearchPaths<'a> {
    pub command: &'a OsStr,
    pub toolchains: &'a OsStr,
}

/// A cache of the data read so far.
#[derive(Default)]
pub struct Machine {
    system: OnceLock<Vec<u8>>,
    /// The toolchains, by PATH.
    toolchains: Mutex<BTreeMap<OsString, Vec<u8>>>,
}

impl Machine {
    /// Release, architecture, kernel, packages, user, and this avfs.
    pub fn system(&self) -> &[u8] {
        self.system.get_or_init(|| {
            let mut bytes = Vec::new();
            put_bytes(&mut bytes, env!("CARGO_PKG_VERSION").as_bytes());
            put_bytes(&mut bytes, std::env::consts::ARCH.as_bytes());
            put_bytes(&mut bytes, rustix::system::uname().release().to_bytes());
            put_bytes(&mut bytes, &rustix::process::geteuid().as_raw().to_be_bytes());
            put_bytes(&mut bytes, &rustix::process::getegid().as_raw().to_be_bytes());
            put_bytes(&mut bytes, &std::fs::read(RELEASE).unwrap_or_default());
            PACKAGES.iter().for_each(|path| put_stat(&mut bytes, Path::new(path)));
            bytes
        })
    }

    /// The directories on PATH, the toolchains shown for them, and the program itself. Programs in the
    /// workspace are covered by the version.
    pub fn programs(
        &self,
        paths: &SearchPaths<'_>,
        program: &OsStr,
        home: Option<&Path>,
        workspace: &Path,
    ) -> Vec<u8> {
        let dirs =
            paths.command.as_bytes().split(|byte| *byte == b':').map(|dir| Path::new(OsStr::from_bytes(dir)));
        let dirs: Vec<&Path> = dirs.filter(|dir| dir.is_absolute() && !dir.starts_with(workspace)).collect();
        let mut bytes = self.toolchains(paths, &dirs, home, workspace);
        let named = Path::new(program);
        let found = match program.as_bytes().contains(&b'/') {
            true => Some(named.to_owned()).filter(|path| path.is_absolute() && !path.starts_with(workspace)),
            false => dirs.iter().map(|dir| dir.join(named)).find(|path| path.is_file()),
        };
        match found {
            // A symlink to another release of a program means another program.
            Some(path) => put_stat(&mut bytes, &std::fs::canonicalize(&path).unwrap_or(path)),
            None => put_bytes(&mut bytes, b""),
        }
        bytes
    }

    fn toolchains(
        &self,
        paths: &SearchPaths<'_>,
        dirs: &[&Path],
        home: Option<&Path>,
        workspace: &Path,
    ) -> Vec<u8> {
        let mut known = self.toolchains.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(paths.command) {
            return bytes.clone();
        }
        let mut bytes = Vec::new();
        dirs.iter().for_each(|dir| put_stat(&mut bytes, dir));
        for dir in toolchains(paths.toolchains, home).iter().filter(|dir| !dir.starts_with(workspace)) {
            put_stat(&mut bytes, dir);
            let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
            let mut names: Vec<PathBuf> = names.collect();
            names.sort();
            names.iter().take(NAMES_MAX).for_each(|path| put_stat(&mut bytes, path));
        }
        known.insert(paths.command.to_owned(), bytes.clone());
        bytes
    }
}

/// Path, size and modification time; nothing for a path that does not exist.
fn put_stat(bytes: &mut Vec<u8>, path: &Path) {
    put_bytes(bytes, path.as_os_str().as_bytes());
    match std::fs::metadata(path) {
        Ok(meta) => {
            put_bytes(bytes, &meta.size().to_be_bytes());
            put_bytes(bytes, &meta.mtime().to_be_bytes());
            put_bytes(bytes, &meta.mtime_nsec().to_be_bytes());
        }
        Err(_) => put_bytes(bytes, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_program_changes_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("tools/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("cc"), "1").unwrap();
        let look = |program: &str, workspace: &str| {
            let paths = SearchPaths { command: bin.as_os_str(), toolchains: bin.as_os_str() };
            Machine::default().programs(&paths, program.as_ref(), None, Path::new(workspace))
        };
        let before = look("cc", "/w");
        assert_eq!(look("cc", "/w"), before);
        assert_ne!(look("ld", "/w"), before);
        std::fs::write(bin.join("cc"), "22").unwrap();
        let after = look("cc", "/w");
        assert_ne!(after, before);
        // A new program beside it counts too: commands run other programs.
        std::fs::write(bin.join("ld"), "").unwrap();
        assert_ne!(look("cc", "/w"), after);
        // Programs in the workspace are covered by the version.
        let inside = dir.path().to_str().unwrap();
        let there = look("cc", inside);
        std::fs::write(bin.join("cc"), "333").unwrap();
        assert_eq!(look("cc", inside), there);
    }
}
