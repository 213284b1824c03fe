//! Paths of a version that also have another name, through a symlink in a place that the host uses automatically.
//!
//! Symlinks are resolved only in the version, never on the host. The search is bounded: directories near the
//! changes come first, then those nearest to the root. Directories beyond the bounds are not searched.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use avfs_types::path::TreePath;
use avfs_vault::diff::Change;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::tree::Pages;
use avfs_vault::{Result, tree};

use crate::host_executed::{may_hold, runs_on_host};

/// Maximum directories and entries to search: a run with changes waits for the search.
const DIRS_MAX: usize = 500;
const ENTRIES_MAX: usize = 50_000;
/// Maximum directory levels. Projects are less deep.
const LEVELS_MAX: usize = 64;
/// Maximum symlinks to resolve, and limits for resolving one of them: at most as many symlinks as the kernel follows.
const RESOLVED_MAX: usize = 1_000;
const FOLLOWED_MAX: usize = 40;
const STEPS_MAX: usize = 1_000;
/// Maximum symlinks to one path, and in the name of a searched directory: symlinks may form cycles.
const NAMES_MAX: usize = 16;
const NESTED_MAX: usize = 4;

/// A version, and its host directory, which absolute symlinks may refer to.
pub struct HostVersion<'a> {
    pub pages: &'a dyn Pages,
    pub root: &'a DirRef,
    pub dir: Option<&'a Path>,
}

/// Paths that are also reachable through symlinks.
#[derive(Debug, Default)]
pub struct LinkedPaths {
    /// A path, and the symlinks that lead to it or through it.
    links: BTreeMap<TreePath, Vec<TreePath>>,
}

/// A directory, by its path and by the path that a tool on the host uses for it.
struct Waiting {
    real: TreePath,
    dir: DirRef,
    seen_as: TreePath,
    /// Number of symlinks in `seen_as`.
    links: usize,
}

/// The target of a symlink.
struct Resolved {
    path: TreePath,
    node: Node,
    /// Other symlinks on the way.
    through: Vec<TreePath>,
}

impl LinkedPaths {
    /// Searches for symlinks. The directories of the `near` changes are searched first.
    pub fn find<'c>(
        place: &HostVersion<'_>,
        near: impl Iterator<Item = Result<Cow<'c, Change>>>,
    ) -> Result<Self> {
        let mut found = Self::default();
        let mut visited = HashSet::new();
        let mut waiting = nearest(place, near)?;
        waiting.push_back(Waiting {
            real: TreePath::root(),
            dir: *place.root,
            seen_as: TreePath::root(),
            links: 0,
        });
        let (mut entries_left, mut resolved_left) = (ENTRIES_MAX, RESOLVED_MAX);
        while let Some(Waiting { real, dir, seen_as, links }) = waiting.pop_front() {
            if visited.len() == DIRS_MAX || entries_left == 0 {
                break;
            }
            if !visited.insert((real.clone(), seen_as.clone())) {
                continue;
            }
            // Damage elsewhere in the version is not an error here.
            let Ok(tree::Dir { entries, .. }) = tree::open_whole(place.pages, &dir, &real, &mut Err) else {
                continue;
            };
            entries_left = entries_left.saturating_sub(entries.len());
            for entry in entries {
                let (at, as_seen) = (real.join(&entry.name), seen_as.join(&entry.name));
                match &entry.node {
                    Node::Dir(dir) if is_searched(&as_seen) => {
                        waiting.push_back(Waiting { real: at, dir: *dir, seen_as: as_seen, links });
                    }
                    Node::Symlink(link)
                        if resolved_left > 0 && runs_on_host(&as_seen, &entry.node).is_some() =>
                    {
                        resolved_left -= 1;
                        let Ok(Some(led)) = resolve(place, &real, &link.target) else { continue };
                        if let Node::Dir(dir) = led.node
                            && is_searched(&as_seen)
                            && links < NESTED_MAX
                            && !led.path.contains(&at)
                        {
                            let (real, seen_as) = (led.path.clone(), as_seen.clone());
                            waiting.push_back(Waiting { real, dir, seen_as, links: links + 1 });
                        }
                        for path in led.through.into_iter().chain([led.path]) {
                            found.add(path, &as_seen);
                        }
                    }
                    Node::Dir(_) | Node::Symlink(_) | Node::File(_) | Node::Fifo(_) => {}
                }
            }
        }
        Ok(found)
    }

    fn add(&mut self, path: TreePath, link: &TreePath) {
        let links = self.links.entry(path).or_default();
        if links.len() < NAMES_MAX && !links.contains(link) {
            links.push(link.clone());
        }
    }

    /// The other names of a path, each with the symlink it is reached through.
    pub fn names_of<'a>(&'a self, path: &'a TreePath) -> impl Iterator<Item = (TreePath, &'a TreePath)> {
        let above = self.links.iter().filter(|(above, _)| above.contains(path));
        above.flat_map(move |(above, links)| {
            let below = path.below(above).unwrap_or_default();
            links.iter().map(move |link| (below.beneath(link), link))
        })
    }
}

fn is_searched(dir: &TreePath) -> bool {
    dir.components().nth(LEVELS_MAX).is_none() && may_hold(dir)
}

/// The parent directories of the changes, as far as the bounds leave room for others. Each is looked up once.
fn nearest<'c>(
    place: &HostVersion<'_>,
    near: impl Iterator<Item = Result<Cow<'c, Change>>>,
) -> Result<VecDeque<Waiting>> {
    let mut known = HashMap::from([(TreePath::root(), Some(*place.root))]);
    let mut waiting = VecDeque::new();
    for change in near {
        let path = &change?.path;
        if path.components().nth(LEVELS_MAX).is_some() {
            continue;
        }
        let mut missing = Vec::new();
        let mut above = path.split().map(|(dir, _)| dir);
        while let Some(dir) = above.filter(|dir| !known.contains_key(dir)) {
            above = dir.split().map(|(above, _)| above);
            missing.push(dir);
        }
        // From the topmost directory down.
        while let Some(dir) = missing.pop() {
            if known.len() > DIRS_MAX / 2 {
                return Ok(waiting);
            }
            let found = dir.split().and_then(|(above, name)| {
                let above = known.get(&above).copied().flatten()?;
                match tree::entry(place.pages, &above.tree, name) {
                    Ok(Some(Node::Dir(found))) => Some(found),
                    Ok(Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None) | Err(_) => None,
                }
            });
            known.insert(dir.clone(), found);
            if let Some(found) = found.filter(|_| may_hold(&dir)) {
                waiting.push_back(Waiting { real: dir.clone(), dir: found, seen_as: dir, links: 0 });
            }
        }
    }
    Ok(waiting)
}

/// Follows a symlink in `dir` as the kernel would. `None` if it is dangling or leads out of the version.
fn resolve(place: &HostVersion<'_>, dir: &TreePath, target: &[u8]) -> Result<Option<Resolved>> {
    // The directories on the way, starting with the root.
    let mut way = vec![(TreePath::root(), *place.root)];
    for name in dir.components() {
        let Some((path, above)) = way.last() else { return Ok(None) };
        let Some(Node::Dir(next)) = tree::entry(place.pages, &above.tree, name)? else { return Ok(None) };
        way.push((path.join(name), next));
    }
    let mut through = Vec::new();
    let mut names: VecDeque<Vec<u8>> = VecDeque::new();
    if !put_first(place, target, &mut way, &mut names) {
        return Ok(None);
    }
    let mut steps = 0;
    while let Some(name) = names.pop_front() {
        steps += 1;
        let Some((path, above)) = way.last() else { return Ok(None) };
        if steps > STEPS_MAX || path.is_too_deep() {
            return Ok(None);
        }
        if name == b".." {
            way.pop();
            continue;
        }
        let at = path.join(&name);
        match tree::entry(place.pages, &above.tree, &name)? {
            None => return Ok(None),
            Some(Node::Dir(dir)) => way.push((at, dir)),
            Some(Node::Symlink(link)) => {
                through.push(at);
                if through.len() > FOLLOWED_MAX || !put_first(place, &link.target, &mut way, &mut names) {
                    return Ok(None);
                }
            }
            Some(node @ (Node::File(_) | Node::Fifo(_))) => {
                return Ok(names.is_empty().then_some(Resolved { path: at, node, through }));
            }
        }
    }
    Ok(way.pop().map(|(path, dir)| Resolved { path, node: Node::Dir(dir), through }))
}

/// Prepends the components of a target to the remaining ones; false for an absolute path outside the directory.
fn put_first(
    place: &HostVersion<'_>,
    target: &[u8],
    way: &mut Vec<(TreePath, DirRef)>,
    names: &mut VecDeque<Vec<u8>>,
) -> bool {
    let mut target = target;
    if target.starts_with(b"/") {
        let below = place.dir.map(|dir| Path::new(std::ffi::OsStr::from_bytes(target)).strip_prefix(dir));
        let Some(Ok(below)) = below else { return false };
        target = below.as_os_str().as_bytes();
        way.truncate(1);
    }
    let parts = target.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    for name in parts.rev() {
        names.push_front(name.to_vec());
    }
    true
}

#[cfg(test)]
mod tests {
    use avfs_types::clock::FileTime;
    use avfs_types::ids::BlobId;
    use avfs_vault::backend::Backend;
    use avfs_vault::backend::memory::MemoryBackend;
    use avfs_vault::diff::ChangeKind;
    use avfs_vault::links::Overlay;
    use avfs_vault::page::{DirMeta, Entry, FileContent, FileNode, SymlinkNode};
    use avfs_vault::pages::{NewPages, build};

    use super::*;

    /// A tree of these files and, where a target is given, symlinks; sorted by path.
    fn tree(paths: &[(&str, Option<&str>)], new: &mut NewPages) -> DirRef {
        fn dir(prefix: &str, paths: &[(&str, Option<&str>)], new: &mut NewPages) -> DirRef {
            let mut entries: Vec<Entry> = Vec::new();
            for (path, target) in paths {
                let Some(below) = path.strip_prefix(prefix) else { continue };
                let (name, is_dir) = below.split_once('/').map_or((below, false), |(name, _)| (name, true));
                if entries.last().is_some_and(|last| last.name == name.as_bytes()) {
                    continue;
                }
                let mtime = FileTime::default();
                let node = match (is_dir, target) {
                    (true, _) => Node::Dir(dir(&format!("{prefix}{name}/"), paths, new)),
                    (false, Some(target)) => {
                        Node::Symlink(SymlinkNode { mtime, target: target.as_bytes().to_vec(), link: None })
                    }
                    (false, None) => {
                        let content = FileContent::Whole(BlobId([0; 32]));
                        Node::File(FileNode {
                            mode: 0o644,
                            mtime,
                            size: 1,
                            content,
                            xattrs: None,
                            link: None,
                        })
                    }
                };
                entries.push(Entry { name: name.as_bytes().to_vec(), node });
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            build(&DirMeta::default(), entries, new)
        }
        dir("", paths, new)
    }

    /// The other names of a changed path.
    fn names(paths: &[(&str, Option<&str>)], changed: &str) -> Vec<String> {
        let mut new = NewPages::default();
        let root = tree(paths, &mut new);
        let store = MemoryBackend::default();
        let reader = store.read().unwrap();
        let stored: &dyn Pages = &&*reader;
        let pages = Overlay::new(&new, stored);
        let place = HostVersion { pages: &pages, root: &root, dir: Some(Path::new("/srv/p")) };
        let changed = TreePath::parse(changed.as_bytes()).unwrap();
        let (kind, before, after) = (ChangeKind::Added, None, None);
        let change = Change { path: changed.clone(), kind, before, after };
        let found = LinkedPaths::find(&place, std::iter::once(Ok(Cow::Owned(change)))).unwrap();
        let mut names: Vec<String> = found.names_of(&changed).map(|(name, _)| name.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn symlinks_are_followed_in_the_version() {
        for (link, target, changed, name) in [
            (".git/hooks", "../tools/hooks", "tools/hooks/x", ".git/hooks/x"),
            (".claude", "shared/claude", "shared/claude/a/b", ".claude/a/b"),
            (".claude", "./shared//claude/", "shared/claude/b", ".claude/b"),
            (".claude", "/srv/p/shared/claude", "shared/claude/b", ".claude/b"),
            ("web/.cursor", "../shared", "shared/x", "web/.cursor/x"),
            ("AGENTS.md", "docs/a.md", "docs/a.md", "AGENTS.md"),
            (".claude/skills", "../skills", "skills/x.sh", ".claude/skills/x.sh"),
        ] {
            let mut paths = [(link, Some(target)), (changed, None)];
            paths.sort();
            assert_eq!(names(&paths, changed), [name], "{link} -> {target}");
            // Control: without the symlink, and for another path.
            assert_eq!(names(&[(changed, None)], changed), [""; 0]);
            let mut paths = [(link, Some(target)), (changed, None), ("other/x", None)];
            paths.sort();
            assert_eq!(names(&paths, "other/x"), [""; 0]);
        }
    }

    #[test]
    fn symlinks_to_symlinks_are_found() {
        let paths = [(".claude", Some("cfg")), ("cfg/hooks", Some("../tools")), ("tools/x.sh", None)];
        assert_eq!(names(&paths, "tools/x.sh"), [".claude/hooks/x.sh"]);
        // A symlink on the way determines which file is at the end.
        let paths = [(".claude", Some("a/b")), ("a", Some("other")), ("other/b/x", None)];
        assert_eq!(names(&paths, "a"), [".claude"]);
        assert_eq!(names(&paths, "other/b/x"), [".claude/x"]);
    }

    #[test]
    fn dangling_symlinks_are_ignored() {
        for target in ["../out", "/etc", "/srv", ".claude", "missing", "x/y", "/srv/p/../p/x"] {
            assert_eq!(names(&[(".claude", Some(target)), ("x", None)], "x"), [""; 0], "{target}");
        }
        let around = [(".claude", Some("d/l")), ("d/l", Some("../.claude")), ("x", None)];
        assert_eq!(names(&around, "x"), [""; 0]);
        // In places that no tool on the host reads.
        let elsewhere = [(".git/objects/hooks", Some("../../x")), ("bin", Some("x")), ("x/y", None)];
        assert_eq!(names(&elsewhere, "x/y"), [""; 0]);
    }

    #[test]
    fn symlink_cycles_terminate() {
        assert_eq!(names(&[(".claude", Some(".")), ("x", None)], "x"), [".claude/x"]);
        let circle = [(".claude", Some("d")), ("d/l", Some("../e")), ("d/x", None), ("e/m", Some("../d"))];
        assert!(names(&circle, "d/x").contains(&".claude/x".to_owned()));
    }
}
