//! An append-only buffer that spills from memory to an unnamed temporary file.
//!
//! Appending never fails: if no file can be created or written, the bytes stay in memory.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use avfs_types::ids::TreeId;

use crate::page::Page;
use crate::pages::NewPages;
use crate::tree::{Pages, check_page};
use crate::{Result, VaultError};

/// Bytes held in memory before they are written to the file.
const HELD_BYTES_MAX: usize = 4 << 20;

/// Bytes that are appended and read at any position.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    /// Directories for the file, in order of preference.
    places: Vec<PathBuf>,
    file: Option<File>,
    /// Size of the file, or of the gap before it is created; the held bytes follow.
    written: u64,
    held: Vec<u8>,
    /// The file cannot be created or written, so bytes stay in memory.
    stays: bool,
}

impl Spill {
    pub(crate) fn new(places: &[PathBuf]) -> Self {
        Self::after_gap(places, 0)
    }

    /// Leaves a gap of this size at the beginning of the file, for the caller to fill.
    pub(crate) fn after_gap(places: &[PathBuf], gap: u64) -> Self {
        Self { places: places.to_vec(), written: gap, ..Self::default() }
    }

    /// Appends bytes and returns their position in the file.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> u64 {
        let at = self.written + self.held.len() as u64;
        self.held.extend_from_slice(bytes);
        if self.held.len() >= HELD_BYTES_MAX && !self.stays {
            self.stays = self.write().is_err();
        }
        at
    }

    fn write(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(unnamed_file(&self.places)?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(&self.held, self.written)?;
        self.written += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// The file with all bytes, and its size. `None` if none was needed.
    pub(crate) fn whole_file(&mut self) -> io::Result<Option<(&File, u64)>> {
        if self.file.is_some() {
            self.write()?;
        }
        Ok(self.file.as_ref().map(|file| (file, self.written)))
    }

    /// Reads bytes that were appended by one call.
    pub(crate) fn read(&self, at: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        if let Some(held) = at.checked_sub(self.written) {
            let begin = usize::try_from(held).unwrap_or(usize::MAX);
            let held = self.held.get(begin..).and_then(|held| held.get(..length));
            return held.map(Cow::Borrowed).ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length];
        match &self.file {
            Some(file) => file.read_exact_at(&mut bytes, at)?,
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(Cow::Owned(bytes))
    }
}

/// An unnamed file (`O_TMPFILE`) in the first directory that supports it.
fn unnamed_file(places: &[PathBuf]) -> io::Result<File> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for dir in places {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => return Ok(File::from(fd)),
            Err(errno) => last = errno.into(),
        }
    }
    Err(last)
}

/// Pages of a scan that are not yet stored, children before parents.
#[derive(Debug, Default)]
pub struct SpilledPages {
    bytes: Spill,
    pages: Vec<SpilledPage>,
}

#[derive(Clone, Copy, Debug)]
struct SpilledPage {
    id: TreeId,
    at: u64,
    length: u32,
}

impl SpilledPages {
    pub(crate) fn new(places: &[PathBuf]) -> Self {
        Self { bytes: Spill::new(places), pages: Vec::new() }
    }

    pub(crate) fn push(&mut self, new: NewPages) {
        for (id, data) in new.pages {
            let at = self.bytes.push(&data);
            // A page is far smaller than 4 GiB: it has at most a few thousand names.
            let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
            self.pages.push(SpilledPage { id, at, length });
        }
    }

    fn read(&self, page: &SpilledPage) -> Result<Cow<'_, [u8]>> {
        self.bytes.read(page.at, page.length as usize).map_err(VaultError::Input)
    }

    /// All pages, in the order in which they must be stored.
    pub(crate) fn all(&self) -> impl Iterator<Item = Result<(TreeId, Vec<u8>)>> + '_ {
        self.pages.iter().map(|page| Ok((page.id, self.read(page)?.into_owned())))
    }

    /// A lookup in these pages, then in those of `under`.
    pub fn over<'a>(&'a self, under: &'a dyn Pages) -> impl Pages + 'a {
        let mut by_id: Vec<&SpilledPage> = self.pages.iter().collect();
        by_id.sort_unstable_by_key(|page| page.id);
        Over { pages: self, by_id, under }
    }
}

struct Over<'a> {
    pages: &'a SpilledPages,
    by_id: Vec<&'a SpilledPage>,
    under: &'a dyn Pages,
}

impl Pages for Over<'_> {
    fn page(&self, id: &TreeId) -> Result<Page> {
        match self.by_id.binary_search_by_key(id, |page| page.id) {
            Ok(found) => check_page(id, &self.pages.read(self.by_id[found])?),
            Err(_) => self.under.page(id),
        }
    }

    fn require_going(&self) -> Result<()> {
        self.under.require_going()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_bytes_are_read_from_memory_and_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("missing");
        for places in [vec![nowhere.clone(), dir.path().to_owned()], vec![nowhere], Vec::new()] {
            let mut spill = Spill::new(&places);
            let record = |n: usize| vec![u8::try_from(n % 251).unwrap(); 1000 + n % 500];
            let at: Vec<u64> = (0..12_000).map(|n| spill.push(&record(n))).collect();
            assert_eq!(spill.file.is_some(), places.len() == 2);
            assert_eq!(spill.held.len() < 2 * HELD_BYTES_MAX, places.len() == 2);
            for (n, at) in at.iter().enumerate().step_by(7) {
                assert_eq!(*spill.read(*at, record(n).len()).unwrap(), record(n), "{n} of {places:?}");
            }
            assert!(spill.read(1 << 40, 1).is_err());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
        }
    }
}
