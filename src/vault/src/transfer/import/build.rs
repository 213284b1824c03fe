//! Makes trees of what a scan found, from the bottom up; a directory the cache vouches for is not built.

use std::collections::{BTreeMap, HashMap};

use avfs_types::ids::LinkId;

use super::Scanned;
use super::shared::{ScannedDir, ScannedEntry, ScannedTree, What};
use crate::page::{DirMeta, DirRef, Entry, FifoNode, FileNode, Node, SymlinkNode};
use crate::pages::NewPages;
use crate::stat_cache::{CachedDir, CachedEntry, CachedKind, NewCache, Stamp, StatCache};
use crate::{links, pages};

pub(super) struct Built<'c> {
    pub(crate) root: DirRef,
    pub(crate) new: NewPages,
    pub(crate) scanned: Scanned,
    /// A new stat cache, or what is new in it; nothing if the old one still tells all.
    pub(crate) cache: Option<NewCache<'c>>,
}

pub(super) fn build(found: ScannedTree, cache: Option<&StatCache>) -> Built<'_> {
    let ScannedTree { dirs, scanned } = found;
    let groups = link_groups(&dirs);
    let mut new = NewPages::default();
    let mut built: Vec<Option<DirRef>> = vec![None; dirs.len()];
    let mut reused = vec![None; dirs.len()];
    for number in (0..dirs.len()).rev() {
        let dir = &dirs[number];
        let may_reuse = dir.clean && dir.complete;
        let cached = dir.cached.filter(|_| may_reuse).and_then(|number| cache?.dir(number));
        let same = cached.filter(|cached| cached.complete && unchanged(dir, cached, &built, &groups, cache));
        built[number] = Some(match same {
            Some(cached) => {
                reused[number] = dir.cached;
                cached.dir
            }
            None => {
                let entries = dir.entries.iter().filter_map(|entry| node(entry, &built, &groups)).collect();
                let meta = DirMeta { mode: dir.stat.mode, mtime: dir.stat.mtime, xattrs: dir.xattrs };
                pages::build(&meta, entries, &mut new)
            }
        });
    }
    // A scan always finds its root, or it failed.
    let root = built
        .first()
        .copied()
        .flatten()
        .unwrap_or_else(|| pages::build(&DirMeta::default(), Vec::new(), &mut new));
    let all_reused = reused.iter().all(Option::is_some);
    let new_cache = (!all_reused).then(|| encode_cache(&dirs, &built, &groups, cache, &reused));
    Built { root, new, scanned, cache: new_cache }
}

/// Names of one file, by the file's place on the disk; only files with more than one name here.
pub(crate) type Groups = HashMap<(u64, u64), LinkId>;

pub(crate) fn link_groups(dirs: &[ScannedDir]) -> Groups {
    let mut paths: BTreeMap<(u64, u64), Vec<Vec<u8>>> = BTreeMap::new();
    for dir in dirs {
        for entry in dir.entries.iter().filter(|entry| entry.is_shared()) {
            let key = (entry.stat.device, entry.stat.inode);
            paths.entry(key).or_default().push(dir.path.join(&entry.name).as_bytes().to_vec());
        }
    }
    let several = paths.into_iter().filter(|(_, paths)| paths.len() > 1);
    several
        .map(|(key, mut paths)| {
            paths.sort_unstable();
            (key, links::group_id(paths.iter().map(Vec::as_slice)))
        })
        .collect()
}

fn link_of(entry: &ScannedEntry, groups: &Groups) -> Option<LinkId> {
    if entry.stat.links < 2 {
        return None;
    }
    groups.get(&(entry.stat.device, entry.stat.inode)).copied()
}

/// True if the directory is, down to its last file, what the cache says.
fn unchanged(
    dir: &ScannedDir,
    cached: &CachedDir<'_>,
    built: &[Option<DirRef>],
    groups: &Groups,
    cache: Option<&StatCache>,
) -> bool {
    let meta = (cached.mode, cached.mtime, cached.xattrs) == (dir.stat.mode, dir.stat.mtime, dir.xattrs);
    meta && dir.entries.len() == cached.entries.len()
        && dir.entries.iter().zip(&cached.entries).all(|(entry, known)| match (&entry.what, known.kind) {
            (What::Dir(number), CachedKind::Dir(old)) => {
                let old = cache.and_then(|cache| cache.dir_ref(old));
                old.is_some() && built[*number as usize] == old
            }
            _ => known.link == link_of(entry, groups),
        })
}

fn node(entry: &ScannedEntry, built: &[Option<DirRef>], groups: &Groups) -> Option<Entry> {
    let node = match &entry.what {
        What::Dir(number) => Node::Dir(built[*number as usize]?),
        What::File { .. }
        | What::Symlink { .. }
        | What::Fifo
        | What::Pending
        | What::Gone
        | What::Whiteout => leaf(entry, groups)?,
    };
    Some(Entry { name: entry.name.clone(), node })
}

/// What an entry is, if it is something and no directory.
pub(crate) fn leaf(entry: &ScannedEntry, groups: &Groups) -> Option<Node> {
    let link = link_of(entry, groups);
    let (mode, mtime) = (entry.stat.mode, entry.stat.mtime);
    Some(match &entry.what {
        What::File { content, xattrs } => {
            let (content, xattrs) = (*content, *xattrs);
            Node::File(FileNode { mode, mtime, size: entry.stat.size, content, xattrs, link })
        }
        What::Symlink { target } => Node::Symlink(SymlinkNode { mtime, target: target.clone(), link }),
        What::Fifo => Node::Fifo(FifoNode { mode, mtime, link }),
        What::Dir(_) | What::Pending | What::Gone | What::Whiteout => return None,
    })
}

/// A new cache, or what is new in it; `reused` tells which directory of the old one each of these is.
fn encode_cache<'c>(
    dirs: &[ScannedDir],
    built: &[Option<DirRef>],
    groups: &Groups,
    old: Option<&'c StatCache>,
    reused: &[Option<u32>],
) -> NewCache<'c> {
    // As it stands in the old cache, if the directories in it have their old numbers too.
    let known = |number: u32, dir: &ScannedDir| {
        let same = |entry: &ScannedEntry| match entry.what {
            What::Dir(number) => dirs[number as usize].cached == Some(number),
            What::File { .. } | What::Symlink { .. } | What::Fifo => true,
            What::Pending | What::Gone | What::Whiteout => false,
        };
        reused[number as usize].filter(|_| dir.entries.iter().all(same))
    };
    let encode = |mut new: NewCache<'c>| {
        for ((number, dir), built) in (0..).zip(dirs).zip(built) {
            let Some(built) = built else { continue };
            match known(number, dir).and_then(|number| old?.encoded(number)) {
                Some(encoded) => new.keep(number, encoded),
                None => new.push(number, &to_cache(dir, *built, groups)),
            }
        }
        new
    };
    let keep_numbers = (0..).zip(dirs).all(|(number, dir)| dir.cached.is_none_or(|old| old == number));
    let added = old.filter(|_| keep_numbers).and_then(NewCache::onto).map(encode);
    added.filter(|added| !added.is_too_much()).unwrap_or_else(|| encode(NewCache::like(old)))
}

fn to_cache<'d>(dir: &'d ScannedDir, built: DirRef, groups: &Groups) -> CachedDir<'d> {
    let entries = dir.entries.iter().filter_map(|entry| {
        let kind = match &entry.what {
            What::File { content, xattrs } => CachedKind::File { content: *content, xattrs: *xattrs },
            What::Symlink { target } => CachedKind::Symlink { target },
            What::Fifo => CachedKind::Fifo,
            What::Dir(number) => CachedKind::Dir(*number),
            What::Pending | What::Gone | What::Whiteout => return None,
        };
        let link = link_of(entry, groups);
        let stamp = Stamp::of(&entry.stat);
        Some(CachedEntry { name: &entry.name, stamp, settled: entry.settled, link, kind })
    });
    CachedDir {
        mode: dir.stat.mode,
        mtime: dir.stat.mtime,
        xattrs: dir.xattrs,
        complete: dir.complete,
        dir: built,
        entries: entries.collect(),
    }
}
