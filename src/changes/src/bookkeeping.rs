//! Files that programs write for their own use while reading a workspace: modification times, compiled Python,
//! lock files, git's refreshed index.
//!
//! A read-only command that changed nothing else has made no change worth a version. Only compares; drops nothing.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;

use avfs_hostfs::beneath;
use avfs_types::path::TreePath;
use avfs_vault::backend::Reader;
use avfs_vault::diff::{Change, Side};
use avfs_vault::page::{FileNode, Node};
use avfs_vault::{Result, VaultError, read_content};

use crate::git_index::{INDEX_BYTES_MAX, may_be_refresh, same_entries};

/// Paths that are bookkeeping regardless of their content.
enum Pattern {
    /// A directory of this name, and everything in it.
    Directory(&'static [u8]),
    /// A file whose name ends in this suffix.
    Suffix(&'static [u8]),
    /// A file with the second value as its suffix, anywhere below a directory with the first value as its name.
    SuffixBelow(&'static [u8], &'static [u8]),
}

const PATTERNS: [Pattern; 8] = [
    Pattern::Directory(b"__pycache__"),
    Pattern::Directory(b".pytest_cache"),
    Pattern::Directory(b".mypy_cache"),
    Pattern::Directory(b".ruff_cache"),
    Pattern::Suffix(b".pyc"),
    Pattern::Suffix(b".cargo-lock"),
    Pattern::SuffixBelow(b".git", b".lock"),
    Pattern::SuffixBelow(b".git", b"gc.pid"),
];

fn matches_pattern(path: &TreePath) -> bool {
    let parts: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
    let Some((name, parents)) = parts.split_last() else { return false };
    PATTERNS.iter().any(|pattern| match pattern {
        Pattern::Directory(dir) => parts.contains(dir),
        Pattern::Suffix(suffix) => name.ends_with(suffix),
        Pattern::SuffixBelow(dir, suffix) => parents.contains(dir) && name.ends_with(suffix),
    })
}

/// True if a change is bookkeeping. `upper` has the files that the command wrote.
pub fn is_bookkeeping(reader: &dyn Reader, upper: BorrowedFd<'_>, change: &Change) -> Result<bool> {
    if matches_pattern(&change.path) {
        return Ok(true);
    }
    let node = |side: &Option<Side>| side.as_ref().map(|side| side.node.clone());
    match (node(&change.before), node(&change.after)) {
        (Some(Node::File(old)), Some(Node::File(new))) => Ok(differs_in_time_only(&old, &new)
            || (may_be_refresh(&change.path, &old, &new)
                && same_entries(&read_content(reader, &old)?, &read_bounded(upper, &change.path)?))),
        (_, _) => Ok(false),
    }
}

fn differs_in_time_only(old: &FileNode, new: &FileNode) -> bool {
    (old.mode, old.size, old.content, old.xattrs, old.link)
        == (new.mode, new.size, new.content, new.xattrs, new.link)
}

fn read_bounded(upper: BorrowedFd<'_>, path: &TreePath) -> Result<Vec<u8>> {
    let file = beneath::open(upper, path.as_bytes(), beneath::READ).map_err(VaultError::Input)?;
    let mut bytes = Vec::new();
    File::from(file).take(INDEX_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(VaultError::Input)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_bookkeeping_and_nothing_similar() {
        let is = |path: &str| matches_pattern(&TreePath::parse(path.as_bytes()).unwrap());
        for good in [
            "__pycache__",
            "src/__pycache__/m.cpython-311.pyc",
            "old.pyc",
            ".git/index.lock",
            ".git/refs/heads/main.lock",
            "target/debug/.cargo-lock",
            ".pytest_cache/v/cache/lastfailed",
        ] {
            assert!(is(good), "{good}");
        }
        for bad in
            ["Cargo.lock", "yarn.lock", ".git/index", ".git/HEAD", "pycache", "a.pyc.txt", "index.lock"]
        {
            assert!(!is(bad), "{bad}");
        }
    }
}
