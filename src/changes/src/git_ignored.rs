//! Determines which changed paths git ignores: build output and dependencies, which are listed last and folded.
//!
//! The rules come from the `.gitignore` files in the version itself. Files are read on demand, and their number
//! and size are bounded, because the content of a version is untrusted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use avfs_types::path::TreePath;
use avfs_vault::backend::Reader;
use avfs_vault::changes::Changes;
use avfs_vault::diff::Change;
use avfs_vault::ignore::Rules;
use avfs_vault::page::{DirRef, FileNode, Node};
use avfs_vault::tree::lookup;
use avfs_vault::{Result, read_content};

use crate::change_summary::ChangeSummary;
use crate::change_view::is_dir;

const FILE_NAME: &[u8] = b".gitignore";
/// The directory of a git repository, which git never lists.
const GIT_DIR: &[u8] = b".git";
/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Maximum directories whose `.gitignore` is read. Paths in other directories use the rules of the nearest
/// directory above.
const DIRS_MAX: usize = 1000;
/// Maximum changes that are checked. The remaining ones count as not ignored.
const CHANGES_LOOKED_AT_MAX: usize = 100_000;
/// Maximum changes that are listed beside the directories.
pub const FOLDED_CHANGES_MAX: usize = 20;
/// Maximum directories that changes are folded into.
const FOLDED_DIRS_MAX: usize = 20;
/// Maximum directory levels that are counted separately.
const FOLDED_DEPTH_MAX: usize = 4;

/// The rules of the `.gitignore` files of one version.
pub struct GitIgnored<'r> {
    reader: &'r dyn Reader,
    root: DirRef,
    /// Rules by directory, for the directories read so far.
    rules: HashMap<TreePath, Rules>,
    /// The last ignored directory: changes are sorted, and everything beneath it is ignored too.
    last: Option<TreePath>,
}

impl<'r> GitIgnored<'r> {
    /// The rules of the version with this root.
    #[must_use]
    pub fn new(reader: &'r dyn Reader, root: DirRef) -> Self {
        Self { reader, root, rules: HashMap::new(), last: None }
    }

    /// The topmost ignored path among the path and its parent directories; `None` if git ignores none.
    pub fn covering(&mut self, path: &TreePath, is_dir: bool) -> Result<Option<TreePath>> {
        if let Some(last) = self.last.as_ref().filter(|last| last.contains(path)) {
            return Ok(Some(last.clone()));
        }
        let (mut at, mut rules) = (TreePath::root(), self.rules_in(&TreePath::root(), &Rules::default())?);
        let mut names = path.components().peekable();
        while let Some(name) = names.next() {
            at = at.join(name);
            let is_dir = is_dir || names.peek().is_some();
            if name == GIT_DIR || rules.ignores(&at, is_dir) {
                self.last = Some(at.clone()).filter(|_| is_dir);
                return Ok(Some(at));
            }
            if names.peek().is_some() {
                rules = self.rules_in(&at, &rules)?;
            }
        }
        Ok(None)
    }

    fn rules_in(&mut self, dir: &TreePath, above: &Rules) -> Result<Rules> {
        if let Some(rules) = self.rules.get(dir) {
            return Ok(rules.clone());
        }
        if self.rules.len() >= DIRS_MAX {
            return Ok(above.clone());
        }
        let rules = match lookup(&self.reader, &self.root, &dir.join(FILE_NAME))? {
            Some(Node::File(file @ FileNode { size: 0..=FILE_BYTES_MAX, .. })) => {
                above.with_readable(dir, &read_content(self.reader, &file)?).0
            }
            Some(Node::File(_) | Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) | None => above.clone(),
        };
        self.rules.insert(dir.clone(), rules.clone());
        Ok(rules)
    }

    /// The first `wanted` changes in display order, in which ignored paths come last. Each has a flag that is
    /// true if git ignores the path.
    pub fn last_in(&mut self, changes: &Changes, wanted: usize) -> Result<Vec<(Change, bool)>> {
        let (mut first, mut behind) = (Vec::new(), Vec::new());
        for change in changes.iter().take(CHANGES_LOOKED_AT_MAX) {
            if first.len() == wanted {
                break;
            }
            let change = change?;
            match self.covering(&change.path, is_dir(&change))? {
                None => first.push((change.into_owned(), false)),
                Some(_) if behind.len() < wanted => behind.push((change.into_owned(), true)),
                Some(_) => {}
            }
        }
        first.extend(behind);
        first.truncate(wanted);
        Ok(first)
    }

    /// All changes, with ignored paths last.
    pub fn sorted(&mut self, summary: &ChangeSummary) -> Result<ChangeSummary> {
        let (mut others, mut ignored) = (summary.changes.empty_like(), summary.changes.empty_like());
        for (place, change) in summary.changes.iter().enumerate() {
            let change = change?;
            let is_ignored =
                place < CHANGES_LOOKED_AT_MAX && self.covering(&change.path, is_dir(&change))?.is_some();
            if is_ignored { &mut ignored } else { &mut others }.push(change.into_owned());
        }
        for change in &ignored {
            others.push(change?.into_owned());
        }
        Ok(ChangeSummary { changes: Arc::new(others), counts: summary.counts })
    }

    /// All changes, folded into directories.
    pub fn fold(&mut self, changes: &Changes) -> Result<FoldedChanges> {
        let mut folded = FoldedChanges::default();
        let mut parents: BTreeMap<TreePath, u64> = BTreeMap::new();
        for (place, change) in changes.iter().enumerate() {
            let change = change?;
            let covering = match place < CHANGES_LOOKED_AT_MAX {
                true => self.covering(&change.path, is_dir(&change))?,
                false => None,
            };
            match covering {
                Some(path) => *folded.ignored.entry(path).or_default() += 1,
                None => {
                    let parent = change.path.split().map(|(parent, _)| parent).unwrap_or_default();
                    *parents.entry(top_of(&parent, FOLDED_DEPTH_MAX)).or_default() += 1;
                    folded.others_count += 1;
                    if folded.others.len() < FOLDED_CHANGES_MAX {
                        folded.others.push(change.into_owned());
                    }
                }
            }
        }
        folded.dirs = in_few(&parents);
        Ok(folded)
    }
}

/// Changes by directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedChanges {
    /// The first changes that git does not ignore, at most [`FOLDED_CHANGES_MAX`].
    pub others: Vec<Change>,
    /// Number of changes that git does not ignore.
    pub others_count: u64,
    /// Number of those changes in each directory.
    pub dirs: BTreeMap<TreePath, u64>,
    /// Ignored paths, with the number of changes at or beneath each.
    pub ignored: BTreeMap<TreePath, u64>,
}

/// The first components of a path.
fn top_of(path: &TreePath, depth: usize) -> TreePath {
    path.components().take(depth).fold(TreePath::root(), |dir, name| dir.join(name))
}

/// Counts by directory, with as many levels as keep the list short.
fn in_few(parents: &BTreeMap<TreePath, u64>) -> BTreeMap<TreePath, u64> {
    let at_depth = |depth: usize| {
        let mut dirs: BTreeMap<TreePath, u64> = BTreeMap::new();
        for (parent, count) in parents {
            *dirs.entry(top_of(parent, depth)).or_default() += count;
        }
        dirs
    };
    let few = (1..=FOLDED_DEPTH_MAX).rev().map(at_depth).find(|dirs| dirs.len() <= FOLDED_DIRS_MAX);
    few.unwrap_or_else(|| at_depth(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_folded_until_they_are_few() {
        let path = |text: String| TreePath::parse(text.as_bytes()).unwrap();
        let few: BTreeMap<TreePath, u64> = [(path("a/b/c/d/e".into()), 2), (path("a/b".into()), 1)].into();
        let folded: Vec<(String, u64)> =
            in_few(&few).into_iter().map(|(dir, count)| (dir.to_string(), count)).collect();
        assert_eq!(folded, [("a/b".to_owned(), 1), ("a/b/c/d".to_owned(), 2)]);
        let many: BTreeMap<TreePath, u64> = (0..100).map(|n| (path(format!("a/{n}")), 1)).collect();
        let folded = in_few(&many);
        assert_eq!((folded.len(), folded.values().sum::<u64>()), (1, 100));
    }
}
