//! Finds the directories that belong to one repository: its root, and the common directory of a linked worktree.
//!
//! A `.git` file in a workspace is untrusted: its target is accepted only if it is outside of the workspace and points
//! back. Even then only git's own entries of it are shown.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs_hostfs::beneath;
use avfs_hostfs::held::HeldFile;
use avfs_policy::fills_screen;
use avfs_request::{ExecutionRequest, Extra, HostPath, Profile};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::config::{CONFIG_BYTES_MAX, Entries, Entry};
use super::{read_small, read_small_beneath, read_small_in};
use crate::view::is_private;

const GIT: &str = ".git";
/// The directory of the entries of linked worktrees.
const WORKTREES: &str = "worktrees";
/// What git reads from a common directory for a linked worktree, besides the entry of the worktree.
const SHOWN: [&str; 12] = [
    "HEAD",
    "config",
    "packed-refs",
    "objects",
    "refs",
    "logs",
    "info",
    "hooks",
    "shallow",
    "lfs",
    "modules",
    "reftable",
];
const SYSTEM_CONFIG: &str = "/etc/gitconfig";
/// `.git` files and similar files contain one path.
const POINTER_BYTES_MAX: u64 = 8 << 10;

/// The root of the repository that contains a directory; for a submodule, of the outermost repository.
#[must_use]
pub fn root_of(dir: &Path) -> Option<PathBuf> {
    let root = dir.ancestors().find(|above| is_root(above))?;
    let outer = pointer(root).and_then(|gitdir| {
        let mut above = root.ancestors().skip(1);
        above.find(|above| gitdir.starts_with(above.join(GIT).join("modules"))).map(Path::to_owned)
    });
    Some(outer.unwrap_or_else(|| root.to_owned()))
}

fn is_root(dir: &Path) -> bool {
    let git = dir.join(GIT);
    match git.symlink_metadata() {
        Ok(meta) if meta.is_dir() => git.join("HEAD").symlink_metadata().is_ok(),
        Ok(meta) => meta.is_file() && pointer(dir).is_some(),
        Err(_) => false,
    }
}

/// The target of the `.git` file of a submodule or linked worktree, without symlinks and `..`.
fn pointer(root: &Path) -> Option<PathBuf> {
    let git = root.join(GIT);
    if !git.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let text = read_small(&git, POINTER_BYTES_MAX)?;
    let target = text.strip_prefix("gitdir:")?.trim();
    root.join(target).canonicalize().ok()
}

/// The common directory of the repository of a linked worktree, and what a command sees of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonDir {
    pub path: PathBuf,
    /// Git's entries in it: directories and regular files.
    entries: Vec<HostPath>,
}

/// Why the repository of a directory with a `.git` file is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotShown {
    /// It has no `.git` file, or one that leads nowhere.
    NoTarget,
    /// The target is in the directory itself, as that of a submodule can be.
    Inside,
    NotListed,
    OtherOwner,
    NotNamed,
}

impl NotShown {
    /// The end of a sentence about the repository of a linked worktree; `None` if the directory is no linked worktree.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::NoTarget | Self::Inside => None,
            Self::NotListed => Some("it does not list this worktree"),
            Self::OtherOwner => Some("it belongs to another user"),
            Self::NotNamed => Some("it is not called .git and not bare (core.bare)"),
        }
    }
}

impl CommonDir {
    /// The repository of a linked worktree, if it belongs to the caller, lists exactly this worktree, and has the form
    /// that git gives it.
    pub fn of(worktree: &Path) -> Result<Self, NotShown> {
        let Linked { common, dir, entry } = Linked::find(worktree)?;
        let entries = SHOWN.iter().map(Path::new).chain([entry.as_path()]).filter_map(|below| {
            let path = common.join(below);
            let file = HeldFile::beneath(dir.as_fd(), below.as_os_str().as_bytes()).ok()?;
            // A symlink could lead to another directory, and a socket or a pipe to a process of the host.
            let is_shown = file.is_dir() || file.is_regular();
            is_shown.then(|| HostPath { real: path.clone(), path, file })
        });
        Ok(Self { entries: entries.collect(), path: common })
    }

    /// The entries that a command sees because of the worktree. Where the request shows or hides the path itself,
    /// that decides.
    pub fn shown<'c>(&'c self, request: &'c ExecutionRequest) -> impl Iterator<Item = &'c HostPath> {
        let decides = |path: &Path| {
            request.extras.iter().any(|extra| {
                let covers = match extra {
                    Extra::ReadOnly(_) | Extra::Hide(_) => path.starts_with(extra.path()),
                    Extra::ReadWrite(_) | Extra::Tmpfs(_) | Extra::Cache { .. } => false,
                };
                covers || extra.path() == self.path || extra.path() == path
            })
        };
        let is_visible = request.profile == Profile::Host && !is_private(&self.path);
        self.entries.iter().filter(move |entry| !is_visible && !decides(&entry.path))
    }
}

/// A linked worktree whose repository lists it.
struct Linked {
    common: PathBuf,
    dir: OwnedFd,
    /// The entry of the worktree in the common directory.
    entry: PathBuf,
}

impl Linked {
    fn find(worktree: &Path) -> Result<Self, NotShown> {
        let gitdir = pointer(worktree).ok_or(NotShown::NoTarget)?;
        let worktree = worktree.canonicalize().map_err(|_| NotShown::NoTarget)?;
        // A command can have written any file of the worktree.
        if gitdir.starts_with(&worktree) {
            return Err(NotShown::Inside);
        }
        let name = gitdir.file_name().ok_or(NotShown::NoTarget)?;
        let entry = Path::new(WORKTREES).join(name);
        // A submodule has no such entry.
        let common = gitdir.parent().filter(|dir| dir.ends_with(WORKTREES)).and_then(Path::parent);
        let common = common.ok_or(NotShown::NoTarget)?.to_owned();
        let flags = beneath::DIR | OFlags::CLOEXEC;
        let dir = openat2(CWD, &common, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
            .map_err(|_| NotShown::NoTarget)?;
        let leads_to = |file: &str, target: &Path| {
            let file = entry.join(file);
            let text = read_small_beneath(dir.as_fd(), file.as_os_str().as_bytes(), POINTER_BYTES_MAX);
            let led = text.and_then(|text| gitdir.join(text.trim()).canonicalize().ok());
            led.is_some_and(|led| led == target)
        };
        if !leads_to("gitdir", &worktree.join(GIT))
            || !leads_to("commondir", &common)
            || common.starts_with(&worktree)
        {
            return Err(NotShown::NotListed);
        }
        let owner = beneath::fstat(dir.as_fd()).map_err(|_| NotShown::OtherOwner)?.owner;
        if owner != rustix::process::geteuid().as_raw() {
            return Err(NotShown::OtherOwner);
        }
        if !common.ends_with(GIT) && !is_bare(&dir) {
            return Err(NotShown::NotNamed);
        }
        Ok(Self { common, dir, entry })
    }
}

/// Whether the settings of a repository say that it is bare. With settings for each worktree, git moves the setting.
fn is_bare(dir: &OwnedFd) -> bool {
    ["config", "config.worktree"].into_iter().any(|name| {
        let text = read_small_beneath(dir.as_fd(), name.as_bytes(), CONFIG_BYTES_MAX).unwrap_or_default();
        let bare = Entries::of(&text).filter(|entry| entry.is("core", "bare")).last();
        bare.is_some_and(|entry| entry.truth() == Some(true))
    })
}

/// True if the configuration of a repository may name an editor that works without a terminal, itself or in a file that
/// it includes.
#[must_use]
pub fn sets_editor(root: &Path) -> bool {
    let git = Linked::find(root).map_or_else(|_| root.join(GIT), |linked| linked.common);
    names_editor(&git.join("config"))
}

/// The same for the configuration of the system that git reads with these variables.
#[must_use]
pub fn system_sets_editor<'a>(variable: impl Fn(&'static str) -> Option<&'a OsStr>) -> bool {
    system_config(variable).is_some_and(|config| names_editor(&config))
}

/// The configuration of the system that git reads with these variables.
pub(super) fn system_config<'a>(variable: impl Fn(&'static str) -> Option<&'a OsStr>) -> Option<PathBuf> {
    let is_unset =
        |value: &OsStr| ["", "0", "no", "off", "false"].iter().any(|no| value.eq_ignore_ascii_case(no));
    let has_none = variable("GIT_CONFIG_NOSYSTEM").is_some_and(|value| !is_unset(value));
    (!has_none).then(|| variable("GIT_CONFIG_SYSTEM").unwrap_or(OsStr::new(SYSTEM_CONFIG)).into())
}

/// The settings of the repository that contains a directory of the workspace. Nothing that they include is read,
/// because a command can have written them.
pub(super) fn local_config(bound: &Path, cwd: Option<&Path>) -> Vec<Entry> {
    let cwd = bound.join(cwd.unwrap_or(Path::new("")));
    let mut within = cwd.ancestors().take_while(|dir| dir.starts_with(bound));
    let Some(root) = within.find(|dir| dir.join(GIT).symlink_metadata().is_ok()) else { return Vec::new() };
    let text = match Linked::find(root) {
        Ok(linked) => read_small_beneath(linked.dir.as_fd(), b"config", CONFIG_BYTES_MAX),
        Err(_) => {
            let below = root.strip_prefix(bound).unwrap_or(Path::new("")).join(GIT).join("config");
            read_small_in(bound, &below, CONFIG_BYTES_MAX)
        }
    };
    Entries::of(&text.unwrap_or_default()).collect()
}

fn names_editor(config: &Path) -> bool {
    let Some(text) = read_small(config, CONFIG_BYTES_MAX) else { return false };
    text.lines().any(|line| {
        let lower = line.to_ascii_lowercase();
        let value = line.split_once('=').map_or("", |(_, value)| value.trim().trim_matches('"'));
        lower.contains("[include") || lower.contains("editor") && !fills_screen(value)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn roots_of_repositories_and_submodules() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        create_dir_all(top.join("repo/src/deep")).unwrap();
        assert_eq!(root_of(&top.join("repo/src")), None);
        create_dir_all(top.join("repo/.git/modules/sub")).unwrap();
        write(top.join("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(root_of(&top.join("repo/src/deep")), Some(top.join("repo")));
        assert_eq!(root_of(&top.join("repo")), Some(top.join("repo")));
        create_dir_all(top.join("repo/sub/dir")).unwrap();
        write(top.join("repo/sub/.git"), "gitdir: ../.git/modules/sub\n").unwrap();
        assert_eq!(root_of(&top.join("repo/sub/dir")), Some(top.join("repo")));
        // An empty directory or a file of that name is not a repository.
        create_dir_all(top.join("other/.git")).unwrap();
        assert_eq!(root_of(&top.join("other")), None);
        std::fs::remove_dir(top.join("other/.git")).unwrap();
        write(top.join("other/.git"), "gitdir: nowhere\n").unwrap();
        assert_eq!(root_of(&top.join("other")), None);
    }

    #[test]
    fn editors_of_the_system_configuration() {
        let top = tempfile::tempdir().unwrap();
        let config = top.path().join("config");
        let sets_editor = |no_system: Option<&str>| {
            system_sets_editor(|name| match name {
                "GIT_CONFIG_SYSTEM" => Some(config.as_os_str()),
                _ => no_system.map(OsStr::new),
            })
        };
        assert!(!sets_editor(None), "the file does not exist");
        write(&config, "[core]\n\teditor = vim\n").unwrap();
        assert!(!sets_editor(None));
        write(&config, "[core]\n\teditor = ed\n").unwrap();
        assert!(sets_editor(None) && sets_editor(Some("")) && sets_editor(Some("False")));
        assert!(!sets_editor(Some("1")) && !sets_editor(Some("yes")));
    }

    /// A worktree `tree` of the repository whose common directory is `common`.
    fn linked(top: &Path, common: &str) -> (PathBuf, PathBuf) {
        let (tree, common) = (top.join("tree"), top.join(common));
        let entry = common.join("worktrees/tree");
        create_dir_all(&tree).unwrap();
        create_dir_all(&entry).unwrap();
        create_dir_all(common.join("objects")).unwrap();
        write(common.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        write(common.join("config"), "[core]\n\tbare = false\n").unwrap();
        write(common.join("key"), "secret").unwrap();
        write(entry.join("gitdir"), format!("{}\n", tree.join(GIT).display())).unwrap();
        write(entry.join("commondir"), "../..\n").unwrap();
        write(tree.join(GIT), format!("gitdir: {}\n", entry.display())).unwrap();
        (tree, common)
    }

    fn shown(tree: &Path) -> Result<Vec<String>, NotShown> {
        let request = ExecutionRequest::of(avfs_types::CommandLine::Shell("git log".into()));
        let common = CommonDir::of(tree)?;
        let below = |entry: &HostPath| entry.path.strip_prefix(&common.path).unwrap().display().to_string();
        Ok(common.shown(&request).map(below).collect())
    }

    #[test]
    fn only_entries_of_git_are_shown() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (tree, common) = linked(&top, "repo/.git");
        let expected = ["HEAD", "config", "objects", "worktrees/tree"].map(str::to_owned).to_vec();
        assert_eq!(shown(&tree), Ok(expected.clone()));
        // A symlink could lead elsewhere, and a pipe or socket to a process.
        std::os::unix::fs::symlink(&top, common.join("info")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(common.join("shallow")).unwrap();
        assert_eq!(shown(&tree), Ok(expected));
    }

    #[test]
    fn request_decides_about_paths_that_it_names() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (tree, path) = linked(&top, "repo/.git");
        let common = CommonDir::of(&tree).unwrap();
        let host = |path: &Path| HostPath::resolve(path.to_owned()).unwrap();
        let count = |extra: Extra| {
            let mut request = ExecutionRequest::of(avfs_types::CommandLine::Shell("git log".into()));
            request.extras = vec![extra];
            common.shown(&request).count()
        };
        assert_eq!(count(Extra::ReadOnly(host(&top))), 0);
        assert_eq!(count(Extra::Hide(top.join("repo"))), 0);
        assert_eq!(count(Extra::ReadWrite(host(&path))), 0);
        assert_eq!(count(Extra::Hide(path.join("config"))), 3);
        // Settings and hooks stay read-only in a directory that is shown for other reasons.
        assert_eq!(count(Extra::ReadWrite(host(&top))), 4);
        let mut request = ExecutionRequest::of(avfs_types::CommandLine::Shell("git log".into()));
        request.profile = Profile::Host;
        // That profile does not show the host's /tmp, in which the repository of a test usually is.
        let missing = if is_private(&path) { 4 } else { 0 };
        assert_eq!(common.shown(&request).count(), missing);
        let visible = CommonDir { path: "/srv/repo/.git".into(), ..common };
        assert_eq!(visible.shown(&request).count(), 0);
    }

    #[test]
    fn worktree_must_be_listed_by_its_repository() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (tree, common) = linked(&top, "repo/.git");
        let entry = common.join("worktrees/tree");
        let of = || CommonDir::of(&tree).map(|common| common.path);
        let point = |to: &Path| write(tree.join(GIT), format!("gitdir: {}\n", to.display())).unwrap();
        assert_eq!(of(), Ok(common.clone()));
        for (file, wrong, right) in [
            ("gitdir", top.join("elsewhere/.git"), tree.join(GIT)),
            ("commondir", top.clone(), PathBuf::from("../..")),
        ] {
            std::fs::remove_file(entry.join(file)).unwrap();
            assert_eq!(of(), Err(NotShown::NotListed), "no {file}");
            write(entry.join(file), wrong.to_str().unwrap()).unwrap();
            assert_eq!(of(), Err(NotShown::NotListed), "wrong {file}");
            write(entry.join(file), right.to_str().unwrap()).unwrap();
            assert_eq!(of(), Ok(common.clone()));
        }
        // A workspace cannot gain access to another directory by pointing to it.
        create_dir_all(top.join("secret/worktrees/tree")).unwrap();
        point(&top.join("secret/worktrees/tree"));
        assert_eq!(of(), Err(NotShown::NotListed));
        // Nor by an entry in the worktree, or by being the entry.
        let own = tree.join("evil/.git/worktrees/tree");
        create_dir_all(&own).unwrap();
        write(own.join("gitdir"), format!("{}\n", tree.join(GIT).display())).unwrap();
        write(own.join("commondir"), "../..\n").unwrap();
        point(&own);
        assert_eq!(of(), Err(NotShown::Inside));
        let within = top.join("other/.git/worktrees/x");
        create_dir_all(&within).unwrap();
        write(within.join(GIT), "gitdir: .\n").unwrap();
        write(within.join("gitdir"), format!("{}\n", within.join(GIT).display())).unwrap();
        write(within.join("commondir"), "../..\n").unwrap();
        assert_eq!(CommonDir::of(&within), Err(NotShown::Inside));
        std::fs::remove_file(tree.join(GIT)).unwrap();
        assert_eq!(of(), Err(NotShown::NoTarget));
    }

    #[test]
    fn common_directory_is_named_git_or_bare() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (tree, common) = linked(&top, "work");
        assert_eq!(shown(&tree), Err(NotShown::NotNamed));
        for (name, text) in [("config", "[core]\n\tbare\n"), ("config.worktree", "[core]\nbare = yes\n")] {
            write(common.join(name), text).unwrap();
            assert!(shown(&tree).is_ok_and(|names| !names.contains(&"key".to_owned())), "{text}");
            write(common.join(name), "[core]\nbare = true\nbare = false\n").unwrap();
            assert_eq!(shown(&tree), Err(NotShown::NotNamed), "the last value counts");
        }
    }
}
