//! Finds the directories that belong to one repository: its root, and the common directory of a linked worktree.
//!
//! A `.git` file in a workspace is untrusted: its target is accepted only if the target points back.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use avfs_policy::fills_screen;

use super::read_small;

const GIT: &str = ".git";
const SYSTEM_CONFIG: &str = "/etc/gitconfig";
/// `.git` files and similar files contain one path.
const POINTER_BYTES_MAX: u64 = 8 << 10;
/// A larger configuration is not read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

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

/// The common directory of the repository of a linked worktree, if it belongs to the caller and lists exactly
/// this worktree.
#[must_use]
pub fn common_dir(worktree: &Path) -> Option<PathBuf> {
    let gitdir = pointer(worktree)?;
    let worktrees = gitdir.parent().filter(|dir| dir.ends_with("worktrees"))?;
    let common = worktrees.parent()?;
    let back = read_small(&gitdir.join("gitdir"), POINTER_BYTES_MAX)?;
    let points_back =
        gitdir.join(back.trim()).canonicalize().ok()? == worktree.canonicalize().ok()?.join(GIT);
    let is_own = common.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
    let is_outside = !common.starts_with(worktree.canonicalize().ok()?);
    (points_back && is_own && is_outside).then(|| common.to_owned())
}

/// True if the configuration of a repository may name an editor that works without a terminal, itself or in a file that
/// it includes.
#[must_use]
pub fn sets_editor(root: &Path) -> bool {
    let git = common_dir(root).unwrap_or_else(|| root.join(GIT));
    names_editor(&git.join("config"))
}

/// The same for the configuration of the system that git reads with these variables.
#[must_use]
pub fn system_sets_editor<'a>(variable: impl Fn(&'static str) -> Option<&'a OsStr>) -> bool {
    let is_unset =
        |value: &OsStr| ["", "0", "no", "off", "false"].iter().any(|no| value.eq_ignore_ascii_case(no));
    let has_none = variable("GIT_CONFIG_NOSYSTEM").is_some_and(|value| !is_unset(value));
    !has_none && names_editor(Path::new(variable("GIT_CONFIG_SYSTEM").unwrap_or(OsStr::new(SYSTEM_CONFIG))))
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

    #[test]
    fn worktree_must_be_listed_by_its_repository() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (tree, common) = (top.join("tree"), top.join("repo/.git"));
        let entry = common.join("worktrees/tree");
        create_dir_all(&tree).unwrap();
        create_dir_all(&entry).unwrap();
        let point = |to: &Path| write(tree.join(GIT), format!("gitdir: {}\n", to.display())).unwrap();
        point(&entry);
        assert_eq!(common_dir(&tree), None, "nothing points back");
        write(entry.join("gitdir"), format!("{}\n", top.join("elsewhere/.git").display())).unwrap();
        assert_eq!(common_dir(&tree), None, "it points to another worktree");
        write(entry.join("gitdir"), format!("{}\n", tree.join(GIT).display())).unwrap();
        assert_eq!(common_dir(&tree), Some(common.clone()));
        // A workspace cannot gain access to another directory by pointing to it.
        create_dir_all(top.join("secret/worktrees")).unwrap();
        point(&top.join("secret/worktrees"));
        assert_eq!(common_dir(&tree), None);
        // Nor by adding its own entry that names another common directory.
        let own = tree.join("evil/worktrees/tree");
        create_dir_all(&own).unwrap();
        write(own.join("gitdir"), format!("{}\n", tree.join(GIT).display())).unwrap();
        write(own.join("commondir"), top.join("secret").to_str().unwrap()).unwrap();
        point(&own);
        assert_eq!(common_dir(&tree), None);
        // A symlink to a directory of another user, or no pointer at all.
        std::fs::remove_file(tree.join(GIT)).unwrap();
        assert_eq!(common_dir(&tree), None);
    }
}
