//! Writes a tree to an empty directory of the host, exactly: content, modes, mtimes, attributes, links.
//!
//! Blobs are read in short transactions and written after them: a long-lived reader would keep the WAL growing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rayon::Scope;
use rustix::fs::AtFlags;

use avfs_hostfs::beneath::DIR;
use avfs_hostfs::held::FileId;
use avfs_hostfs::make::Umask;
use avfs_hostfs::walk::Walk;
use avfs_hostfs::xattr::Xattrs;
use avfs_hostfs::{beneath, make, overlay, xattr};
use avfs_types::ids::{BlobId, LinkId, TreeId};
use avfs_types::path::TreePath;

use super::export::ExportError;
use super::set_ids::SetIds;
use crate::backend::{BlobRecord, Reader};
use crate::chunk::{Piece, PieceReader};
use crate::meter::Meter;
use crate::page::{DirMeta, DirRef, Entry, FileContent, FileNode, Node, Page};
use crate::transfer::{Error, Result};
use crate::tree::Pages;
use crate::{Vault, VaultError, content, threads, tree};

/// Files written by one job, and compressed bytes it holds in memory.
const JOB_FILES: usize = 64;
const JOB_BYTES: u64 = 4 << 20;
/// Maximum number of unfinished jobs: the walk waits until the writers catch up.
const WAITING_JOBS_MAX: usize = 64;
/// Pages read in one transaction.
const PAGES_PER_READ: u32 = 256;

/// How to write attributes with names that overlayfs interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayNames {
    /// Write them unchanged.
    Plain,
    /// Add one level of escaping, which overlayfs removes again: for a lower layer.
    Escaped,
}

/// Reads pages in short transactions.
pub struct FreshPages<'v> {
    vault: &'v Vault,
    meter: Option<&'v Meter>,
    reader: RefCell<Option<Box<dyn Reader + 'v>>>,
    left: Cell<u32>,
}

impl<'v> FreshPages<'v> {
    /// Reads pages from the vault. Opens a new transaction regularly, so that the WAL can be checkpointed.
    #[must_use]
    pub fn new(vault: &'v Vault) -> Self {
        Self { vault, meter: None, reader: RefCell::new(None), left: Cell::new(0) }
    }

    /// Like [`Self::new`], for walks that end when the meter is stopped.
    #[must_use]
    pub fn stoppable(vault: &'v Vault, meter: &'v Meter) -> Self {
        Self { meter: Some(meter), ..Self::new(vault) }
    }
}

impl Pages for FreshPages<'_> {
    fn page(&self, id: &TreeId) -> crate::Result<Page> {
        let mut reader = self.reader.borrow_mut();
        if self.left.get() == 0 || reader.is_none() {
            *reader = None;
            *reader = Some(self.vault.read()?);
            self.left.set(PAGES_PER_READ);
        }
        self.left.set(self.left.get() - 1);
        match reader.as_deref() {
            Some(reader) => (&reader).page(id),
            None => Err(VaultError::MissingObject { kind: "tree", id: id.short() }),
        }
    }

    fn require_going(&self) -> crate::Result<()> {
        self.meter.map_or(Ok(()), Meter::require_going)
    }
}

/// Paths that were not written because they are damaged or missing in the vault, with the error of each.
#[derive(Debug, Default)]
pub struct Unwritten(Mutex<Vec<(TreePath, VaultError)>>);

impl Unwritten {
    /// The paths and errors, sorted by path.
    #[must_use]
    pub fn into_sorted(self) -> Vec<(TreePath, VaultError)> {
        let mut all = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup_by(|a, b| a.0 == b.0);
        all
    }
}

/// Writes trees to the file system.
pub struct WriteOut<'a> {
    /// The vault that holds the tree.
    pub vault: &'a Vault,
    /// How to write attributes that overlayfs would interpret.
    pub overlay_names: OverlayNames,
    /// Whether setuid and setgid bits are written.
    pub set_ids: SetIds,
    /// Counts written files and bytes, and can cancel the operation.
    pub meter: &'a Meter,
    /// Collects damaged paths, so that writing continues without them. If `None`, damage fails the operation.
    pub unwritten: Option<&'a Unwritten>,
}

/// The result of [`WriteOut::write`].
#[derive(Default)]
pub struct Written {
    /// Directories whose metadata must be set once their entries are done.
    pub unfinished: Vec<Unfinished>,
    /// Files that lost their setuid and setgid bits.
    pub(crate) stripped: Vec<TreePath>,
}

/// A directory that still needs its own metadata.
pub struct Unfinished {
    /// The path of the directory.
    pub path: TreePath,
    meta: DirMeta,
    /// The directory. When its metadata is set, another process may have given its path to another one.
    pub(crate) id: FileId,
}

impl Unfinished {
    /// Opens the directory again. Fails if another one has its path.
    fn open(&self, walk: &mut Walk, into: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let fd = walk.open(into, self.path.as_bytes())?;
        self.id.require(fd.as_fd(), self.path.as_bytes())?;
        Ok(fd)
    }
}

struct Shared<'a> {
    out: &'a WriteOut<'a>,
    root: BorrowedFd<'a>,
    umask: Umask,
    linked: Mutex<Vec<(TreePath, Node)>>,
    failure: Mutex<Option<Error>>,
    jobs: Jobs,
}

/// Counts unfinished jobs.
#[derive(Default)]
struct Jobs {
    waiting: Mutex<usize>,
    done: Condvar,
}

impl Jobs {
    /// Starts a job. Blocks while [`WAITING_JOBS_MAX`] jobs are unfinished.
    fn begin(&self) -> JobGuard<'_> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |waiting: &mut usize| *waiting >= WAITING_JOBS_MAX;
        let mut waiting = self.done.wait_while(waiting, full).unwrap_or_else(PoisonError::into_inner);
        *waiting += 1;
        JobGuard(self)
    }
}

/// A job, finished on drop.
struct JobGuard<'a>(&'a Jobs);

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.done.notify_one();
    }
}

impl<'a> WriteOut<'a> {
    /// For a lower layer of an overlay: setuid and setgid bits are kept, and attributes of overlayfs are escaped.
    pub(crate) fn for_overlay(vault: &'a Vault, meter: &'a Meter) -> Self {
        let overlay_names = OverlayNames::Escaped;
        Self { vault, overlay_names, set_ids: SetIds::Kept, meter, unwritten: None }
    }
}

impl WriteOut<'_> {
    /// Writes the content of `root`, filtered by `wanted`, to the directory `into`.
    ///
    /// The directories' own metadata is set last, by [`WriteOut::finish`]: a directory's mode may deny its owner
    /// writes.
    pub fn write(
        &self,
        root: &DirRef,
        into: BorrowedFd<'_>,
        wanted: &(dyn Fn(&TreePath, bool) -> bool + Sync),
    ) -> Result<Written> {
        let umask = Umask::beneath(into).map_err(VaultError::Output)?;
        let (linked, failure, jobs) = (Mutex::default(), Mutex::default(), Jobs::default());
        let shared = Shared { out: self, root: into, umask, linked, failure, jobs };
        let pool = threads::pool()?;
        // The walk stays on this thread, so that jobs run concurrently with it.
        let written = pool.in_place_scope(|scope| shared.walk(scope, root, wanted));
        if let Some(error) = shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let written = written?;
        if self.meter.stopped() {
            return Err(VaultError::Interrupted.into());
        }
        let linked = shared.linked.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.write_linked(into, umask, linked)?;
        Ok(written)
    }

    /// Sets the attributes of the directories early: this can fail where everything else succeeds, and works with the
    /// mode that the directories were created with.
    pub(crate) fn attributes(&self, into: BorrowedFd<'_>, unfinished: &[Unfinished]) -> Result<()> {
        let mut walk = Walk::default();
        for dir in unfinished.iter().filter(|dir| dir.meta.xattrs.is_some()) {
            self.meter.require_going()?;
            let fail = |source| ExportError::Io {
                operation: "set the attributes of",
                path: dir.path.clone(),
                source,
            };
            let fd = dir.open(&mut walk, into).map_err(fail)?;
            let xattrs = self.wanted_xattrs(dir.meta.xattrs.as_ref());
            let xattrs = self.whole(xattrs, || dir.path.clone())?.unwrap_or_default();
            xattr::write(fd.as_fd(), &xattrs).map_err(fail)?;
        }
        Ok(())
    }

    /// Sets the metadata of the directories, deepest first.
    pub fn finish(&self, into: BorrowedFd<'_>, unfinished: &[Unfinished]) -> Result<()> {
        let mut walk = Walk::default();
        unfinished.iter().rev().try_for_each(|dir| self.finish_dir(&mut walk, into, dir))
    }

    /// Like [`Self::finish`], for a tree that nothing uses yet: the meter can stop it.
    pub fn finish_staged(&self, into: BorrowedFd<'_>, unfinished: &[Unfinished]) -> Result<()> {
        let mut walk = Walk::default();
        unfinished.iter().rev().try_for_each(|dir| {
            self.meter.require_going()?;
            self.finish_dir(&mut walk, into, dir)
        })
    }

    fn finish_dir(&self, walk: &mut Walk, into: BorrowedFd<'_>, dir: &Unfinished) -> Result<()> {
        let fail =
            |source| ExportError::Io { operation: "set the metadata of", path: dir.path.clone(), source };
        let fd = dir.open(walk, into).map_err(fail)?;
        let xattrs = self.wanted_xattrs(dir.meta.xattrs.as_ref());
        let xattrs = self.whole(xattrs, || dir.path.clone())?.unwrap_or_default();
        Ok(make::finish_dir(fd.as_fd(), dir.meta.mode, &xattrs, dir.meta.mtime).map_err(fail)?)
    }

    /// Sets the metadata of a tree's root on a directory.
    pub(crate) fn finish_root(&self, dir: BorrowedFd<'_>, root: &DirRef) -> Result<()> {
        let (meta, _) = tree::top(&FreshPages::new(self.vault), &root.tree)?;
        let id = FileId::of(dir).map_err(|errno| VaultError::Output(errno.into()))?;
        self.finish(dir, &[Unfinished { path: TreePath::root(), meta, id }])
    }

    /// Returns the value, or `None` if it is damaged and damaged paths are collected.
    fn whole<T>(&self, read: crate::Result<T>, path: impl FnOnce() -> TreePath) -> crate::Result<Option<T>> {
        match (read, self.unwritten) {
            (Ok(read), _) => Ok(Some(read)),
            (Err(error), Some(unwritten)) if error.is_damage() => {
                let mut all = unwritten.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.push((path(), error));
                Ok(None)
            }
            (Err(error), _) => Err(error.in_file(&path())),
        }
    }

    /// Like [`Self::whole`], for a file that was read and written.
    fn whole_file<T>(&self, written: Result<T>, path: impl FnOnce() -> TreePath) -> Result<Option<T>> {
        match written {
            Ok(written) => Ok(Some(written)),
            Err(Error::Vault(error)) => Ok(self.whole(Err(error), path)?),
            Err(error) => Err(error),
        }
    }

    /// The attributes to write for a file or directory, with escaped names if configured.
    pub fn wanted_xattrs(&self, id: Option<&BlobId>) -> crate::Result<Xattrs> {
        id.map_or(Ok(Xattrs::new()), |id| self.xattrs(&*self.vault.read()?, id))
    }

    fn xattrs(&self, reader: &dyn Reader, id: &BlobId) -> crate::Result<Xattrs> {
        let mut xattrs = content::xattrs(reader, id)?;
        match self.overlay_names {
            OverlayNames::Plain => {}
            OverlayNames::Escaped => overlay::escape(&mut xattrs),
        }
        Ok(xattrs)
    }

    /// Writes files with several hard links: creates the first name and links the others.
    fn write_linked(
        &self,
        root: BorrowedFd<'_>,
        umask: Umask,
        mut linked: Vec<(TreePath, Node)>,
    ) -> Result<()> {
        linked.sort_by(|a, b| a.0.cmp(&b.0));
        let mut first: BTreeMap<LinkId, TreePath> = BTreeMap::new();
        for (path, node) in linked {
            self.meter.require_going()?;
            let fail = |source| ExportError::Io { operation: "link", path: path.clone(), source };
            let Some((parent, name)) = path.split() else { continue };
            let dir = beneath::open(root, parent.as_bytes(), DIR).map_err(fail)?;
            match node.link().and_then(|link| first.get(&link)) {
                Some(known) => {
                    let Some((from, from_name)) = known.split() else { continue };
                    let from = beneath::open(root, from.as_bytes(), DIR).map_err(fail)?;
                    make::link(from.as_fd(), from_name, dir.as_fd(), name).map_err(fail)?;
                }
                None => {
                    let entry = Entry { name: name.to_vec(), node: node.clone() };
                    let written = self.write_one(&dir, &parent, umask, &entry);
                    if self.whole_file(written, || path.clone())?.is_some()
                        && let Some(link) = node.link()
                    {
                        first.insert(link, path.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes one file, symlink or fifo. Directories are written by [`WriteOut::write`].
    pub fn write_one(&self, dir: &OwnedFd, parent: &TreePath, umask: Umask, entry: &Entry) -> Result<()> {
        let path = parent.join(&entry.name);
        let fail = |source| ExportError::Io { operation: "write", path: path.clone(), source };
        match &entry.node {
            Node::Symlink(link) => {
                make::symlink(dir.as_fd(), &entry.name, &link.target, link.mtime).map_err(fail)?;
            }
            Node::Fifo(fifo) => {
                make::fifo(dir.as_fd(), &entry.name, fifo.mode, fifo.mtime).map_err(fail)?;
            }
            Node::File(file) => match file.content {
                FileContent::Chunked(list) => {
                    let written = self.write_chunked(dir, &path, &entry.name, umask, file, &list);
                    if written.is_err() {
                        // Remove the partial file. An error of the removal is ignored: the first error is reported.
                        let _ = rustix::fs::unlinkat(dir, OsStr::from_bytes(&entry.name), AtFlags::empty());
                    }
                    written?;
                }
                FileContent::Whole(id) => {
                    let (blob, xattrs) = {
                        let reader = self.vault.read()?;
                        (content::fetch(&*reader, &id)?, self.file_xattrs(&*reader, file)?)
                    };
                    self.write_whole(dir, &path, &entry.name, umask, file, blob, &xattrs)?;
                }
            },
            Node::Dir(_) => {}
        }
        Ok(())
    }

    fn file_xattrs(&self, reader: &dyn Reader, file: &FileNode) -> crate::Result<Xattrs> {
        file.xattrs.as_ref().map_or(Ok(Xattrs::new()), |id| self.xattrs(reader, id))
    }

    #[expect(clippy::too_many_arguments, reason = "a leaf function that combines the values of two callers")]
    fn write_whole(
        &self,
        dir: &OwnedFd,
        path: &TreePath,
        name: &[u8],
        umask: Umask,
        node: &FileNode,
        blob: BlobRecord,
        xattrs: &Xattrs,
    ) -> Result<()> {
        let content = content::decode(blob)?;
        if content.len() as u64 != node.size {
            let detail = format!("{path} should have {} bytes", node.size);
            let id = node.content.id().short();
            return Err(VaultError::DamagedObject { kind: "blob", id, detail }.into());
        }
        let fail = |source| ExportError::Io { operation: "write", path: path.clone(), source };
        let file = make::file(dir.as_fd(), name, node.mode).map_err(fail)?;
        make::write_at(&file, &content, 0).map_err(fail)?;
        let mode = self.set_ids.mode_of_new(node.mode);
        make::finish(file.as_fd(), mode, umask, xattrs, node.mtime).map_err(fail)?;
        self.meter.add(1, node.size);
        Ok(())
    }

    fn write_chunked(
        &self,
        dir: &OwnedFd,
        path: &TreePath,
        name: &[u8],
        umask: Umask,
        node: &FileNode,
        list: &BlobId,
    ) -> Result<()> {
        let fail = |source| ExportError::Io { operation: "write", path: path.clone(), source };
        let file = make::file(dir.as_fd(), name, node.mode).map_err(fail)?;
        let (mut pieces, xattrs) = {
            let reader = self.vault.read()?;
            (PieceReader::open(&*reader, list)?, self.file_xattrs(&*reader, node)?)
        };
        let mut at = 0_u64;
        let too_long = || {
            let detail = format!("{path} should have {} bytes, not more", node.size);
            VaultError::DamagedObject { kind: "chunk list", id: list.short(), detail }
        };
        loop {
            let mut stored = Vec::new();
            {
                let reader = self.vault.read()?;
                let mut held = 0;
                while held < JOB_BYTES {
                    let Some(piece) = pieces.next(&*reader)? else { break };
                    held += piece.stored_bytes();
                    stored.push(piece);
                }
            }
            if stored.is_empty() {
                break;
            }
            for piece in stored {
                let piece = piece.decode()?;
                let end =
                    at.checked_add(piece.length()).filter(|end| *end <= node.size).ok_or_else(too_long)?;
                let begin = std::mem::replace(&mut at, end);
                match piece {
                    Piece::Hole(_) => {}
                    Piece::Data(data) => {
                        make::write_at(&file, &data, begin).map_err(fail)?;
                        self.meter.add(0, data.len() as u64);
                    }
                }
            }
            if self.meter.stopped() {
                return Err(VaultError::Interrupted.into());
            }
        }
        if at != node.size {
            let detail = format!("{path} should have {} bytes, not {at}", node.size);
            return Err(VaultError::DamagedObject { kind: "chunk list", id: list.short(), detail }.into());
        }
        // A hole at the end is not written; setting the length creates it.
        rustix::fs::ftruncate(&file, node.size).map_err(|errno| fail(errno.into()))?;
        let mode = self.set_ids.mode_of_new(node.mode);
        make::finish(file.as_fd(), mode, umask, &xattrs, node.mtime).map_err(fail)?;
        self.meter.add(1, 0);
        Ok(())
    }
}

impl<'a> Shared<'a> {
    fn walk<'s>(
        &'s self,
        scope: &Scope<'s>,
        root: &DirRef,
        wanted: &(dyn Fn(&TreePath, bool) -> bool + Sync),
    ) -> Result<Written> {
        let pages = FreshPages::stoppable(self.out.vault, self.out.meter);
        let mut written = Written::default();
        let mut waiting = vec![(TreePath::root(), *root)];
        let mut way = Walk::default();
        while let Some((path, dir)) = waiting.pop() {
            if self.out.meter.stopped() || self.failed() {
                break;
            }
            let read = tree::open_whole(&pages, &dir, &path, &mut |error| {
                self.out.whole(Err::<(), _>(error), || path.clone()).map(drop)
            });
            let dir = match path.split() {
                None => read?,
                Some((parent, name)) => match self.out.whole(read, || path.clone())? {
                    Some(dir) => dir,
                    None => {
                        self.drop_dir(&parent, name)?;
                        continue;
                    }
                },
            };
            let fail = |source| ExportError::Io { operation: "create directory", path: path.clone(), source };
            let fd = way.open(self.root, path.as_bytes()).map_err(fail)?;
            let mut files = Vec::new();
            for entry in dir.entries {
                self.out.meter.require_going()?;
                let child = path.join(&entry.name);
                if !wanted(&child, matches!(entry.node, Node::Dir(_))) {
                    continue;
                }
                match &entry.node {
                    Node::Dir(sub) => {
                        make::dir(fd.as_fd(), &entry.name).map_err(fail)?;
                        waiting.push((child, *sub));
                    }
                    Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => {
                        if self.out.set_ids.strips(&entry.node) {
                            written.stripped.push(child.clone());
                        }
                        if entry.node.link().is_some() {
                            let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
                            linked.push((child, entry.node));
                        } else {
                            files.push(entry);
                        }
                    }
                }
            }
            let id = FileId::of(&fd).map_err(|errno| fail(errno.into()))?;
            self.spawn_files(scope, &path, fd, files);
            written.unfinished.push(Unfinished { path, meta: dir.meta, id });
        }
        Ok(written)
    }

    /// Removes a directory whose tree is damaged.
    fn drop_dir(&self, parent: &TreePath, name: &[u8]) -> Result<()> {
        let fail = |source| ExportError::Io { operation: "remove", path: parent.join(name), source };
        let dir = beneath::open(self.root, parent.as_bytes(), DIR).map_err(fail)?;
        let removed = rustix::fs::unlinkat(dir, OsStr::from_bytes(name), AtFlags::REMOVEDIR);
        Ok(removed.map_err(|errno| fail(errno.into()))?)
    }

    fn failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Spawns one job per [`JOB_FILES`] files.
    fn spawn_files<'s>(&'s self, scope: &Scope<'s>, path: &TreePath, dir: OwnedFd, mut files: Vec<Entry>) {
        let dir = Arc::new(dir);
        while !files.is_empty() {
            let rest = files.split_off(files.len().min(JOB_FILES));
            let job = std::mem::replace(&mut files, rest);
            let (path, dir) = (path.clone(), Arc::clone(&dir));
            let guard = self.jobs.begin();
            scope.spawn(move |_| {
                let _guard = guard;
                if self.failed() || self.out.meter.stopped() {
                    return;
                }
                if let Err(error) = self.job(&path, &dir, &job) {
                    self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
    }

    fn job(&self, path: &TreePath, dir: &OwnedFd, entries: &[Entry]) -> Result<()> {
        let mut rest = entries;
        while !rest.is_empty() {
            let mut blobs: Vec<(&Entry, &FileNode, BlobRecord, Xattrs)> = Vec::with_capacity(rest.len());
            let mut others = Vec::new();
            {
                // Every worker uses another connection, and each of their maps would count as memory.
                let reader = self.out.vault.backend().read_unmapped()?;
                let mut held = 0;
                while let Some((entry, after)) = rest.split_first()
                    && held < JOB_BYTES
                {
                    rest = after;
                    match &entry.node {
                        Node::File(file) => match file.content {
                            FileContent::Whole(id) => {
                                let read = content::fetch(&*reader, &id)
                                    .and_then(|blob| Ok((blob, self.out.file_xattrs(&*reader, file)?)));
                                let read = self.out.whole(read, || path.join(&entry.name))?;
                                let Some((blob, xattrs)) = read else { continue };
                                held += blob.data.len() as u64;
                                blobs.push((entry, file, blob, xattrs));
                            }
                            FileContent::Chunked(_) => others.push(entry),
                        },
                        Node::Symlink(_) | Node::Fifo(_) | Node::Dir(_) => others.push(entry),
                    }
                }
            }
            for (entry, file, blob, xattrs) in blobs {
                let at = path.join(&entry.name);
                let written = self.out.write_whole(dir, &at, &entry.name, self.umask, file, blob, &xattrs);
                self.out.whole_file(written, || at)?;
            }
            for entry in others {
                let written = self.out.write_one(dir, path, self.umask, entry);
                self.out.whole_file(written, || path.join(&entry.name))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_walk_blocks_while_too_many_jobs_are_unfinished() {
        let jobs = Jobs::default();
        let mut begun: Vec<JobGuard<'_>> = (0..WAITING_JOBS_MAX).map(|_| jobs.begin()).collect();
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(jobs.begin());
                send.send(()).unwrap();
            });
            assert_eq!(receive.try_recv(), Err(mpsc::TryRecvError::Empty));
            assert_eq!(*jobs.waiting.lock().unwrap(), WAITING_JOBS_MAX);
            begun.pop();
            receive.recv().unwrap();
        });
        drop(begun);
        assert_eq!(*jobs.waiting.lock().unwrap(), 0);
    }
}
