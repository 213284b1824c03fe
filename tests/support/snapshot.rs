//! A host directory as data: everything that a round trip must preserve exactly.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

/// The type and the metadata of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub kind: Kind,
    /// Without meaning for a symlink.
    pub mode: u32,
    pub mtime: (i64, u64),
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first of the hard links of the file, if it has several.
    pub linked_to: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Dir,
    /// The digest is missing if the file is not readable.
    File {
        size: u64,
        digest: Option<String>,
    },
    Symlink(Vec<u8>),
    Fifo,
    Other,
}

#[derive(Clone)]
pub struct Snapshot {
    pub facts: BTreeMap<Vec<u8>, Fact>,
    /// Disk blocks of files.
    pub blocks: BTreeMap<Vec<u8>, i64>,
}

/// Opens a path of any length, in steps short enough for the kernel.
fn open_deep(root: &OwnedFd, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mut at = openat(root, ".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut rest = path;
    while rest.len() > 2000 {
        let cut = rest[..2000].iter().rposition(|b| *b == b'/').unwrap();
        at = openat(&at, OsStr::from_bytes(&rest[..cut]), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        rest = &rest[cut + 1..];
    }
    let last = if rest.is_empty() { b"." } else { rest };
    openat(&at, OsStr::from_bytes(last), flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn xattrs_of(fd: &OwnedFd) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let length = match rustix::fs::flistxattr(fd, &mut names) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(errno) => panic!("listxattr: {errno}"),
    };
    let user = names[..length].split(|b| *b == 0).filter(|name| name.starts_with(b"user."));
    user.map(|name| {
        let mut value = vec![0; 1 << 16];
        let length = rustix::fs::fgetxattr(fd, OsStr::from_bytes(name), &mut value).unwrap();
        (name.to_vec(), value[..length].to_vec())
    })
    .collect()
}

/// Reads everything below a directory, except the entries of it in `leave_out`.
pub fn take_without(dir: &Path, leave_out: &[&str]) -> Snapshot {
    let root = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let (mut facts, mut blocks) = (BTreeMap::new(), BTreeMap::new());
    let mut inodes: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let fd = open_deep(&root, &path, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        let stat = rustix::fs::fstat(&fd).unwrap();
        let fact = |kind, xattrs| {
            move |stat: &rustix::fs::Stat| Fact {
                kind,
                mode: stat.st_mode & 0o7777,
                mtime: (stat.st_mtime, stat.st_mtime_nsec),
                xattrs,
                linked_to: None,
            }
        };
        facts.insert(path.clone(), fact(Kind::Dir, xattrs_of(&fd))(&stat));
        for entry in rustix::fs::Dir::read_from(&fd).unwrap() {
            let name = entry.unwrap().file_name().to_bytes().to_vec();
            let left_out = path.is_empty() && leave_out.iter().any(|left| left.as_bytes() == name);
            if name == b"." || name == b".." || left_out {
                continue;
            }
            let child = if path.is_empty() { name.clone() } else { [&path[..], b"/", &name].concat() };
            let stat = statat(&fd, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW).unwrap();
            let (kind, xattrs) = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    waiting.push(child);
                    continue;
                }
                FileType::RegularFile => {
                    blocks.insert(child.clone(), stat.st_blocks);
                    let (digest, xattrs) = read_file(&fd, &name);
                    (Kind::File { size: u64::try_from(stat.st_size).unwrap(), digest }, xattrs)
                }
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&fd, OsStr::from_bytes(&name), Vec::new()).unwrap();
                    (Kind::Symlink(target.into_bytes()), BTreeMap::new())
                }
                FileType::Fifo => (Kind::Fifo, BTreeMap::new()),
                FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                    (Kind::Other, BTreeMap::new())
                }
            };
            if stat.st_nlink > 1 {
                inodes.entry(stat.st_ino).or_default().push(child.clone());
            }
            facts.insert(child, fact(kind, xattrs)(&stat));
        }
    }
    for mut names in inodes.into_values() {
        names.sort();
        for name in names.iter().filter(|_| names.len() > 1) {
            facts.get_mut(name).unwrap().linked_to = Some(names[0].clone());
        }
    }
    // The mode of a symlink is chosen by the kernel.
    facts.values_mut().filter(|fact| matches!(fact.kind, Kind::Symlink(_))).for_each(|fact| fact.mode = 0);
    Snapshot { facts, blocks }
}

pub fn take(dir: &Path) -> Snapshot {
    take_without(dir, &[])
}

fn read_file(dir: &OwnedFd, name: &[u8]) -> (Option<String>, BTreeMap<Vec<u8>, Vec<u8>>) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match openat(dir.as_fd(), OsStr::from_bytes(name), flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::ACCESS) => return (None, BTreeMap::new()),
        Err(errno) => panic!("open {name:?}: {errno}"),
    };
    let xattrs = xattrs_of(&fd);
    (Some(digest(&fd.into())), xattrs)
}

/// Files longer than this are mostly holes.
const SPARSE_BYTES: u64 = 64 << 20;

/// BLAKE3 of the content; for a very long file that of each non-zero block with its offset, so that holes need not be
/// read.
fn digest(file: &std::fs::File) -> String {
    const BLOCK: usize = 4096;
    let mut hasher = blake3::Hasher::new();
    if file.metadata().unwrap().len() <= SPARSE_BYTES {
        return hasher.update_reader(file).unwrap().finalize().to_hex().to_string();
    }
    let (mut buffer, mut at) = (vec![0; 64 * BLOCK], 0);
    loop {
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data - data % BLOCK as u64,
            Err(rustix::io::Errno::NXIO) => break,
            // The file system does not support SEEK_DATA.
            Err(_) => {}
        }
        let read = file.read_at(&mut buffer, at).unwrap();
        if read == 0 {
            break;
        }
        for (offset, block) in (at..).step_by(BLOCK).zip(buffer[..read].chunks(BLOCK)) {
            if *block != [0; BLOCK][..block.len()] {
                hasher.update(&offset.to_le_bytes()).update(block);
            }
        }
        at += read as u64;
    }
    hasher.finalize().to_hex().to_string()
}

fn shown(path: &[u8]) -> String {
    let text = path.escape_ascii().to_string();
    if text.len() > 120 { format!("{}… ({} bytes)", &text[..120], path.len()) } else { text }
}

/// All differences of two directories; empty if the second is a faithful copy of the first.
pub fn differences(original: &Snapshot, copy: &Snapshot) -> Vec<String> {
    let mut found = Vec::new();
    for (path, fact) in &original.facts {
        match copy.facts.get(path) {
            None => found.push(format!("{} is missing", shown(path))),
            Some(other) if other != fact => found.push(format!("{}: {fact:?} became {other:?}", shown(path))),
            Some(_) => {}
        }
    }
    let extra = copy.facts.keys().filter(|path| !original.facts.contains_key(*path));
    found.extend(extra.map(|path| format!("{} is new", shown(path))));
    for (path, blocks) in &original.blocks {
        let copied = copy.blocks.get(path).copied().unwrap_or(0);
        // Zeros are stored in blocks of 64 KiB, so a hole may shrink at both ends.
        if copied > blocks * 2 + 1024 {
            found.push(format!("{} takes {copied} blocks instead of {blocks}", shown(path)));
        }
    }
    found
}

/// Fails unless the second directory is a faithful copy of the first.
#[track_caller]
pub fn assert_same(original: &Path, copy: &Path) {
    let found = differences(&take(original), &take(copy));
    assert!(found.is_empty(), "{} differs from {}: {found:#?}", copy.display(), original.display());
}
