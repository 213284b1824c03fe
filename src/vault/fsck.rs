//! Checks a vault from end to end: rows, digests, references, history, audit log.

use std::collections::{HashMap, HashSet};

use crate::backend::{BackendError, Codec, Reader, RunRecord, VersionRecord};
use crate::ids::{BlobId, ContentId, TreeId, VersionId};

use super::audit;
use super::chunk::{self, Item, LIST_DEPTH_MAX};
use super::content;
use super::error::{Result, VaultError};
use super::memo::{self, MemoParts};
use super::meter::Meter;
use super::page::{Body, FileContent, Node, Page, Totals};
use super::store::{Vault, require_version};
use super::tree::Pages;
use super::version;

/// Rows of the journal and of the audit log read at once.
const RUNS_AT_ONCE: usize = 200;
const AUDIT_AT_ONCE: usize = 1000;
/// Rows of one kind that are told; more of them say no more.
const ASTRAY_MAX: usize = 100;

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// Everything but the content of blobs, which only must be there.
    Quick,
    Full,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable word for the kind of problem.
    pub code: &'static str,
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub versions: u64,
    pub trees: u64,
    pub blobs: u64,
    pub audit_rows: u64,
    pub runs: u64,
    pub memos: u64,
    pub findings: Vec<Finding>,
}

struct Check<'a> {
    reader: &'a dyn Reader,
    how: Thoroughness,
    meter: &'a Meter,
    report: Report,
    trees: HashMap<TreeId, Seen>,
    blobs: HashSet<BlobId>,
}

/// What a page turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    totals: Totals,
    content: ContentId,
    place: Place,
}

/// Where a page can stand.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// At the top of a directory.
    Top,
    Beneath {
        level: u8,
        first: Vec<u8>,
    },
}

impl Seen {
    fn of(page: &Page) -> Self {
        let sealed = page.body.seal(page.meta.as_ref());
        let place = match page.meta {
            Some(_) => Place::Top,
            None => Place::Beneath { level: page.body.level(), first: page.body.first().to_vec() },
        };
        Self { totals: sealed.totals, content: sealed.content, place }
    }
}

impl Vault {
    pub fn fsck(&self, how: Thoroughness, meter: &Meter) -> Result<Report> {
        let _pin = self.backend().pin()?;
        let mut report = Report::default();
        for line in self.backend().integrity()? {
            report.findings.push(Finding { code: "sqlite", what: line });
        }
        let reader = self.read()?;
        let (trees, blobs) = (HashMap::new(), HashSet::new());
        let mut check = Check { reader: &*reader, how, meter, report, trees, blobs };
        check.everything()?;
        check.report.trees = check.trees.len() as u64;
        check.report.blobs = check.blobs.len() as u64;
        Ok(check.report)
    }
}

impl Check<'_> {
    fn everything(&mut self) -> Result<()> {
        // Each goes as far as it can: what cannot be read is a finding, and no reason to leave out the others.
        type Part<'a> = fn(&mut Check<'a>) -> Result<()>;
        let parts: [(&str, Part<'_>); 7] = [
            ("the versions", Self::versions),
            ("forks and checkpoints", Self::references),
            ("the journal", Self::runs),
            ("recordings", Self::recordings),
            ("batches", Self::batches),
            ("remembered results", Self::memos),
            ("the audit log", Self::audit),
        ];
        for (name, part) in parts {
            let outcome = part(self);
            self.note(outcome, &|| format!("{name} cannot be read to the end"))?;
        }
        Ok(())
    }

    fn found(&mut self, code: &'static str, what: String) {
        self.report.findings.push(Finding { code, what });
    }

    /// Turns damage into a finding; anything else, such as a disk that cannot be read, ends the check.
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
        let of = || format!("root of version {name}");
        let Some(seen) = self.tree(record.root, &of)? else { return Ok(()) };
        if (seen.totals.entries, seen.totals.bytes) != (record.entries, record.bytes) {
            self.found("damaged", format!("version {name} counts other totals than its tree has"));
        }
        if seen.content != record.content {
            self.found("damaged", format!("version {name} names another content digest than its tree has"));
        }
        if seen.place != Place::Top {
            self.found("damaged", format!("the root of version {name} is no directory"));
        }
        Ok(())
    }

    /// What is above a page says of it what it is.
    fn compare(&mut self, id: &TreeId, told: Option<&Seen>, seen: &Seen) {
        let Some(told) = told else { return };
        let wrong = if told.totals != seen.totals {
            "counts other totals"
        } else if told.content != seen.content {
            "names another content digest"
        } else if told.place != seen.place {
            "takes it for another page"
        } else {
            return;
        };
        self.found("damaged", format!("the parent of tree {} {wrong}", id.short()));
    }

    /// Checks a page and everything beneath it once; gives what it is.
    fn tree(&mut self, root: TreeId, of: &dyn Fn() -> String) -> Result<Option<Seen>> {
        let mut waiting = vec![(root, None::<Seen>)];
        while let Some((id, told)) = waiting.pop() {
            if let Some(known) = self.trees.get(&id).cloned() {
                self.compare(&id, told.as_ref(), &known);
                continue;
            }
            let Some(page) = self.note((&self.reader).page(&id), of)? else { continue };
            let seen = Seen::of(&page);
            self.compare(&id, told.as_ref(), &seen);
            self.trees.insert(id, seen);
            self.meter.add(1, 0);
            if let Some(xattrs) = page.meta.and_then(|meta| meta.xattrs) {
                self.blob(FileContent::Whole(xattrs), None, of)?;
            }
            match page.body {
                Body::Inner { level, pages } => waiting.extend(pages.into_iter().map(|page| {
                    let place = Place::Beneath { level: level - 1, first: page.first };
                    (page.tree, Some(Seen { totals: page.totals, content: page.content, place }))
                })),
                Body::Leaf(entries) => {
                    for entry in entries {
                        match entry.node {
                            Node::Dir(dir) => {
                                let (totals, content) = (dir.totals, dir.content);
                                waiting.push((dir.tree, Some(Seen { totals, content, place: Place::Top })));
                            }
                            Node::Symlink(_) | Node::Fifo(_) => {}
                            Node::File(file) => {
                                self.blob(file.content, Some(file.size), of)?;
                                if let Some(xattrs) = file.xattrs {
                                    self.blob(FileContent::Whole(xattrs), None, of)?;
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
        if !self.blobs.insert(id) {
            return Ok(());
        }
        let chunked = matches!(content, FileContent::Chunked(_));
        if self.how == Thoroughness::Quick && !chunked {
            let there = self.reader.has_blob(&id).map_err(VaultError::from);
            if self.note(there, of)? == Some(false) {
                self.found("missing", format!("blob {} is missing ({})", id.short(), of()));
            }
            return Ok(());
        }
        let Some(blob) = self.note(content::fetch(self.reader, &id), of)? else { return Ok(()) };
        if size.is_some_and(|size| size != blob.size) {
            self.found("damaged", format!("blob {} has another size than its file ({})", id.short(), of()));
        }
        self.meter.add(0, blob.size);
        if !chunked {
            self.note(content::decode(blob).map(drop), of)?;
            return Ok(());
        }
        if blob.codec != Codec::List {
            self.found("damaged", format!("blob {} should be a chunk list ({})", id.short(), of()));
            return Ok(());
        }
        if depth >= LIST_DEPTH_MAX {
            self.found(
                "damaged",
                format!("the lists of blob {} are nested too deeply ({})", id.short(), of()),
            );
            return Ok(());
        }
        for item in self.note(chunk::open_list(&blob), of)?.unwrap_or_default() {
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

impl Check<'_> {
    /// The marks of recordings are places in the journal.
    fn recordings(&mut self) -> Result<()> {
        let recordings = self.reader.recordings()?;
        let end = self.reader.runs(i64::MAX, 1);
        let end = end.ok().and_then(|runs| Some(runs.first()?.seq)).unwrap_or(0);
        for recording in recordings {
            let last = recording.last_run.unwrap_or(recording.after_run);
            if last < recording.after_run || last > end {
                self.found("damaged", format!("recording {} lies beyond the journal", recording.name));
            }
        }
        Ok(())
    }

    /// What is tied to an item of a batch is a run of the journal. The version that a batch began from may be gone: its
    /// row keeps nothing alive.
    fn batches(&mut self) -> Result<()> {
        self.reader.batches(usize::MAX)?;
        for (batch, item, run) in self.reader.batch_runs_astray(ASTRAY_MAX)? {
            self.found("missing", format!("item {item} of batch {batch} has run {run}, which is not there"));
        }
        Ok(())
    }

    fn audit(&mut self) -> Result<()> {
        let verdict = audit::verify(self.reader, None)?;
        self.report.audit_rows = verdict.rows;
        for problem in verdict.problems {
            self.found("audit", problem.to_string());
        }
        Ok(())
    }

    /// Every remembered result: it is found by what its parts say, and what the command wrote is there.
    fn memos(&mut self) -> Result<()> {
        for memo in memo::all(self.reader)? {
            self.report.memos += 1;
            let run = &memo.run;
            if MemoParts::from_json(&memo.parts).is_none_or(|parts| parts.key() != memo.key) {
                self.found("damaged", format!("the result of run {run} was edited: its key does not match"));
            }
            for (stream, id) in [("stdout", memo.stdout), ("stderr", memo.stderr)] {
                let of = || format!("{stream} of the remembered run {run}");
                let is_list = self.reader.blob(&id)?.is_some_and(|blob| blob.codec == Codec::List);
                let content = if is_list { FileContent::Chunked(id) } else { FileContent::Whole(id) };
                self.blob(content, None, &of)?;
            }
        }
        Ok(())
    }

    /// Every row of the journal: what it says can be read, and the versions it names are those of the run.
    fn runs(&mut self) -> Result<()> {
        let mut before = i64::MAX;
        loop {
            let runs = self.reader.runs(before, RUNS_AT_ONCE)?;
            let Some(last) = runs.last() else { return Ok(()) };
            before = last.seq;
            for run in &runs {
                self.report.runs += 1;
                self.run(run)?;
            }
        }
    }

    fn run(&mut self, run: &RunRecord) -> Result<()> {
        for (name, text) in [("request", &run.request), ("decision", &run.decision), ("result", &run.result)]
        {
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
                self.found("damaged", format!("the {name} of run {} is not JSON: {error}", run.id));
            }
        }
        if run.version_after.is_some() && run.version_before.is_none() {
            self.found("damaged", format!("run {} made a version of nothing", run.id));
        }
        let made = run.version_after.map(|id| self.reader.version(&id)).transpose()?.flatten();
        if let Some(made) = &made
            && (made.run.as_deref() != Some(run.id.as_str())
                || made.parents.first() != run.version_before.as_ref())
        {
            self.found("damaged", format!("version {} is not that of run {}", made.id.short(), run.id));
        }
        for id in run.version_before.iter().chain(&run.version_after) {
            if self.reader.version(id)?.is_none() && !self.may_be_gone(run)? {
                self.found("missing", format!("version {} of run {} is missing", id.short(), run.id));
            }
        }
        Ok(())
    }

    /// A run's versions live as long as its fork: they may be missing if that was deleted after the run, also
    /// if there is another fork of its name by now.
    fn may_be_gone(&self, run: &RunRecord) -> Result<bool> {
        if run.version_after.is_none() || self.reader.fork(&run.fork)?.is_none() {
            return Ok(true);
        }
        let ends = ["fork.delete", "fork.expire", "run.discard"];
        let landed = format!("run={}", run.id);
        let (mut has_landed, mut after) = (false, 0);
        loop {
            let rows = match self.reader.audit_after(after, AUDIT_AT_ONCE) {
                // Told by the check of the log itself.
                Err(BackendError::Corrupt { .. }) => return Ok(true),
                other => other?,
            };
            let Some(last) = rows.last() else { return Ok(false) };
            after = last.seq;
            for row in rows.iter().filter(|row| row.subject == run.fork.as_str()) {
                has_landed |= row.after.is_some() && row.detail.split(' ').any(|word| word == landed);
                if has_landed && ends.contains(&row.action.as_str()) {
                    return Ok(true);
                }
            }
        }
    }
}

/// Takes away versions whose parents are all gone, until none is left or a cycle is.
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
    use std::sync::Arc;

    use super::*;
    use crate::backend::memory::MemoryBackend;
    use crate::clock::SystemClock;
    use crate::hostfs::stat::FileTime;
    use crate::vault::page::{DirMeta, DirRef, Entry, FifoNode};
    use crate::vault::pages::{NewPages, build};
    use crate::vault::store::Context;
    use crate::vault::version::Draft;

    /// What a vault finds whose newest version has a subdirectory that its parent tells otherwise.
    fn findings(told: impl Fn(DirRef) -> DirRef) -> Vec<String> {
        let context = Context { clock: Arc::new(SystemClock), actor: "test".to_owned() };
        let vault = Vault::over(Box::<MemoryBackend>::default(), context).unwrap();
        let fifo = Node::Fifo(FifoNode { mode: 0o644, mtime: FileTime::default(), link: None });
        let mut new = NewPages::default();
        let sub = build(&DirMeta::default(), vec![Entry { name: b"f".to_vec(), node: fifo }], &mut new);
        let entries = vec![Entry { name: b"d".to_vec(), node: Node::Dir(told(sub)) }];
        let root = build(&DirMeta::default(), entries, &mut new);
        vault
            .transact(|transaction| {
                transaction.put_pages(&new)?;
                transaction.put_version(&root, Draft { message: "", run: None, parents: Vec::new() })
            })
            .unwrap();
        let report = vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
        report.findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn what_a_parent_says_is_compared() {
        assert_eq!(findings(|sub| sub), [""; 0]);
        let other = findings(|sub| DirRef { content: ContentId([1; 32]), ..sub });
        assert!(matches!(&other[..], [what] if what.contains("names another content digest")), "{other:?}");
        let counted = findings(|sub| DirRef { totals: Totals { entries: 9, ..sub.totals }, ..sub });
        assert!(counted.iter().any(|what| what.contains("counts other totals")), "{counted:?}");
    }
}
