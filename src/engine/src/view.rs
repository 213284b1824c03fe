//! The part of the host that a command sees: an allow list of the system, toolchains found on PATH, an empty
//! home, the workspace, and the caller's additions. Nothing else exists in the sandbox.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use avfs_request::{ExecutionRequest, Extra, ForkChoice, HostPath, NetMode, ProcMode, Profile, SECRETS_DIR};

use crate::launcher::{Access, Lookup, TmpfsSize, ViewStep, WorkspaceMount};
use crate::workspace_root::Places;

/// Read-only in the sandbox, if the host has them.
const SYSTEM: [&str; 11] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap"];
/// Created for each run.
const PRIVATE: [&str; 4] = ["/proc", "/dev", "/tmp", "/var/tmp"];
/// The prefix of a user's programs, which also contains unrelated files: only the necessary parts of its
/// `share` are shown.
const USER_PREFIX: &str = ".local";
const USER_SHARED: [&str; 2] = ["share/pipx", "share/uv"];
/// Directories of a toolchain in a home directory, besides `bin`; the rest of its prefix may contain credentials.
const BESIDE_BIN: [&str; 7] = ["lib", "lib64", "libexec", "share", "include", "versions", "toolchains"];

/// The size of the file system with the entries of a repository, which contains only mount points.
const REPOSITORY_BYTES: u64 = 64 << 10;

/// Git's global configuration, relative to the home directory.
pub const GIT_CONFIG: &str = ".gitconfig";

/// How to show the read-only host directories of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownAs {
    Overlay,
    /// By a bind mount: sockets and named pipes beneath them work.
    Bind,
}

/// The inputs of a view.
pub struct ViewRequest<'a> {
    pub profile: Profile,
    pub workspace: WorkspaceMount,
    pub home: Option<&'a Path>,
    /// The global git configuration in a private home.
    pub git_config: Option<Vec<u8>>,
    /// `$PATH`
    pub search_path: &'a OsStr,
    pub net: &'a NetMode,
    pub proc: ProcMode,
    pub extras: &'a [Extra],
    /// A directory with some of the extras, which is read-only too.
    pub repository: Option<&'a Path>,
    pub shown_as: ShownAs,
    /// Directories that the command must not rename.
    pub pinned: &'a [PathBuf],
    /// Paths that must never be visible: the vault, the caches, the scratch.
    pub secret: &'a [PathBuf],
    pub secret_files: SecretFiles,
}

/// Whether the command gets secrets as files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretFiles {
    None,
    Some,
}

impl WorkspaceMount {
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Overlay { path, .. } | Self::ReadOnly { path, .. } | Self::Copy { path, .. } => path,
        }
    }
}

/// The steps that build the root, parents first.
#[must_use]
pub fn view(request: ViewRequest<'_>) -> Vec<ViewStep> {
    let mut shown: Vec<(PathBuf, ViewStep)> = Vec::new();
    let workspace = request.workspace.path().to_owned();
    match request.profile {
        Profile::Strict => {
            for path in SYSTEM {
                shown.extend(as_on_host(Path::new(path)));
            }
            let home = request.home.filter(|home| is_private_home(home, &workspace));
            if let Some(home) = home {
                shown.push((home.to_owned(), private_dir(home, 0o700)));
                if let Some(bytes) = request.git_config {
                    let path = home.join(GIT_CONFIG);
                    shown.push((path.clone(), ViewStep::File { path, bytes }));
                }
            }
            // Toolchains in the workspace are visible there, in the state of the fork.
            let toolchains = toolchains(request.search_path, request.home)
                .into_iter()
                .filter(|path| !path.starts_with(&workspace) && !workspace.starts_with(path));
            shown.extend(toolchains.flat_map(|path| as_on_host(&path)));
        }
        Profile::Host => {
            let tops = std::fs::read_dir("/").into_iter().flatten().flatten().map(|entry| entry.path());
            let tops = tops.filter(|path| !PRIVATE.iter().any(|private| Path::new(private) == path));
            shown.extend(tops.flat_map(|path| as_on_host(&path)));
        }
    }
    if request.proc == ProcMode::Private {
        shown.push(("/proc".into(), ViewStep::Proc { path: "/proc".into() }));
    }
    shown.push(("/dev".into(), ViewStep::Devices { path: "/dev".into() }));
    shown.push(("/tmp".into(), private_dir(Path::new("/tmp"), 0o1777)));
    shown.push(("/var/tmp".into(), private_dir(Path::new("/var/tmp"), 0o1777)));
    if *request.net == NetMode::Host && request.profile == Profile::Strict {
        shown.extend(resolver());
    }
    if let Some(path) = request.repository {
        let size = TmpfsSize::Bytes(REPOSITORY_BYTES);
        shown.push((path.to_owned(), ViewStep::Tmpfs { path: path.to_owned(), mode: 0o755, size }));
    }
    let inside_workspace = |path: &Path| path.starts_with(&workspace) && path != workspace;
    shown.push((workspace.clone(), ViewStep::Workspace(request.workspace)));
    let mut mount_points = Vec::new();
    for extra in request.extras {
        let (path, step) = extra_step(extra, request.shown_as);
        // A mount point in the workspace must exist; elsewhere it is created like any directory.
        if extra.shows_a_dir() && inside_workspace(&path) {
            mount_points.push(path.clone());
        }
        shown.push((path, step));
    }
    match request.secret_files {
        SecretFiles::None => {}
        SecretFiles::Some => {
            if request.profile == Profile::Host {
                show_one_by_one(&mut shown, Path::new(SECRETS_DIR).parent().unwrap_or(Path::new("/")));
            }
            shown.push((SECRETS_DIR.into(), ViewStep::Secrets { path: SECRETS_DIR.into() }));
        }
    }
    // A stable sort: of two steps with the same path, the later one is on top.
    shown.sort_by(|a, b| a.0.cmp(&b.0));
    let mut steps = Vec::with_capacity(shown.len() * 2);
    let mut made = BTreeSet::from([PathBuf::from("/")]);
    for (path, step) in shown {
        // A path that does not exist need not be hidden, so its parents are not created.
        let hides = matches!(step, ViewStep::Hide { .. });
        for parent in parents(&path).into_iter().filter(|_| !hides) {
            if made.insert(parent.clone()) {
                steps.push(if mount_points.iter().any(|point| inside(point, &parent, &workspace)) {
                    ViewStep::MountPoint { path: parent }
                } else {
                    ViewStep::Dir { path: parent, mode: 0o755 }
                });
            }
        }
        if mount_points.contains(&path) {
            steps.push(ViewStep::MountPoint { path: path.clone() });
        }
        if !hides {
            made.insert(path);
        }
        steps.push(step);
    }
    steps.extend(request.repository.map(|path| ViewStep::Seal { path: path.to_owned() }));
    // When everything is in place, so that they show nothing else. The hidden paths come on top.
    steps.extend(request.pinned.iter().map(|path| ViewStep::Pin { path: path.clone() }));
    steps.extend(request.secret.iter().map(|path| ViewStep::Hide { path: path.clone() }));
    steps.push(ViewStep::Seal { path: "/".into() });
    steps
}

/// Shows the entries of a host directory instead of the directory, so that entries can be added that the host
/// does not have.
fn show_one_by_one(shown: &mut Vec<(PathBuf, ViewStep)>, dir: &Path) {
    shown.retain(|(path, _)| path != dir);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    shown.extend(entries.flat_map(|path| as_on_host(&path)));
}

/// True for a directory of the workspace that leads to a mount point.
fn inside(point: &Path, parent: &Path, workspace: &Path) -> bool {
    point.starts_with(parent) && parent.starts_with(workspace) && parent != workspace
}

/// The parents of a path, topmost first.
fn parents(path: &Path) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_owned).collect();
    parents.reverse();
    parents
}

fn private_dir(path: &Path, mode: u32) -> ViewStep {
    ViewStep::Tmpfs { path: path.to_owned(), mode, size: TmpfsSize::Default }
}

/// True for a home that is not the workspace, a parent of it, or the root.
fn is_private_home(home: &Path, workspace: &Path) -> bool {
    home.is_absolute() && home != Path::new("/") && !home.starts_with(workspace)
}

/// Shows a path as on the host: a symlink as a symlink, anything else read-only.
fn as_on_host(path: &Path) -> Option<(PathBuf, ViewStep)> {
    let there = path.symlink_metadata().ok()?;
    let path = path.to_owned();
    if there.is_symlink() {
        let target = std::fs::read_link(&path).ok()?;
        return Some((path.clone(), ViewStep::Symlink { path, target }));
    }
    let (source, access, lookup) = (path.clone(), Access::ReadOnly, Lookup::FollowLinks);
    Some((path.clone(), ViewStep::Bind { source, path, access, lookup }))
}

fn extra_step(extra: &Extra, shown_as: ShownAs) -> (PathBuf, ViewStep) {
    let bind = |access, lookup| {
        let (source, path) = (extra.source().to_owned(), extra.path().to_owned());
        (path.clone(), ViewStep::Bind { source, path, access, lookup })
    };
    let same = |shown: &HostPath| Lookup::Same { file: shown.file.id(), is_dir: shown.file.is_dir() };
    match extra {
        // A socket or a pipe named explicitly should work.
        Extra::ReadOnly(HostPath { path, real, file }) if shown_as == ShownAs::Overlay && file.is_dir() => {
            let (source, path) = (real.clone(), path.clone());
            (path.clone(), ViewStep::Overlaid { source, path, file: file.id() })
        }
        Extra::ReadOnly(shown) => bind(Access::ReadOnly, same(shown)),
        Extra::ReadWrite(shown) => bind(Access::ReadWrite, same(shown)),
        Extra::Cache { .. } => bind(Access::ReadWrite, Lookup::FollowLinks),
        Extra::Tmpfs(path) => (path.clone(), private_dir(path, 0o755)),
        Extra::Hide(path) => (path.clone(), ViewStep::Hide { path: path.clone() }),
    }
}

/// Whether a file of the host is at the same path in the sandbox. Of two extras, the one with the longer path counts.
#[must_use]
pub fn is_shown(path: &Path, request: &ExecutionRequest, bound: Option<&Path>) -> bool {
    let nearest = request.extras.iter().filter(|extra| path.starts_with(extra.path()));
    match nearest.max_by_key(|extra| extra.path().as_os_str().len()) {
        Some(Extra::ReadOnly(_) | Extra::ReadWrite(_)) => true,
        Some(Extra::Tmpfs(_) | Extra::Hide(_) | Extra::Cache { .. }) => false,
        None => {
            let is_workspace = request.at.is_none() && bound.is_some_and(|bound| path.starts_with(bound));
            match request.profile {
                Profile::Host => !is_private(path) || is_workspace,
                Profile::Strict => SYSTEM.iter().any(|system| path.starts_with(system)) || is_workspace,
            }
        }
    }
}

/// True for a path of which no profile shows the host's files.
pub fn is_private(path: &Path) -> bool {
    PRIVATE.iter().any(|private| path.starts_with(private))
}

/// The directory on the host that is the home of the command, if a fork keeps it.
pub fn kept_home<'e>(extras: &'e [Extra], home: Option<&Path>) -> Option<&'e Path> {
    extras.iter().find_map(|extra| match extra {
        Extra::Cache { source, path } if Some(path.as_path()) == home => Some(source.as_path()),
        Extra::Cache { .. } | Extra::ReadOnly(_) | Extra::ReadWrite(_) | Extra::Tmpfs(_) | Extra::Hide(_) => {
            None
        }
    })
}

/// The target of `/etc/resolv.conf`, if it is a symlink to a path that is not shown.
fn resolver() -> Option<(PathBuf, ViewStep)> {
    let file = std::fs::canonicalize("/etc/resolv.conf").ok()?;
    let shown = SYSTEM.iter().any(|path| file.starts_with(path));
    (!shown).then(|| as_on_host(&file)).flatten()
}

/// Directories on PATH that the system paths do not include, and the directories they need.
pub(super) fn toolchains(search_path: &OsStr, home: Option<&Path>) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut dirs: Vec<&Path> = search_path
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(|dir| Path::new(OsStr::from_bytes(dir)))
        .collect();
    dirs.sort_unstable();
    dirs.dedup();
    dirs.retain(|dir| !SYSTEM.iter().chain(&["/proc", "/dev"]).any(|path| dir.starts_with(path)));
    for dir in dirs.into_iter().filter(|dir| is_plain(dir) && dir.is_dir()) {
        let Some(prefix) = dir.parent().filter(|prefix| *prefix != Path::new("/")) else { continue };
        match home {
            // A whole home directory is not a toolchain.
            Some(home) if dir == home || home.starts_with(dir) => {}
            Some(home) if dir.starts_with(home) => {
                found.insert(dir.to_owned());
                let beside: &[&str] = match prefix.strip_prefix(home) {
                    Ok(below) if below == Path::new(USER_PREFIX) => &USER_SHARED,
                    Ok(below) if below.as_os_str().is_empty() => &[],
                    Ok(_) | Err(_) => &BESIDE_BIN,
                };
                found.extend(beside.iter().map(|name| prefix.join(name)).filter(|path| path.is_dir()));
                // rustup's programs are symlinks to one program that looks for toolchains beside cargo's directory.
                if dir.ends_with(".cargo/bin") {
                    found.insert(home.join(".rustup"));
                }
            }
            Some(_) | None => {
                let is_prefix = dir.ends_with("bin") || dir.ends_with("sbin");
                found.insert(if is_prefix { prefix.to_owned() } else { dir.to_owned() });
            }
        }
    }
    // A directory beneath another one is shown with it.
    let tops = found
        .iter()
        .filter(|path| path.is_dir() && !path.ancestors().skip(1).any(|above| found.contains(above)));
    tops.cloned().collect()
}

/// True for an absolute path without `..`.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

/// The paths to hide that do not exist. A path in the workspace is only checked if the run starts from the directory:
/// another version may have it.
pub fn hidden_nowhere<'r>(
    request: &'r ExecutionRequest,
    places: &'r Places,
) -> impl Iterator<Item = &'r PathBuf> {
    let from_directory = matches!(request.fork, ForkChoice::Ephemeral { from: None })
        && places.bound.as_ref() == Some(&places.workspace);
    request.extras.iter().filter_map(move |extra| match extra {
        Extra::Hide(path) => {
            let is_known = from_directory || !path.starts_with(&places.workspace);
            let is_missing =
                || path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
            (is_known && is_missing()).then_some(path)
        }
        Extra::ReadOnly(_) | Extra::ReadWrite(_) | Extra::Tmpfs(_) | Extra::Cache { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use avfs_hostfs::held::HeldFile;

    use super::*;

    fn request<'a>(workspace: &str, home: &'a Path, extras: &'a [Extra]) -> ViewRequest<'a> {
        ViewRequest {
            profile: Profile::Strict,
            workspace: WorkspaceMount::Copy { path: workspace.into(), source: "/src".into() },
            home: Some(home),
            git_config: None,
            search_path: OsStr::new("/usr/bin"),
            net: &NetMode::None,
            proc: ProcMode::Private,
            extras,
            repository: None,
            shown_as: ShownAs::Overlay,
            pinned: &[],
            secret: &[],
            secret_files: SecretFiles::None,
        }
    }

    fn place(steps: &[ViewStep], wanted: impl Fn(&ViewStep) -> bool) -> usize {
        steps.iter().position(wanted).unwrap()
    }

    #[test]
    fn workspace_is_visible_in_the_empty_home() {
        let steps = view(request("/home/u/work/p", Path::new("/home/u"), &[]));
        let home = place(&steps, |step| matches!(step, ViewStep::Tmpfs { path, .. } if path.ends_with("u")));
        let dir = place(&steps, |step| matches!(step, ViewStep::Dir { path, .. } if path.ends_with("work")));
        let work = place(&steps, |step| matches!(step, ViewStep::Workspace(_)));
        assert!(home < dir && dir < work);
    }

    #[test]
    fn home_inside_the_workspace_is_not_replaced() {
        let steps = view(request("/home", Path::new("/home/u"), &[]));
        assert!(
            !steps.iter().any(|step| matches!(step, ViewStep::Tmpfs { path, .. } if path.ends_with("u")))
        );
    }

    #[test]
    fn secrets_are_mounted_over_the_host_path() {
        let shown =
            HostPath { path: "/run/secrets".into(), real: "/run/secrets".into(), file: HeldFile::default() };
        let extras = [Extra::ReadOnly(shown)];
        for profile in [Profile::Strict, Profile::Host] {
            let request = ViewRequest {
                profile,
                secret_files: SecretFiles::Some,
                ..request("/w", Path::new("/root"), &extras)
            };
            let steps = view(request);
            let at = |wanted: &dyn Fn(&ViewStep) -> bool| steps.iter().rposition(wanted);
            let secrets = at(&|step| matches!(step, ViewStep::Secrets { .. }));
            let others = at(
                &|step| matches!(step, ViewStep::Bind { path, .. } if path == Path::new("/run") || path.ends_with("run/secrets")),
            );
            assert!(secrets > others, "{profile}: {steps:#?}");
            assert!(
                at(&|step| matches!(step, ViewStep::Bind { path, .. } if path == Path::new("/run")))
                    .is_none()
            );
        }
        let without = view(request("/w", Path::new("/root"), &extras));
        assert!(!without.iter().any(|step| matches!(step, ViewStep::Secrets { .. })));
    }

    #[test]
    fn files_of_the_host_that_a_command_sees() {
        let mut request = ExecutionRequest::of(avfs_types::CommandLine::Shell("true".into()));
        let shown = |request: &ExecutionRequest, path: &str| {
            is_shown(Path::new(path), request, Some(Path::new("/home/u/work")))
        };
        let seen = |request: &ExecutionRequest| {
            ["/etc/gitconfig", "/home/u/.gitconfig", "/home/u/work/a", "/tmp/a"]
                .map(|path| shown(request, path))
        };
        assert_eq!(seen(&request), [true, false, true, false]);
        request.profile = Profile::Host;
        assert_eq!(seen(&request), [true, true, true, false]);
        request.extras = vec![Extra::Hide("/home/u".into()), Extra::Tmpfs("/etc".into())];
        assert_eq!(seen(&request), [false, false, false, false]);
        request.at = Some("/elsewhere".into());
        assert!(!shown(&request, "/home/u/work/a"));
    }

    #[test]
    fn cache_directories_do_not_change_their_parents() {
        let extras = [Extra::Cache { source: "/c".into(), path: "/w/a/target".into() }];
        let steps = view(request("/w", Path::new("/root"), &extras));
        let points: Vec<_> = steps
            .iter()
            .filter_map(
                |step| if let ViewStep::MountPoint { path } = step { Some(path.as_path()) } else { None },
            )
            .collect();
        assert_eq!(points, [Path::new("/w/a"), Path::new("/w/a/target")]);
    }

    #[test]
    fn only_the_parts_of_toolchains_in_a_home_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        for made in [".cargo/bin", ".cargo/registry", ".rustup", ".py/bin", ".py/lib", ".py/secrets", "bin"]
            .into_iter()
            .chain([".local/bin", ".local/share/keyrings", ".local/share/pipx"])
        {
            std::fs::create_dir_all(home.join(made)).unwrap();
        }
        let path = [".cargo/bin", ".py/bin", ".local/bin", "bin", "."]
            .map(|part| home.join(part).display().to_string())
            .join(":");
        let found = toolchains(OsStr::new(&path), Some(home));
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(home).unwrap().to_str().unwrap()).collect();
        assert_eq!(
            names,
            [".cargo/bin", ".local/bin", ".local/share/pipx", ".py/bin", ".py/lib", ".rustup", "bin"]
        );
    }
}
