//! Reference counts of the objects in use, saved from one sweep to the next.
//!
//! With the counts of the last sweep, a sweep costs what has changed since: it counts the references of new roots,
//! takes back those of lost roots, and deletes the objects whose count becomes zero. Without them it counts everything
//! that is in use.
//!
//! Objects never change, so the counts follow from the set of roots alone. They stay correct regardless of changes that
//! other programs make to the vault in the meantime. If an object of a lost root cannot be read, the counts are
//! discarded.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use avfs_hostfs::make;
use avfs_types::encode::{put_bytes, put_number};
use avfs_types::ids::{BlobId, DIGEST_BYTES, TreeId, VersionId};

use crate::backend::{ObjectKind, Reader};
use crate::codec::{DecodeError, Decoder};
use crate::reach::{Object, refers_to};
use crate::stat_cache::unfinished;
use crate::{Result, VaultError};

const MAGIC: &[u8; 8] = b"avfsrefs";
const FORMAT: u8 = 1;
/// Bytes of a digest that identify a blob. An unused blob that begins like one in use is kept too.
const BLOB_BYTES: usize = 8;
/// A count that reached this value stays there: the true number of references is unknown.
const COUNT_MAX: u32 = u32::MAX;
/// The encoded count of an object that nothing refers to any more.
const EMPTY: [u8; size_of::<u32>()] = [0; size_of::<u32>()];
/// Changes held beside the sorted counts.
const CHANGED_MAX: usize = 1 << 16;
/// If more objects than this become unused, counting everything in use is cheaper, and needs less memory.
const FREED_MAX: usize = 200_000;

/// The kinds of objects, in the order in which they are swept: parents first.
const KINDS: [ObjectKind; 2] = [ObjectKind::Tree, ObjectKind::Blob];

/// An object in the store.
pub(super) type Stored = (ObjectKind, [u8; DIGEST_BYTES]);

/// A number for each of many keys: sorted records, and the latest changes to them.
#[derive(Default)]
struct Counts<const N: usize> {
    records: Vec<u8>,
    changed: HashMap<[u8; N], u32>,
}

impl<const N: usize> Counts<N> {
    const RECORD: usize = N + size_of::<u32>();

    fn get(&self, key: &[u8; N]) -> u32 {
        if let Some(count) = self.changed.get(key) {
            return *count;
        }
        let at = self.find(key, self.records.len());
        match self.records[at..].split_at_checked(N) {
            Some((found, rest)) if found == key => {
                rest.first_chunk().map_or(0, |&count| u32::from_le_bytes(count))
            }
            Some(_) | None => 0,
        }
    }

    /// The offset of the first record before `end` whose key is not less.
    fn find(&self, key: &[u8; N], end: usize) -> usize {
        let (mut low, mut high) = (0, end / Self::RECORD);
        while low < high {
            let middle = low.midpoint(high);
            if self.records[middle * Self::RECORD..][..N] < key[..] {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low * Self::RECORD
    }

    /// Adds one; returns true for the first.
    fn add(&mut self, key: [u8; N]) -> bool {
        let count = self.get(&key);
        self.change(key, count.saturating_add(1));
        count == 0
    }

    /// Takes one back; returns true for the last.
    fn take(&mut self, key: [u8; N]) -> bool {
        let count = self.get(&key);
        if count != COUNT_MAX {
            self.change(key, count.saturating_sub(1));
        }
        count == 1
    }

    fn change(&mut self, key: [u8; N], count: u32) {
        self.changed.insert(key, count);
        if self.changed.len() >= CHANGED_MAX {
            self.settle();
        }
    }

    /// Moves the changes into the records, which need a third of the memory.
    fn settle(&mut self) {
        let (mut new, mut removes) = (Vec::new(), false);
        for (key, count) in std::mem::take(&mut self.changed) {
            let at = self.find(&key, self.records.len());
            match self.records[at..].split_at_mut_checked(N) {
                Some((found, rest)) if *found == key => {
                    rest[..size_of::<u32>()].copy_from_slice(&count.to_le_bytes())
                }
                Some(_) | None if count > 0 => new.push((key, count)),
                Some(_) | None => {}
            }
            removes |= count == 0;
        }
        if removes {
            self.drop_empty();
        }
        new.sort_unstable();
        // From the end, so that every record moves once.
        let mut from = self.records.len();
        let mut to = from + new.len() * Self::RECORD;
        self.records.resize(to, 0);
        for (key, count) in new.into_iter().rev() {
            let at = self.find(&key, from);
            to -= from - at;
            self.records.copy_within(at..from, to);
            from = at;
            to -= Self::RECORD;
            self.records[to..][..N].copy_from_slice(&key);
            self.records[to + N..][..size_of::<u32>()].copy_from_slice(&count.to_le_bytes());
        }
    }

    fn drop_empty(&mut self) {
        let mut kept = 0;
        for at in (0..self.records.len()).step_by(Self::RECORD) {
            if self.records[at + N..at + Self::RECORD] != EMPTY {
                self.records.copy_within(at..at + Self::RECORD, kept);
                kept += Self::RECORD;
            }
        }
        self.records.truncate(kept);
    }

    /// Refuses records that are not sorted, since a key could not be found among them, and those without a count.
    fn decode(records: Vec<u8>) -> std::result::Result<Self, DecodeError> {
        let mut each = records.chunks_exact(Self::RECORD);
        let is_whole = each.remainder().is_empty();
        let is_sorted = each.clone().map(|record| &record[..N]).is_sorted_by(|a, b| a < b);
        if !is_whole || !is_sorted || each.any(|record| record[N..] == EMPTY) {
            return Err(DecodeError::Rule("the counts are not sorted or empty"));
        }
        Ok(Self { records, changed: HashMap::new() })
    }
}

/// What keeps objects in use.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Root {
    /// The root directory of a version.
    Dir(TreeId),
    /// The output of a command.
    Output(BlobId),
}

impl Root {
    fn object(self) -> Object {
        match self {
            Self::Dir(id) => Object::Tree(id),
            // A whole blob can be walked as a list: it refers to nothing.
            Self::Output(id) => Object::List(id),
        }
    }
}

/// The reference counts of everything that a set of roots leads to.
#[derive(Default)]
pub(super) struct Tally {
    roots: HashSet<Root>,
    /// Pages and chunk lists.
    nodes: Counts<DIGEST_BYTES>,
    blobs: Counts<BLOB_BYTES>,
    /// The newest row of each kind when the sweep that saved the tally ended: it left no unused object before it.
    swept: [Option<(i64, [u8; DIGEST_BYTES])>; 2],
}

impl Tally {
    /// The tally of exactly these roots, and the objects that `previous` counted and this one does not: each after all
    /// objects that referred to it. Continues from `previous` if possible.
    pub(super) fn of(
        previous: Option<Self>,
        reader: &dyn Reader,
        roots: &[Root],
    ) -> Result<(Self, Vec<Stored>)> {
        if let Some(mut tally) = previous {
            match tally.follow(reader, roots) {
                Ok(Some(freed)) => return Ok((tally, freed)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the counts of the last sweep cannot be used"),
            }
        }
        let mut tally = Self::default();
        tally.hold(reader, roots)?;
        Ok((tally, Vec::new()))
    }

    /// `None` if too many objects become unused.
    fn follow(&mut self, reader: &dyn Reader, roots: &[Root]) -> Result<Option<Vec<Stored>>> {
        let wanted: HashSet<Root> = roots.iter().copied().collect();
        let lost: Vec<Root> = self.roots.iter().filter(|root| !wanted.contains(root)).copied().collect();
        // First, so that objects that move from one root to another are not counted again.
        self.hold(reader, roots)?;
        let mut freed = Vec::new();
        for root in lost {
            self.roots.remove(&root);
            self.release(reader, root.object(), &mut freed)?;
            if freed.len() > FREED_MAX {
                return Ok(None);
            }
        }
        Ok(Some(freed))
    }

    /// Counts the references of roots that are not counted yet.
    pub(super) fn hold(&mut self, reader: &dyn Reader, roots: &[Root]) -> Result<()> {
        let new = roots.iter().filter(|root| self.roots.insert(**root));
        let mut waiting: Vec<Object> = new.map(|root| root.object()).collect();
        while let Some(object) = waiting.pop() {
            let is_first = match object {
                Object::Version(VersionId(digest))
                | Object::Tree(TreeId(digest))
                | Object::List(BlobId(digest)) => self.nodes.add(digest),
                Object::Blob(id) => self.blobs.add(beginning(&id.0)),
            };
            if is_first {
                waiting.extend(parts_of(reader, object)?);
            }
        }
        Ok(())
    }

    fn release(&mut self, reader: &dyn Reader, root: Object, freed: &mut Vec<Stored>) -> Result<()> {
        let mut waiting = vec![root];
        while let Some(object) = waiting.pop() {
            match object {
                Object::Tree(TreeId(digest)) if self.nodes.take(digest) => {
                    waiting.extend(parts_of(reader, object)?);
                    freed.push((ObjectKind::Tree, digest));
                }
                Object::Version(VersionId(digest)) | Object::List(BlobId(digest))
                    if self.nodes.take(digest) =>
                {
                    waiting.extend(parts_of(reader, object)?);
                }
                Object::Blob(id) if self.blobs.take(beginning(&id.0)) => freed.push((ObjectKind::Blob, id.0)),
                Object::Version(_) | Object::Tree(_) | Object::List(_) | Object::Blob(_) => {}
            }
            if freed.len() > FREED_MAX {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn has(&self, (kind, digest): &Stored) -> bool {
        match kind {
            ObjectKind::Tree => self.nodes.get(digest) > 0,
            ObjectKind::Blob => self.blobs.get(&beginning(digest)) > 0,
        }
    }

    /// The row of each kind up to which the last sweep left no unused object; 0 if that is not known.
    pub(super) fn swept_rows(&self, reader: &dyn Reader) -> Result<[(ObjectKind, i64); 2]> {
        let mut rows = KINDS.map(|kind| (kind, 0));
        for ((kind, row), swept) in rows.iter_mut().zip(&self.swept) {
            let Some((last, _)) = swept else { continue };
            // If another object has this row, those before it may be new too: SQLite reuses the numbers of last rows.
            if reader.objects_before(*kind, last.saturating_add(1), 1)?.first() == swept.as_ref() {
                *row = *last;
            }
        }
        Ok(rows)
    }

    /// Loads a saved tally; `None` if it is missing, damaged or belongs to another vault.
    pub(super) fn load(path: &Path, vault_id: &str) -> Option<Self> {
        let mut data = std::fs::read(path).ok()?;
        let (body, checksum) = data.split_last_chunk::<DIGEST_BYTES>()?;
        if blake3::hash(body) != *checksum {
            return None;
        }
        data.truncate(body.len());
        Self::decode(data, vault_id).ok().flatten()
    }

    fn decode(mut body: Vec<u8>, vault_id: &str) -> std::result::Result<Option<Self>, DecodeError> {
        let mut decoder = Decoder::new(&body);
        if decoder.array()? != *MAGIC || decoder.byte()? != FORMAT || decoder.bytes()? != vault_id.as_bytes()
        {
            return Ok(None);
        }
        let mut tally = Self::default();
        for swept in &mut tally.swept {
            let row = decoder.number()?.cast_signed();
            *swept = Some((row, decoder.digest()?)).filter(|(row, _)| *row != 0);
        }
        for _ in 0..decoder.number()? {
            tally.roots.insert(match decoder.byte()? {
                0 => Root::Dir(TreeId(decoder.digest()?)),
                1 => Root::Output(BlobId(decoder.digest()?)),
                other => return Err(DecodeError::Unknown(other.into(), "kind of root")),
            });
        }
        let (nodes, blobs) = (decoder.bytes()?.len(), decoder.left());
        // The records are most of the file, so they are not copied together.
        let blobs = body.split_off(body.len() - blobs);
        body.drain(..body.len() - nodes);
        (tally.nodes, tally.blobs) = (Counts::decode(body)?, Counts::decode(blobs)?);
        Ok(Some(tally))
    }

    /// Saves the tally at the end of a sweep, for the next one.
    pub(super) fn save(mut self, path: &Path, vault_id: &str, reader: &dyn Reader) -> Result<()> {
        for (kind, swept) in KINDS.into_iter().zip(&mut self.swept) {
            *swept = reader.objects_before(kind, i64::MAX, 1)?.first().copied();
        }
        self.write(path, vault_id).map_err(VaultError::Output)
    }

    fn write(mut self, path: &Path, vault_id: &str) -> io::Result<()> {
        let mut head = MAGIC.to_vec();
        head.push(FORMAT);
        put_bytes(&mut head, vault_id.as_bytes());
        for swept in &self.swept {
            let (row, digest) = swept.unwrap_or((0, [0; DIGEST_BYTES]));
            put_number(&mut head, row.cast_unsigned());
            head.extend(digest);
        }
        put_number(&mut head, self.roots.len() as u64);
        for root in &self.roots {
            let (kind, digest) = match root {
                Root::Dir(id) => (0, &id.0),
                Root::Output(id) => (1, &id.0),
            };
            head.push(kind);
            head.extend(digest);
        }
        if let Some(parent) = path.parent() {
            make::private_dirs(parent)?;
        }
        let unfinished = unfinished(path, &std::process::id().to_string());
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        let (mut file, mut checksum) = (io::BufWriter::new(file), blake3::Hasher::new());
        let mut put = |part: &[u8]| {
            checksum.update(part);
            file.write_all(part)
        };
        self.nodes.settle();
        self.blobs.settle();
        put_number(&mut head, self.nodes.records.len() as u64);
        for part in [&head, &self.nodes.records, &self.blobs.records] {
            put(part)?;
        }
        file.write_all(checksum.finalize().as_bytes())?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(&unfinished, path)
    }
}

/// The references of an object. A chunk list first of all needs its own row.
fn parts_of(reader: &dyn Reader, object: Object) -> Result<Vec<Object>> {
    let mut parts = refers_to(reader, object)?;
    if let Object::List(id) = object {
        parts.push(Object::Blob(id));
    }
    Ok(parts)
}

fn beginning(digest: &[u8; DIGEST_BYTES]) -> [u8; BLOB_BYTES] {
    digest.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_match_a_map(rounds in prop::collection::vec(prop::collection::vec((0..40_u8, any::<bool>()), 0..60), 1..4)) {
            let (mut counts, mut map) = (Counts::<3>::default(), BTreeMap::<[u8; 3], u32>::new());
            for round in rounds {
                for (n, is_added) in round {
                    let key = [n % 4, n, 0];
                    let expected = map.entry(key).or_default();
                    if is_added {
                        prop_assert_eq!(counts.add(key), *expected == 0);
                        *expected += 1;
                    } else if *expected > 0 {
                        prop_assert_eq!(counts.take(key), *expected == 1);
                        *expected -= 1;
                    }
                }
                map.retain(|_, count| *count > 0);
                prop_assert!(map.iter().all(|(key, count)| counts.get(key) == *count));
                counts.settle();
                prop_assert_eq!(counts.records.len(), map.len() * Counts::<3>::RECORD);
                counts = Counts::decode(counts.records).unwrap();
                prop_assert!(map.iter().all(|(key, count)| counts.get(key) == *count));
            }
        }
    }

    #[test]
    fn count_at_its_maximum_stays_there() {
        let mut counts = Counts::<1>::default();
        counts.changed.insert([1], COUNT_MAX - 1);
        assert!(!counts.add([1]) && !counts.add([1]) && !counts.take([1]));
        assert_eq!(counts.get(&[1]), COUNT_MAX);
    }

    #[test]
    fn unsorted_partial_and_empty_records_are_refused() {
        let record = |key: u8| vec![key, 1, 0, 0, 0];
        let is_accepted = |records: Vec<u8>| Counts::<1>::decode(records).is_ok();
        assert!(is_accepted([record(1), record(2)].concat()));
        assert!(!is_accepted([record(2), record(1)].concat()));
        assert!(!is_accepted([record(1), record(1)].concat()));
        assert!(!is_accepted(record(1)[..4].to_vec()));
        assert!(!is_accepted(vec![1, 0, 0, 0, 0]));
    }
}
