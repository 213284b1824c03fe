//! Reads files consistently, and detects those that change while they are read.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::Errno;

use avfs_hostfs::beneath;
use avfs_hostfs::beneath::READ;
use avfs_hostfs::stat::{HostKind, HostStat};
use avfs_hostfs::xattr::Xattrs;
use avfs_types::ids::BlobId;
use avfs_types::path::TreePath;

use super::Source;
use super::entry::{Facts, LargeFile, What};
use super::error::ImportError;
use super::report::{Keep, OnTrouble, TroubleReason};
use super::shared::{Shared, lock};
use crate::backend::BlobRecord;
use crate::chunk::{BLOCK_BYTES, FILE_BYTES_MAX};
use crate::content::WHOLE_BYTES_MAX;
use crate::ingest::{Block, Blocks, Sink};
use crate::page::FileContent;
use crate::transfer::Result;
use crate::{VaultError, content, ingest};

/// Maximum number of reads of a file that changes while it is read.
const ATTEMPTS: u32 = 4;
/// Bytes of content that a job holds before it sends them on.
const JOB_BYTES: usize = 1 << 20;

/// The result of one attempt to read a file.
struct Attempt {
    stat: HostStat,
    xattrs: Xattrs,
    content: Vec<u8>,
    /// The file was not written to while it was read.
    quiet: bool,
}

impl Attempt {
    /// True if the content is not torn. The kernel stamps a file when a write begins, not when it ends, and a write
    /// that had begun when the file was opened ends before the file is read. If the stamp is so recent that a write may
    /// have begun since, a second read has to confirm the first, with the same stamp: the write has ended by then. A
    /// later stamp proves nothing, because two writes may have stopped at the same byte.
    fn is_proof<S: Source>(&self, shared: &Shared<'_, S>, last: Option<&Self>) -> bool {
        let confirms =
            |last: &Self| last.quiet && last.stat.same_state(&self.stat) && last.content == self.content;
        let confirmed = || last.is_some_and(confirms);
        self.quiet && (shared.is_settled(&self.stat) || confirmed())
    }
}

enum Once {
    Small(Attempt),
    Large,
    /// It is no longer a regular file.
    Changed,
}

/// Opens a file without updating its atime if the caller owns it: a running command may copy the file up, and a capture
/// compares atimes.
fn open_for_reading(dir: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    match beneath::open(dir, path, READ | OFlags::NOATIME) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => beneath::open(dir, path, READ),
        other => other,
    }
}

fn read_once<S: Source>(
    shared: &Shared<'_, S>,
    path: &TreePath,
    dir: &OwnedFd,
    name: &[u8],
) -> io::Result<Once> {
    avfs_types::pause::point("open-file");
    let fd = open_for_reading(dir.as_fd(), name)?;
    shared.outlast_write(fd.as_fd());
    let before = beneath::fstat(fd.as_fd())?;
    if before.kind != HostKind::File {
        return Ok(Once::Changed);
    }
    let Some(size) = usize::try_from(before.size).ok().filter(|size| *size <= WHOLE_BYTES_MAX) else {
        return Ok(Once::Large);
    };
    let (xattrs, _) = shared.read_xattrs(fd.as_fd(), || path.join(name))?;
    // One byte more than its size: if that byte is read, the file grew.
    let mut content = Vec::with_capacity(size + 1);
    while content.len() <= size {
        let at = content.len() as u64;
        match rustix::io::pread(&fd, spare_capacity(&mut content), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    avfs_types::pause::point("file-read");
    let after = beneath::fstat(fd.as_fd())?;
    let quiet = before.same_state(&after) && content.len() == size;
    Ok(Once::Small(Attempt { stat: after, xattrs, content, quiet }))
}

/// Reads the files `names` of one directory, given with their indexes among its entries.
pub(super) fn read_small<S: Source>(
    shared: &Shared<'_, S>,
    number: u32,
    path: &TreePath,
    dir: &OwnedFd,
    names: Vec<(usize, Vec<u8>)>,
) -> Result<()> {
    let mut held: Vec<(BlobId, Vec<u8>)> = Vec::new();
    let mut held_bytes = 0;
    let mut facts = Vec::with_capacity(names.len());
    // Number of files that are too large for this job.
    let mut left = 0;
    for (entry, name) in names {
        let file = path.join(&name);
        let mut attempt = 0;
        let mut last: Option<Attempt> = None;
        let read = loop {
            attempt += 1;
            match read_once(shared, path, dir, &name) {
                Ok(Once::Small(read)) if read.is_proof(shared, last.as_ref()) => break Ok(Some(read)),
                Ok(Once::Small(read)) if attempt == ATTEMPTS => {
                    torn(shared, &file)?;
                    break Ok(Some(read));
                }
                Ok(Once::Small(read)) => last = Some(read),
                Ok(Once::Large) => {
                    lock(&shared.large).push(LargeFile { dir: number, entry, path: file.clone() });
                    left += 1;
                    break Ok(None);
                }
                Ok(Once::Changed) => break Err(io::Error::from(io::ErrorKind::NotFound)),
                Err(error) => break Err(error),
            }
        };
        let stat_gone = |stat: HostStat| Facts { entry, stat, what: What::Gone };
        let read = match shared.tolerate(read, "read", || file.clone())? {
            Some(Some(read)) => read,
            Some(None) => continue,
            None => {
                facts.push(stat_gone(beneath::fstat(dir.as_fd()).map_err(VaultError::Input)?));
                continue;
            }
        };
        if !ingest::is_whole(&read.content) {
            lock(&shared.large).push(LargeFile { dir: number, entry, path: file });
            left += 1;
            continue;
        }
        let id = content::id_of(&read.content);
        if S::withholds_small(shared, &file, &read.content, &read.xattrs)? {
            facts.push(stat_gone(read.stat));
            continue;
        }
        count(shared, read.content.len() as u64);
        let what = What::File { content: FileContent::Whole(id), xattrs: shared.keep_xattrs(read.xattrs)? };
        // The size of the content read, even if the file has grown since.
        let stat = HostStat { size: read.content.len() as u64, ..read.stat };
        facts.push(Facts { entry, stat, what });
        if shared.keep != Keep::Nothing {
            held_bytes += read.content.len();
            held.push((id, read.content));
            if held_bytes >= JOB_BYTES {
                hand_over(shared, &mut held)?;
                held_bytes = 0;
            }
        }
    }
    hand_over(shared, &mut held)?;
    shared.add_facts(number, facts, left)
}

fn count<S: Source>(shared: &Shared<'_, S>, bytes: u64) {
    shared.files_read.fetch_add(1, Ordering::Relaxed);
    shared.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    shared.meter.add(0, bytes);
}

fn torn<S: Source>(shared: &Shared<'_, S>, path: &TreePath) -> Result<()> {
    match shared.on_trouble {
        OnTrouble::Fail => Err(ImportError::Torn { path: path.clone() }.into()),
        OnTrouble::KeepGoing => {
            shared.report(path.clone(), TroubleReason::Torn);
            Ok(())
        }
    }
}

/// Compresses content that the vault does not have, and sends it to be stored.
fn hand_over<S: Source>(shared: &Shared<'_, S>, held: &mut Vec<(BlobId, Vec<u8>)>) -> Result<()> {
    let ids: Vec<BlobId> = held.iter().map(|(id, _)| *id).collect();
    let mut unknown = shared.unknown(&ids)?;
    let new = held.drain(..).filter(|(id, _)| unknown.remove(id));
    let blobs: Vec<BlobRecord> = new.map(|(id, content)| content::encode(id, content)).collect();
    Ok(shared.store(blobs)?)
}

/// The blocks of a file. Holes of a sparse file are not read.
pub(crate) struct FileBlocks<'a> {
    file: &'a File,
    at: u64,
    size: u64,
    /// End of the current data extent, rounded up to a block.
    data_until: u64,
    meter: &'a crate::meter::Meter,
}

impl<'a> FileBlocks<'a> {
    pub(crate) fn new(file: &'a File, size: u64, meter: &'a crate::meter::Meter) -> Self {
        Self { file, at: 0, size, data_until: 0, meter }
    }
}

impl Blocks for FileBlocks<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> io::Result<Block> {
        let block = BLOCK_BYTES as u64;
        if self.at >= self.size {
            return Ok(Block::End);
        }
        if self.meter.stopped() {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        if self.at >= self.data_until {
            // Blocks that are entirely in a hole are skipped; blocks that contain data are read.
            let next = match rustix::fs::seek(self.file, rustix::fs::SeekFrom::Data(self.at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => self.size,
                Err(_) => self.at,
            };
            let data = if next >= self.size { self.size } else { next / block * block };
            if data > self.at {
                let hole = data - self.at;
                self.at = data;
                return Ok(Block::Hole(hole));
            }
            let end = rustix::fs::seek(self.file, rustix::fs::SeekFrom::Hole(next)).unwrap_or(self.size);
            self.data_until = end.max(self.at + 1).div_ceil(block) * block;
        }
        let want = usize::try_from((self.size - self.at).min(block)).unwrap_or(BLOCK_BYTES);
        let mut filled = 0;
        while filled < want {
            match self.file.read_at(&mut buffer[filled..want], self.at + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled == 0 {
            // The file was truncated while it was read; the stat afterwards shows it.
            return Ok(Block::End);
        }
        self.at += filled as u64;
        self.meter.add(0, filled as u64);
        if filled < want {
            self.size = self.at;
        }
        Ok(Block::Data(filled))
    }
}

struct ScanSink<'s, 'a, S: Source>(&'s Shared<'a, S>);

impl<S: Source> Sink for ScanSink<'_, '_, S> {
    fn known(&mut self, ids: &[BlobId]) -> crate::Result<HashSet<BlobId>> {
        let unknown = self.0.unknown(ids)?;
        Ok(ids.iter().copied().filter(|id| !unknown.contains(id)).collect())
    }

    fn store(&mut self, blobs: Vec<BlobRecord>) -> crate::Result<()> {
        match self.0.keep {
            Keep::Nothing => Ok(()),
            Keep::Everything | Keep::Only(_) => self.0.store(blobs),
        }
    }
}

pub(super) fn read_large<S: Source>(shared: &Shared<'_, S>, large: &LargeFile) -> Result<()> {
    let mut last: Option<(HostStat, FileContent)> = None;
    for attempt in 1..=ATTEMPTS {
        avfs_types::pause::point("open-file");
        let opened = open_for_reading(shared.root.as_fd(), large.path.as_bytes());
        // It may have been replaced by another kind of file since its stat.
        let opened = opened.and_then(|fd| match beneath::fstat(fd.as_fd())?.kind {
            HostKind::File => Ok(fd),
            HostKind::Dir
            | HostKind::Symlink
            | HostKind::Fifo
            | HostKind::Whiteout
            | HostKind::Special(_) => Err(io::Error::from(io::ErrorKind::NotFound)),
        });
        let Some(fd) = shared.tolerate(opened, "open", || large.path.clone())? else {
            let stat = beneath::fstat(shared.root.as_fd()).map_err(VaultError::Input)?;
            return shared.add_facts(large.dir, vec![large.gone(stat)], 0);
        };
        let file = File::from(fd);
        let stat = beneath::fstat(file.as_fd()).map_err(VaultError::Input)?;
        if stat.size > FILE_BYTES_MAX {
            let path = large.path.clone();
            match shared.on_trouble {
                OnTrouble::Fail => return Err(ImportError::TooLarge { path, size: stat.size }.into()),
                OnTrouble::KeepGoing => shared.report(path, TroubleReason::TooLarge),
            }
            return shared.add_facts(large.dir, vec![large.gone(stat)], 0);
        }
        // Checked before any of it is stored, which needs an extra read.
        if S::withholds_large(shared, &large.path, &file)? {
            let stat = beneath::fstat(file.as_fd()).map_err(VaultError::Input)?;
            return shared.add_facts(large.dir, vec![large.gone(stat)], 0);
        }
        let once = read_large_once(shared, large, &file)?;
        let Some((facts, quiet)) = shared.tolerate(once, "read", || large.path.clone())? else {
            return shared.add_facts(large.dir, vec![large.gone(stat)], 0);
        };
        let content = match facts.what {
            What::File { content, .. } => quiet.then_some((facts.stat, content)),
            What::Symlink { .. }
            | What::Fifo
            | What::Dir(_)
            | What::Pending
            | What::Gone
            | What::Whiteout => None,
        };
        let proof = content.as_ref().is_some_and(|(stat, content)| {
            let confirms =
                |(earlier, found): &(HostStat, FileContent)| earlier.same_state(stat) && found == content;
            shared.is_settled(stat) || last.as_ref().is_some_and(confirms)
        });
        last = content;
        if !proof && attempt < ATTEMPTS {
            continue;
        }
        if !proof {
            torn(shared, &large.path)?;
        }
        shared.files_read.fetch_add(1, Ordering::Relaxed);
        shared.bytes_read.fetch_add(facts.stat.size, Ordering::Relaxed);
        return shared.add_facts(large.dir, vec![facts], 0);
    }
    Ok(())
}

/// One attempt to read a large file, and whether it stayed unchanged. The inner error is a failure to read the file,
/// the outer one a failure of the vault.
fn read_large_once<S: Source>(
    shared: &Shared<'_, S>,
    large: &LargeFile,
    file: &File,
) -> Result<io::Result<(Facts, bool)>> {
    shared.outlast_write(file.as_fd());
    let looked = beneath::fstat(file.as_fd())
        .and_then(|before| Ok((before, shared.read_xattrs(file.as_fd(), || large.path.clone())?)));
    let (before, (xattrs, _)) = match looked {
        Ok(looked) => looked,
        Err(error) => return Ok(Err(error)),
    };
    let mut blocks = FileBlocks::new(file, before.size, shared.meter);
    let read = match ingest::ingest(&mut blocks, &mut ScanSink(shared)) {
        Ok(read) => read,
        Err(_) if shared.meter.stopped() => return Err(ImportError::Interrupted.into()),
        Err(VaultError::Input(error)) => return Ok(Err(error)),
        Err(error) => return Err(error.into()),
    };
    let after = match beneath::fstat(file.as_fd()) {
        Ok(after) => after,
        Err(error) => return Ok(Err(error)),
    };
    let quiet = before.same_state(&after) && read.size == before.size;
    let what = What::File { content: read.content, xattrs: shared.keep_xattrs(xattrs)? };
    // The size of the content read, even if the file has grown since.
    let stat = HostStat { size: read.size, ..after };
    Ok(Ok((Facts { entry: large.entry, stat, what }, quiet)))
}

/// Reads all blocks, for tests.
#[cfg(test)]
fn collect(blocks: &mut dyn Blocks) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; BLOCK_BYTES]);
    loop {
        match blocks.next(&mut buffer).unwrap() {
            Block::Data(length) => all.extend_from_slice(&buffer[..length]),
            Block::Hole(length) => all.resize(all.len() + usize::try_from(length).unwrap(), 0),
            Block::End => return all,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn blocks_of_a_sparse_file_equal_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"head").unwrap();
        file.set_len(10_000_000).unwrap();
        file.write_all_at(b"middle", 5_000_001).unwrap();
        let file = File::open(&path).unwrap();
        let meter = crate::meter::Meter::default();
        let mut blocks = FileBlocks::new(&file, 10_000_000, &meter);
        let read = collect(&mut blocks);
        assert!(read == std::fs::read(&path).unwrap());
        let bytes = meter.bytes.load(Ordering::Relaxed);
        assert!(
            bytes <= 4 * BLOCK_BYTES as u64,
            "{bytes} bytes were read of a file that is almost entirely a hole"
        );
    }
}
