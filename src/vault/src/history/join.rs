//! Joins versions with a common ancestor into one that has the changes of all of them.
//!
//! A change made on both sides is applied once. Different changes to the same path are a clash, and nothing is
//! joined; a side that changed only the time of a file takes the change of the other one.

use std::collections::{BTreeMap, HashMap, HashSet};

use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::{ForkName, VersionId};
use avfs_types::path::TreePath;

use super::audit::Event;
use super::ops;
use super::version::{Draft, full_root_of};
use crate::backend::{Extent, ForkRecord, Life, Reader, VersionRecord};
use crate::delta::delta;
use crate::edit::{Edit, Edits, Manner};
use crate::page::{DirMeta, DirRef, Node};
use crate::tree::Pages;
use crate::{Result, Transaction, Vault, VaultError, require_version, tree};

/// The result of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// An existing version: the others are its ancestors.
    Known(VersionId),
    /// A new version, the head of the new fork.
    New(VersionRecord),
    /// The sides changed these paths in different ways.
    Clash {
        /// The version whose changes clash with those of the versions before it.
        version: VersionId,
        /// The paths changed on both sides.
        paths: Vec<TreePath>,
    },
}

impl Vault {
    /// Joins several versions into one; a new version is put on a new fork of this name.
    pub fn join(&self, name: &ForkName, versions: &[VersionId], life: Life) -> Result<Joined> {
        self.transact(|transaction| join(transaction, name, versions, life))
    }
}

fn join(
    transaction: &mut Transaction<'_>,
    name: &ForkName,
    versions: &[VersionId],
    life: Life,
) -> Result<Joined> {
    let tips = tips(transaction.view(), versions)?;
    let Some((first, rest)) = tips.split_first() else { return Err(VaultError::NothingToJoin) };
    if rest.is_empty() {
        return Ok(Joined::Known(*first));
    }
    let root = match joined_root(transaction, &tips, BASES_DEPTH_MAX)? {
        Ok(root) => root,
        Err((version, paths)) => return Ok(Joined::Clash { version, paths }),
    };
    let (base, parents) = (*first, tips.clone());
    let draft = Draft { message: "join", run: None, parents, extent: Extent::Full };
    let version = transaction.put_version(&root, draft)?;
    let (head, created_at) = (version.id, transaction.now());
    let fork = ForkRecord { name: name.clone(), head, base, parent: None, created_at, life };
    transaction.writer.insert_fork(&fork)?;
    let (action, subject) = ("fork.create", name.as_str());
    transaction.record(&Event { action, subject, before: None, after: Some(head.0), detail: "join" })?;
    Ok(Joined::New(version))
}

/// A version that clashes with those before it, and the paths.
type Clash = (VersionId, Vec<TreePath>);

/// How often the common ancestors of common ancestors are joined.
const BASES_DEPTH_MAX: usize = 2;

/// The tree of several versions joined.
///
/// If the sides seem to clash and have several common ancestors, these are joined first, so that each path has one
/// earlier state: one of them may lack a file only because it is on another line of history.
fn joined_root(
    transaction: &mut Transaction<'_>,
    tips: &[VersionId],
    depth: usize,
) -> Result<std::result::Result<DirRef, Clash>> {
    let Some((first, rest)) = tips.split_first() else { return Err(VaultError::NothingToJoin) };
    let mut root = root_of(transaction.view(), first)?;
    for (number, version) in rest.iter().enumerate() {
        let view = transaction.view();
        let bases = common(view, tips.get(..=number).unwrap_or_default(), version)?;
        let roots = bases.iter().map(|base| root_of(view, base)).collect::<Result<Vec<_>>>()?;
        let made = root_of(view, version)?;
        let mut edits = onto(&view, (&roots, &root, &made), &|_| OnClash::Refuse, &same_but_time)?;
        if edits.is_err()
            && bases.len() > 1
            && depth > 0
            && let Ok(base) = joined_root(transaction, &bases, depth - 1)?
        {
            edits = onto(&transaction.view(), (&[base], &root, &made), &|_| OnClash::Refuse, &same_but_time)?;
        }
        match edits {
            Ok(edits) => root = ops::apply_edits(transaction, &root, &edits, Manner::Exact)?,
            Err(paths) => return Ok(Err((*version, paths))),
        }
    }
    Ok(Ok(root))
}

pub(super) fn root_of(reader: &dyn Reader, id: &VersionId) -> Result<DirRef> {
    full_root_of(reader, &require_version(reader, id)?)
}

/// The versions that are not ancestors of another one, each once, in their order. An ancestor that is overlooked,
/// because a clock was set back, adds nothing to a join.
fn tips(reader: &dyn Reader, versions: &[VersionId]) -> Result<Vec<VersionId>> {
    let mut earliest = Timestamp(i64::MAX);
    let mut left = Newest::default();
    for id in versions {
        let version = require_version(reader, id)?;
        earliest = earliest.min(version.at);
        left.add_all(reader, &version.parents)?;
    }
    let mut behind = HashSet::new();
    while let Some(version) = left.next() {
        if version.at < earliest {
            break;
        }
        if behind.insert(version.id) {
            left.add_all(reader, &version.parents)?;
        }
    }
    let mut seen = HashSet::new();
    Ok(versions.iter().filter(|id| !behind.contains(*id) && seen.insert(**id)).copied().collect())
}

/// Versions still to be visited, newest first, so that distant ancestors are never read.
#[derive(Default)]
struct Newest(BTreeMap<(Timestamp, VersionId), VersionRecord>);

impl Newest {
    fn add_all(&mut self, reader: &dyn Reader, ids: &[VersionId]) -> Result<()> {
        for id in ids {
            // A parent may have been deleted.
            if let Some(version) = reader.version(id)? {
                self.0.insert((version.at, version.id), version);
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<VersionRecord> {
        self.0.pop_last().map(|(_, version)| version)
    }
}

const JOINED: u8 = 1;
const OTHER: u8 = 2;
const BOTH: u8 = JOINED | OTHER;
/// An ancestor of a common version.
const BEHIND: u8 = 4;

/// The nearest common ancestors of a version and the joined ones: several if their ancestors were joined more than
/// once.
pub(super) fn common(
    reader: &dyn Reader,
    joined: &[VersionId],
    version: &VersionId,
) -> Result<Vec<VersionId>> {
    let mut sides: HashMap<VersionId, u8> = joined.iter().map(|id| (*id, JOINED)).collect();
    *sides.entry(*version).or_default() |= OTHER;
    let mut left = Newest::default();
    left.add_all(reader, joined)?;
    left.add_all(reader, &[*version])?;
    let mut found = Vec::new();
    while left.0.values().any(|version| !is_behind(&sides, &version.id)) {
        let Some(version) = left.next() else { break };
        let mut side = sides.get(&version.id).copied().unwrap_or(0);
        if side & BOTH == BOTH {
            if side & BEHIND == 0 {
                found.push(version.id);
            }
            side |= BEHIND;
        }
        for parent in &version.parents {
            let known = sides.entry(*parent).or_default();
            if *known | side != *known {
                *known |= side;
                left.add_all(reader, &[*parent])?;
            }
        }
    }
    found.retain(|id| !is_behind(&sides, id));
    if found.is_empty() { Err(VaultError::NotRelated { version: *version }) } else { Ok(found) }
}

fn is_behind(sides: &HashMap<VersionId, u8>, id: &VersionId) -> bool {
    sides.get(id).is_some_and(|side| side & BEHIND != 0)
}

/// The handling of a path that both sides changed in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnClash {
    /// Merge nothing, and report the paths.
    Refuse,
    /// Keep the head's side.
    KeepHead,
    /// Take the other side. A clash that involves a directory is still reported.
    TakeOther,
}

/// True if two states of a path differ at most in ways that give way to a real change of the other side.
pub(super) type Same<'a> = &'a dyn Fn(&TreePath, &Node, &Node) -> Result<bool>;

/// Times give way: a file that one side only touched is not in the way of the other side's content.
pub(super) fn same_but_time(_: &TreePath, one: &Node, other: &Node) -> Result<bool> {
    Ok(without_time(one) == without_time(other))
}

/// The edits that apply the changes from the first of three states (several, if the common ancestor is not unique) to
/// the last one to the second; or the paths that both sides changed in different ways.
pub(super) fn onto(
    pages: &dyn Pages,
    (bases, head, made): (&[DirRef], &DirRef, &DirRef),
    on_clash: &dyn Fn(&TreePath) -> OnClash,
    same: Same<'_>,
) -> Result<std::result::Result<Edits, Vec<TreePath>>> {
    let mut edits = Edits::new();
    for base in bases {
        for (path, edit) in delta(pages, base, made)? {
            edits.entry(path).or_insert(edit);
        }
    }
    let mut wanted = Edits::new();
    let mut clashes = Vec::new();
    for (path, edit) in edits {
        let mut were = Vec::with_capacity(bases.len());
        for base in bases {
            were.push(tree::lookup(pages, base, &path)?);
        }
        let there = tree::lookup(pages, head, &path)?;
        let is_dir = matches!(there, Some(Node::Dir(_))) || matches!(edit, Edit::Dir(_));
        let made_here = edit.clone();
        let met = match edit {
            Edit::Dir(meta) => dirs_meet(pages, &were, &meta, there.as_ref())?,
            Edit::Put(node) => meet(&were, Some(node), there, &|one, other| same(&path, one, other))?,
            Edit::Remove => meet(&were, None, there, &|one, other| same(&path, one, other))?,
        };
        match met {
            Met::Take(edit) if !above_is_gone(pages, head, &path, &wanted)? => {
                wanted.insert(path, edit);
            }
            Met::Leave => {}
            Met::Take(_) | Met::Clash => match on_clash(&path) {
                OnClash::KeepHead => {}
                OnClash::TakeOther if !is_dir && !above_is_gone(pages, head, &path, &wanted)? => {
                    wanted.insert(path, made_here);
                }
                OnClash::Refuse | OnClash::TakeOther => clashes.push(path),
            },
        }
    }
    Ok(if clashes.is_empty() { Ok(wanted) } else { Err(clashes) })
}

/// The outcome for a path that one side changed.
enum Met {
    Take(Edit),
    /// The path already has the right content.
    Leave,
    Clash,
}

/// Compares the two sides of a path with the path in each common ancestor.
fn meet(
    were: &[Option<Node>],
    mine: Option<Node>,
    theirs: Option<Node>,
    same: &dyn Fn(&Node, &Node) -> Result<bool>,
) -> Result<Met> {
    if let (Some(mine), Some(theirs)) = (&mine, &theirs)
        && without_time(mine) == without_time(theirs)
    {
        let times: Vec<FileTime> = were.iter().flatten().map(time).collect();
        return Ok(match meeting_time(&times, time(mine), time(theirs)) == time(theirs) {
            true => Met::Leave,
            false => Met::Take(Edit::Put(mine.clone())),
        });
    }
    if mine == theirs {
        return Ok(Met::Leave);
    }
    let take = |mine: Option<Node>| Met::Take(mine.map_or(Edit::Remove, Edit::Put));
    match (were.contains(&mine), were.contains(&theirs)) {
        (false, true) => return Ok(take(mine)),
        (true, false) => return Ok(Met::Leave),
        // Each side equals some ancestor, but not the same one.
        (true, true) => return Ok(Met::Clash),
        (false, false) => {}
    }
    let is_same = |one: &Option<Node>, other: &Option<Node>| match (one, other) {
        (Some(one), Some(other)) => same(one, other),
        (_, _) => Ok(false),
    };
    if is_same(&mine, &theirs)? {
        return Ok(Met::Leave);
    }
    let was = |side| were.iter().map(|was| is_same(was, side)).collect::<Result<Vec<_>>>();
    Ok(match (was(&mine)?.contains(&false), was(&theirs)?.contains(&false)) {
        (true, false) => take(mine),
        (false, true) => Met::Leave,
        (false, false) | (true, true) => Met::Clash,
    })
}

/// The time that one side set, which may be earlier than before; the newer one if both sides set a time.
fn meeting_time(were: &[FileTime], mine: FileTime, theirs: FileTime) -> FileTime {
    match (were.contains(&mine), were.contains(&theirs)) {
        (false, true) => mine,
        (true, false) => theirs,
        (false, false) | (true, true) => mine.max(theirs),
    }
}

fn time(node: &Node) -> FileTime {
    match node {
        Node::File(file) => file.mtime,
        Node::Symlink(link) => link.mtime,
        Node::Fifo(fifo) => fifo.mtime,
        Node::Dir(_) => FileTime::default(),
    }
}

fn without_time(node: &Node) -> Node {
    let mut node = node.clone();
    match &mut node {
        Node::File(file) => file.mtime = FileTime::default(),
        Node::Symlink(link) => link.mtime = FileTime::default(),
        Node::Fifo(fifo) => fifo.mtime = FileTime::default(),
        Node::Dir(_) => {}
    }
    node
}

/// Like [`meet`], for a directory's own metadata.
fn dirs_meet(pages: &dyn Pages, were: &[Option<Node>], meta: &DirMeta, there: Option<&Node>) -> Result<Met> {
    let own = |node: Option<&Node>| match node {
        Some(Node::Dir(dir)) => Ok::<_, VaultError>(Some(tree::top(pages, &dir.tree)?.0)),
        Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => Ok(None),
    };
    let mut dirs = Vec::with_capacity(were.len());
    for node in were {
        dirs.push(own(node.as_ref())?);
    }
    let Some(now) = own(there)? else {
        let unchanged = dirs.iter().flatten().any(|was| was == meta);
        let untouched = were.iter().any(|was| was.as_ref() == there);
        return Ok(match (unchanged, untouched) {
            (false, true) => Met::Take(Edit::Dir(meta.clone())),
            (true, false) => Met::Leave,
            // The other side removed or replaced the directory.
            (false, false) | (true, true) => Met::Clash,
        });
    };
    let plain = |meta: &DirMeta| DirMeta { mtime: FileTime::default(), ..meta.clone() };
    let (mine, theirs) = (plain(meta), plain(&now));
    let was = |side: &DirMeta| dirs.iter().flatten().any(|dir| plain(dir) == *side);
    let merged = match (was(&mine), was(&theirs)) {
        _ if mine == theirs => mine,
        (false, true) => mine,
        (true, false) => theirs,
        (false, false) | (true, true) => return Ok(Met::Clash),
    };
    let times: Vec<FileTime> = dirs.iter().flatten().map(|dir| dir.mtime).collect();
    let merged = DirMeta { mtime: meeting_time(&times, meta.mtime, now.mtime), ..merged };
    Ok(if merged == now { Met::Leave } else { Met::Take(Edit::Dir(merged)) })
}

/// True if the parent of a path is not a directory in `head` and is not created as one.
fn above_is_gone(pages: &dyn Pages, head: &DirRef, path: &TreePath, wanted: &Edits) -> Result<bool> {
    let Some((parent, _)) = path.split() else { return Ok(false) };
    if matches!(wanted.get(&parent), Some(Edit::Dir(_))) {
        return Ok(false);
    }
    Ok(!matches!(tree::lookup(pages, head, &parent)?, Some(Node::Dir(_))))
}
