//! The rows a backend keeps.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    ApprovalId, AuditDigest, BatchId, BlobId, CheckpointName, ContentId, DIGEST_BYTES, ForkName, ListDigest,
    MemoKey, PartDigest, RecordingName, RequestDigest, RunId, TreeId, VersionId,
};
use avfs_types::path::TreePath;

/// How a blob's data is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The content itself.
    Raw,
    /// The content, compressed with zstd.
    Zstd,
    /// A list of chunks, holes and further lists.
    List,
}

impl Codec {
    #[must_use]
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
            Self::List => 2,
        }
    }

    #[must_use]
    pub(crate) const fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Raw),
            1 => Some(Self::Zstd),
            2 => Some(Self::List),
            _ => None,
        }
    }
}

/// A blob as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRecord {
    /// The digest of the content.
    pub id: BlobId,
    /// Bytes of the content it stands for, not of `data`.
    pub size: u64,
    /// How `data` is to be read.
    pub codec: Codec,
    /// The bytes as stored.
    pub data: Vec<u8>,
}

/// A version. Its id is the digest of all fields but `pruned_at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    /// The digest of the record.
    pub id: VersionId,
    /// The root of its tree, times included.
    pub root: TreeId,
    /// The same tree without modification times.
    pub content: ContentId,
    /// The versions it was made from; the first is the head that it replaced. Empty for the first version.
    pub parents: Vec<VersionId>,
    /// The run that made it; `None` if none did.
    pub run: Option<String>,
    /// What it is for, in words.
    pub message: String,
    /// The user who made it.
    pub author: String,
    /// When it was made.
    pub at: Timestamp,
    /// Entries of the whole tree, and the bytes of its files.
    pub entries: u64,
    /// Bytes of all files, each hardlinked name counted.
    pub bytes: u64,
    /// How much of the directory its tree holds.
    pub extent: Extent,
    /// When the content was given up by a prune; the record itself stays.
    pub pruned_at: Option<Timestamp>,
}

/// How much of a directory the tree of a version holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    #[default]
    Full,
    /// Only the paths that one run touched: good for comparing, not for use as a directory.
    Partial,
}

/// Stands before the parents of a partial version. No version has this id.
const PARTIAL_MARK: VersionId = VersionId([0; DIGEST_BYTES]);

impl VersionRecord {
    /// The parents as they are stored and as the id covers them: behind the mark, if the version is partial.
    pub(crate) fn marked_parents(&self) -> impl Iterator<Item = &VersionId> {
        let mark = match self.extent {
            Extent::Full => None,
            Extent::Partial => Some(&PARTIAL_MARK),
        };
        mark.into_iter().chain(&self.parents)
    }

    /// Takes the mark off stored parents.
    pub(crate) fn unmark(mut stored: Vec<VersionId>) -> (Vec<VersionId>, Extent) {
        match stored.first() == Some(&PARTIAL_MARK) {
            true => (stored.split_off(1), Extent::Partial),
            false => (stored, Extent::Full),
        }
    }
}

/// How long a fork lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Until it is deleted.
    Persistent,
    /// Until it expires or is deleted: the fork of a run.
    Ephemeral {
        /// When a sweep removes the fork.
        expires_at: Timestamp,
    },
}

/// A fork: a named head that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkRecord {
    /// Unique in the vault.
    pub name: ForkName,
    /// The version it is at.
    pub head: VersionId,
    /// Where it began, and on which fork that version was taken from.
    pub base: VersionId,
    /// The fork that `base` was taken from; `None` for the main fork.
    pub parent: Option<ForkName>,
    /// When it was created.
    pub created_at: Timestamp,
    /// How long it lives.
    pub life: Life,
}

/// A checkpoint: a label that pins a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The fork it belongs to.
    pub fork: ForkName,
    /// Unique on its fork.
    pub name: CheckpointName,
    /// The version that it pins.
    pub version: VersionId,
    /// Saved by a run: a prune may remove it.
    pub automatic: bool,
    /// What it is for, in words.
    pub message: String,
    /// When it was saved.
    pub at: Timestamp,
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// The number of the row, from 1 and without gaps.
    pub seq: i64,
    /// When it was written.
    pub at: Timestamp,
    /// The user who acted.
    pub actor: String,
    /// What was done, such as `fork.create`.
    pub action: String,
    /// What it was done to, such as the name of a fork.
    pub subject: String,
    /// The digest that stood there before, such as the head of a fork.
    pub before: Option<[u8; DIGEST_BYTES]>,
    /// The digest that stands there after.
    pub after: Option<[u8; DIGEST_BYTES]>,
    /// More about it as `key=value` words; may be empty.
    pub detail: String,
    /// The digest of this row, which covers the row before it.
    pub digest: AuditDigest,
}

/// A commit that was acknowledged and is not in the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCommit {
    /// The number of its last row in the audit log.
    pub seq: i64,
    /// When it was made.
    pub at: Timestamp,
    /// What was done, such as `fork.write`.
    pub action: String,
    /// What it was done to, such as the name of a fork.
    pub subject: String,
}

/// What a vault lacks that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// Its log is damaged. Otherwise it is an older copy of itself.
    pub is_damaged: bool,
    /// Rows of the audit log that are missing.
    pub rows: u64,
    /// The newest commits that are missing, oldest first.
    pub lost: Vec<LostCommit>,
}

impl std::fmt::Display for Rollback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// Commits that are named.
        const NAMED: usize = 3;
        let entries = if self.rows == 1 { "entry" } else { "entries" };
        write!(f, "{} {entries} of the audit log that had been acknowledged", self.rows)?;
        let named: Vec<String> = self.lost.iter().rev().take(NAMED).map(LostCommit::text).collect();
        let more = if self.lost.len() > NAMED { ", and others" } else { "" };
        write!(f, ", the last ones: {}{more}", named.join(", "))
    }
}

impl LostCommit {
    fn text(&self) -> String {
        let subject = if self.subject.is_empty() { String::new() } else { format!(" {}", self.subject) };
        format!("{}{subject} ({})", self.action, avfs_types::clock::time_text(self.at))
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The command ended and what it changed is kept.
    Completed,
    /// The command was not run, or what it did cannot be had.
    Failed,
    /// It was begun, and whoever ran it died before its end.
    Interrupted,
    /// The command ended, but its changes are not in the vault yet: they can still be captured.
    Recoverable,
    /// The rules or a person said no: nothing was run.
    Denied,
    /// A person has to say yes first: nothing was run so far.
    ApprovalRequired,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Failed,
        Self::Interrupted,
        Self::Recoverable,
        Self::Denied,
        Self::ApprovalRequired,
    ];

    /// The word that the store and JSON have for the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Recoverable => "recoverable",
            Self::Denied => "denied",
            Self::ApprovalRequired => "approval_required",
        }
    }

    #[must_use]
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// True if nothing more can come of the run: it is in the journal as it will stay.
    #[must_use]
    pub(crate) const fn is_settled(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Denied => true,
            Self::Interrupted | Self::Recoverable | Self::ApprovalRequired => false,
        }
    }
}

/// One row of the journal. What the three texts hold is JSON that the backend does not look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The order of the journal, given by the store: what it is before is of no account.
    pub seq: i64,
    /// The id of the run.
    pub id: RunId,
    /// The fork its changes went to, or would have gone to.
    pub fork: ForkName,
    /// How it ended.
    pub state: RunState,
    /// The version its changes are changes of; the only one there is if it changed nothing.
    pub version_before: Option<VersionId>,
    /// The version with its changes; `None` if it changed nothing or its changes were not kept.
    pub version_after: Option<VersionId>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended; `None` if that is not known.
    pub ended_at: Option<Timestamp>,
    /// The exit status; `None` if the command was killed or never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// When its changes were written to the bound directory, or dropped.
    pub applied_at: Option<Timestamp>,
    /// When its changes were discarded; `None` if they were not.
    pub discarded_at: Option<Timestamp>,
    /// The request as JSON, which the vault does not look into.
    pub request: String,
    /// The decision as JSON, which the vault does not look into.
    pub decision: String,
    /// The result as JSON, which the vault does not look into.
    pub result: String,
}

/// Changes that were written to the bound directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationRecord {
    /// The order of applications, given by the store: 0 for one that is new.
    pub seq: i64,
    /// The fork whose changes they are.
    pub fork: ForkName,
    /// The runs that made them.
    pub runs: Vec<RunId>,
    /// The version they are changes of.
    pub before: VersionId,
    /// The version with all of them.
    pub after: VersionId,
    /// Which of them were to be written, as JSON, which the vault does not look into.
    pub choice: String,
    /// Paths of those that the directory had already.
    pub already: Vec<TreePath>,
    /// When it started.
    pub started_at: Timestamp,
    /// When everything was written; `None` if it was interrupted.
    pub ended_at: Option<Timestamp>,
    /// When it was taken out of the directory again.
    pub undone_at: Option<Timestamp>,
    /// Until then the versions are kept.
    pub expires_at: Timestamp,
}

/// A list of commands that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The id of the batch.
    pub id: BatchId,
    /// Of the whole list.
    pub list: ListDigest,
    /// What its first items stand on.
    pub base: VersionId,
    /// When it started.
    pub started_at: Timestamp,
    /// When its last item had ended; nothing as long as there is something left to do.
    pub ended_at: Option<Timestamp>,
    /// JSON that the backend does not look into: how it is run.
    pub plan: String,
}

/// How an approval stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has decided yet.
    Pending,
    /// Somebody said yes, and it was not used yet.
    Approved,
    /// Somebody said no.
    Denied,
    /// It let one run through and is worth nothing now.
    Used,
}

impl ApprovalState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::Used];

    #[must_use]
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Used => "used",
        }
    }

    #[must_use]
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// A person may think again until it is used.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Pending, Self::Approved | Self::Denied)
            | (Self::Approved, Self::Denied | Self::Used)
            | (Self::Denied, Self::Approved) => true,
            (
                Self::Pending | Self::Approved | Self::Denied | Self::Used,
                Self::Pending | Self::Approved | Self::Denied | Self::Used,
            ) => false,
        }
    }
}

/// A question to a person: may this very request be run? The texts are JSON that the backend does not look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRecord {
    /// Given by the store.
    pub seq: i64,
    /// The id of the approval.
    pub id: ApprovalId,
    /// The only request it is good for.
    pub request_digest: RequestDigest,
    /// The state as stored: expiry does not change it.
    pub state: ApprovalState,
    /// The run that asked.
    pub asked_by: RunId,
    /// Why a person is asked.
    pub reason: String,
    /// The request as JSON.
    pub request: String,
    /// The decision that asks for the approval, as JSON.
    pub decision: String,
    /// When the request was made.
    pub created_at: Timestamp,
    /// From then on it is worth nothing, decided or not.
    pub expires_at: Timestamp,
    /// When it was decided; `None` while pending.
    pub decided_at: Option<Timestamp>,
    /// The user who decided.
    pub decided_by: Option<String>,
    /// The run it let through.
    pub used_by: Option<RunId>,
}

/// Runs that belong together: the rows of the journal between two marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRecord {
    /// Given by the store.
    pub(crate) seq: i64,
    /// Unique in the vault.
    pub name: RecordingName,
    /// The fork whose runs are meant; nothing for all of them.
    pub fork: Option<ForkName>,
    /// The last run before it began, and the last one before it ended, by their sequence numbers.
    pub after_run: i64,
    /// The `seq` of its last run; `None` while it is open.
    pub last_run: Option<i64>,
    /// When it started.
    pub started_at: Timestamp,
    /// Nothing while it is open.
    pub stopped_at: Option<Timestamp>,
}

/// What came of a run, kept to be taken for another one like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoRecord {
    /// Given by the store; a newer result has a higher one.
    pub seq: i64,
    /// The digest of everything the result depends on.
    pub key: MemoKey,
    /// The part of the key that is the command, to find results that are nearly the same.
    pub(crate) command: PartDigest,
    /// Every part of the key, as JSON that the backend does not look into.
    pub parts: String,
    /// The run that made the result.
    pub run: RunId,
    /// The exit status of the run.
    pub exit_code: i32,
    /// What the command wrote: where it is kept, and its plain BLAKE3.
    pub stdout: BlobId,
    /// Where standard error is kept.
    pub stderr: BlobId,
    /// BLAKE3 of standard output.
    pub stdout_digest: [u8; DIGEST_BYTES],
    /// BLAKE3 of standard error.
    pub stderr_digest: [u8; DIGEST_BYTES],
    /// The version that the run started from.
    pub version_before: Option<VersionId>,
    /// Nothing if it changed nothing.
    pub version_after: Option<VersionId>,
    /// When the result was stored.
    pub created_at: Timestamp,
    /// From then on the result is not used.
    pub expires_at: Timestamp,
}

/// What is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Pages of directories.
    Tree,
    /// Blobs.
    Blob,
}

/// What a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the vault file, and those of them that hold nothing.
    pub file_bytes: u64,
    /// Bytes of the file that are not in use.
    pub free_bytes: u64,
    /// Blobs, chunk lists included.
    pub blobs: u64,
    /// Bytes of the blobs as stored, and of the content they stand for (chunk lists apart).
    pub blob_stored_bytes: u64,
    /// Bytes of the content that the blobs stand for, chunk lists apart.
    pub blob_content_bytes: u64,
    /// Pages of directories.
    pub trees: u64,
    /// Bytes of the pages as stored.
    pub tree_bytes: u64,
    /// Versions, pruned ones included.
    pub versions: u64,
    /// Rows of the audit log.
    pub audit_rows: u64,
    /// Runs of the journal.
    pub runs: u64,
}
