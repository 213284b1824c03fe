//! Landlock: enforces the view of the file system a second time, by path instead of by mount.
//!
//! All files can be read and executed, and written where the view has something writable. A read-only path below a
//! writable one is protected only by its mount: Landlock rules can only add rights further down.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fcntl_getfl, open};

use avfs_engine::{Access, Lookup, ViewStep, WorkspaceMount};
use avfs_request::{LandlockMode, NestedUserns};

use crate::sys::{Errno, Result, Ruleset, RulesetAttr, landlock_abi};

/// The first version that allows moving files from one directory to another.
const ABI_LEAST: u32 = 2;

/// The kernel's access rights, by the version that added them.
const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// Removing, and creating each kind of file.
const CHANGE_DIR: u64 = 0x1ff << 4;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

const LOOKING: u64 = EXECUTE | READ_FILE | READ_DIR;
/// The rights that apply to a file that is not a directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

const SCOPED_ABSTRACT_SOCKETS: u64 = 1 << 0;
const SCOPED_SIGNALS: u64 = 1 << 1;

const fn rights(abi: u32) -> u64 {
    let mut rights = LOOKING | WRITE_FILE | CHANGE_DIR;
    if abi >= 2 {
        rights |= REFER;
    }
    if abi >= 3 {
        rights |= TRUNCATE;
    }
    if abi >= 5 {
        rights |= IOCTL_DEV;
    }
    rights
}

const fn scopes(abi: u32) -> u64 {
    if abi >= 6 { SCOPED_ABSTRACT_SOCKETS | SCOPED_SIGNALS } else { 0 }
}

/// Landlock was required and is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandlockGap {
    Missing,
    /// It would break every program that moves files.
    TooOld,
}

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    path: CString,
    rights: u64,
}

/// Rules that are ready to be enforced.
#[derive(Debug)]
pub struct Landlock {
    abi: u32,
    attr: RulesetAttr,
    rules: Vec<Rule>,
}

impl Landlock {
    /// The requested rules, as far as this kernel supports them; `None` if Landlock is not wanted.
    pub fn choose(
        mode: LandlockMode,
        userns: NestedUserns,
        view: &[ViewStep],
    ) -> std::result::Result<Option<Self>, LandlockGap> {
        match (mode, userns) {
            // A process under Landlock cannot mount, which nested namespaces need.
            (LandlockMode::Off, _) | (LandlockMode::Auto, NestedUserns::Allowed) => return Ok(None),
            (LandlockMode::Auto, NestedUserns::Refused) | (LandlockMode::Required, _) => {}
        }
        match (landlock_abi(), mode) {
            (Some(abi), _) if abi >= ABI_LEAST => Ok(Some(Self::of(abi, view))),
            (_, LandlockMode::Auto | LandlockMode::Off) => Ok(None),
            (Some(_), LandlockMode::Required) => Err(LandlockGap::TooOld),
            (None, LandlockMode::Required) => Err(LandlockGap::Missing),
        }
    }

    fn of(abi: u32, view: &[ViewStep]) -> Self {
        let handled = rights(abi);
        let mut rules = vec![Rule { path: c"/".to_owned(), rights: LOOKING & handled }];
        for path in writable(view) {
            // Only a bind can be a file, and that has been checked before.
            let of = if path.is_file { OF_FILES } else { u64::MAX };
            if let Ok(name) = CString::new(path.path.as_os_str().as_bytes()) {
                rules.push(Rule { path: name, rights: of & handled });
            }
        }
        let attr = RulesetAttr { handled_files: handled, handled_net: 0, scoped: scopes(abi) };
        Self { abi, attr, rules }
    }

    #[must_use]
    pub fn abi(&self) -> u32 {
        self.abi
    }

    /// Enforces the rules on this process and its descendants, permanently. The process must already be in its root,
    /// with its streams.
    pub fn enforce(&self) -> Result<()> {
        let ruleset = Ruleset::new(&self.attr)?;
        for rule in &self.rules {
            match open(rule.path.as_c_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
                Ok(place) => ruleset.allow(place.as_fd(), rule.rights)?,
                // A path that the command cannot reach does not need a rule.
                Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
            allow_again(&ruleset, stream)?;
        }
        ruleset.enforce()
    }
}

/// Allows reopening a stream, which is outside of the view (`/dev/stdout`), with the access mode it was opened with.
fn allow_again(ruleset: &Ruleset, stream: BorrowedFd<'_>) -> Result<()> {
    let mode = fcntl_getfl(stream)? & OFlags::ACCMODE;
    let rights = if mode == OFlags::RDONLY {
        READ_FILE
    } else if mode == OFlags::WRONLY {
        WRITE_FILE
    } else {
        READ_FILE | WRITE_FILE
    };
    match ruleset.allow(stream, rights) {
        // An anonymous pipe has no path, so rules do not apply to it.
        Err(Errno::BADFD) => Ok(()),
        other => other,
    }
}

struct Writable {
    path: PathBuf,
    is_file: bool,
}

/// The writable paths, without those below another one.
fn writable(view: &[ViewStep]) -> Vec<Writable> {
    let mut found: Vec<Writable> = Vec::new();
    let dir = |path: &Path| Some(Writable { path: path.to_owned(), is_file: false });
    let is_sealed = |path: &Path| {
        view.iter().any(|step| matches!(step, ViewStep::Seal { path: sealed } if sealed == path))
    };
    for step in view {
        let writable = match step {
            ViewStep::Tmpfs { path, .. } if is_sealed(path) => None,
            ViewStep::Tmpfs { path, .. } | ViewStep::Proc { path } | ViewStep::Devices { path } => dir(path),
            ViewStep::Workspace(WorkspaceMount::Overlay { path, .. } | WorkspaceMount::Copy { path, .. }) => {
                dir(path)
            }
            ViewStep::Bind { source, path, access: Access::ReadWrite | Access::Device, lookup } => {
                let is_dir = match lookup {
                    Lookup::Same { is_dir, .. } => *is_dir,
                    Lookup::FollowLinks | Lookup::NoLinks => source.is_dir(),
                };
                Some(Writable { path: path.clone(), is_file: !is_dir })
            }
            ViewStep::Bind { access: Access::ReadOnly, .. }
            | ViewStep::Overlaid { .. }
            | ViewStep::Workspace(WorkspaceMount::ReadOnly { .. })
            | ViewStep::Dir { .. }
            | ViewStep::File { .. }
            | ViewStep::Symlink { .. }
            | ViewStep::Secrets { .. }
            | ViewStep::Hide { .. }
            | ViewStep::MountPoint { .. }
            | ViewStep::Pin { .. }
            | ViewStep::Seal { .. } => None,
        };
        found.extend(writable);
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    // In sorted order, descendants come after their ancestors.
    let mut kept: Vec<Writable> = Vec::with_capacity(found.len());
    for one in found {
        if !kept.iter().any(|above| one.path.starts_with(&above.path)) {
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use avfs_engine::{TmpfsSize, UpperPlace};

    use super::*;

    fn tmpfs(path: &str) -> ViewStep {
        ViewStep::Tmpfs { path: path.into(), mode: 0o755, size: TmpfsSize::Default }
    }

    fn bind(path: &str, access: Access) -> ViewStep {
        ViewStep::Bind { source: path.into(), path: path.into(), access, lookup: Lookup::FollowLinks }
    }

    #[test]
    fn only_writable_paths_get_a_rule() {
        let upper = UpperPlace::Disk { dir: "/scratch".into() };
        let view = [
            bind("/usr", Access::ReadOnly),
            tmpfs("/home/me"),
            ViewStep::Workspace(WorkspaceMount::Overlay {
                path: "/home/me/project".into(),
                lowers: vec![],
                upper,
            }),
            ViewStep::Proc { path: "/proc".into() },
            bind("/etc/passwd", Access::ReadWrite),
            ViewStep::Seal { path: "/".into() },
        ];
        let landlock = Landlock::of(7, &view);
        let found: Vec<_> =
            landlock.rules.iter().map(|rule| (rule.path.to_str().unwrap(), rule.rights)).collect();
        let all = rights(7);
        let expected = [("/", LOOKING), ("/etc/passwd", OF_FILES), ("/home/me", all), ("/proc", all)];
        assert_eq!(found, expected);
        let read_only = [ViewStep::Workspace(WorkspaceMount::ReadOnly { path: "/w".into(), lowers: vec![] })];
        assert_eq!(Landlock::of(7, &read_only).rules.len(), 1);
    }

    #[test]
    fn each_version_handles_its_own_rights() {
        assert_eq!(rights(2) & (TRUNCATE | IOCTL_DEV), 0);
        assert_eq!(rights(4) & (REFER | TRUNCATE | IOCTL_DEV), REFER | TRUNCATE);
        assert_eq!(rights(7), (1 << 16) - 1);
        assert_eq!((scopes(5), scopes(6)), (0, 3));
    }

    #[test]
    fn landlock_is_not_used_with_nested_namespaces_or_off() {
        let none = |mode, userns| Landlock::choose(mode, userns, &[]).unwrap().is_none();
        assert!(none(LandlockMode::Off, NestedUserns::Refused));
        assert!(none(LandlockMode::Auto, NestedUserns::Allowed));
    }
}
