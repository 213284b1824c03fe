//! Sets up the root file system: executes the list of operations, then pivots into it.
//!
//! Until then `/` is the host's root. Paths of the view are resolved with the new root as their root, including
//! symlinks and `..`: a symlink in the workspace must not lead an operation to the host.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, SeekFrom, StatVfsMountFlags, Timespec, Timestamps,
    XattrFlags, fsetxattr, fstat, lstat, mkdirat, mknodat, open, openat, openat2, seek, statvfs, symlinkat,
    utimensat,
};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change,
    mount_remount, move_mount, open_tree, unmount,
};

use avfs_engine::Lookup;
use avfs_hostfs::held::FileId;

use crate::prepare::{Execution, IfThere, Layers, Op, Otherwise, Prepared, Upper, UpperFace};
use crate::stage::{At, Failed, REPLACED, Stage};
use crate::sys::{MountAttr, Result, set_mount_attr};

/// The size of the overlay's mount options: descriptors, not paths.
const OPTIONS_BYTES: usize = 1024;
/// The size of a path buffer: the kernel's PATH_MAX.
const PATH_BYTES: usize = 4096;
/// Clones a mount with all mounts below it.
const CLONE: OpenTreeFlags =
    OpenTreeFlags::OPEN_TREE_CLONE.union(OpenTreeFlags::OPEN_TREE_CLOEXEC).union(OpenTreeFlags::AT_RECURSIVE);

/// Descriptors of the new root for the supervisor.
pub struct Made {
    /// The file system that holds the upper, if that is in memory.
    pub memory: Option<OwnedFd>,
    /// The sandbox's `/proc`, for watching its processes. Opened before a later step of the view can cover it.
    pub proc: Option<OwnedFd>,
}

/// Sets up everything the command will see; afterwards the working directory is the new root.
pub fn make(prepared: &Prepared) -> std::result::Result<Made, Failed> {
    // The mounts of a new namespace start as slaves of the host's mounts.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change(c"/", private).at(Stage::Private)?;
    let (mut memory, mut proc) = (None, None);
    let opened = match &prepared.layers {
        None => None,
        Some(layers) => {
            // Before memory is mounted over the scratch, which may contain one of them.
            let lowers = Opened::lowers(layers).at(Stage::Layers)?;
            if let Upper::Memory { at, options, root } = &layers.upper {
                memory = Some(memory_upper(at, options, root).at(Stage::Memory)?);
            }
            let upper = Opened::upper(layers, memory.as_ref()).at(Stage::Layers)?;
            Some(Opened { lowers, upper })
        }
    };
    // Before the root is mounted over it.
    let empty = match prepared.ops.iter().any(|op| matches!(op, Op::Overlaid { .. })) {
        true => Some(dir(&prepared.mountpoint).at(Stage::Layers)?),
        false => None,
    };
    let quiet = MountFlags::NOSUID | MountFlags::NODEV;
    mount(c"tmpfs", prepared.mountpoint.as_c_str(), c"tmpfs", quiet, c"mode=755").at(Stage::Root)?;
    rustix::process::chdir(prepared.mountpoint.as_c_str()).at(Stage::Root)?;
    for (op, step) in prepared.ops.iter().zip(&prepared.step_of) {
        let stage =
            if matches!(op, Op::NoUserNamespaces { .. }) { Stage::Userns } else { Stage::View(*step) };
        run(op, opened.as_ref(), empty.as_ref()).at(stage)?;
        if prepared.shows_proc
            && let Op::Mount { kind, path, .. } = op
            && kind.as_c_str() == c"proc"
        {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            proc = Some(open(path.as_c_str(), flags, Mode::empty()).at(Stage::Limits)?);
        }
    }
    if prepared.shows_proc && proc.is_none() {
        return Err(Errno::NOENT).at(Stage::Limits);
    }
    Ok(Made { memory, proc })
}

/// Switches to the new root and detaches the old one.
pub fn enter() -> Result<()> {
    rustix::process::pivot_root(c".", c".")?;
    // The old root is now mounted over the new one; detaching it makes it unreachable.
    unmount(c".", UnmountFlags::DETACH)?;
    rustix::process::chdir(c"/")
}

fn run(op: &Op, layers: Option<&Opened>, empty: Option<&OwnedFd>) -> Result<()> {
    match op {
        Op::Mkdir { path, mode } => {
            fine_if_there(in_parent(path, |dir, name| mkdirat(dir, name, Mode::from_raw_mode(*mode))))
        }
        Op::Touch { path } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(0o644);
            fine_if_there(in_parent(path, |dir, name| openat(dir, name, flags, mode).map(drop)))
        }
        Op::Symlink { path, target } => {
            fine_if_there(in_parent(path, |dir, name| symlinkat(target.as_c_str(), dir, name)))
        }
        Op::Bind { source, path, attr, lookup } => {
            let place = inside(path, OFlags::empty())?;
            let source = match lookup {
                Lookup::FollowLinks => return bind(source, &place, *attr),
                Lookup::NoLinks => without_links(source)?,
                Lookup::Same { file, .. } => same(source, *file)?,
            };
            attach(&open_tree(&source, c"", CLONE | OpenTreeFlags::AT_EMPTY_PATH)?, &place, *attr)
        }
        Op::Seal { path } => mount_again(path, MountAttr::READ_ONLY),
        Op::Pin { path } => mount_again(path, MountAttr::NONE),
        Op::Mount { kind, path, options, exec } => {
            let mut flags = MountFlags::NOSUID;
            // A pseudo terminal is a device.
            if kind.as_c_str() != c"devpts" {
                flags |= MountFlags::NODEV;
            }
            if *exec == Execution::Refused {
                flags |= MountFlags::NOEXEC;
            }
            // A symlink in the workspace must not choose which path is covered.
            let place = match kind.as_c_str() == c"tmpfs" {
                true => resolved(path, OFlags::empty(), ResolveFlags::NO_SYMLINKS)?,
                false => inside(path, OFlags::empty())?,
            };
            mount(
                kind.as_c_str(),
                Options::name_of(&place)?.as_c_str()?,
                kind.as_c_str(),
                flags,
                options.as_c_str(),
            )
        }
        Op::Set { path, value } => set(path, value.to_bytes()),
        Op::Overlay { path } => layers.map_or(Err(Errno::INVAL), |layers| layers.mount(path)),
        Op::Overlaid { source, path, file } => {
            let source = same(source, *file)?;
            mount_overlay(path, std::iter::once(&source).chain(empty), None)
        }
        Op::Layer { path } => layers.map_or(Err(Errno::INVAL), |layers| layers.bind(path)),
        Op::NoUserNamespaces { path, otherwise } => match (set(path, b"0"), otherwise) {
            (Err(_), Otherwise::Filtered) => Ok(()),
            (outcome, Otherwise::Filtered | Otherwise::Allowed) => outcome,
        },
        Op::Hide { path } => hide(path),
        Op::MountPoint { path } => mount_point(path),
        Op::File { path, bytes, mode, if_there: IfThere::Fail } => write_file(path, bytes, *mode),
        Op::File { path, bytes, mode, if_there: IfThere::Keep } => {
            fine_if_there(write_file(path, bytes, *mode))
        }
        Op::SealMount { path } => {
            let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount(Options::name_of(&inside(path, OFlags::empty())?)?.as_c_str()?, flags, c"")
        }
    }
}

fn fine_if_there(made: Result<()>) -> Result<()> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Opens a path of the view the way the command will resolve it.
fn inside(path: &CStr, flags: OFlags) -> Result<OwnedFd> {
    resolved(path, flags, ResolveFlags::NO_MAGICLINKS)
}

fn resolved(path: &CStr, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    let resolve = resolve | ResolveFlags::IN_ROOT;
    loop {
        match openat2(CWD, path, flags, Mode::empty(), resolve) {
            // With `..` in the path, another process renamed or mounted something in the meantime.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Opens a resolved path of the host. Fails if a component has been replaced with a symlink.
fn without_links(path: &CStr) -> Result<OwnedFd> {
    openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Opens the file that the policy checked, to mount it by this descriptor. Returns [`REPLACED`] if its path leads to
/// another file, or to none.
///
/// The descriptor used for the check belongs to the host's mounts, and only mounts of this namespace can be cloned.
fn same(path: &CStr, judged: FileId) -> Result<OwnedFd> {
    let there = match without_links(path) {
        Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => return Err(REPLACED),
        opened => opened?,
    };
    if FileId::of(&there)? == judged { Ok(there) } else { Err(REPLACED) }
}

/// Applies an operation to a name in its directory, which is opened as a path of the view.
fn in_parent<T>(path: &CStr, act: impl FnOnce(BorrowedFd<'_>, &CStr) -> Result<T>) -> Result<T> {
    let bytes = path.to_bytes_with_nul();
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'/') else {
        // The new root is the working directory, and a path with a single component stays in it.
        return act(CWD, path);
    };
    let mut parent = [0; PATH_BYTES];
    parent.get_mut(..end).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(&bytes[..end]);
    let text = |bytes| CStr::from_bytes_until_nul(bytes).map_err(|_| Errno::NAMETOOLONG);
    act(inside(text(&parent)?, OFlags::DIRECTORY)?.as_fd(), text(&bytes[end + 1..])?)
}

/// Bind-mounts files of the host, with all mounts below them.
fn bind(source: &CStr, place: &OwnedFd, attr: MountAttr) -> Result<()> {
    attach(&open_tree(CWD, source, CLONE)?, place, attr)
}

/// Mounts what a path shows over itself, with these attributes in addition. A path that does not exist is left out.
fn mount_again(path: &CStr, attr: MountAttr) -> Result<()> {
    let place = match inside(path, OFlags::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other?,
    };
    attach(&open_tree(&place, c"", CLONE | OpenTreeFlags::AT_EMPTY_PATH)?, &place, attr)
}

fn attach(tree: &OwnedFd, place: &OwnedFd, attr: MountAttr) -> Result<()> {
    set_mount_attr(tree.as_fd(), attr)?;
    let by_descriptor = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", place, c"", by_descriptor)
}

/// Opens `/dev/null` through a read-only mount: fchmod(2) on a descriptor of the host's mount would change the host's
/// node. Mounted over the old root, which is still `/`, because the view may hide its own `/dev`.
pub fn open_null() -> Result<OwnedFd> {
    let host = open(c"/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    bind(c"/dev/null", &host, MountAttr::READ_ONLY.and(MountAttr::NO_SUID))?;
    open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// The same device through the read-only mount of the view, where it has a path: `readlink /proc/self/fd/0` prints it.
/// `None` if the view has no such device.
pub fn null_of_view() -> Option<OwnedFd> {
    // Opening another device could have effects.
    let found = lstat(c"/dev/null").ok()?;
    let is_null = FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice
        && found.st_rdev == rustix::fs::makedev(1, 3);
    let is_read_only = statvfs(c"/dev/null").ok()?.f_flag.contains(StatVfsMountFlags::RDONLY);
    if !is_null || !is_read_only {
        return None;
    }
    open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Opens a regular file of the host through a detached read-only mount: reopening it for writing through /proc, or
/// changing its mode, fails on that mount. Only mounts of this namespace can be cloned, so the file is looked up by
/// its path.
pub fn open_again(path: &CStr, file: FileId, offset: u64) -> Result<OwnedFd> {
    let tree = open_tree(same(path, file)?, c"", CLONE | OpenTreeFlags::AT_EMPTY_PATH)?;
    set_mount_attr(tree.as_fd(), MountAttr::READ_ONLY.and(MountAttr::NO_SUID).and(MountAttr::NO_DEV))?;
    let name = Options::name_of(&tree)?;
    let again = open(name.as_c_str()?, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    seek(&again, SeekFrom::Start(offset))?;
    Ok(again)
}

/// Sets a kernel parameter.
fn set(path: &CStr, value: &[u8]) -> Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value).map(drop)
}

fn write_file(path: &CStr, bytes: &[u8], mode: u32) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = in_parent(path, |dir, name| openat(dir, name, flags, Mode::from_raw_mode(mode)))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written.min(rest.len())..];
    }
    Ok(())
}

/// Covers a directory with an empty one and a file with an empty file, both inaccessible.
fn hide(path: &CStr) -> Result<()> {
    let there = match inside(path, OFlags::NOFOLLOW) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        other => other?,
    };
    if FileType::from_raw_mode(fstat(&there)?.st_mode) == FileType::Directory {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
        return mount(c"tmpfs", Options::name_of(&there)?.as_c_str()?, c"tmpfs", flags, c"mode=000,size=4k");
    }
    bind(c"/dev/null", &there, MountAttr::READ_ONLY)
}

/// Creates a directory without changing its parent's modification time.
fn mount_point(path: &CStr) -> Result<()> {
    in_parent(path, |parent, name| {
        let before = fstat(parent)?;
        match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) => return Ok(()),
            other => other?,
        }
        let mtime =
            Timespec { tv_sec: before.st_mtime, tv_nsec: i64::try_from(before.st_mtime_nsec).unwrap_or(0) };
        let atime = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let times = Timestamps { last_access: atime, last_modification: mtime };
        utimensat(parent, c".", &times, AtFlags::empty())
    })
}

fn dir(path: &CStr) -> Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Mounts a file system in memory and creates an upper in it.
fn memory_upper(at: &CStr, options: &CStr, face: &UpperFace) -> Result<OwnedFd> {
    mount(c"tmpfs", at, c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)?;
    let memory = open(at, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    mkdirat(&memory, c"work", Mode::from_raw_mode(0o700))?;
    mkdirat(&memory, c"upper", Mode::from_raw_mode(0o700))?;
    let upper =
        openat(&memory, c"upper", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for (name, value) in &face.xattrs {
        fsetxattr(&upper, name.as_c_str(), value, XattrFlags::empty())?;
    }
    for name in &face.whiteouts {
        mknodat(&upper, name.as_c_str(), FileType::CharacterDevice, Mode::empty(), 0)?;
    }
    rustix::fs::fchmod(&upper, Mode::from_raw_mode(face.mode))?;
    let mtime = Timespec { tv_sec: face.mtime.0, tv_nsec: i64::from(face.mtime.1) };
    let times = Timestamps { last_access: mtime, last_modification: mtime };
    rustix::fs::futimens(&upper, &times)?;
    Ok(memory)
}

/// Layers by descriptor: their paths may be longer than a mount option, or contain characters that an option cannot.
struct Opened {
    lowers: Lowers,
    upper: Option<(OwnedFd, OwnedFd)>,
}

type Lowers = [Option<OwnedFd>; avfs_engine::LOWERS_MAX];

impl Opened {
    fn lowers(layers: &Layers) -> Result<Lowers> {
        let mut lowers = [const { None }; avfs_engine::LOWERS_MAX];
        if layers.lowers.len() > lowers.len() {
            return Err(Errno::TOOBIG);
        }
        for (slot, path) in lowers.iter_mut().zip(&layers.lowers) {
            *slot = Some(dir(path)?);
        }
        Ok(lowers)
    }

    fn upper(layers: &Layers, memory: Option<&OwnedFd>) -> Result<Option<(OwnedFd, OwnedFd)>> {
        let inside = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(match (&layers.upper, memory) {
            (Upper::None, _) => None,
            (Upper::Disk { upper, work }, _) => Some((dir(upper)?, dir(work)?)),
            (Upper::Memory { .. }, Some(memory)) => Some((
                openat(memory, c"upper", inside, Mode::empty())?,
                openat(memory, c"work", inside, Mode::empty())?,
            )),
            (Upper::Memory { .. }, None) => return Err(Errno::INVAL),
        })
    }

    fn mount(&self, path: &CStr) -> Result<()> {
        mount_overlay(path, self.lowers.iter().flatten(), self.upper.as_ref())
    }

    fn bind(&self, path: &CStr) -> Result<()> {
        let Some(lower) = self.lowers.iter().flatten().next() else { return Err(Errno::INVAL) };
        let tree = open_tree(lower, c"", CLONE | OpenTreeFlags::AT_EMPTY_PATH)?;
        let quiet = MountAttr::READ_ONLY.and(MountAttr::NO_SUID).and(MountAttr::NO_DEV);
        attach(&tree, &inside(path, OFlags::empty())?, quiet)
    }
}

/// Mounts an overlay, read-only if it has no upper (and work).
fn mount_overlay<'a>(
    path: &CStr,
    lowers: impl Iterator<Item = &'a OwnedFd>,
    upper: Option<&(OwnedFd, OwnedFd)>,
) -> Result<()> {
    let place = inside(path, OFlags::empty())?;
    let mut options = Options::new();
    for (number, lower) in lowers.enumerate() {
        options.text(if number == 0 { b"lowerdir=" } else { b":" })?;
        options.fd(lower)?;
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    match upper {
        Some((upper, work)) => {
            options.text(b",upperdir=")?;
            options.fd(upper)?;
            options.text(b",workdir=")?;
            options.fd(work)?;
            // The upper is captured or discarded, so syncing it is unnecessary.
            options.text(b",volatile")?;
            // A capture recognizes copied-up files by their access time; the layers below never update it either.
            flags |= MountFlags::NOATIME;
        }
        None => flags |= MountFlags::RDONLY,
    }
    options.text(b",userxattr")?;
    mount(c"overlay", Options::name_of(&place)?.as_c_str()?, c"overlay", flags, options.as_c_str()?)
}

/// Text built without the allocator.
struct Options {
    bytes: [u8; OPTIONS_BYTES],
    length: usize,
}

impl Options {
    const fn new() -> Self {
        Self { bytes: [0; OPTIONS_BYTES], length: 0 }
    }

    /// The /proc path of an open descriptor, for a call that takes only a path.
    fn name_of(fd: &OwnedFd) -> Result<Self> {
        let mut name = Self::new();
        name.fd(fd)?;
        Ok(name)
    }

    fn text(&mut self, text: &[u8]) -> Result<()> {
        // One byte stays zero, to terminate the C string.
        let end = self.length + text.len();
        if end >= OPTIONS_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        self.bytes[self.length..end].copy_from_slice(text);
        self.length = end;
        Ok(())
    }

    fn fd(&mut self, fd: &OwnedFd) -> Result<()> {
        self.text(b"/proc/self/fd/")?;
        let mut digits = [0_u8; 10];
        let mut number = fd.as_raw_fd().unsigned_abs();
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[at..])
    }

    fn as_c_str(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| Errno::NAMETOOLONG)
    }
}
