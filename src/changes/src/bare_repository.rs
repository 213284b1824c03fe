//! Bare repositories in a workspace, recognized by their form as git does: `HEAD`, `objects` and `refs`, or `HEAD` and
//! a `commondir`. Git uses the settings and hooks of one wherever it runs in its directory, also for a prompt or an
//! editor, and the settings can name programs.
//!
//! Looks for names in the version and on the host, which may have more files than the version. Reads no content.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

use avfs_hostfs::beneath;
use avfs_types::path::TreePath;
use avfs_vault::diff::Change;
use avfs_vault::page::Node;
use avfs_vault::tree::CachedPages;
use avfs_vault::{Result, tree};
use rustix::fs::OFlags;

use crate::linked_paths::HostVersion;

/// Maximum directories to look at; changes of further ones are not reported.
const DIRS_MAX: usize = 10_000;

/// The version after some changes, and which of its directories are bare repositories, as far as examined.
pub struct BareRepositories<'a> {
    place: &'a HostVersion<'a>,
    pages: CachedPages<'a>,
    host: Option<OwnedFd>,
    known: RefCell<HashMap<TreePath, bool>>,
    /// Those with a reported path.
    reported: HashSet<TreePath>,
}

/// How git uses a path in a directory that has the form of a repository.
enum Part {
    /// Settings and hooks.
    Used,
    /// The path makes the directory a repository.
    Form,
}

impl<'a> BareRepositories<'a> {
    pub fn new(place: &'a HostVersion<'a>) -> Self {
        let host = place.dir.and_then(|dir| beneath::open_root(dir).ok());
        let pages = CachedPages::new(place.pages);
        Self { place, pages, host, known: RefCell::default(), reported: HashSet::new() }
    }

    /// Whether a change lets git use something of a bare repository: settings, a hook, or a new form. Of a new
    /// repository, one path is reported for its form.
    pub fn is_used(&mut self, change: &Change, node: &Node) -> Result<bool> {
        let Some((dir, part)) = part_of(&change.path, node) else { return Ok(false) };
        let is_candidate = match part {
            Part::Used => true,
            Part::Form => {
                let is_new = change.before.is_none() || *change.path_before() != change.path;
                is_new && !self.reported.contains(&dir)
            }
        };
        let is_used = is_candidate && self.is_bare(&dir)?;
        if is_used {
            self.reported.insert(dir);
        }
        Ok(is_used)
    }

    fn is_bare(&self, dir: &TreePath) -> Result<bool> {
        if let Some(known) = self.known.borrow().get(dir) {
            return Ok(*known);
        }
        if self.known.borrow().len() >= DIRS_MAX {
            return Ok(false);
        }
        let has = |name: &[u8]| self.exists(&dir.join(name));
        let is_bare = has(b"HEAD")? && (has(b"objects")? && has(b"refs")? || has(b"commondir")?);
        self.known.borrow_mut().insert(dir.clone(), is_bare);
        Ok(is_bare)
    }

    fn exists(&self, path: &TreePath) -> Result<bool> {
        if tree::lookup(&self.pages, self.place.root, path)?.is_some() {
            return Ok(true);
        }
        let on_host = |host: &OwnedFd| beneath::open(host.as_fd(), path.as_bytes(), OFlags::PATH).is_ok();
        Ok(self.host.as_ref().is_some_and(on_host))
    }
}

/// The directory that would be the repository, and the part of it that a path is. `None` in `.git`, whose paths are
/// known by their names.
fn part_of(path: &TreePath, node: &Node) -> Option<(TreePath, Part)> {
    let names: Vec<&[u8]> = path.components().collect();
    if names.contains(&b".git".as_slice()) {
        return None;
    }
    let (parent, name) = path.split()?;
    let (is_dir, is_link) = (matches!(node, Node::Dir(_)), matches!(node, Node::Symlink(_)));
    let in_hooks = || parent.split().filter(|(_, name)| *name == b"hooks").map(|(dir, _)| dir);
    match name {
        b"HEAD" if !is_dir => Some((parent, Part::Form)),
        b"objects" | b"refs" => Some((parent, Part::Form)),
        b"config" | b"config.worktree" | b"commondir" if !is_dir => Some((parent, Part::Used)),
        b"hooks" if is_link => Some((parent, Part::Used)),
        // Git installs these as templates.
        _ if is_dir || name.ends_with(b".sample") => None,
        _ => in_hooks().map(|dir| (dir, Part::Used)),
    }
}
