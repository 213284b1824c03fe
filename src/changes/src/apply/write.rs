//! Executes a plan: all new content is first completed in a staging directory, then names change one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Access, AtFlags, OFlags};

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::held::FileId;
use avfs_hostfs::make::Over;
use avfs_hostfs::ownership::Inheritance;
use avfs_hostfs::remove::{remove_empty_dir, remove_file};
use avfs_hostfs::walk::Walk;
use avfs_hostfs::{beneath, make, xattr};
use avfs_types::clock::FileTime;
use avfs_types::ids::LinkId;
use avfs_types::path::TreePath;
use avfs_vault::export::Staging;
use avfs_vault::page::{DirMeta, DirRef, Entry, Node};
use avfs_vault::write_out::{FreshPages, Unfinished, WriteOut};
use avfs_vault::{export, links};

use super::host::{FileDigest, Host};
use super::path_digests::PathDigests;
use super::plan::mtime;
use super::staging_dirs::{Staged, StagingDirs};
use super::task::{DirPart, Plan, Task};
use super::top_dirs::TopDirs;
use crate::apply::error::ApplyError;

type Result<T> = std::result::Result<T, ApplyError>;

/// Executes the whole plan, and calls `begin` before the first change: from then on nothing stops it. Returns the
/// directories that could not be removed.
pub fn carry_out(
    host: &Host<'_>,
    out: &WriteOut<'_>,
    plan: &Plan<'_>,
    wanted: &PathDigests,
    begin: impl FnOnce() -> Result<()>,
) -> Result<Vec<TreePath>> {
    let own = own_dir(host);
    let times = times_to_keep(host, plan, own.is_none())?;
    let (place, shown) = match &own {
        Some(own) => (own.as_fd(), host.dir().join(avfs_types::VAULT_DIR)),
        None => (host.root(), host.dir().to_owned()),
    };
    // Even if nothing is new: a process that was killed may have left its staging directory after changing the
    // last name.
    out.vault.sweep_staging();
    export::sweep_in(place, &shown, None);
    let stage = if plan.adds() {
        let staging = Staging::make(out.vault, place, &shown)?;
        let mut stage = Stage { host, out, wanted, staging, dirs: StagingDirs::default() };
        stage.fill(plan)?;
        Some(stage)
    } else {
        None
    };
    avfs_types::pause::point("check-again");
    plan.check_again(host, wanted)?;
    host.require_going()?;
    begin()?;
    if let Some(stage) = &stage {
        for task in plan.tasks() {
            let (number, task) = task?;
            stage.put_in_place(number, &task)?;
            out.meter.look();
        }
    }
    drop(stage);
    // Some of them were replaced.
    host.forget_way();
    let mut kept = Vec::new();
    let closed = open_up(host, plan)?;
    for task in plan.tasks_backward() {
        let (_, task) = task?;
        if !remove(host, out, &task)? {
            kept.push(task.path().clone());
        }
    }
    for Before { path, file, value } in closed.iter().filter(|dir| kept.contains(&dir.path)) {
        let fd = open_same(host, path, *file).map_err(ApplyError::io("finish", path))?;
        make::set_mode(fd.as_fd(), *value).map_err(ApplyError::io("finish", path))?;
    }
    host.forget_way();
    // Deepest first, after every name in them is in place.
    for task in plan.tasks_backward() {
        let (number, task) = task?;
        adjust(host, out, &task, plan.decided[number].file)?;
    }
    for Before { path, file, value } in times {
        let fd = open_same(host, &path, file).map_err(ApplyError::io("finish", &path))?;
        make::set_time(fd.as_fd(), b".", value).map_err(ApplyError::io("finish", &path))?;
    }
    kept.reverse();
    Ok(kept)
}

/// Metadata that a directory had before, to be set again.
struct Before<T> {
    path: TreePath,
    file: FileId,
    value: T,
}

/// Opens a directory again. Fails if another one has its path.
fn open_same(host: &Host<'_>, path: &TreePath, file: FileId) -> std::io::Result<OwnedFd> {
    let fd = host.open_dir(path)?;
    file.require(fd.as_fd(), path.as_bytes())?;
    Ok(fd)
}

/// The times of directories in which names are only replaced: writing a file in place does not change the time
/// of its directory, so the rename that replaces the file must not either.
fn times_to_keep(host: &Host<'_>, plan: &Plan<'_>, staged_in_root: bool) -> Result<Vec<Before<FileTime>>> {
    let mut kept: BTreeSet<TreePath> = BTreeSet::new();
    let mut changed: BTreeSet<TreePath> = BTreeSet::new();
    if staged_in_root {
        kept.insert(TreePath::root());
    }
    for task in plan.tasks() {
        host.require_going()?;
        let (_, task) = task?;
        let parent = task.path().split().map(|(parent, _)| parent);
        match &task {
            Task::Put { over: Over::File | Over::Anything, .. }
            | Task::Plant { over: Over::Anything, .. } => {
                kept.extend(parent);
            }
            Task::Put { .. } | Task::Plant { .. } | Task::Unlink { .. } | Task::Rmdir { .. } => {
                changed.extend(parent);
            }
            Task::Finish { path, .. } => {
                changed.insert(path.clone());
            }
            Task::Adjust { .. } => {}
        }
    }
    let kept = kept.into_iter().filter(|path| !changed.contains(path));
    let mut timed = Vec::new();
    for path in kept {
        // The time of a directory that belongs to another user cannot be set.
        if !host.is_own(&path)? {
            continue;
        }
        let fd = host.open_dir(&path).map_err(ApplyError::io("open", &path))?;
        let stat = beneath::fstat(fd.as_fd()).map_err(ApplyError::io("stat", &path))?;
        let file = FileId { device: stat.device, inode: stat.inode };
        timed.push(Before { path, file, value: stat.mtime });
    }
    Ok(timed)
}

/// The vault's own directory, for the staging directory: it is not part of the workspace and therefore not visible in
/// it. `None` if it does not exist, or is on another file system.
fn own_dir(host: &Host<'_>) -> Option<OwnedFd> {
    let own = beneath::open(host.root(), avfs_types::VAULT_DIR.as_bytes(), DIR).ok()?;
    let device = beneath::fstat(own.as_fd()).ok()?.device;
    (device == host.device()).then_some(own)
}

impl Task {
    fn path(&self) -> &TreePath {
        match self {
            Self::Put { path, .. }
            | Self::Plant { path, .. }
            | Self::Adjust { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path }
            | Self::Finish { path, .. } => path,
        }
    }
}

struct Stage<'a> {
    host: &'a Host<'a>,
    out: &'a WriteOut<'a>,
    wanted: &'a PathDigests,
    staging: Staging,
    dirs: StagingDirs,
}

/// A directory in the staging directory that still needs its metadata.
struct Planted {
    fd: OwnedFd,
    unfinished: Vec<Unfinished>,
    meta: DirMeta,
    path: TreePath,
}

impl Stage<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.staging.fd.as_fd()
    }

    /// Writes all new content. Does not change the host directory.
    fn fill(&mut self, plan: &Plan<'_>) -> Result<()> {
        // The first staged name of each hard-linked file.
        let mut first: BTreeMap<LinkId, TreePath> = BTreeMap::new();
        let mut planted = Vec::new();
        let mut lookup = plan.changes.lookup();
        for task in plan.tasks() {
            self.host.require_going()?;
            let (number, task) = task?;
            match &task {
                Task::Put { path, node, over } => {
                    let origin = match (over, plan.moved.origin(number)) {
                        (Over::File, _) => Some(path.clone()),
                        (Over::Nothing | Over::Anything, None) => None,
                        (Over::Nothing | Over::Anything, Some(old)) => {
                            lookup.get(old)?.map(|change| change.path.clone())
                        }
                    };
                    let inheritance = match &origin {
                        // It gets what the file has that it replaces, or was before, and nothing else.
                        Some(_) => Inheritance::default(),
                        None => self.host.inheritance(path)?,
                    };
                    self.place(number, path, inheritance)?;
                    let at = self.dirs.at(number);
                    self.stage_file((path, node), at, &mut first)?;
                    if let Some(origin) = origin {
                        self.keep_ownership(&origin, path, (at.dir.as_fd(), &at.name()), self.mode_of(node))?;
                    }
                }
                Task::Plant { path, dir, meta, .. } => {
                    let inheritance = self.host.inheritance(path)?;
                    self.place(number, path, inheritance)?;
                    planted.push(self.stage_dir(path, dir, meta, self.dirs.at(number), &mut first)?);
                }
                Task::Adjust { .. } | Task::Unlink { .. } | Task::Rmdir { .. } | Task::Finish { .. } => {}
            }
        }
        self.keep_ownership_in_new_dirs(plan, &planted)?;
        // Must come after linking: creating a link in a directory changes its time.
        for dir in planted {
            self.out.finish_staged(dir.fd.as_fd(), &dir.unfinished)?;
            let xattrs = self.out.wanted_xattrs(dir.meta.xattrs.as_ref())?;
            // It can only be moved while its owner can write to it.
            make::finish_dir(dir.fd.as_fd(), dir.meta.mode | 0o700, &xattrs, dir.meta.mtime)
                .map_err(ApplyError::io("finish", &dir.path))?;
        }
        Ok(())
    }

    /// Chooses a place for a new entry, in a directory that passes on this.
    fn place(&mut self, number: usize, path: &TreePath, inheritance: Inheritance) -> Result<()> {
        let placed = self.dirs.place(self.staging.fd.as_fd(), number, inheritance);
        placed.map(drop).map_err(ApplyError::io("stage", path))
    }

    fn stage_file(
        &self,
        (path, node): (&TreePath, &Node),
        at: Staged<'_>,
        first: &mut BTreeMap<LinkId, TreePath>,
    ) -> Result<()> {
        if let Some(known) = node.link().and_then(|link| first.get(&link)) {
            return self.link(known, &at.path(), path);
        }
        let entry = Entry { name: at.name(), node: node.clone() };
        self.out.write_one(at.dir, &TreePath::root(), at.umask, &entry)?;
        if let Some(link) = node.link() {
            first.insert(link, at.path());
        }
        Ok(())
    }

    fn mode_of(&self, node: &Node) -> Option<u32> {
        match node {
            Node::File(file) => Some(self.out.set_ids.mode_of_new(file.mode)),
            Node::Fifo(fifo) => Some(fifo.mode),
            // It gets its mode when it is finished.
            Node::Dir(_) => Some(0o700),
            Node::Symlink(_) => None,
        }
    }

    /// Gives renamed entries in new directories the owners and attributes that they have under their old names.
    fn keep_ownership_in_new_dirs(&self, plan: &Plan<'_>, planted: &[Planted]) -> Result<()> {
        let mut tops = TopDirs::default();
        planted.iter().for_each(|dir| tops.insert(&dir.path));
        let planted: BTreeMap<&TreePath, &OwnedFd> = planted.iter().map(|dir| (&dir.path, &dir.fd)).collect();
        // The way in the last of them.
        let (mut last, mut way) = (None, Walk::default());
        let mut keep = |from: &TreePath, to: &TreePath, mode| -> Result<()> {
            self.host.require_going()?;
            let top = if tops.contains(to) { Some(to.clone()) } else { tops.above(to) };
            let Some((top, below)) = top.and_then(|top| to.below(&top).map(|below| (top, below))) else {
                return Ok(());
            };
            let Some(fd) = planted.get(&top) else { return Ok(()) };
            if last.as_ref() != Some(&top) {
                (last, way) = (Some(top), Walk::default());
            }
            let (parent, name) = below.split().unwrap_or((TreePath::root(), b"."));
            let parent = way.open(fd.as_fd(), parent.as_bytes()).map_err(ApplyError::io("open", to))?;
            self.keep_ownership(from, to, (parent.as_fd(), name), mode)
        };
        let mut lookup = plan.changes.lookup();
        for (new, old) in plan.moved.files() {
            let Some(from) = lookup.get(*old as usize)?.map(|change| change.path.clone()) else { continue };
            let Some(change) = lookup.get(*new as usize)? else { continue };
            let mode = change.after.as_ref().and_then(|side| self.mode_of(&side.node));
            keep(&from, &change.path, mode)?;
        }
        plan.moved.dirs().iter().try_for_each(|(to, from)| keep(from, to, Some(0o700)))
    }

    /// Gives a new entry the owner and attributes of `from`, which it replaces, before it replaces it.
    fn keep_ownership(
        &self,
        from: &TreePath,
        path: &TreePath,
        (dir, name): (BorrowedFd<'_>, &[u8]),
        mode: Option<u32>,
    ) -> Result<()> {
        let given = self.host.ownership(from)?.give(dir, name, mode);
        given.map_err(|error| match Cause::of(&error) {
            Cause::NoPermission => ApplyError::Owner { what: "owner or an attribute", path: path.clone() },
            Cause::NotFound
            | Cause::Exists
            | Cause::NotADirectory
            | Cause::Link
            | Cause::ReadOnly
            | Cause::DiskFull
            | Cause::Unreadable
            | Cause::Other => ApplyError::io("preserve the owner and attributes of", path)(error),
        })
    }

    fn stage_dir(
        &self,
        path: &TreePath,
        dir: &DirRef,
        meta: &DirMeta,
        at: Staged<'_>,
        first: &mut BTreeMap<LinkId, TreePath>,
    ) -> Result<Planted> {
        let failed = || ApplyError::io("write", path);
        make::dir(at.dir.as_fd(), &at.name()).map_err(failed())?;
        let fd = beneath::open(at.dir.as_fd(), &at.name(), DIR).map_err(failed())?;
        let asked = |below: &TreePath, _: bool| self.wanted.contains(&below.beneath(path));
        let mut unfinished = self.out.write(dir, fd.as_fd(), &asked)?.unfinished;
        unfinished.retain(|dir| !dir.path.is_root());
        let pages = FreshPages::stoppable(self.out.vault, self.out.meter);
        for (member, node) in links::members(&pages, dir, path)? {
            let (Some(link), true) = (node.link(), self.wanted.contains(&member)) else { continue };
            let Some(below) = member.below(path) else { continue };
            let here = below.beneath(&at.path());
            match first.get(&link) {
                None => {
                    first.insert(link, here);
                }
                Some(known) => {
                    // Names within the directory already are one file; link them to the names elsewhere.
                    let (parent, name) = self.split(&here, &member)?;
                    remove_file(parent.as_fd(), &name).map_err(ApplyError::io("link", &member))?;
                    self.link(known, &here, &member)?;
                }
            }
        }
        Ok(Planted { fd, unfinished, meta: meta.clone(), path: path.clone() })
    }

    fn split(&self, staged: &TreePath, of: &TreePath) -> Result<(OwnedFd, Vec<u8>)> {
        let (parent, name) = staged.split().unwrap_or((TreePath::root(), b"."));
        let fd = beneath::open(self.fd(), parent.as_bytes(), DIR).map_err(ApplyError::io("open", of))?;
        Ok((fd, name.to_vec()))
    }

    fn link(&self, known: &TreePath, at: &TreePath, of: &TreePath) -> Result<()> {
        let (from, from_name) = self.split(known, of)?;
        let (to, to_name) = self.split(at, of)?;
        make::link(from.as_fd(), &from_name, to.as_fd(), &to_name).map_err(ApplyError::io("link", of))
    }

    /// Moves one staged entry to its name.
    fn put_in_place(&self, number: usize, task: &Task) -> Result<()> {
        let (path, over, meta) = match task {
            Task::Put { path, over, .. } => (path, *over, None),
            Task::Plant { path, over, meta, .. } => (path, *over, Some(meta)),
            Task::Adjust { .. } | Task::Unlink { .. } | Task::Rmdir { .. } | Task::Finish { .. } => {
                return Ok(());
            }
        };
        let failed = || ApplyError::io("move into place", path);
        let Some((parent, name)) = path.split() else { return Ok(()) };
        let parent = self.host.open_dir(&parent).map_err(failed())?;
        let staged = self.dirs.at(number);
        let from = (staged.dir.as_fd(), &*staged.name());
        // Opened before it gets its name, which another process can give to another directory.
        let planted = meta.map(|meta| beneath::open(from.0, from.1, DIR).map(|fd| (meta, fd)));
        let planted = planted.transpose().map_err(failed())?;
        make::rename(from, (parent.as_fd(), name), over).map_err(failed())?;
        if let Some((meta, fd)) = planted {
            make::set_mode_and_time(fd.as_fd(), meta.mode, meta.mtime).map_err(failed())?;
        }
        Ok(())
    }
}

/// Makes directories writable that will be removed and that their owner cannot write to. Returns their original
/// modes.
fn open_up(host: &Host<'_>, plan: &Plan<'_>) -> Result<Vec<Before<u32>>> {
    let mut closed = Vec::new();
    for task in plan.tasks() {
        let (number, Task::Rmdir { path }) = task? else { continue };
        let path = &path;
        let failed = || ApplyError::io("remove", path);
        let fd = host.open_dir(path).map_err(failed())?;
        let may = Access::WRITE_OK | Access::EXEC_OK;
        if rustix::fs::accessat(&fd, ".", may, AtFlags::EACCESS).is_err() {
            let stat = host.same(fd.as_fd(), path, plan.decided[number].file).map_err(failed())?;
            make::set_mode(fd.as_fd(), stat.mode | 0o700).map_err(failed())?;
            let file = FileId { device: stat.device, inode: stat.inode };
            closed.push(Before { path: path.clone(), file, value: stat.mode });
        }
    }
    Ok(closed)
}

/// Returns false for a directory that is not empty.
fn remove(host: &Host<'_>, out: &WriteOut<'_>, task: &Task) -> Result<bool> {
    let path = task.path();
    let failed = || ApplyError::io("remove", path);
    let Some((parent, name)) = path.split() else { return Ok(true) };
    avfs_types::pause::point("apply-step");
    match task {
        Task::Unlink { .. } => {
            let parent = host.open_dir(&parent).map_err(failed())?;
            remove_file(parent.as_fd(), name).map_err(failed())?;
            out.meter.add(1, 0);
            Ok(true)
        }
        Task::Rmdir { .. } => {
            let parent = host.open_dir(&parent).map_err(failed())?;
            remove_empty_dir(parent.as_fd(), name).map_err(failed())
        }
        Task::Put { .. } | Task::Plant { .. } | Task::Adjust { .. } | Task::Finish { .. } => Ok(true),
    }
}

fn adjust(host: &Host<'_>, out: &WriteOut<'_>, task: &Task, file: Option<FileDigest>) -> Result<()> {
    avfs_types::pause::point("apply-step");
    let path = task.path();
    let failed = || ApplyError::io("finish", path);
    match task {
        Task::Adjust { node, .. } => {
            let Some((parent, name)) = path.split() else { return Ok(()) };
            let parent = host.open_dir(&parent).map_err(failed())?;
            let fd = beneath::open(parent.as_fd(), name, OFlags::PATH).map_err(failed())?;
            let stat = host.same(fd.as_fd(), path, file).map_err(failed())?;
            out.meter.add(1, 0);
            if let Some(mode) = host.other_mode(node, &stat) {
                make::set_mode(fd.as_fd(), mode).map_err(failed())?;
            }
            make::set_time(fd.as_fd(), b"", mtime(node)).map_err(failed())
        }
        Task::Finish { meta, what, .. } => {
            let fd = host.open_dir(path).map_err(failed())?;
            host.same(fd.as_fd(), path, file).map_err(failed())?;
            match what {
                DirPart::Time => make::set_time(fd.as_fd(), b".", meta.mtime).map_err(failed()),
                DirPart::All => {
                    let xattrs = out.wanted_xattrs(meta.xattrs.as_ref())?;
                    if xattr::read(fd.as_fd()).map_err(failed())? != xattrs {
                        xattr::clear(fd.as_fd()).map_err(failed())?;
                        xattr::write(fd.as_fd(), &xattrs).map_err(failed())?;
                    }
                    make::set_mode_and_time(fd.as_fd(), meta.mode, meta.mtime).map_err(failed())
                }
            }
        }
        Task::Put { .. } | Task::Plant { .. } | Task::Unlink { .. } | Task::Rmdir { .. } => Ok(()),
    }
}
