//! A list of changes that stays small in memory: the first changes are held, the rest is encoded in a temporary file.
//!
//! The list of an ordinary run is a plain vector. A list of a million changes needs a few megabytes.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use avfs_types::encode::put_bytes;
use avfs_types::path::TreePath;

use super::codec::{DecodeError, Decoder};
use super::diff::{Change, ChangeKind, Side, collect};
use super::expansion::Expansion;
use super::page::DirRef;
use super::page_codec::{put_side, take_side};
use super::tree::Pages;
use crate::spill::Spill;
use crate::{Result, VaultError};

/// Changes held in memory, about 2 MB.
pub const HELD_CHANGES_MAX: usize = 4096;
/// Changes that are encoded and read together.
const BLOCK_CHANGES: usize = 32;

const HAS_BEFORE: u8 = 0x10;
const HAS_AFTER: u8 = 0x20;
const KIND_MASK: u8 = 0x0f;

/// Changes in the order in which they were added.
#[derive(Debug, Default)]
pub struct Changes {
    held: Vec<Change>,
    rest: Option<Box<Rest>>,
    /// Directories for the temporary file.
    places: Vec<PathBuf>,
}

/// The changes that are not held.
#[derive(Debug)]
struct Rest {
    bytes: Spill,
    /// Position and length of each full block.
    blocks: Vec<(u64, u32)>,
    /// The changes after the last full block.
    last: Vec<Change>,
}

impl Changes {
    /// An empty list. `places` are directories for the temporary file, in order of preference; without one that
    /// can be written, the encoded changes stay in memory.
    #[must_use]
    pub fn new(places: Vec<PathBuf>) -> Self {
        Self { places, ..Self::default() }
    }

    /// The changes from one root to another that `wanted` selects, sorted by path.
    pub fn between(
        pages: &dyn Pages,
        (before, after): (&DirRef, &DirRef),
        places: Vec<PathBuf>,
        wanted: impl Fn(&Change) -> bool,
    ) -> Result<Self> {
        let mut changes = Self::new(places);
        collect(pages, before, after, &mut Expansion::default(), &mut |change| {
            if wanted(&change) {
                changes.push(change);
            }
        })?;
        Ok(changes)
    }

    /// An empty list with the same directories for its temporary file.
    #[must_use]
    pub fn empty_like(&self) -> Self {
        Self::new(self.places.clone())
    }

    /// Appends a change.
    pub fn push(&mut self, change: Change) {
        if self.held.len() < HELD_CHANGES_MAX {
            return self.held.push(change);
        }
        let new = || Rest { bytes: Spill::new(&self.places), blocks: Vec::new(), last: Vec::new() };
        self.rest.get_or_insert_with(|| Box::new(new())).push(change);
    }

    /// The number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.blocks.len() * BLOCK_CHANGES + rest.last.len());
        self.held.len() + rest
    }

    /// True without changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The first `count` changes, and at most [`HELD_CHANGES_MAX`].
    #[must_use]
    pub fn first(&self, count: usize) -> &[Change] {
        &self.held[..count.min(self.held.len())]
    }

    /// All changes in order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { of: self, place: 0, block: Vec::new().into_iter() }
    }

    /// Access by index.
    #[must_use]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup { of: self, block: Vec::new(), number: None }
    }

    /// A block of the changes that are not held. Empty beyond the last one.
    fn block(&self, number: usize) -> Result<Vec<Change>> {
        let Some(rest) = &self.rest else { return Ok(Vec::new()) };
        let Some((at, length)) = rest.blocks.get(number) else {
            return Ok(if number == rest.blocks.len() { rest.last.clone() } else { Vec::new() });
        };
        let bytes = rest.bytes.read(*at, *length as usize).map_err(VaultError::Temporary)?;
        let invalid = |error| VaultError::Temporary(io::Error::new(io::ErrorKind::InvalidData, error));
        decode(&bytes).map_err(invalid)
    }
}

impl Rest {
    fn push(&mut self, change: Change) {
        self.last.push(change);
        if self.last.len() == BLOCK_CHANGES {
            let bytes = encode(&self.last);
            // Far below 4 GiB: a path and a symlink target have at most some ten thousand bytes.
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.blocks.push((self.bytes.push(&bytes), length));
            self.last.clear();
        }
    }
}

impl From<Vec<Change>> for Changes {
    fn from(changes: Vec<Change>) -> Self {
        let mut list = Self::default();
        changes.into_iter().for_each(|change| list.push(change));
        list
    }
}

impl<'a> IntoIterator for &'a Changes {
    type Item = Result<Cow<'a, Change>>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The changes of a list. Those that are not held are read and decoded on the way.
#[derive(Debug)]
pub struct Iter<'a> {
    of: &'a Changes,
    /// The place of the next change.
    place: usize,
    block: std::vec::IntoIter<Change>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<Cow<'a, Change>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(change) = self.of.held.get(self.place) {
            self.place += 1;
            return Some(Ok(Cow::Borrowed(change)));
        }
        let beyond = self.place - self.of.held.len();
        if beyond.is_multiple_of(BLOCK_CHANGES) {
            match self.of.block(beyond / BLOCK_CHANGES) {
                Ok(block) => self.block = block.into_iter(),
                Err(error) => {
                    // Ends the iteration.
                    self.place = self.of.len().next_multiple_of(BLOCK_CHANGES) + BLOCK_CHANGES;
                    return Some(Err(error));
                }
            }
        }
        let change = self.block.next()?;
        self.place += 1;
        Some(Ok(Cow::Owned(change)))
    }
}

/// Access to the changes of a list by index; cheap if indexes are close together.
#[derive(Debug)]
pub struct Lookup<'a> {
    of: &'a Changes,
    block: Vec<Change>,
    number: Option<usize>,
}

impl Lookup<'_> {
    /// The change with this index; `None` beyond the end.
    pub fn get(&mut self, place: usize) -> Result<Option<&Change>> {
        let Some(beyond) = place.checked_sub(self.of.held.len()) else {
            return Ok(self.of.held.get(place));
        };
        let number = beyond / BLOCK_CHANGES;
        if self.number != Some(number) {
            self.block = self.of.block(number)?;
            self.number = Some(number);
        }
        Ok(self.block.get(beyond % BLOCK_CHANGES))
    }
}

fn encode(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::with_capacity(changes.len() * 160);
    for change in changes {
        let (kind, from) = match &change.kind {
            ChangeKind::Added => (0, None),
            ChangeKind::Deleted => (1, None),
            ChangeKind::Modified => (2, None),
            ChangeKind::Renamed { from } => (3, Some(from)),
            ChangeKind::Mode => (4, None),
            ChangeKind::Type => (5, None),
            ChangeKind::Time => (6, None),
        };
        let flag = |side: &Option<Side>, flag| if side.is_some() { flag } else { 0 };
        out.push(kind | flag(&change.before, HAS_BEFORE) | flag(&change.after, HAS_AFTER));
        put_bytes(&mut out, change.path.as_bytes());
        if let Some(from) = from {
            put_bytes(&mut out, from.as_bytes());
        }
        for side in [&change.before, &change.after].into_iter().flatten() {
            put_side(&mut out, &side.node, side.dir_meta.as_ref());
        }
    }
    out
}

fn decode(bytes: &[u8]) -> std::result::Result<Vec<Change>, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let mut changes = Vec::with_capacity(BLOCK_CHANGES);
    while decoder.left() > 0 {
        let tag = decoder.byte()?;
        let path = take_path(&mut decoder)?;
        let kind = match tag & KIND_MASK {
            0 => ChangeKind::Added,
            1 => ChangeKind::Deleted,
            2 => ChangeKind::Modified,
            3 => ChangeKind::Renamed { from: take_path(&mut decoder)? },
            4 => ChangeKind::Mode,
            5 => ChangeKind::Type,
            6 => ChangeKind::Time,
            kind => return Err(DecodeError::Unknown(u64::from(kind), "kind of change")),
        };
        let mut side = |flag: u8| match tag & flag {
            0 => Ok(None),
            _ => take_side(&mut decoder).map(|(node, dir_meta)| Some(Side { node, dir_meta })),
        };
        let (before, after) = (side(HAS_BEFORE)?, side(HAS_AFTER)?);
        changes.push(Change { path, kind, before, after });
    }
    Ok(changes)
}

/// A path that was encoded from a valid one.
fn take_path(decoder: &mut Decoder<'_>) -> std::result::Result<TreePath, DecodeError> {
    let bytes = decoder.bytes()?;
    Ok(if bytes.is_empty() { TreePath::root() } else { TreePath::root().join(bytes) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use avfs_types::clock::FileTime;

    use super::super::page::{DirMeta, FifoNode, Node};
    use super::super::page_codec::tests::any_node;
    use super::*;

    fn any_path() -> impl Strategy<Value = TreePath> {
        "[a-c/.-]{1,12}".prop_filter_map("a path", |text| TreePath::parse(text.as_bytes()).ok())
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let side = || {
            let meta = (0..0o10000_u32).prop_map(|mode| DirMeta { mode, ..DirMeta::default() });
            let side = (any_node(), proptest::option::of(meta));
            proptest::option::of(side.prop_map(|(node, dir_meta)| Side { node, dir_meta }))
        };
        let kind = prop_oneof![
            Just(ChangeKind::Added),
            Just(ChangeKind::Deleted),
            Just(ChangeKind::Modified),
            Just(ChangeKind::Mode),
            Just(ChangeKind::Type),
            Just(ChangeKind::Time),
            any_path().prop_map(|from| ChangeKind::Renamed { from }),
        ];
        (any_path(), kind, side(), side()).prop_map(|(path, kind, before, after)| Change {
            path,
            kind,
            before,
            after,
        })
    }

    proptest! {
        #[test]
        fn changes_round_trip(changes in proptest::collection::vec(any_change(), 0..40)) {
            prop_assert_eq!(decode(&encode(&changes)).unwrap(), changes);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }

    fn numbered(number: usize) -> Change {
        let mode = u32::try_from(number).unwrap();
        let node = Node::Fifo(FifoNode { mode, mtime: FileTime::default(), link: None });
        let path = TreePath::parse(format!("d/{number:07}").as_bytes()).unwrap();
        Change { path, kind: ChangeKind::Added, before: None, after: Some(Side { node, dir_meta: None }) }
    }

    #[test]
    fn long_list_holds_few_changes_and_returns_all() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0, 1, HELD_CHANGES_MAX, HELD_CHANGES_MAX + 1, HELD_CHANGES_MAX + BLOCK_CHANGES, 100_000]
        {
            let mut changes = Changes::new(vec![dir.path().to_owned()]);
            (0..count).for_each(|number| changes.push(numbered(number)));
            assert_eq!((changes.len(), changes.is_empty()), (count, count == 0));
            assert!(changes.held.len() <= HELD_CHANGES_MAX);
            assert!(changes.rest.as_ref().is_none_or(|rest| rest.last.len() < BLOCK_CHANGES));
            let mut seen = 0;
            for (number, change) in changes.iter().enumerate() {
                assert_eq!(*change.unwrap(), numbered(number));
                seen += 1;
            }
            assert_eq!(seen, count);
            let mut lookup = changes.lookup();
            for number in (0..count).rev().step_by(977) {
                assert_eq!(lookup.get(number).unwrap(), Some(&numbered(number)));
            }
            assert_eq!(lookup.get(count).unwrap(), None);
            assert_eq!(changes.first(10).len(), count.min(10));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    }
}
