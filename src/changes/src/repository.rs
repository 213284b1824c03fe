//! Finds repositories that a conflict blocks. HEAD, the refs and the index of a repository belong together: parts of
//! two sides would lose a commit, or show a change that reverts it. Only compares paths.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use avfs_types::path::TreePath;
use avfs_vault::VaultError;
use avfs_vault::changes::Changes;
use avfs_vault::diff::ChangeKind;

/// A repository whose changes cannot be written, because the other side changed it or one of its files too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedRepository {
    /// The directory that contains `.git`.
    pub work_tree: TreePath,
    pub change: RepositoryChange,
}

/// The kind of the changes in a blocked repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryChange {
    /// HEAD or a branch.
    Commits,
    /// Commits in a submodule or linked worktree, whose repository is part of this one.
    NestedCommits,
    /// No commits, and all conflicts in `.git` are in the index.
    Index,
    /// No commits, but another conflict in `.git`.
    Other,
}

impl BlockedRepository {
    /// The work tree of the repository in a copy of the workspace, or in its directory.
    #[must_use]
    pub fn work_tree_in(&self, dir: &Path) -> PathBuf {
        match self.work_tree.is_root() {
            true => dir.to_owned(),
            false => dir.join(OsStr::from_bytes(self.work_tree.as_bytes())),
        }
    }

    /// The glob pattern of its `.git`.
    #[must_use]
    pub fn git_dir_pattern(&self) -> String {
        let mut pattern = String::new();
        for char in self.work_tree_in(Path::new("/")).join(".git").to_string_lossy().chars() {
            if "*?[]{}\\".contains(char) {
                pattern.push('\\');
            }
            pattern.push(char);
        }
        pattern
    }

    /// The repository that blocks the `changes` of one side, if one does.
    pub fn find(conflicts: &[&TreePath], changes: &Changes) -> Result<Option<Self>, VaultError> {
        let mut commits = HashMap::new();
        for change in changes {
            let change = change?;
            let Some((work_tree, inner)) = parts(&change.path) else { continue };
            if change.kind == ChangeKind::Time {
                continue;
            }
            if let Some(kind) = commit_kind(&inner) {
                let known = commits.entry(work_tree).or_insert(kind);
                *known = if kind == RepositoryChange::Commits { kind } else { *known };
            }
        }
        let states: Vec<_> = conflicts.iter().filter_map(|path| state_parts(path)).collect();
        if let Some((work_tree, inner)) = states.first() {
            let mut own = states.iter().filter(|(of, _)| of == work_tree);
            let change = match commits.get(work_tree) {
                Some(change) => *change,
                None if is_nested(inner) => RepositoryChange::NestedCommits,
                None if own.all(|(_, inner)| inner.as_slice() == [b"index"]) => RepositoryChange::Index,
                None => RepositoryChange::Other,
            };
            return Ok(Some(Self { work_tree: work_tree.clone(), change }));
        }
        let files = conflicts.iter().filter(|path| parts(path).is_none());
        let found = files.flat_map(|path| path.ancestors()).find_map(|work_tree| {
            let change = *commits.get(&work_tree)?;
            Some(Self { work_tree, change })
        });
        Ok(found)
    }
}

/// True for a path in `.git` that must not be combined with other paths of another side: HEAD, refs, index, a merge
/// in progress. False for files that git reads on their own, and for work trees.
#[must_use]
pub fn is_repository_state(path: &TreePath) -> bool {
    state_parts(path).is_some()
}

/// The [`parts`] of a path that is part of the state of a repository.
fn state_parts(path: &TreePath) -> Option<Parts<'_>> {
    let (work_tree, inner) = parts(path)?;
    let is_state = match inner.as_slice() {
        [b"COMMIT_EDITMSG" | b"FETCH_HEAD" | b"ORIG_HEAD" | b"config" | b"description"]
        | [b"hooks" | b"info", ..]
        | [b"refs", b"remotes", ..]
        | [b"logs", b"refs", b"remotes", ..]
        | [b"objects", b"info", b"packs"] => false,
        // A loose object has the same content everywhere.
        [b"objects", dir, ..] => dir.len() != 2,
        _ => true,
    };
    is_state.then_some((work_tree, inner))
}

/// A work tree, and the components of a path inside its `.git`.
type Parts<'p> = (TreePath, Vec<&'p [u8]>);

/// `None` for a path outside of `.git`.
fn parts(path: &TreePath) -> Option<Parts<'_>> {
    let mut components = path.components();
    let mut work_tree = TreePath::root();
    for component in components.by_ref() {
        if component == b".git" {
            return Some((work_tree, components.collect()));
        }
        work_tree = work_tree.join(component);
    }
    None
}

fn is_nested(inner: &[&[u8]]) -> bool {
    matches!(inner, [b"modules" | b"worktrees", ..])
}

fn commit_kind(inner: &[&[u8]]) -> Option<RepositoryChange> {
    match inner {
        [b"HEAD" | b"packed-refs"] | [b"refs", b"heads", _, ..] | [b"reftable", _, ..] => {
            Some(RepositoryChange::Commits)
        }
        _ if is_nested(inner) => {
            let moves =
                inner.ends_with(&[b"HEAD"]) || inner.windows(2).any(|two| two == [b"refs", &b"heads"[..]]);
            moves.then_some(RepositoryChange::NestedCommits)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_repository() {
        let is = |path: &str| is_repository_state(&TreePath::parse(path.as_bytes()).unwrap());
        for state in [
            ".git",
            ".git/HEAD",
            ".git/index",
            "r 2/.git/refs/heads/main",
            ".git/packed-refs",
            ".git/logs/HEAD",
            ".git/MERGE_HEAD",
            ".git/refs/stash",
            ".git/objects/pack/multi-pack-index",
            ".git/modules/lib/index",
        ] {
            assert!(is(state), "{state}");
        }
        for other in [
            "index",
            "src/HEAD",
            ".gitignore",
            ".git/config",
            ".git/FETCH_HEAD",
            ".git/hooks/pre-commit",
            ".git/refs/remotes/origin/main",
            ".git/objects/4b/cfe98e640c8284511312660fb8709b0afa888e",
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
