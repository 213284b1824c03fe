//! Plans the steps in the host directory. All changes are decided before the first one is made.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use avfs_hostfs::make::Over;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::{LinkId, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::changes::Changes;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::{DirMeta, DirRef, FileContent, Node};
use avfs_vault::tree::Pages;
use avfs_vault::{links, tree};

use super::host::{Host, HostEntry, Look};
use super::moved::Moved;
use super::path_digests::PathDigests;
use super::task::{Act, Decided, DirPart, Plan, Task};
use super::top_dirs::TopDirs;
use super::way::Way;
use super::{EarlierApply, Filter};
use crate::apply::error::{ApplyError, Conflict};

type Result<T> = std::result::Result<T, ApplyError>;

const DIR_GONE: &str = "its directory is gone";

enum Step {
    Already,
    /// A name of a hard-linked file whose content is already correct; `join_links` decides about its links.
    Linked,
    /// Already correct, except for parts that other steps may change.
    Settle(Task),
    Do(Task),
    Conflict(&'static str),
}

/// A name of a hard-linked file in the new state.
struct Member {
    path: TreePath,
    /// The index of its change, for a name that is judged on its own.
    place: usize,
    /// Device and inode on the host, if the name needs no step.
    there: Option<(u64, u64)>,
}

struct Maker<'a> {
    host: &'a Host<'a>,
    pages: &'a dyn Pages,
    /// The paths of the requested changes.
    asked: &'a PathDigests,
    /// Directories that are created as a whole, and those that are replaced by something else.
    planted: TopDirs,
    swapped: TopDirs,
    /// Directories that are removed.
    going: HashSet<TreePath>,
    links: BTreeMap<LinkId, Vec<Member>>,
    decided: Vec<Decided>,
    already: u64,
    there: Vec<TreePath>,
    /// Whether the directories on the way to a path were moved to their places in the period of doubt.
    moved: Way<bool>,
    earlier: &'a [(EarlierApply, Filter)],
}

/// Decides every change, or rejects all of them. A change on the host during `doubt` may have been made by
/// another process without the run having seen it.
pub fn make<'c>(
    host: &Host<'_>,
    pages: &dyn Pages,
    (changes, asked): (&'c Changes, &PathDigests),
    version: VersionId,
    doubt: Option<&RangeInclusive<Timestamp>>,
    earlier: &[(EarlierApply, Filter)],
) -> Result<Plan<'c>> {
    let mut maker = Maker {
        host,
        pages,
        asked,
        planted: TopDirs::default(),
        swapped: TopDirs::default(),
        going: HashSet::new(),
        links: BTreeMap::new(),
        decided: Vec::with_capacity(changes.len()),
        already: 0,
        there: Vec::new(),
        moved: Way::default(),
        earlier,
    };
    let (mut conflicts, mut reported) = (Vec::new(), TopDirs::default());
    for change in changes {
        host.require_going()?;
        let change = &*change?;
        maker.decided.push(Decided { act: Act::Nothing, seen: None, file: None });
        // Sorted by path: a directory comes before its entries.
        if maker.planted.has_above(&change.path) {
            continue;
        }
        let goes_with_dir = maker.swapped.has_above(&change.path);
        let look = maker.look(&change.path)?;
        let mut verdict = maker.judge(change, look)?;
        if let Step::Conflict(reason) = verdict {
            verdict = maker.judge_applied(change, look)?.unwrap_or(Step::Conflict(reason));
        }
        if let (Step::Do(_), Some(doubt)) = (&verdict, doubt)
            && let Some(reason) = maker.doubtful(&change.path, look, doubt)?
        {
            verdict = Step::Conflict(reason);
        }
        match verdict {
            // A missing directory is reported once, for the directory itself.
            Step::Conflict(DIR_GONE) if reported.has_above(&change.path) => {}
            Step::Conflict(reason) => {
                reported.insert(&change.path);
                conflicts.push(Conflict { path: change.path.clone(), reason: reason.into() });
            }
            Step::Already => {
                maker.already += 1;
                maker.there.push(change.path.clone());
            }
            Step::Linked => maker.already += 1,
            Step::Do(_) | Step::Settle(_) if goes_with_dir => {}
            Step::Do(task) => maker.add(task)?,
            Step::Settle(task) => {
                maker.already += 1;
                maker.add(task)?;
            }
        }
    }
    if !conflicts.is_empty() {
        return Err(ApplyError::conflict(host.dir(), conflicts, version, changes));
    }
    maker.join_links()?;
    let Maker { decided, already, there, swapped, going, planted, .. } = maker;
    let moved = Moved::find(host, changes, &decided, (&going, &planted))?;
    Ok(Plan { changes, decided, already, there, version, swapped, moved })
}

fn dir_of(side: Option<&Side>) -> Option<DirRef> {
    match side.map(|side| &side.node) {
        Some(Node::Dir(dir)) => Some(*dir),
        Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => None,
    }
}

impl Maker<'_> {
    fn meta(&self, dir: &DirRef) -> Result<DirMeta> {
        Ok(tree::top(self.pages, &dir.tree)?.0)
    }

    /// Why the entry may differ from the one the run saw: it changed during `doubt`, or was moved there with a
    /// directory.
    fn doubtful(
        &mut self,
        path: &TreePath,
        look: Look,
        doubt: &RangeInclusive<Timestamp>,
    ) -> Result<Option<&'static str>> {
        let within = |time: FileTime| doubt.contains(&Timestamp(time.saturating_nanos()));
        if let Look::There(stat) = look
            && stat.kind != HostKind::Dir
            && within(stat.ctime)
        {
            return Ok(Some("it changed during the run"));
        }
        let Some((parent, _)) = path.split() else { return Ok(None) };
        let host = self.host;
        // Adding or removing a name in a directory changes both ctime and mtime; renaming the directory changes only
        // ctime.
        let is_moved =
            |look| matches!(look, Look::There(stat) if within(stat.ctime) && stat.ctime != stat.mtime);
        let moved = self
            .moved
            .value(&parent, false, |at, above| Ok::<_, ApplyError>(above || is_moved(host.look(at)?)));
        Ok(moved?.then_some("a parent directory changed during the run"))
    }

    /// Reads the state of the path of the last change, and keeps its digest.
    fn look(&mut self, path: &TreePath) -> Result<Look> {
        avfs_types::pause::point("judge");
        let look = self.host.look(path)?;
        if let Some(decided) = self.decided.last_mut() {
            decided.seen = Some(self.host.digest(&look));
            decided.file = match &look {
                Look::There(stat) => Some(self.host.file_digest(stat)),
                Look::NoParent | Look::Absent => None,
            };
        }
        Ok(look)
    }

    fn judge(&mut self, change: &Change, look: Look) -> Result<Step> {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        if let (Look::NoParent, Some(_)) = (&look, after) {
            return Ok(Step::Conflict(DIR_GONE));
        }
        match (dir_of(before), before, dir_of(after), after) {
            (Some(old), _, Some(new), _) => self.own_metadata(change, look, &old, &new),
            (Some(old), _, None, None) => self.dir_goes(&change.path, look, &old),
            (Some(old), _, None, Some(new)) => self.dir_gives_way(&change.path, look, &old, &new.node),
            (None, Some(old), Some(new), _) => self.becomes_dir(&change.path, look, &old.node, &new),
            (None, None, Some(new), _) => self.dir_comes(&change.path, look, &new),
            (None, Some(old), None, Some(new)) => self.changes(&change.path, look, &old.node, &new.node),
            (None, Some(old), None, None) => self.goes(&change.path, look, &old.node),
            (None, None, None, Some(new)) => self.comes(&change.path, look, &new.node),
            (None, None, None, None) => Ok(Step::Already),
        }
    }

    /// The step for a path that is as an earlier apply wrote it; `None` if it is not.
    fn judge_applied(&mut self, change: &Change, look: Look) -> Result<Option<Step>> {
        for (of, filter) in self.earlier {
            if !filter.accepts(&change.path) {
                continue;
            }
            let node = tree::lookup(self.pages, &of.after, &change.path)?;
            if node.as_ref() == change.before.as_ref().map(|side| &side.node)
                || matches!(node, Some(Node::Dir(_)))
                || node == tree::lookup(self.pages, &of.before, &change.path)?
            {
                continue;
            }
            let before = node.map(|node| Side { node, dir_meta: None });
            let step = self.judge(&Change { before, ..change.clone() }, look)?;
            if !matches!(step, Step::Conflict(_)) {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    fn own_metadata(&self, change: &Change, look: Look, old: &DirRef, new: &DirRef) -> Result<Step> {
        let Look::There(stat) = look else { return Ok(Step::Conflict("it was deleted")) };
        if stat.kind != HostKind::Dir {
            return Ok(Step::Conflict("it is no longer a directory"));
        }
        let (old_meta, meta, path) = (self.meta(old)?, self.meta(new)?, change.path.clone());
        if change.kind == ChangeKind::Time {
            // The time of a directory changes with every name in it; the names are compared individually.
            let same = stat.mtime == meta.mtime;
            let finish = Task::Finish { path, meta, what: DirPart::Time };
            return Ok(if same { Step::Settle(finish) } else { Step::Do(finish) });
        }
        let mut found = self.host.found(&change.path, stat);
        let done = found.is(&Node::Dir(*new), Some(&meta))?;
        if !done && !found.is(&Node::Dir(*old), Some(&old_meta))? {
            return Ok(Step::Conflict("its mode or attributes were changed"));
        }
        let finish = Task::Finish { path, meta, what: DirPart::All };
        Ok(if done { Step::Settle(finish) } else { Step::Do(finish) })
    }

    fn dir_goes(&self, path: &TreePath, look: Look, old: &DirRef) -> Result<Step> {
        let Look::There(stat) = look else { return Ok(Step::Already) };
        let mut meta = self.meta(old)?;
        // A process that was killed may have made it writable.
        if stat.mode == meta.mode | 0o700 {
            meta.mode = stat.mode;
        }
        Ok(if self.host.found(path, stat).is(&Node::Dir(*old), Some(&meta))? {
            Step::Do(Task::Rmdir { path: path.clone() })
        } else {
            Step::Conflict("it was changed")
        })
    }

    fn dir_gives_way(&mut self, path: &TreePath, look: Look, old: &DirRef, new: &Node) -> Result<Step> {
        let Look::There(stat) = look else { return Ok(Step::Conflict("it was deleted")) };
        if stat.kind != HostKind::Dir {
            let same = self.host.found(path, stat).is(new, None)?;
            return if same {
                self.settled(path, stat, None, new)
            } else {
                Ok(Step::Conflict("it was changed"))
            };
        }
        let meta = self.meta(old)?;
        if !self.host.found(path, stat).is(&Node::Dir(*old), Some(&meta))? {
            return Ok(Step::Conflict("it was changed"));
        }
        if self.host.names_beneath(path)?.iter().any(|name| !self.asked.contains(name)) {
            return Ok(Step::Conflict("it contains files that are not versioned"));
        }
        self.swapped.insert(path);
        Ok(Step::Do(Task::Put { path: path.clone(), node: new.clone(), over: Over::Anything }))
    }

    fn becomes_dir(&mut self, path: &TreePath, look: Look, old: &Node, new: &DirRef) -> Result<Step> {
        let Look::There(stat) = look else { return Ok(Step::Conflict("it was deleted")) };
        if stat.kind == HostKind::Dir {
            return self.dir_is_there(path, stat, new);
        }
        let mut found = self.host.found(path, stat);
        if found.is(old, None)? {
            return self.plant(path, new, Over::Anything);
        }
        Ok(Step::Conflict("it was changed"))
    }

    fn dir_comes(&mut self, path: &TreePath, look: Look, new: &DirRef) -> Result<Step> {
        match look {
            Look::NoParent => Ok(Step::Conflict(DIR_GONE)),
            Look::Absent => self.plant(path, new, Over::Nothing),
            Look::There(stat) => self.dir_is_there(path, stat, new),
        }
    }

    fn plant(&mut self, path: &TreePath, dir: &DirRef, over: Over) -> Result<Step> {
        let meta = self.meta(dir)?;
        self.planted.insert(path);
        Ok(Step::Do(Task::Plant { path: path.clone(), dir: *dir, meta, over }))
    }

    /// A directory created by an earlier apply may not have its final mode yet.
    fn dir_is_there(&mut self, path: &TreePath, stat: HostStat, new: &DirRef) -> Result<Step> {
        let meta = self.meta(new)?;
        let made = stat.kind == HostKind::Dir && [meta.mode, meta.mode | 0o700].contains(&stat.mode);
        if made && self.host.found(path, stat).has_xattrs(meta.xattrs.as_ref())? {
            self.there.push(path.clone());
            return Ok(Step::Settle(Task::Finish { path: path.clone(), meta, what: DirPart::All }));
        }
        Ok(Step::Conflict("something else was created there"))
    }

    fn goes(&self, path: &TreePath, look: Look, old: &Node) -> Result<Step> {
        let Look::There(stat) = look else { return Ok(Step::Already) };
        let mut found = self.host.found(path, stat);
        Ok(if found.is(old, None)? {
            Step::Do(Task::Unlink { path: path.clone() })
        } else {
            Step::Conflict("it was changed")
        })
    }

    fn comes(&mut self, path: &TreePath, look: Look, new: &Node) -> Result<Step> {
        match look {
            Look::NoParent => Ok(Step::Conflict(DIR_GONE)),
            Look::Absent => {
                let (path, node) = (path.clone(), new.clone());
                Ok(Step::Do(Task::Put { path, node, over: Over::Nothing }))
            }
            Look::There(stat) => {
                let same = self.host.found(path, stat).is(new, None)?;
                if same {
                    self.settled(path, stat, None, new)
                } else {
                    Ok(Step::Conflict("something else was created there"))
                }
            }
        }
    }

    fn changes(&mut self, path: &TreePath, look: Look, old: &Node, new: &Node) -> Result<Step> {
        let Look::There(stat) = look else { return Ok(Step::Conflict("it was deleted")) };
        let mut found: HostEntry<'_> = self.host.found(path, stat);
        if stat.mtime == mtime(new) && found.is(new, None)? {
            return self.settled(path, stat, Some(old), new);
        }
        if found.is(old, None)? {
            return Ok(Step::Do(self.cheapest(path, &stat, old, new)?));
        }
        if found.is(new, None)? {
            return self.settled(path, stat, Some(old), new);
        }
        if self.host.is_refresh(path, old, new)? {
            // The index on the host has the changes of the other side, and the refresh has none.
            self.there.push(path.clone());
            return Ok(Step::Already);
        }
        if found.is_refreshed_index(old)? {
            return Ok(Step::Do(self.replace(path, new)?));
        }
        Ok(Step::Conflict("it was changed"))
    }

    /// Avoids rewriting unchanged content, if the file can be opened to set its mode.
    fn cheapest(&self, path: &TreePath, stat: &HostStat, old: &Node, new: &Node) -> Result<Task> {
        let adjust = || Ok(Task::Adjust { path: path.clone(), node: new.clone() });
        let put = || self.replace(path, new);
        if old.link().is_some() || new.link().is_some() {
            return put();
        }
        match (old, new) {
            (Node::File(a), Node::File(b)) if (a.content, a.xattrs) == (b.content, b.xattrs) => {
                match self.host.other_mode(new, stat) {
                    Some(_) if stat.mode & 0o400 == 0 => put(),
                    Some(_) | None => adjust(),
                }
            }
            (Node::Symlink(a), Node::Symlink(b)) if a.target == b.target => adjust(),
            (Node::Fifo(a), Node::Fifo(b)) if a.mode == b.mode => adjust(),
            (Node::File(_) | Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_), _) => put(),
        }
    }

    /// A new file that replaces an existing one and keeps its owner and attributes.
    fn replace(&self, path: &TreePath, node: &Node) -> Result<Task> {
        // Fails here if the new file could not have them.
        self.host.ownership(path)?;
        Ok(Task::Put { path: path.clone(), node: node.clone(), over: Over::File })
    }

    /// The step for an entry whose content is already correct: its time and its hard links.
    fn settled(&mut self, path: &TreePath, stat: HostStat, old: Option<&Node>, new: &Node) -> Result<Step> {
        // An unapply must not revert content that another process wrote as well.
        if old.is_none_or(|old| content(old) != content(new)) {
            self.there.push(path.clone());
        }
        let mode = self.host.other_mode(new, &stat);
        if let Some(link) = new.link() {
            if mode.is_some() {
                return Ok(Step::Do(self.replace(path, new)?));
            }
            let there = Some((stat.device, stat.inode));
            let member = Member { path: path.clone(), place: self.place(), there };
            self.links.entry(link).or_default().push(member);
            return Ok(Step::Linked);
        }
        if old.is_some_and(|old| old.link().is_some()) && stat.links > 1 {
            return Ok(Step::Do(self.replace(path, new)?));
        }
        match mode {
            None if stat.mtime == mtime(new) => Ok(Step::Already),
            Some(_) if stat.mode & 0o400 == 0 => Ok(Step::Do(self.replace(path, new)?)),
            Some(_) | None => Ok(Step::Do(Task::Adjust { path: path.clone(), node: new.clone() })),
        }
    }

    fn add(&mut self, task: Task) -> Result<()> {
        match &task {
            Task::Put { path, node, over } => {
                self.host.require_writable(path)?;
                if *over != Over::File {
                    self.host.inheritance(path)?;
                }
                if let Some(link) = node.link() {
                    let member = Member { path: path.clone(), place: self.place(), there: None };
                    self.links.entry(link).or_default().push(member);
                }
            }
            Task::Plant { path, dir, .. } => {
                self.host.require_writable(path)?;
                self.host.inheritance(path)?;
                for (path, node) in links::members(self.pages, dir, path)? {
                    if let (Some(link), true) = (node.link(), self.asked.contains(&path)) {
                        let place = self.place();
                        self.links.entry(link).or_default().push(Member { path, place, there: None });
                    }
                }
            }
            Task::Unlink { path } | Task::Rmdir { path } => {
                match path.split().is_some_and(|(parent, _)| self.going.contains(&parent)) {
                    true => self.host.require_removable(path)?,
                    false => self.host.require_writable(path)?,
                }
                if matches!(task, Task::Rmdir { .. }) {
                    self.going.insert(path.clone());
                }
            }
            Task::Adjust { path, .. } => self.host.require_own(path)?,
            Task::Finish { path, meta, what } => {
                if !self.host.is_own(path)? {
                    if *what == DirPart::All && !self.is_finished(path, meta)? {
                        self.host.require_own(path)?;
                    }
                    // Its time stays the one the kernel set when the last name in it changed.
                    return Ok(());
                }
            }
        }
        if let Some(decided) = self.decided.last_mut() {
            decided.act = Act::of(&task);
        }
        Ok(())
    }

    /// The index of the change that is being decided.
    fn place(&self) -> usize {
        self.decided.len().saturating_sub(1)
    }

    /// Whether a directory already has its mode and attributes.
    fn is_finished(&self, path: &TreePath, meta: &DirMeta) -> Result<bool> {
        let Look::There(stat) = self.host.look(path)? else { return Ok(false) };
        Ok(stat.mode == meta.mode && self.host.found(path, stat).has_xattrs(meta.xattrs.as_ref())?)
    }

    /// Creates all names of a hard-linked file again, unless they already are one file.
    fn join_links(&mut self) -> Result<()> {
        for members in std::mem::take(&mut self.links).into_values() {
            let one_file =
                members.iter().all(|member| member.there.is_some() && member.there == members[0].there);
            if one_file {
                self.there.extend(members.into_iter().map(|member| member.path));
                continue;
            }
            for Member { path, place, .. } in members.into_iter().filter(|member| member.there.is_some()) {
                self.host.require_writable(&path)?;
                self.already -= 1;
                // As in `replace`.
                self.host.ownership(&path)?;
                if let Some(decided) = self.decided.get_mut(place) {
                    decided.act = Act::Put(Over::File);
                }
            }
        }
        Ok(())
    }
}

/// The content of a file or the target of a symlink.
fn content(node: &Node) -> Option<(Option<FileContent>, &[u8])> {
    match node {
        Node::File(file) => Some((Some(file.content), &[])),
        Node::Symlink(link) => Some((None, &link.target)),
        Node::Fifo(_) | Node::Dir(_) => None,
    }
}

pub fn mtime(node: &Node) -> FileTime {
    match node {
        Node::File(file) => file.mtime,
        Node::Symlink(link) => link.mtime,
        Node::Fifo(fifo) => fifo.mtime,
        Node::Dir(_) => FileTime::default(),
    }
}
