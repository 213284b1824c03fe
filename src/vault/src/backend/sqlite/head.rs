//! The newest acknowledged commits, in a small file next to the write-ahead log (`-head`).
//!
//! SQLite treats a damaged frame as the end of the WAL and ignores everything after it: the vault would silently
//! show the state of an earlier commit. So each commit that is on disk also writes a slot here, in place and never
//! synced: a lost slot claims less, never more. Opening the vault compares the two.
//!
//! ```text
//! slot     256 bytes, at offset 256 * (number % 64)
//! 0..8     "avfshead"
//! 8..16    the number of the commit's last row in the audit log, big-endian like all integers here
//! 16..24   the time of the commit
//! 24..32   the salts of the WAL that contains it
//! 32..40   the first 8 bytes of the BLAKE3 of the rest of the slot
//! 40..     action and subject, each preceded by its length (one byte), then zeros
//! ```

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use avfs_hostfs::owner;
use avfs_types::clock::Timestamp;

use super::connect::sibling;
use crate::backend::{AuditRecord, LostCommit, Rollback};

const SLOT_BYTES: usize = 256;
const SLOTS: u64 = 64;
const MAGIC: &[u8; 8] = b"avfshead";
/// The offset of action and subject.
const TEXT_AT: usize = 40;
/// The size of the WAL header, which contains the salts.
const LOG_HEADER_BYTES: usize = 32;
const SALTS: std::ops::Range<usize> = 16..24;
const LOG_MAGIC: [u32; 2] = [0x377f_0682, 0x377f_0683];

/// One acknowledged commit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    commit: LostCommit,
    salts: [u8; 8],
}

/// The salts of a WAL; `None` if its header is incomplete or invalid.
fn salts_of(log: &File) -> Option<[u8; 8]> {
    let mut header = [0; LOG_HEADER_BYTES];
    log.read_exact_at(&mut header, 0).ok()?;
    let word = |at: usize| Some(u32::from_be_bytes(header[at..at + 4].try_into().ok()?));
    let magic = word(0)?;
    if !LOG_MAGIC.contains(&magic) {
        return None;
    }
    // SQLite's checksum: the lowest bit of the magic number selects the byte order of the words.
    let (mut a, mut b) = (0_u32, 0_u32);
    for pair in header[..24].chunks_exact(8) {
        let read = |at: usize| {
            let bytes = pair[at..at + 4].try_into().ok()?;
            Some(if magic & 1 == 1 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        a = a.wrapping_add(read(0)?).wrapping_add(b);
        b = b.wrapping_add(read(4)?).wrapping_add(a);
    }
    ((a, b) == (word(24)?, word(28)?)).then(|| header[SALTS].try_into().ok()).flatten()
}

fn checksum(slot: &[u8; SLOT_BYTES]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&slot[..32]).update(&slot[TEXT_AT..]);
    let mut sum = [0; 8];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    sum
}

impl Slot {
    fn bytes(&self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(MAGIC);
        slot[8..16].copy_from_slice(&self.commit.seq.to_be_bytes());
        slot[16..24].copy_from_slice(&self.commit.at.0.to_be_bytes());
        slot[24..32].copy_from_slice(&self.salts);
        let mut at = TEXT_AT;
        for text in [&self.commit.action, &self.commit.subject] {
            let room = SLOT_BYTES - at - 1;
            // Never cut within a character.
            let length = (0..=text.len().min(room).min(100)).rev().find(|end| text.is_char_boundary(*end));
            let length = length.unwrap_or(0);
            slot[at] = u8::try_from(length).unwrap_or(0);
            slot[at + 1..at + 1 + length].copy_from_slice(&text.as_bytes()[..length]);
            at += 1 + length;
        }
        let sum = checksum(&slot);
        slot[32..TEXT_AT].copy_from_slice(&sum);
        slot
    }

    fn read(slot: &[u8; SLOT_BYTES]) -> Option<Self> {
        if slot[..8] != MAGIC[..] || slot[32..TEXT_AT] != checksum(slot)[..] {
            return None;
        }
        let number = |range: std::ops::Range<usize>| Some(i64::from_be_bytes(slot[range].try_into().ok()?));
        let mut at = TEXT_AT;
        let mut text = || {
            let length = usize::from(*slot.get(at)?);
            let text = std::str::from_utf8(slot.get(at + 1..at + 1 + length)?).ok()?.to_owned();
            at += 1 + length;
            Some(text)
        };
        let (action, subject) = (text()?, text()?);
        let commit = LostCommit { seq: number(8..16)?, at: Timestamp(number(16..24)?), action, subject };
        Some(Self { commit, salts: slot[24..32].try_into().ok()? })
    }
}

/// Do not follow a symlink, and do not block on a FIFO.
const PLAIN: i32 = (rustix::fs::OFlags::NOFOLLOW.bits() | rustix::fs::OFlags::NONBLOCK.bits()).cast_signed();

/// Refuses a FIFO, a device, and a file with several hard links.
fn plain_file(file: File) -> std::io::Result<File> {
    let meta = file.metadata()?;
    let is_plain = meta.is_file() && meta.nlink() <= 1;
    if is_plain { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

/// The open file; created by the first commit.
#[derive(Debug, Default)]
pub(crate) struct Head(Option<File>);

/// Opens a file of avfs beside a vault.
pub(super) fn open_beside(vault: &Path, suffix: &str) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(PLAIN).open(sibling(vault, suffix)).and_then(plain_file)
}

/// Opens a file of avfs beside a vault, and creates it if it does not exist.
pub(super) fn open_or_make_beside(vault: &Path, suffix: &str) -> std::io::Result<File> {
    match open_beside(vault, suffix) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match owner::create_like(&sibling(vault, suffix), &std::fs::metadata(vault)?, 0o666) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => open_beside(vault, suffix),
                made => made.and_then(plain_file),
            }
        }
        opened => opened,
    }
}

impl Head {
    fn open(vault: &Path) -> std::io::Result<File> {
        open_or_make_beside(vault, "-head")
    }

    /// Records a commit that is on disk, in an open WAL.
    pub(crate) fn note(&mut self, vault: &Path, log: &File, last: &AuditRecord) -> std::io::Result<()> {
        // A WAL that was checkpointed and truncated since has nothing to lose.
        let Some(salts) = salts_of(log) else { return Ok(()) };
        let commit = LostCommit {
            seq: last.seq,
            at: last.at,
            action: last.action.clone(),
            subject: last.subject.clone(),
        };
        let is_gone = |file: &File| file.metadata().map_or(true, |meta| meta.nlink() == 0);
        let file = match self.0.take().filter(|file| !is_gone(file)) {
            Some(file) => file,
            None => Self::open(vault)?,
        };
        let file = self.0.insert(file);
        let number = u64::try_from(last.seq).unwrap_or(0) % SLOTS;
        file.write_all_at(&Slot { commit, salts }.bytes(), number * SLOT_BYTES as u64)
    }
}

/// The slots of a vault, newest commit last; empty if the file does not exist.
fn read_slots(vault: &Path) -> Vec<Slot> {
    let opened = File::options().read(true).custom_flags(PLAIN).open(sibling(vault, "-head"));
    let Ok(file) = opened.and_then(plain_file) else { return Vec::new() };
    let mut bytes = Vec::new();
    // Slots that cannot be read claim nothing.
    let _ = file.take(SLOT_BYTES as u64 * SLOTS).read_to_end(&mut bytes);
    let (whole, _) = bytes.as_chunks::<SLOT_BYTES>();
    let mut slots: Vec<Slot> = whole.iter().filter_map(Slot::read).collect();
    slots.sort_by_key(|slot| slot.commit.seq);
    slots
}

/// The commits acknowledged before the vault was opened. Read this before the vault: a commit in between is in the
/// vault, and may be missing here.
#[derive(Debug)]
pub(crate) struct Acknowledged(Vec<Slot>);

impl Acknowledged {
    pub(crate) fn read(vault: &Path) -> Self {
        Self(read_slots(vault))
    }

    /// The last audit row that the vault must contain.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.0.last().map(|slot| slot.commit.seq)
    }

    /// The commits missing from a vault whose last audit row has this number; `None` if nothing is missing.
    pub(crate) fn compare(&self, vault: &Path, last: i64) -> Option<Rollback> {
        let newest = self.0.last().filter(|slot| slot.commit.seq > last)?;
        let lost: Vec<LostCommit> =
            self.0.iter().map(|slot| slot.commit.clone()).filter(|commit| commit.seq > last).collect();
        let rows = u64::try_from(newest.commit.seq - last).unwrap_or(0);
        // A WAL with other salts was started later and contains none of these commits: they were in the vault file,
        // which has been replaced. Without a WAL there is nothing that could be damaged.
        let log = File::open(sibling(vault, "-wal")).ok();
        let has_log = log.as_ref().is_some_and(|log| log.metadata().is_ok_and(|meta| meta.len() > 0));
        let is_damaged = has_log && log.as_ref().and_then(salts_of).is_none_or(|salts| salts == newest.salts);
        Some(Rollback { is_damaged, rows, lost })
    }
}

/// Removes the file, when the vault is an older copy of itself.
pub(crate) fn forget(vault: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(sibling(vault, "-head")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(seq: i64, subject: &str) -> Slot {
        let (action, subject) = ("fork.write".to_owned(), subject.to_owned());
        Slot { commit: LostCommit { seq, at: Timestamp(7), action, subject }, salts: *b"saltsalt" }
    }

    #[test]
    fn only_a_regular_file_is_opened_without_following_or_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let (vault, other) = (dir.path().join("vault.db"), dir.path().join("other"));
        std::fs::write(&vault, "").unwrap();
        std::fs::write(&other, "kept").unwrap();
        let head = sibling(&vault, "-head");
        let refused = || Head::open(&vault).is_err() && read_slots(&vault).is_empty();
        std::os::unix::fs::symlink(&other, &head).unwrap();
        assert!(refused());
        std::fs::remove_file(&head).unwrap();
        std::fs::hard_link(&other, &head).unwrap();
        assert!(refused());
        std::fs::remove_file(&head).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &head, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(refused());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
        std::fs::remove_file(&head).unwrap();
        assert!(Head::open(&vault).is_ok());
    }

    #[test]
    fn damaged_slots_are_rejected() {
        let one = slot(300, "main");
        let bytes = one.bytes();
        assert_eq!(Slot::read(&bytes), Some(one));
        for at in 0..SLOT_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Slot::read(&damaged), None, "{at}");
        }
        let long = Slot::read(&slot(1, &"\u{e4}".repeat(200)).bytes()).unwrap();
        assert_eq!(long.commit.subject, "\u{e4}".repeat(50));
    }
}
