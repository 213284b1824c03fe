//! The current state of the host directory, compared with versions. Nothing here writes.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags};

use avfs_hostfs::beneath::READ;
use avfs_hostfs::cause::Cause;
use avfs_hostfs::held::replaced;
use avfs_hostfs::ownership::{Caller, Inheritance, Ownership, Unkept};
use avfs_hostfs::place::{Place, PlaceError};
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::walk::Walk;
use avfs_hostfs::xattr::Xattrs;
use avfs_hostfs::{beneath, xattr};
use avfs_types::ids::BlobId;
use avfs_types::path::TreePath;
use avfs_vault::ingest::ReadBlocks;
use avfs_vault::own::OwnFile;
use avfs_vault::page::{DirMeta, FileContent, FileNode, Node};
use avfs_vault::write_out::WriteOut;
use avfs_vault::{VaultError, ingest, read_content, set_ids};

use crate::apply::error::ApplyError;
use crate::git_index::{self, INDEX_BYTES_MAX, is_index, same_entries};

type Result<T> = std::result::Result<T, ApplyError>;

pub struct Host<'a> {
    dir: PathBuf,
    root: OwnedFd,
    device: u64,
    out: &'a WriteOut<'a>,
    own: OwnFile,
    way: RefCell<Walk>,
    /// Directories known to be writable.
    writable: RefCell<HashSet<TreePath>>,
    caller: Caller,
    /// The keys of [`LookDigest`].
    keys: RandomState,
}

/// The state of a path on the host.
#[derive(Clone, Copy)]
pub enum Look {
    /// A parent of the path is missing or is not a directory.
    NoParent,
    Absent,
    There(HostStat),
}

/// A digest of a state, by which a change is detected later. The keys are random, so nobody can choose a state with
/// the digest of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookDigest(NonZeroU64);

/// A digest of the identity of a file, with the same keys. Unlike the state, it stays the same while the file is
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileDigest(NonZeroU64);

impl Look {
    /// For directories, times are left out: each name in them is compared on its own.
    fn digest(&self, keys: &RandomState) -> LookDigest {
        let digest = match self {
            Self::NoParent => keys.hash_one(0),
            Self::Absent => keys.hash_one(1),
            Self::There(stat) => {
                let state = (stat.kind != HostKind::Dir).then_some((stat.size, stat.mtime, stat.ctime));
                keys.hash_one((stat.kind, stat.inode, stat.mode, state))
            }
        };
        LookDigest(NonZeroU64::new(digest).unwrap_or(NonZeroU64::MIN))
    }
}

impl<'a> Host<'a> {
    pub fn open(dir: &Path, out: &'a WriteOut<'a>) -> Result<Self> {
        let root = Place::open_dir(dir).map_err(|error| match error {
            PlaceError::Link { link, real } => ApplyError::Symlink { link, real },
            PlaceError::Io { source, .. } => ApplyError::dir("open", dir)(source),
        })?;
        let device = beneath::fstat(root.as_fd()).map_err(ApplyError::dir("stat", dir))?.device;
        let caller = Caller::now().map_err(ApplyError::dir("check the permissions of", dir))?;
        let (way, writable, keys) = (RefCell::default(), RefCell::default(), RandomState::new());
        let own = OwnFile::of(out.vault, dir);
        Ok(Self { dir: dir.to_owned(), root, device, out, own, way, writable, caller, keys })
    }

    /// An error if the user has cancelled the operation.
    pub fn require_going(&self) -> std::result::Result<(), VaultError> {
        self.out.meter.require_going()
    }

    /// Resolves all paths again from here on: others may have moved directories.
    pub fn forget_way(&self) {
        self.way.borrow_mut().forget();
    }

    /// The mode to set on a file whose content is already correct; `None` if its mode is correct too.
    pub fn other_mode(&self, node: &Node, stat: &HostStat) -> Option<u32> {
        let Node::File(file) = node else { return None };
        let mode = self.out.set_ids.mode_of_present(file.mode, stat.mode);
        (mode != stat.mode).then_some(mode)
    }

    /// True if git only refreshed an index between two versions.
    pub fn is_refresh(&self, path: &TreePath, old: &Node, new: &Node) -> Result<bool> {
        let (Node::File(old), Node::File(new)) = (old, new) else { return Ok(false) };
        let reader = self.out.vault.read()?;
        Ok(git_index::is_refresh(&*reader, path, [old, new])?)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The device of the directory.
    pub const fn device(&self) -> u64 {
        self.device
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a directory beneath the root, without following symlinks.
    pub fn open_dir(&self, path: &TreePath) -> std::io::Result<OwnedFd> {
        self.way.borrow_mut().open(self.root(), path.as_bytes())
    }

    pub fn look(&self, path: &TreePath) -> Result<Look> {
        let Some((parent, name)) = path.split() else {
            let stat = beneath::fstat(self.root()).map_err(ApplyError::io("stat", path))?;
            return Ok(Look::There(stat));
        };
        let parent = match self.open_dir(&parent) {
            Ok(parent) => parent,
            Err(error) => {
                return match Cause::of(&error) {
                    Cause::NotFound | Cause::NotADirectory | Cause::Link => Ok(Look::NoParent),
                    Cause::NoPermission => Err(ApplyError::NoPermission { path: path.clone() }),
                    Cause::Exists | Cause::ReadOnly | Cause::DiskFull | Cause::Unreadable | Cause::Other => {
                        Err(ApplyError::Io { operation: "stat", path: path.clone(), source: error })
                    }
                };
            }
        };
        match beneath::stat(parent.as_fd(), name) {
            Ok(stat) => Ok(Look::There(stat)),
            Err(error) if Cause::of(&error) == Cause::NotFound => Ok(Look::Absent),
            Err(error) => Err(refused("stat", path)(error)),
        }
    }

    pub fn digest(&self, look: &Look) -> LookDigest {
        look.digest(&self.keys)
    }

    pub fn file_digest(&self, stat: &HostStat) -> FileDigest {
        let digest = self.keys.hash_one((stat.device, stat.inode));
        FileDigest(NonZeroU64::new(digest).unwrap_or(NonZeroU64::MIN))
    }

    /// The metadata of an open file that was found at `path`. Fails if the plan was made for another one: the metadata
    /// of that must not be changed.
    pub fn same(
        &self,
        file: BorrowedFd<'_>,
        path: &TreePath,
        planned: Option<FileDigest>,
    ) -> std::io::Result<HostStat> {
        let stat = beneath::fstat(file)?;
        match Some(self.file_digest(&stat)) == planned {
            true => Ok(stat),
            false => Err(replaced(OsStr::from_bytes(path.as_bytes()))),
        }
    }

    pub fn is_still(&self, path: &TreePath, before: LookDigest) -> Result<bool> {
        Ok(self.digest(&self.look(path)?) == before)
    }

    /// Checks, before anything is written, that a name can be created, replaced or removed.
    pub fn require_writable(&self, path: &TreePath) -> Result<()> {
        let Some((parent, name)) = path.split() else { return Ok(()) };
        if self.writable.borrow().contains(&parent) {
            return Ok(());
        }
        let fd = self.open_dir(&parent).map_err(refused("open the directory of", path))?;
        let may = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::accessat(&fd, ".", may, AtFlags::EACCESS)
            .map_err(|errno| refused("write to the directory of", path)(errno.into()))?;
        let stat = beneath::fstat(fd.as_fd()).map_err(ApplyError::io("stat", path))?;
        if stat.device != self.device {
            return Err(ApplyError::OtherFileSystem { path: path.clone() });
        }
        // A mount or a name in other letters may lead to the vault's directory.
        if self.own.is_in(&stat) {
            return match self.own.is_called(&stat, name) {
                true => Err(VaultError::OwnPath { path: path.clone() }.into()),
                false => Ok(()),
            };
        }
        self.writable.borrow_mut().insert(parent);
        Ok(())
    }

    /// Same check for a name in a directory that is removed too: its owner can make such a directory writable first.
    pub fn require_removable(&self, path: &TreePath) -> Result<()> {
        match self.require_writable(path) {
            Err(ApplyError::NoPermission { path }) => {
                let Some((parent, _)) = path.split() else { return Ok(()) };
                let fd = self.open_dir(&parent).map_err(refused("open the directory of", &path))?;
                let stat = rustix::fs::fstat(&fd);
                let stat = stat.map_err(|errno| ApplyError::io("stat", &path)(errno.into()))?;
                match stat.st_uid == rustix::process::geteuid().as_raw() {
                    true => Ok(()),
                    false => Err(ApplyError::NoPermission { path }),
                }
            }
            checked => checked,
        }
    }

    /// Owner, group and attributes of the file at a path. Fails if a new file could not be given the same.
    pub fn ownership(&self, path: &TreePath) -> Result<Ownership> {
        let (parent, name) = path.split().unwrap_or((TreePath::root(), b"."));
        let parent = self.open_dir(&parent).map_err(refused("open the directory of", path))?;
        let ownership =
            Ownership::of(parent.as_fd(), name).map_err(refused("read the attributes of", path))?;
        let what = match ownership.unkept(&self.caller) {
            None => return Ok(ownership),
            Some(Unkept::Fixed) => return Err(ApplyError::NoPermission { path: path.clone() }),
            Some(Unkept::Owner) => "owner",
            Some(Unkept::Group) => "group",
        };
        Err(ApplyError::Owner { what, path: path.clone() })
    }

    /// What a new entry at a path inherits from its directory. Fails if the caller cannot give it the same.
    pub fn inheritance(&self, path: &TreePath) -> Result<Inheritance> {
        let (parent, _) = path.split().unwrap_or((TreePath::root(), b"."));
        let parent = self.open_dir(&parent).map_err(refused("open the directory of", path))?;
        let inheritance = Inheritance::of(parent.as_fd());
        let inheritance = inheritance.map_err(refused("read the attributes of the directory of", path))?;
        match inheritance.can_be_given(&self.caller) {
            true => Ok(inheritance),
            false => Err(ApplyError::Owner { what: "group", path: path.clone() }),
        }
    }

    /// Whether the caller can set the mode and times of the file at a path.
    pub fn is_own(&self, path: &TreePath) -> Result<bool> {
        let (parent, name) = path.split().unwrap_or((TreePath::root(), b"."));
        let parent = self.open_dir(&parent).map_err(refused("open the directory of", path))?;
        let stat = rustix::fs::statat(&parent, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| refused("stat", path)(errno.into()))?;
        Ok(self.caller.may_adjust(stat.st_uid))
    }

    pub fn require_own(&self, path: &TreePath) -> Result<()> {
        match self.is_own(path)? {
            true => Ok(()),
            false => Err(ApplyError::NoPermission { path: path.clone() }),
        }
    }

    pub fn found<'h>(&'h self, path: &'h TreePath, stat: HostStat) -> HostEntry<'h> {
        HostEntry { host: self, path, stat, content: None, xattrs: None }
    }

    /// All paths beneath a directory of the host.
    pub fn names_beneath(&self, dir: &TreePath) -> Result<Vec<TreePath>> {
        let mut all = Vec::new();
        let mut waiting = vec![dir.clone()];
        while let Some(at) = waiting.pop() {
            let fd = self.open_dir(&at).map_err(refused("open", &at))?;
            for listed in beneath::names(fd.as_fd()).map_err(refused("list", &at))? {
                self.require_going()?;
                let child = at.join(&listed.name);
                let stat = beneath::stat(fd.as_fd(), &listed.name).map_err(refused("stat", &child))?;
                if stat.kind == HostKind::Dir {
                    waiting.push(child.clone());
                }
                all.push(child);
            }
        }
        Ok(all)
    }
}

fn refused(operation: &'static str, path: &TreePath) -> impl FnOnce(std::io::Error) -> ApplyError {
    let path = path.clone();
    move |source| {
        if Cause::of(&source) == Cause::NoPermission {
            return ApplyError::NoPermission { path };
        }
        ApplyError::Io { operation, path, source }
    }
}

/// A file on the host. Its content is read at most once, and only if kind, mode and size do not decide the
/// comparison.
pub struct HostEntry<'h> {
    host: &'h Host<'h>,
    path: &'h TreePath,
    pub stat: HostStat,
    content: Option<FileContent>,
    xattrs: Option<Xattrs>,
}

impl HostEntry<'_> {
    /// True if it equals the node of a version, ignoring its time and stripped mode bits. `meta` applies to
    /// directories.
    ///
    /// The content of a file is always read, regardless of its stamp: writes through a mapping may not update
    /// the times for half a minute.
    pub fn is(&mut self, node: &Node, meta: Option<&DirMeta>) -> Result<bool> {
        match node {
            Node::File(file) => self.is_file(file),
            Node::Fifo(fifo) => Ok((self.stat.kind, self.stat.mode) == (HostKind::Fifo, fifo.mode)),
            Node::Symlink(link) => {
                if self.stat.kind != HostKind::Symlink {
                    return Ok(false);
                }
                let Some((parent, name)) = self.path.split() else { return Ok(false) };
                let parent = self.host.open_dir(&parent).map_err(refused("open", self.path))?;
                match beneath::read_link(parent.as_fd(), name) {
                    Ok(target) => Ok(target == link.target),
                    Err(error) if Cause::of(&error) == Cause::NotFound => Ok(false),
                    Err(error) => Err(refused("read", self.path)(error)),
                }
            }
            Node::Dir(_) => {
                let mode = meta.map(|meta| meta.mode);
                if self.stat.kind != HostKind::Dir || mode.is_some_and(|mode| mode != self.stat.mode) {
                    return Ok(false);
                }
                self.has_xattrs(meta.and_then(|meta| meta.xattrs.as_ref()))
            }
        }
    }

    /// True for a git index with the same entries as in the version: only cached times and inodes differ.
    pub fn is_refreshed_index(&mut self, node: &Node) -> Result<bool> {
        let Node::File(file) = node else { return Ok(false) };
        let is_small = self.stat.size.max(file.size) <= INDEX_BYTES_MAX;
        let is_alike = self.stat.kind == HostKind::File && set_ids::has_mode(self.stat.mode, file.mode);
        if !is_index(self.path) || !is_small || !is_alike {
            return Ok(false);
        }
        let mut text = Vec::new();
        let read = File::from(self.open()?).take(INDEX_BYTES_MAX + 1).read_to_end(&mut text);
        read.map_err(refused("read", self.path))?;
        let reader = self.host.out.vault.read()?;
        let known = read_content(&*reader, file)?;
        Ok(same_entries(&known, &text))
    }

    fn is_file(&mut self, file: &FileNode) -> Result<bool> {
        if (self.stat.kind, self.stat.size) != (HostKind::File, file.size)
            || !set_ids::has_mode(self.stat.mode, file.mode)
        {
            return Ok(false);
        }
        Ok(self.content()? == file.content && self.has_xattrs(file.xattrs.as_ref())?)
    }

    fn content(&mut self) -> Result<FileContent> {
        if let Some(known) = self.content {
            return Ok(known);
        }
        let fd = self.open()?;
        let read = ingest::identify(&mut ReadBlocks(File::from(fd)))?.content;
        Ok(*self.content.insert(read))
    }

    pub fn has_xattrs(&mut self, wanted: Option<&BlobId>) -> Result<bool> {
        let wanted = self.host.out.wanted_xattrs(wanted)?;
        if let Some(known) = &self.xattrs {
            return Ok(*known == wanted);
        }
        let fd = self.open()?;
        let read = xattr::read(fd.as_fd()).map_err(refused("read the attributes of", self.path))?;
        Ok(*self.xattrs.insert(read) == wanted)
    }

    fn open(&self) -> Result<OwnedFd> {
        let opened = match self.path.split() {
            Some((parent, name)) => {
                self.host.open_dir(&parent).and_then(|parent| beneath::open(parent.as_fd(), name, READ))
            }
            None => beneath::open(self.host.root(), b"", READ),
        };
        opened.map_err(refused("read", self.path))
    }
}
