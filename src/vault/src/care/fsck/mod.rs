//! Checks a whole vault: rows, digests, references, history, audit log.

mod records;

use std::collections::{HashMap, HashSet};

use avfs_types::ids::{BlobId, ContentId, TreeId, VersionId};
use avfs_types::path::TreePath;

use crate::backend::{BackendError, Codec, Reader, VersionRecord};
use crate::chunk::{Item, LIST_DEPTH_MAX};
use crate::meter::Meter;
use crate::page::{Body, FileContent, Node, Page, Totals};
use crate::tree::Pages;
use crate::{Result, Vault, VaultError, chunk, content, require_version, version};

/// How much a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// Everything except the content of blobs, which only have to exist.
    Quick,
    /// Everything: reads each blob and compares its digest.
    Full,
}

/// One problem of a vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable word for the kind of problem.
    pub code: &'static str,
    /// Description of the damage.
    pub what: String,
}

/// The result of a check, with the number of rows checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of versions checked.
    pub versions: u64,
    /// Number of pages checked.
    pub trees: u64,
    /// Number of blobs checked.
    pub blobs: u64,
    /// Number of audit log rows checked.
    pub audit_rows: u64,
    /// Number of runs of the journal checked.
    pub runs: u64,
    /// Number of cached results checked.
    pub memos: u64,
    /// The problems; empty for an intact vault.
    pub findings: Vec<Finding>,
    /// The missing or damaged objects, for [`Vault::heal`].
    pub broken: Broken,
}

/// Objects that are missing or do not match their digests: the input of [`Vault::heal`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    pub(crate) trees: HashSet<TreeId>,
    pub(crate) blobs: HashSet<BlobId>,
}

impl Broken {
    /// True if no object is missing or damaged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.blobs.is_empty()
    }
}

struct Check<'a> {
    reader: &'a dyn Reader,
    how: Thoroughness,
    meter: &'a Meter,
    report: Report,
    trees: HashMap<TreeId, Seen>,
    blobs: HashMap<BlobKey, RecordedBlob>,
}

/// A prefix of a digest: it halves the memory for a million blobs, and is long enough that accidental collisions do not
/// occur.
type BlobKey = [u8; 12];

fn key_of(id: &BlobId) -> BlobKey {
    id.0.first_chunk().copied().unwrap_or_default()
}

/// The computed properties of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    totals: Totals,
    content: ContentId,
    place: FindingPlace,
}

/// The position of a page in its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FindingPlace {
    /// At the top of a directory.
    Top,
    Beneath {
        level: u8,
        first: Vec<u8>,
    },
}

/// Size and kind of a blob according to a reference to it.
///
/// The size is reduced to 31 bits; the full size is compared when the blob is read.
#[derive(Clone, Copy)]
struct RecordedBlob(u32);

impl RecordedBlob {
    const SIZE_BITS: u32 = u32::MAX >> 1;
    /// Marks an unknown size.
    const NO_SIZE: u32 = Self::SIZE_BITS;

    fn new(size: Option<u64>, chunked: bool) -> Self {
        let bits = size.map(|size| u32::try_from(size % u64::from(Self::SIZE_BITS)).unwrap_or(0));
        Self(bits.unwrap_or(Self::NO_SIZE) << 1 | u32::from(chunked))
    }

    fn agrees(self, other: Self) -> bool {
        let [one, another] = [self, other].map(|recorded| recorded.0 >> 1);
        let sizes_known = one != Self::NO_SIZE && another != Self::NO_SIZE;
        self.0 & 1 == other.0 & 1 && (!sizes_known || one == another)
    }
}

impl Seen {
    fn of(page: &Page) -> Self {
        let sealed = page.body.seal(page.meta.as_ref());
        let place = match page.meta {
            Some(_) => FindingPlace::Top,
            None => FindingPlace::Beneath { level: page.body.level(), first: page.body.first().to_vec() },
        };
        Self { totals: sealed.totals, content: sealed.content, place }
    }
}

impl Vault {
    /// Checks the whole vault. Damage is part of the report; fails only if the check itself cannot continue.
    pub fn fsck(&self, how: Thoroughness, meter: &Meter) -> Result<Report> {
        let _pin = self.backend().pin()?;
        let mut report = Report::default();
        let lines = match self.backend().integrity() {
            // A structure that SQLite cannot follow ends its own check; the rest may be intact.
            Err(BackendError::Corrupt { detail, .. }) => vec![detail],
            other => other?,
        };
        report.findings.extend(lines.into_iter().map(|what| Finding { code: "sqlite", what }));
        let reader = self.read()?;
        let (trees, blobs) = (HashMap::new(), HashMap::new());
        let mut check = Check { reader: &*reader, how, meter, report, trees, blobs };
        check.everything()?;
        if !check.report.findings.is_empty() {
            self.backend().check_steady()?;
        }
        check.report.trees = check.trees.len() as u64;
        check.report.blobs = check.blobs.len() as u64;
        Ok(check.report)
    }
}

impl Check<'_> {
    fn everything(&mut self) -> Result<()> {
        // Each part continues as far as it can: unreadable rows are a finding, and do not stop the other parts.
        type Part<'a> = fn(&mut Check<'a>) -> Result<()>;
        let parts: [(&str, Part<'_>); 7] = [
            ("the versions", Self::versions),
            ("forks and checkpoints", Self::references),
            ("the journal", Self::runs),
            ("recordings", Self::recordings),
            ("batches", Self::batches),
            ("cached results", Self::memos),
            ("the audit log", Self::audit),
        ];
        for (name, part) in parts {
            let outcome = part(self);
            self.note(outcome, &|| format!("the check of {name} is incomplete"))?;
        }
        Ok(())
    }

    fn found(&mut self, code: &'static str, what: String) {
        self.report.findings.push(Finding { code, what });
    }

    /// Converts damage into a finding; any other error, such as an I/O error, ends the check.
    fn note<T>(&mut self, outcome: Result<T>, of: &dyn Fn() -> String) -> Result<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(VaultError::MissingObject { kind, id }) => {
                self.found("missing", format!("{kind} {id} is missing ({})", of()));
                Ok(None)
            }
            Err(VaultError::DamagedObject { kind, id, detail }) => {
                self.found("damaged", format!("{kind} {id} is damaged: {detail} ({})", of()));
                Ok(None)
            }
            Err(VaultError::Backend(BackendError::Corrupt { detail, .. })) => {
                self.found("damaged", format!("a row cannot be read: {detail} ({})", of()));
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    fn versions(&mut self) -> Result<()> {
        let mut parents: HashMap<VersionId, Vec<VersionId>> = HashMap::new();
        for id in self.reader.version_ids()? {
            self.report.versions += 1;
            let Some(record) = self.note(require_version(self.reader, &id), &|| "listed".to_owned())? else {
                continue;
            };
            self.version(&record)?;
            parents.insert(id, record.parents);
        }
        for (id, of) in &parents {
            for parent in of.iter().filter(|parent| !parents.contains_key(*parent)) {
                self.found(
                    "missing",
                    format!("version {}, parent of {}, is missing", parent.short(), id.short()),
                );
            }
        }
        if has_cycle(&parents) {
            self.found("cycle", "a version is its own ancestor".to_owned());
        }
        Ok(())
    }

    fn version(&mut self, record: &VersionRecord) -> Result<()> {
        let name = record.id.short();
        if version::id_of(record) != record.id {
            self.found("damaged", format!("version {name} was edited: its digest does not match"));
        }
        if record.pruned_at.is_some() {
            return Ok(());
        }
        let of = || format!("version {name}");
        let Some(seen) = self.tree(record.root, &of)? else { return Ok(()) };
        if (seen.totals.entries, seen.totals.bytes) != (record.entries, record.bytes) {
            self.found("damaged", format!("the totals of version {name} differ from those of its tree"));
        }
        if seen.content != record.content {
            self.found(
                "damaged",
                format!("the content digest of version {name} differs from that of its tree"),
            );
        }
        if seen.place != FindingPlace::Top {
            self.found("damaged", format!("the root of version {name} is not a directory"));
        }
        Ok(())
    }

    /// Compares a page with the properties that its parent records.
    fn compare(&mut self, id: &TreeId, recorded: Option<&Seen>, seen: &Seen) {
        let Some(recorded) = recorded else { return };
        let wrong = if recorded.totals != seen.totals {
            "records different totals"
        } else if recorded.content != seen.content {
            "records a different content digest"
        } else if recorded.place != seen.place {
            "records a different position"
        } else {
            return;
        };
        self.found("damaged", format!("the parent of tree {} {wrong}", id.short()));
    }

    /// Checks a page and everything beneath it once, and returns its properties. Findings name the first path that
    /// leads to the object.
    fn tree(&mut self, root: TreeId, of: &dyn Fn() -> String) -> Result<Option<Seen>> {
        let mut waiting = vec![(TreePath::root(), root, None::<Seen>)];
        while let Some((path, id, recorded)) = waiting.pop() {
            let of_dir = || {
                if path.is_root() { format!("the root of {}", of()) } else { format!("{path} in {}", of()) }
            };
            if path.is_too_deep() {
                self.found("damaged", format!("{} in {} is too deep to be read", path.shortened(), of()));
                continue;
            }
            if let Some(known) = self.trees.get(&id).cloned() {
                self.compare(&id, recorded.as_ref(), &known);
                continue;
            }
            let Some(page) = self.note((&self.reader).page(&id), &of_dir)? else {
                self.report.broken.trees.insert(id);
                continue;
            };
            let seen = Seen::of(&page);
            self.compare(&id, recorded.as_ref(), &seen);
            self.trees.insert(id, seen);
            self.meter.add(1, 0);
            if let Some(xattrs) = page.meta.and_then(|meta| meta.xattrs) {
                self.blob(FileContent::Whole(xattrs), None, &of_dir)?;
            }
            match page.body {
                Body::Inner { level, pages } => waiting.extend(pages.into_iter().map(|page| {
                    let place = FindingPlace::Beneath { level: level - 1, first: page.first };
                    (
                        path.clone(),
                        page.tree,
                        Some(Seen { totals: page.totals, content: page.content, place }),
                    )
                })),
                Body::Leaf(entries) => {
                    for entry in entries {
                        let at = || path.join(&entry.name);
                        let of_file = || format!("{} in {}", at(), of());
                        match entry.node {
                            Node::Dir(dir) => {
                                let (totals, content) = (dir.totals, dir.content);
                                waiting.push((
                                    at(),
                                    dir.tree,
                                    Some(Seen { totals, content, place: FindingPlace::Top }),
                                ));
                            }
                            Node::Symlink(_) | Node::Fifo(_) => {}
                            Node::File(file) => {
                                self.blob(file.content, Some(file.size), &of_file)?;
                                if let Some(xattrs) = file.xattrs {
                                    self.blob(FileContent::Whole(xattrs), None, &of_file)?;
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(self.trees.get(&root).cloned())
    }

    fn blob(&mut self, content: FileContent, size: Option<u64>, of: &dyn Fn() -> String) -> Result<()> {
        self.blob_at(0, content, size, of)
    }

    fn blob_at(
        &mut self,
        depth: usize,
        content: FileContent,
        size: Option<u64>,
        of: &dyn Fn() -> String,
    ) -> Result<()> {
        let id = *content.id();
        let chunked = matches!(content, FileContent::Chunked(_));
        let recorded = RecordedBlob::new(size, chunked);
        if let Some(known) = self.blobs.get(&key_of(&id)) {
            if !known.agrees(recorded) {
                self.found(
                    "damaged",
                    format!("blob {} is referenced with different sizes or kinds ({})", id.short(), of()),
                );
            }
            return Ok(());
        }
        self.blobs.insert(key_of(&id), recorded);
        let before = self.report.findings.len();
        let inside = self.blob_alone(&id, chunked, size, of)?;
        if self.report.findings.len() > before {
            self.report.broken.blobs.insert(id);
        }
        if depth >= LIST_DEPTH_MAX && !inside.is_empty() {
            self.found(
                "damaged",
                format!("the lists of blob {} are nested too deeply ({})", id.short(), of()),
            );
            return Ok(());
        }
        for item in inside {
            match item {
                Item::Hole { .. } => {}
                Item::Chunk { id, length } => {
                    self.blob_at(depth + 1, FileContent::Whole(id), Some(length), of)?
                }
                Item::List { id, length } => {
                    self.blob_at(depth + 1, FileContent::Chunked(id), Some(length), of)?
                }
            }
        }
        Ok(())
    }

    /// Checks a blob alone, and returns the blobs it refers to.
    fn blob_alone(
        &mut self,
        id: &BlobId,
        chunked: bool,
        size: Option<u64>,
        of: &dyn Fn() -> String,
    ) -> Result<Vec<Item>> {
        if self.how == Thoroughness::Quick && !chunked {
            let there = self.reader.has_blob(id).map_err(VaultError::from);
            if self.note(there, of)? == Some(false) {
                self.found("missing", format!("blob {} is missing ({})", id.short(), of()));
            }
            return Ok(Vec::new());
        }
        let Some(blob) = self.note(content::fetch(self.reader, id), of)? else { return Ok(Vec::new()) };
        if size.is_some_and(|size| size != blob.size) {
            self.found(
                "damaged",
                format!("the size of blob {} differs from that of its file ({})", id.short(), of()),
            );
        }
        self.meter.add(0, blob.size);
        if !chunked {
            self.note(content::decode(blob).map(drop), of)?;
            return Ok(Vec::new());
        }
        if blob.codec != Codec::List {
            self.found("damaged", format!("blob {} should be a chunk list ({})", id.short(), of()));
            return Ok(Vec::new());
        }
        Ok(self.note(chunk::open_list(&blob), of)?.unwrap_or_default())
    }

    fn references(&mut self) -> Result<()> {
        for fork in self.reader.forks()? {
            for (role, id) in [("head", fork.head), ("base", fork.base)] {
                if self.reader.version(&id)?.is_none() {
                    self.found(
                        "missing",
                        format!("the {role} of fork {}, {}, is missing", fork.name, id.short()),
                    );
                }
            }
        }
        for checkpoint in self.reader.checkpoints()? {
            let name = format!("{}@{}", checkpoint.fork, checkpoint.name);
            match self.reader.version(&checkpoint.version)? {
                None => self.found("missing", format!("the version of checkpoint {name} is missing")),
                Some(version) if version.pruned_at.is_some() => {
                    self.found("missing", format!("the version of checkpoint {name} was pruned"));
                }
                Some(_) => {}
            }
            if self.reader.fork(&checkpoint.fork)?.is_none() {
                self.found("missing", format!("the fork of checkpoint {name} is missing"));
            }
        }
        Ok(())
    }
}

/// Removes versions without remaining parents until no version is left (no cycle) or none can be removed (a cycle).
fn has_cycle(parents: &HashMap<VersionId, Vec<VersionId>>) -> bool {
    let mut children: HashMap<VersionId, Vec<VersionId>> = HashMap::new();
    let mut open: HashMap<VersionId, usize> = HashMap::new();
    for (id, of) in parents {
        let known = of.iter().filter(|parent| parents.contains_key(*parent));
        let mut count = 0;
        for parent in known {
            children.entry(*parent).or_default().push(*id);
            count += 1;
        }
        open.insert(*id, count);
    }
    let mut ready: Vec<VersionId> =
        open.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    let mut done = 0;
    while let Some(id) = ready.pop() {
        done += 1;
        for child in children.remove(&id).unwrap_or_default() {
            if let Some(count) = open.get_mut(&child) {
                *count -= 1;
                if *count == 0 {
                    ready.push(child);
                }
            }
        }
    }
    done < parents.len()
}

#[cfg(test)]
mod tests {
    use crate::backend::Extent;
    use std::sync::Arc;

    use avfs_types::clock::{FileTime, SystemClock};

    use super::*;
    use crate::Context;
    use crate::backend::memory::MemoryBackend;
    use crate::page::{DirMeta, DirRef, Entry, FifoNode};
    use crate::pages::{NewPages, build};
    use crate::version::Draft;

    /// The findings for a vault whose newest version has a subdirectory with altered properties in its parent.
    fn findings(alter: impl Fn(DirRef) -> DirRef) -> Vec<String> {
        let context = Context { clock: Arc::new(SystemClock), actor: "test".to_owned() };
        let vault = Vault::over(Box::<MemoryBackend>::default(), context).unwrap();
        let fifo = Node::Fifo(FifoNode { mode: 0o644, mtime: FileTime::default(), link: None });
        let mut new = NewPages::default();
        let sub = build(&DirMeta::default(), vec![Entry { name: b"f".to_vec(), node: fifo }], &mut new);
        let entries = vec![Entry { name: b"d".to_vec(), node: Node::Dir(alter(sub)) }];
        let root = build(&DirMeta::default(), entries, &mut new);
        vault
            .transact(|transaction| {
                transaction.put_pages(&new)?;
                transaction.put_version(
                    &root,
                    Draft { message: "", run: None, parents: Vec::new(), extent: Extent::Full },
                )
            })
            .unwrap();
        let report = vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
        report.findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn properties_recorded_in_a_parent_are_compared_with_the_page() {
        assert_eq!(findings(|sub| sub), [""; 0]);
        let other = findings(|sub| DirRef { content: ContentId([1; 32]), ..sub });
        assert!(
            matches!(&other[..], [what] if what.contains("records a different content digest")),
            "{other:?}"
        );
        let counted = findings(|sub| DirRef { totals: Totals { entries: 9, ..sub.totals }, ..sub });
        assert!(counted.iter().any(|what| what.contains("records different totals")), "{counted:?}");
    }
}
