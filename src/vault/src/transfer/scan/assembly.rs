//! Builds the trees of directories during the scan, bottom up: each as soon as all its entries are known.
//!
//! Only waiting directories are held: those that wait for files being read, for subdirectories, or, if a file has
//! several hard links, for the end of the scan. The entries of the latter are spilled. A directory that matches the
//! cache is not built.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Mutex;

use super::Source;
use super::build::{BuiltDir, Groups, link_of};
use super::entry::{Facts, ScannedDir, ScannedEntry, What};
use super::hard_links::{HardLinks, SharedNames};
use super::report::Scanned;
use super::shared::lock;
use super::spilled_entries::{EntriesAt, SpilledEntries, cached_entry};
use crate::page::DirRef;
use crate::pages::NewPages;
use crate::spill::SpilledPages;
use crate::stat_cache::{CachedDir, CachedEntry, CachedKind, NewCache, NewDirs, StatCache, decode_dir};
use crate::transfer::Result;

/// A directory that was scanned and built.
pub(crate) struct Built<'c> {
    pub(crate) root: DirRef,
    pub(crate) new: SpilledPages,
    pub(crate) scanned: Scanned,
    /// The names of files with several hard links.
    pub(crate) shared_names: SharedNames,
    /// A new stat cache, or the changes to the old one; `None` if the old one is still accurate.
    pub(crate) cache: Option<NewCache<'c>>,
}

/// Whether to build a new stat cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    Kept,
    NotWanted,
}

/// The directories of a scan that are being assembled.
pub(crate) struct Assembly<'a, S: Source> {
    cache: Option<&'a StatCache>,
    records: Records,
    /// Waiting directories, by number.
    open: Mutex<HashMap<u32, OpenDir<S::Dir>>>,
    /// The entries of those that wait for the end of the scan.
    spilled: Mutex<SpilledEntries>,
    pages: Mutex<SpilledPages>,
    dirs: Mutex<NewDirs>,
    root: Mutex<Option<DirRef>>,
}

struct OpenDir<D> {
    /// Without entries if they are spilled.
    dir: ScannedDir<D>,
    spilled: Option<EntriesAt>,
    /// Number of unfinished jobs, large files and subdirectories.
    waiting: usize,
    built: HashMap<u32, BuiltDir>,
}

impl<D> OpenDir<D> {
    fn is_ready(&self) -> bool {
        self.waiting == 0 && self.spilled.is_none() && !self.waits_for_end()
    }

    fn entries(&self, spilled: &SpilledEntries) -> Result<Cow<'_, [ScannedEntry]>> {
        match &self.spilled {
            Some(place) => Ok(Cow::Owned(spilled.read(place)?)),
            None => Ok(Cow::Borrowed(&self.dir.entries)),
        }
    }

    /// True if other hard links of an entry may be found until the end of the scan.
    fn waits_for_end(&self) -> bool {
        self.dir.entries.iter().any(ScannedEntry::is_shared)
    }
}

impl<'a, S: Source> Assembly<'a, S> {
    /// `places` are directories for temporary files of data that does not fit in memory.
    pub(crate) fn new(cache: Option<&'a StatCache>, records: Records, places: &[PathBuf]) -> Self {
        let mut dirs = NewDirs::new(places);
        // The root always has number 0.
        dirs.claim(0);
        let (open, root) = (Mutex::default(), Mutex::default());
        Self {
            cache,
            records,
            open,
            spilled: Mutex::new(SpilledEntries::new(places)),
            pages: Mutex::new(SpilledPages::new(places)),
            dirs: Mutex::new(dirs),
            root,
        }
    }

    /// Assigns the number of a directory: its number in the cache if it has one, so that it stays the same.
    pub(super) fn number(&self, cached: Option<u32>, next: impl FnOnce() -> u32) -> (u32, Option<u32>) {
        let mut dirs = lock(&self.dirs);
        // Only a manipulated cache has the same number twice.
        if let Some(number) = cached.filter(|number| dirs.claim(*number)) {
            return (number, cached);
        }
        let number = next();
        dirs.claim(number);
        (number, None)
    }

    /// Adds a listed directory, with the number of its unfinished jobs and subdirectories.
    pub(super) fn add(&self, source: &S, number: u32, dir: ScannedDir<S::Dir>, waiting: usize) -> Result<()> {
        let mut open = OpenDir { dir, spilled: None, waiting, built: HashMap::new() };
        self.spill(&mut open);
        lock(&self.open).insert(number, open);
        self.update(source, number, |_| {})
    }

    /// Records that a directory no longer exists.
    pub(super) fn add_gone(&self, source: &S, number: u32, parent: Option<u32>) -> Result<()> {
        lock(&self.dirs).disclaim(number);
        parent.map_or(Ok(()), |parent| self.update(source, parent, |open| open.waiting -= 1))
    }

    /// Adds the results of a job for files of a directory. `left` files are read later.
    pub(super) fn add_facts(
        &self,
        source: &S,
        number: u32,
        facts: Vec<(Facts, bool)>,
        left: usize,
    ) -> Result<()> {
        self.update(source, number, |open| {
            for (fact, settled) in facts {
                if let Some(entry) = open.dir.entries.get_mut(fact.entry) {
                    fact.apply(entry, settled);
                }
            }
            open.waiting = open.waiting + left - 1;
            self.spill(open);
        })
    }

    /// Spills the entries of a directory that only waits for subdirectories and the end of the scan.
    fn spill(&self, open: &mut OpenDir<S::Dir>) {
        let is_read = || !open.dir.entries.iter().any(|entry| entry.what == What::Pending);
        if S::SPILLS && open.waits_for_end() && is_read() {
            open.spilled = Some(lock(&self.spilled).push(&mut open.dir));
        }
    }

    /// Updates a waiting directory, and builds it if it is complete; then likewise the directories above it.
    fn update(&self, source: &S, number: u32, change: impl FnOnce(&mut OpenDir<S::Dir>)) -> Result<()> {
        let take_ready = |open: &mut HashMap<u32, OpenDir<S::Dir>>, number| {
            let ready = open.get(&number).is_some_and(OpenDir::is_ready);
            ready.then(|| open.remove(&number)).flatten().map(|dir| (number, dir))
        };
        let mut ready = {
            let mut open = lock(&self.open);
            open.get_mut(&number).map(change);
            take_ready(&mut open, number)
        };
        while let Some((number, dir)) = ready {
            let parent = dir.dir.parent;
            let built = self.build(source, number, dir, &Groups::default())?;
            ready = parent.and_then(|parent| {
                let mut open = lock(&self.open);
                if let Some(above) = open.get_mut(&parent) {
                    above.built.insert(number, built);
                    above.waiting -= 1;
                }
                take_ready(&mut open, parent)
            });
        }
        Ok(())
    }

    fn build(&self, source: &S, number: u32, open: OpenDir<S::Dir>, groups: &Groups) -> Result<BuiltDir> {
        let OpenDir { mut dir, built, .. } = open;
        for entry in &mut dir.entries {
            if let What::Dir(beneath) = entry.what
                && !built.contains_key(&beneath)
            {
                entry.what = What::Gone;
                dir.clean = false;
            }
        }
        let is_there = |entry: &ScannedEntry| match entry.what {
            What::Dir(beneath) => built.get(&beneath).is_some_and(|built| built.complete),
            What::File { .. } | What::Symlink { .. } | What::Fifo => true,
            What::Pending | What::Gone | What::Whiteout => false,
        };
        dir.complete = dir.complete && dir.entries.iter().all(is_there);
        let made = match self.unchanged(&dir, &built, groups) {
            Some(same) => BuiltDir { dir: same, complete: true, same_as: dir.cached },
            None => {
                let mut new = NewPages::default();
                let made = source.tree(&dir, &built, groups, &mut new)?;
                lock(&self.pages).push(new);
                if self.records == Records::Kept {
                    let cached = to_cache(&dir, made, groups);
                    lock(&self.dirs).push(number, &cached);
                }
                BuiltDir { dir: made, complete: dir.complete, same_as: None }
            }
        };
        if dir.parent.is_none() {
            *lock(&self.root) = Some(made.dir);
        }
        Ok(made)
    }

    /// The cached tree of a directory whose content, at all levels, equals that in the cache.
    fn unchanged(
        &self,
        dir: &ScannedDir<S::Dir>,
        built: &HashMap<u32, BuiltDir>,
        groups: &Groups,
    ) -> Option<DirRef> {
        let cache = self.cache.filter(|_| dir.clean && dir.complete)?;
        let encoded = cache.encoded(dir.cached?)?;
        let known = decode_dir(&encoded).ok().filter(|known| known.complete)?;
        let meta = (known.mode, known.mtime, known.xattrs) == (dir.stat.mode, dir.stat.mtime, dir.xattrs);
        let is_same = |(entry, known): (&ScannedEntry, &CachedEntry<'_>)| match (&entry.what, known.kind) {
            (What::Dir(number), CachedKind::Dir(old)) => built.get(number).is_some_and(|built| {
                built.same_as == Some(old) || cache.dir_ref(old).is_some_and(|old| old == built.dir)
            }),
            _ => known.link == link_of(entry, groups),
        };
        let same = meta
            && dir.entries.len() == known.entries.len()
            && dir.entries.iter().zip(&known.entries).all(is_same);
        same.then_some(known.dir)
    }

    /// Builds the directories that waited for the end of the scan. `None` if there is no root.
    pub(super) fn finish(&self, source: &S, scanned: Scanned) -> Result<Option<Built<'a>>> {
        let taken = std::mem::take(&mut *lock(&self.open));
        let mut open: BTreeMap<u32, OpenDir<S::Dir>> = taken.into_iter().collect();
        let spilled = lock(&self.spilled);
        let mut shared_names = SharedNames::default();
        for dir in open.values() {
            shared_names.add(&dir.entries(&spilled)?);
        }
        shared_names.sort();
        let mut links = HardLinks::default();
        if shared_names.has_groups() {
            for dir in open.values() {
                links.add(&dir.dir.path, &dir.entries(&spilled)?, &shared_names);
            }
        }
        let groups = links.groups();
        // A directory has a higher number than its parent.
        while let Some((number, mut dir)) = open.pop_last() {
            if let Some(place) = &dir.spilled {
                dir.dir.entries = spilled.read(place)?;
            }
            links.let_names_agree(&mut dir.dir);
            let parent = dir.dir.parent;
            let built = self.build(source, number, dir, &groups)?;
            if let Some(above) = parent.and_then(|parent| open.get_mut(&parent)) {
                above.built.insert(number, built);
            }
        }
        let Some(root) = *lock(&self.root) else { return Ok(None) };
        let new = std::mem::take(&mut *lock(&self.pages));
        let dirs = std::mem::take(&mut *lock(&self.dirs));
        let is_new = self.records == Records::Kept && !dirs.is_empty();
        let cache = is_new.then(|| NewCache::after(self.cache, dirs));
        Ok(Some(Built { root, new, scanned, shared_names, cache }))
    }
}

fn to_cache<'d, D>(dir: &'d ScannedDir<D>, built: DirRef, groups: &Groups) -> CachedDir<'d> {
    let entries = dir.entries.iter().filter_map(|entry| cached_entry(entry, link_of(entry, groups)));
    CachedDir {
        mode: dir.stat.mode,
        mtime: dir.stat.mtime,
        xattrs: dir.xattrs,
        complete: dir.complete,
        dir: built,
        entries: entries.collect(),
    }
}
