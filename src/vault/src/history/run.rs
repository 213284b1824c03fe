//! The journal of runs: how the changes of a run become a version, exactly once, and the record of the run.
//!
//! A landing is one transaction with one commit: blobs, pages, version, fork, checkpoints, journal and audit row
//! appear together or not at all. Only a commit with a version is worth waiting for the disk. A landing never loses
//! changes: if they cannot go to the intended fork, they get a separate fork.

use avfs_types::KeepCount;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    BatchItem, CheckpointName, DIGEST_BYTES, ForkName, NAME_BYTES_MAX, RunId, RunPrefix, VersionId,
};
use avfs_types::path::TreePath;

use super::audit::Event;
use super::kept_output::KeptOutput;
use super::memo::Memo;
use super::rebase::{Rebase, rebase};
use super::undo::InEffect;
use super::version::{Draft, full_root_of, full_root_of_either};
use super::{checkpoint, kept_output, memo, ops};
use crate::backend::{CheckpointRecord, Durability, ForkRecord, Life, Reader, RunRecord, RunState};
use crate::edit::{Edits, Manner};
use crate::edited_tree::EditedTree;
use crate::tree::Pages;
use crate::{Batch, Result, Transaction, Vault, VaultError, require_version};

/// How long changes are kept that could not go to the intended fork.
pub const DIVERTED_SECONDS: i64 = 7 * 24 * 60 * 60;
/// Runs named in the message about an ambiguous id.
const EXAMPLES_MAX: usize = 4;
/// Rows read at once.
const BATCH_ROWS: usize = 500;

/// The destination of a run's changes.
#[derive(Clone, Copy, Debug)]
pub enum Landing<'a> {
    /// Only the record is kept: nothing changed, or the changes are discarded.
    RecordOnly,
    /// Onto a fork whose head was `base` when the run started.
    Fork {
        /// The fork.
        name: &'a ForkName,
        /// The version that the run started from.
        base: VersionId,
    },
    /// Onto a new fork created for the run at `base`, which was taken from `parent`.
    NewFork {
        /// The fork.
        name: &'a ForkName,
        /// The version that the run started from.
        base: VersionId,
        /// The fork that `base` was taken from.
        parent: &'a ForkName,
        /// How long the fork lives.
        life: Life,
    },
}

impl Landing<'_> {
    /// The version that the run started from, if its changes are kept.
    #[must_use]
    pub(crate) fn base(&self) -> Option<VersionId> {
        match self {
            Self::RecordOnly => None,
            Self::Fork { base, .. } | Self::NewFork { base, .. } => Some(*base),
        }
    }
}

/// A run that has ended, and how to land it.
#[derive(Clone, Debug)]
pub struct RunLanding<'a> {
    /// Where the changes go.
    pub landing: Landing<'a>,
    /// The tree after its changes to the version it started from. Ignored for [`Landing::RecordOnly`].
    pub edited: Option<&'a EditedTree>,
    /// The message of the version.
    pub message: &'a str,
    /// The automatic checkpoint of the version that the run started from; saved only if the run creates a version.
    pub checkpoint_before: Option<CheckpointName>,
    /// The automatic checkpoint of the version that the run creates.
    pub checkpoint_after: Option<CheckpointName>,
    /// How many automatic checkpoints the fork keeps; the oldest are deleted.
    pub checkpoints_keep: KeepCount,
    /// Its result, if it should be cached.
    pub memo: Option<Memo>,
    /// Its output, if it should be kept.
    pub kept: Option<KeptOutput>,
    /// Its journal row. The versions are filled in, and the fork if the changes went to another one.
    pub record: RunRecord,
    /// The batch item that it was made for.
    pub item: Option<&'a BatchItem>,
    /// When its version must be on disk. A deferred landing must not be acknowledged before [`Vault::flush`].
    pub durability: Durability,
    /// The texts about the run for the audit log.
    pub texts: AuditTexts<'a>,
}

/// The readable texts about a run in the audit log, which contains the texts of the journal row as digests.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditTexts<'a> {
    /// The command, on one line.
    pub request: &'a str,
    /// The decision of the policy, on one line.
    pub decision: &'a str,
    /// The violation, if a command classified read-only modified files.
    pub violation: Option<&'a str>,
    /// The run whose result was reused: this run was not executed itself.
    pub cached_from: Option<&'a RunId>,
}

/// The outcome of landing a run's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landed {
    /// Nothing was kept.
    Nothing,
    /// The fork had not moved since the run started, or is new.
    Advanced {
        /// The version with the changes.
        version: VersionId,
    },
    /// The fork had moved, without a clash: the changes were rebased onto its new head.
    Rebased {
        /// The version with the changes.
        version: VersionId,
        /// The head that the changes were rebased onto.
        onto: VersionId,
    },
    /// The fork had moved and both sides changed `paths`, or it was deleted (then `paths` is empty): the changes
    /// are on a separate fork.
    Diverted {
        /// The fork created for the changes.
        fork: ForkName,
        /// The version with the changes.
        version: VersionId,
        /// The paths that both sides changed.
        paths: Vec<TreePath>,
    },
}

impl Landed {
    /// The version with the changes; `None` if nothing was kept.
    #[must_use]
    pub fn version(&self) -> Option<VersionId> {
        match self {
            Self::Nothing => None,
            Self::Advanced { version } | Self::Rebased { version, .. } | Self::Diverted { version, .. } => {
                Some(*version)
            }
        }
    }
}

/// A run in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandedRun {
    /// The outcome for its changes.
    pub landed: Landed,
    /// The journal row.
    pub record: RunRecord,
    /// The checkpoint of the version that the run started from. A number is appended to a name already in use.
    pub checkpoint_before: Option<CheckpointName>,
    /// The checkpoint of the version that the run created; `None` if it was not saved.
    pub checkpoint_after: Option<CheckpointName>,
    /// True if its result was cached.
    pub remembered: bool,
    /// When the fork created for the changes expires; `None` if no fork was created, or it does not expire.
    pub expires_at: Option<Timestamp>,
}

impl Vault {
    /// Stores a run and its changes. A run lands once: a second landing is refused.
    ///
    /// The caller must hold a pin from before the first blob is added to `batch` until this returns.
    pub fn land_run(&self, mut run: RunLanding<'_>, batch: Batch<'_>) -> Result<LandedRun> {
        let _pins = (run.memo.as_ref().map(Memo::pins), run.kept.as_ref().map(KeptOutput::pins));
        self.transact_run(run.durability, |transaction| {
            let (memo, kept) = (run.memo.take(), run.kept.take());
            let mut landed = land(transaction, run, batch)?;
            if let Some(memo) = memo {
                landed.remembered = memo::remember(transaction, memo, &landed)?;
            }
            // A cached result already contains the output.
            if let (Some(kept), false) = (kept, landed.remembered) {
                kept_output::keep(transaction, kept, &landed)?;
            }
            Ok(landed)
        })
    }

    /// Journals a run that did not take place: it was denied, or its sandbox could not be created.
    pub fn journal_refused(&self, record: &RunRecord, texts: AuditTexts<'_>) -> Result<()> {
        self.transact_with(Durability::Deferred, |transaction| refuse(transaction, record, texts))
    }

    /// The run whose id begins with these digits.
    pub fn run(&self, prefix: &RunPrefix) -> Result<RunRecord> {
        let found = find_run(&*self.read()?, prefix)?;
        found.ok_or_else(|| VaultError::NoRun { id: prefix.clone() })
    }

    /// Runs with a sequence number below `before`, newest first.
    pub fn runs(&self, before: i64, limit: usize) -> Result<Vec<RunRecord>> {
        Ok(self.read()?.runs(before, limit)?)
    }

    /// Like [`Vault::runs`], for one fork.
    pub fn runs_of_fork(&self, fork: &ForkName, before: i64, limit: usize) -> Result<Vec<RunRecord>> {
        Ok(self.read()?.runs_of_fork(fork, before, limit)?)
    }
}

/// `last~N` is only resolved for an `N` below this.
const BACK_MAX: usize = 100_000;

/// The run whose id begins with these digits; for `last` the newest run, for `last~N` the one `N` runs before it.
pub fn find_run(reader: &dyn Reader, prefix: &RunPrefix) -> Result<Option<RunRecord>> {
    if let Some(back) = prefix.steps_back() {
        let Some(back) = usize::try_from(back).ok().filter(|back| *back < BACK_MAX) else { return Ok(None) };
        return Runs::new(reader).nth(back).transpose();
    }
    let mut found = reader.runs_with_prefix(prefix, 100)?;
    if found.len() > 1 {
        let examples: Vec<&str> = found.iter().take(EXAMPLES_MAX).map(|run| run.id.as_str()).collect();
        let (count, examples) = (found.len(), examples.join(", "));
        return Err(VaultError::AmbiguousRun { id: prefix.clone(), count, examples });
    }
    Ok(found.pop())
}

/// The default run of verbs, and the newest of the skipped runs after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastChange {
    /// The newest run that changed content, was not undone and not discarded.
    pub run: Option<RunRecord>,
    /// A run that changed only modification times.
    pub times_only: Option<RunRecord>,
    /// A run that was undone.
    pub undone: Option<RunRecord>,
}

/// Finds the newest run in effect that changed content.
pub fn last_change(reader: &dyn Reader) -> Result<LastChange> {
    let (mut last, mut in_effect) = (LastChange::default(), InEffect::default());
    for run in Runs::new(reader) {
        let run = run?;
        let (Some(after), None) = (run.version_after, run.discarded_at) else { continue };
        let content = |id: Option<VersionId>| -> Result<_> {
            Ok(id.map(|id| reader.version(&id)).transpose()?.flatten().map(|version| version.content))
        };
        let after = content(Some(after))?;
        if after.is_none() {
            continue;
        }
        if in_effect.is_undone(reader, &run)? {
            last.undone.get_or_insert(run);
        } else if after == content(run.version_before)? {
            last.times_only.get_or_insert(run);
        } else {
            return Ok(LastChange { run: Some(run), ..last });
        }
    }
    Ok(last)
}

/// Every run of a vault or of a fork, newest first, read in batches: a journal may be long, and each row contains
/// texts.
pub struct Runs<'r> {
    reader: &'r dyn Reader,
    fork: Option<&'r ForkName>,
    read: std::vec::IntoIter<RunRecord>,
    /// Where to continue; `None` at the end.
    before: Option<i64>,
}

impl<'r> Runs<'r> {
    /// All runs, newest first.
    pub fn new(reader: &'r dyn Reader) -> Self {
        Self { reader, fork: None, read: Vec::new().into_iter(), before: Some(i64::MAX) }
    }

    /// The runs of `fork`, newest first.
    pub fn of_fork(reader: &'r dyn Reader, fork: &'r ForkName) -> Self {
        Self { fork: Some(fork), ..Self::new(reader) }
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<RunRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(run) = self.read.next() {
            return Some(Ok(run));
        }
        let before = self.before.take()?;
        let more = match self.fork {
            Some(fork) => self.reader.runs_of_fork(fork, before, BATCH_ROWS),
            None => self.reader.runs(before, BATCH_ROWS),
        };
        match more {
            Ok(more) => {
                self.before = more.last().filter(|_| more.len() == BATCH_ROWS).map(|run| run.seq);
                self.read = more.into_iter();
                self.read.next().map(Ok)
            }
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// Where the changes go, as determined under the write lock.
struct Course<'e> {
    place: RunPlace,
    /// The version that the run started from; `onto` is the version that the changes are applied to.
    base: VersionId,
    onto: VersionId,
    changes: CourseChanges<'e>,
}

enum CourseChanges<'e> {
    /// `onto` is the base.
    Made(&'e EditedTree),
    Rebased(Edits),
}

enum RunPlace {
    Head(ForkRecord),
    New { name: ForkName, parent: ForkName, life: Life, diverted: Option<Vec<TreePath>> },
}

impl RunPlace {
    fn name(&self) -> &ForkName {
        match self {
            Self::Head(fork) => &fork.name,
            Self::New { name, .. } => name,
        }
    }
}

fn land(transaction: &mut Transaction<'_>, run: RunLanding<'_>, batch: Batch<'_>) -> Result<LandedRun> {
    refuse_second(transaction.view(), &run.record.id)?;
    if let Some(item) = run.item {
        transaction.writer.put_batch_run(item, &run.record.id)?;
    }
    let version_before = run.landing.base().or(run.record.version_before);
    let record = RunRecord { version_before, version_after: None, ..run.record.clone() };
    let course = match run.edited.filter(|edited| !edited.is_unchanged()) {
        Some(edited) => course(transaction, &run, edited)?,
        None => None,
    };
    let texts = run.texts;
    let Some(course) = course else { return record_only(transaction, record, texts) };
    batch.finish(transaction)?;
    let parent = require_version(transaction.view(), &course.onto)?;
    let root = full_root_of_either(transaction.view(), &parent)?;
    let edited = match &course.changes {
        CourseChanges::Made(edited) => {
            edited.store(transaction)?;
            *edited.after()
        }
        CourseChanges::Rebased(edits) => ops::apply_edits(transaction, &root, edits, Manner::Exact)?,
    };
    if edited.tree == root.tree {
        return record_only(transaction, record, texts);
    }
    let id = record.id.clone();
    let (message, parents) = (run.message, vec![course.onto]);
    let draft = Draft { message, run: Some(id.as_str()), parents, extent: parent.extent };
    let version = transaction.put_version(&edited, draft)?.id;
    put_in_place(transaction, &course, version)?;
    let fork = course.place.name().clone();
    let mut save = |name: Option<CheckpointName>, version, when: &str| -> Result<Option<CheckpointName>> {
        name.map(|name| save_checkpoint(transaction, &fork, &name, version, &format!("{when} run {id}")))
            .transpose()
    };
    let checkpoint_before = save(run.checkpoint_before, course.base, "before")?;
    let checkpoint_after = save(run.checkpoint_after, version, "after")?;
    let saved = checkpoint_before.is_some() || checkpoint_after.is_some();
    let retired = if saved { checkpoint::retire(transaction, &fork, run.checkpoints_keep)? } else { 0 };
    let before = Some(course.onto);
    let record = RunRecord { fork, version_before: before, version_after: Some(version), ..record };
    let expires_at = match &course.place {
        RunPlace::New { life: Life::Ephemeral { expires_at }, .. } => Some(*expires_at),
        RunPlace::New { life: Life::Persistent, .. } | RunPlace::Head(_) => None,
    };
    let (landed, mut how) = match course.place {
        RunPlace::New { name, parent, diverted: Some(paths), .. } => {
            (Landed::Diverted { fork: name, version, paths }, format!(" diverted from {parent}"))
        }
        RunPlace::Head(_) if course.onto != course.base => {
            (Landed::Rebased { version, onto: course.onto }, format!(" rebased from {}", course.base.short()))
        }
        RunPlace::Head(_) | RunPlace::New { .. } => (Landed::Advanced { version }, String::new()),
    };
    for (when, saved) in [("before", &checkpoint_before), ("after", &checkpoint_after)] {
        if let Some(saved) = saved {
            how.push_str(&format!(" checkpoint_{when}={saved}"));
        }
    }
    if retired > 0 {
        how.push_str(&format!(" checkpoints_retired={retired}"));
    }
    let record = keep(transaction, record, texts, &how)?;
    Ok(LandedRun { landed, record, checkpoint_before, checkpoint_after, remembered: false, expires_at })
}

/// Fails if the run was already captured: a run that has a version, or has ended without one, does not land again.
fn refuse_second(reader: &dyn Reader, id: &RunId) -> Result<()> {
    let known = reader.run(id)?;
    let settled = known.is_some_and(|run| run.version_after.is_some() || run.state.is_settled());
    if settled || reader.version_of_run(id.as_str())?.is_some() {
        return Err(VaultError::RunCaptured { id: id.clone() });
    }
    Ok(())
}

fn record_only(
    transaction: &mut Transaction<'_>,
    record: RunRecord,
    texts: AuditTexts<'_>,
) -> Result<LandedRun> {
    let record = keep(transaction, record, texts, "")?;
    let landed = Landed::Nothing;
    Ok(LandedRun {
        landed,
        record,
        checkpoint_before: None,
        checkpoint_after: None,
        remembered: false,
        expires_at: None,
    })
}

/// Writes the journal row and the audit rows of a run that did not take place.
pub(crate) fn refuse(
    transaction: &mut Transaction<'_>,
    record: &RunRecord,
    texts: AuditTexts<'_>,
) -> Result<()> {
    refuse_second(transaction.view(), &record.id)?;
    keep(transaction, record.clone(), texts, "").map(drop)
}

/// Writes the journal row and the audit rows; returns the row as stored.
fn keep(
    transaction: &mut Transaction<'_>,
    record: RunRecord,
    texts: AuditTexts<'_>,
    how: &str,
) -> Result<RunRecord> {
    let known = transaction.view().run(&record.id)?;
    transaction.writer.put_run(&record)?;
    let (fork, id) = (record.fork.as_str(), &record.id);
    let mut audit = |action, before, after, detail: String| {
        let detail = format!("run={id}{detail}");
        transaction.record(&Event { action, subject: fork, before, after, detail: &detail })
    };
    // A run that was considered dead, or waited for its approval, already has some of these audit rows.
    if known.as_ref().is_none_or(|known| known.request != record.request) {
        audit("run.request", None, Some(digest(&record.request)), format!(" {}", texts.request))?;
    }
    if known.as_ref().is_none_or(|known| known.decision != record.decision) {
        audit("run.decision", None, Some(digest(&record.decision)), format!(" {}", texts.decision))?;
    }
    let started = known.is_some_and(|known| known.state != RunState::ApprovalRequired);
    let result = Some(digest(&record.result));
    let ended = match (record.exit_code, record.signal) {
        (_, Some(signal)) => format!(" signal={signal}"),
        (Some(code), None) => format!(" exit={code}"),
        (None, None) => String::new(),
    };
    match record.state {
        RunState::Denied | RunState::ApprovalRequired => {}
        RunState::Failed => audit("run.fail", None, result, ended)?,
        RunState::Interrupted | RunState::Recoverable => {
            if !started {
                audit("run.start", None, None, String::new())?;
            }
            let recoverable = record.state == RunState::Recoverable;
            audit(if recoverable { "run.recoverable" } else { "run.interrupt" }, None, result, ended)?;
        }
        RunState::Completed => {
            match texts.cached_from {
                Some(from) => audit("run.recall", None, None, format!(" from={from}"))?,
                None if !started => audit("run.start", None, None, String::new())?,
                None => {}
            }
            audit("run.end", None, result, ended)?;
        }
    }
    if let Some(violation) = texts.violation {
        audit("run.violation", None, None, format!(" {violation}"))?;
    }
    if let (Some(before), Some(after)) = (record.version_before, record.version_after) {
        audit("run.capture", Some(before.0), Some(after.0), how.to_owned())?;
    }
    let kept = transaction.view().run(&record.id)?;
    kept.ok_or_else(|| VaultError::MissingObject { kind: "run", id: record.id.to_string() })
}

/// The digest of a journal text, as stored in the audit log.
pub(crate) fn digest(text: &str) -> [u8; DIGEST_BYTES] {
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// `None` if only the record is kept.
fn course<'e>(
    transaction: &Transaction<'_>,
    run: &RunLanding<'e>,
    edited: &'e EditedTree,
) -> Result<Option<Course<'e>>> {
    match run.landing {
        Landing::RecordOnly => Ok(None),
        Landing::NewFork { name, base, parent, life } => {
            if transaction.view().fork(name)?.is_some() {
                return Err(VaultError::ForkExists { name: name.clone() });
            }
            let (name, parent) = (name.clone(), parent.clone());
            let place = RunPlace::New { name, parent, life, diverted: None };
            Ok(Some(Course { place, base, onto: base, changes: CourseChanges::Made(edited) }))
        }
        Landing::Fork { name, base } => onto_fork(transaction, run, edited, name, base).map(Some),
    }
}

fn onto_fork<'e>(
    transaction: &Transaction<'_>,
    run: &RunLanding<'e>,
    edited: &'e EditedTree,
    name: &ForkName,
    base: VersionId,
) -> Result<Course<'e>> {
    let view = transaction.view();
    let as_they_are = |place| Course { place, base, onto: base, changes: CourseChanges::Made(edited) };
    let divert = |paths: Vec<TreePath>| -> Result<Course<'e>> {
        let life = Life::Ephemeral { expires_at: transaction.now().plus_seconds(DIVERTED_SECONDS) };
        let (new, parent) = (diverted_name(view, name, &run.record.id)?, name.clone());
        Ok(as_they_are(RunPlace::New { name: new, parent, life, diverted: Some(paths) }))
    };
    let Some(fork) = view.fork(name)? else { return divert(Vec::new()) };
    if fork.head == base {
        return Ok(as_they_are(RunPlace::Head(fork)));
    }
    let root = |id: &VersionId| full_root_of(view, &require_version(view, id)?);
    let (from, to) = (root(&base)?, root(&fork.head)?);
    let edits = edited.edits(&view as &dyn Pages)?;
    match rebase(&view as &dyn Pages, &from, &to, &edits)? {
        Rebase::Onto(edits) => {
            let (onto, changes) = (fork.head, CourseChanges::Rebased(edits));
            Ok(Course { place: RunPlace::Head(fork), base, onto, changes })
        }
        Rebase::Clash(paths) => divert(paths),
    }
}

fn put_in_place(transaction: &mut Transaction<'_>, course: &Course<'_>, version: VersionId) -> Result<()> {
    match &course.place {
        RunPlace::Head(fork) => {
            if !transaction.writer.move_fork(&fork.name, &course.onto, &version)? {
                let found = transaction.fork(&fork.name)?.head;
                return Err(VaultError::ForkMoved { fork: fork.name.clone(), expected: course.onto, found });
            }
            Ok(())
        }
        RunPlace::New { name, parent, life, .. } => {
            let fork = ForkRecord {
                name: name.clone(),
                head: version,
                base: course.base,
                parent: Some(parent.clone()),
                created_at: transaction.now(),
                life: *life,
            };
            Ok(transaction.writer.insert_fork(&fork)?)
        }
    }
}

/// `FORK-RUN`, shortened to the maximum length of a name, with a number appended if it is in use.
fn diverted_name(reader: &dyn Reader, fork: &ForkName, run: &RunId) -> Result<ForkName> {
    let named = |text: String| ForkName::parse(&text).map_err(|_| VaultError::NoFork { name: fork.clone() });
    numbered(fork.as_str(), &format!("-{run}"), |text| {
        let name = named(text)?;
        Ok(reader.fork(&name)?.is_none().then_some(name))
    })
}

/// Saves an automatic checkpoint. A name already in use must not cost the run its changes.
fn save_checkpoint(
    transaction: &mut Transaction<'_>,
    fork: &ForkName,
    name: &CheckpointName,
    version: VersionId,
    message: &str,
) -> Result<CheckpointName> {
    let view = transaction.view();
    let free = numbered(name.as_str(), "", |text| {
        let taken = || VaultError::CheckpointExists { fork: fork.clone(), name: name.clone() };
        let name = CheckpointName::parse(&text).map_err(|_| taken())?;
        Ok(view.checkpoint(fork, &name)?.is_none().then_some(name))
    })?;
    let at = transaction.now();
    transaction.writer.insert_checkpoint(&CheckpointRecord {
        fork: fork.clone(),
        name: free.clone(),
        version,
        automatic: true,
        message: message.to_owned(),
        at,
    })?;
    Ok(free)
}

/// The first of `STEMend`, `STEMend-2`, `STEMend-3` … that `take` accepts; the stem is shortened to fit the length
/// limit.
fn numbered<T>(stem: &str, end: &str, take: impl Fn(String) -> Result<Option<T>>) -> Result<T> {
    let mut number = 1_u64;
    loop {
        let end = if number == 1 { end.to_owned() } else { format!("{end}-{number}") };
        let room = NAME_BYTES_MAX - end.len();
        // Names are ASCII, so every index is a character boundary.
        let stem = stem.get(..room).unwrap_or(stem);
        if let Some(taken) = take(format!("{stem}{end}"))? {
            return Ok(taken);
        }
        number += 1;
    }
}
