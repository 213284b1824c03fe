//! The rows stored by a backend.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    ApprovalId, AuditDigest, BatchId, BlobId, CheckpointName, ContentId, DIGEST_BYTES, ForkName, ListDigest,
    MemoKey, PartDigest, RecordingName, RequestDigest, RunId, TreeId, VersionId,
};
use avfs_types::path::TreePath;

/// The encoding of a blob's data.
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

/// A blob as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRecord {
    /// The digest of the content.
    pub id: BlobId,
    /// Bytes of the decoded content, not of `data`.
    pub size: u64,
    /// The encoding of `data`.
    pub codec: Codec,
    /// The bytes as stored.
    pub data: Vec<u8>,
}

/// A version. Its id is the digest of all fields except `pruned_at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    /// The digest of the record.
    pub id: VersionId,
    /// The root of its tree, modification times included.
    pub root: TreeId,
    /// The same tree without modification times.
    pub content: ContentId,
    /// The versions it was made from; the first is the head that it replaced. Empty for the first version.
    pub parents: Vec<VersionId>,
    /// The run that created it; `None` if it was not created by a run.
    pub run: Option<String>,
    /// A description.
    pub message: String,
    /// The user who created it.
    pub author: String,
    /// When it was created.
    pub at: Timestamp,
    /// Entries of the whole tree.
    pub entries: u64,
    /// Bytes of all files; each hard link is counted.
    pub bytes: u64,
    /// How much of the directory its tree contains.
    pub extent: Extent,
    /// When a prune deleted the content; the record itself stays.
    pub pruned_at: Option<Timestamp>,
}

/// How much of a directory the tree of a version contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    #[default]
    Full,
    /// Only the paths that one run changed: usable for comparison, not as a directory.
    Partial,
}

/// Precedes the parents of a partial version. No version has this id.
const PARTIAL_MARK: VersionId = VersionId([0; DIGEST_BYTES]);

impl VersionRecord {
    /// The parents as stored and as covered by the id: after the mark, if the version is partial.
    pub(crate) fn marked_parents(&self) -> impl Iterator<Item = &VersionId> {
        let mark = match self.extent {
            Extent::Full => None,
            Extent::Partial => Some(&PARTIAL_MARK),
        };
        mark.into_iter().chain(&self.parents)
    }

    /// Removes the mark from stored parents.
    pub(crate) fn unmark(mut stored: Vec<VersionId>) -> (Vec<VersionId>, Extent) {
        match stored.first() == Some(&PARTIAL_MARK) {
            true => (stored.split_off(1), Extent::Partial),
            false => (stored, Extent::Full),
        }
    }
}

/// The lifetime of a fork.
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
    /// The version at its head.
    pub head: VersionId,
    /// The version it started from.
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
    /// A description.
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
    /// The action, such as `fork.create`.
    pub action: String,
    /// The object of the action, such as the name of a fork.
    pub subject: String,
    /// The digest before the action, such as the head of a fork.
    pub before: Option<[u8; DIGEST_BYTES]>,
    /// The digest after the action.
    pub after: Option<[u8; DIGEST_BYTES]>,
    /// Details as `key=value` words; may be empty.
    pub detail: String,
    /// The digest of this row, which covers the row before it.
    pub digest: AuditDigest,
}

/// A commit that was acknowledged but is not in the vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCommit {
    /// The number of its last row in the audit log.
    pub seq: i64,
    /// When it was made.
    pub at: Timestamp,
    /// The action, such as `fork.write`.
    pub action: String,
    /// The object of the action, such as the name of a fork.
    pub subject: String,
}

/// The acknowledged commits that are missing from a vault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// True if the write-ahead log is damaged; false if the vault is an older copy of itself.
    pub is_damaged: bool,
    /// Rows of the audit log that are missing.
    pub rows: u64,
    /// The newest commits that are missing, oldest first.
    pub lost: Vec<LostCommit>,
}

impl std::fmt::Display for Rollback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// The maximum number of commits to name.
        const NAMED: usize = 3;
        let entries = if self.rows == 1 { "entry" } else { "entries" };
        write!(f, "{} {entries} of the audit log that were acknowledged", self.rows)?;
        let named: Vec<String> = self.lost.iter().rev().take(NAMED).map(LostCommit::text).collect();
        let more = if self.lost.len() > NAMED { ", and others" } else { "" };
        write!(f, ", most recently {}{more}", named.join(", "))
    }
}

impl LostCommit {
    fn text(&self) -> String {
        let subject = if self.subject.is_empty() { String::new() } else { format!(" {}", self.subject) };
        format!("{}{subject} ({})", self.action, avfs_types::clock::time_text(self.at))
    }
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The command ended and its changes are kept.
    Completed,
    /// The command was not run, or its changes cannot be recovered.
    Failed,
    /// The run started, but the process that ran it died before the end.
    Interrupted,
    /// The command ended, but its changes are not in the vault yet: they can still be captured.
    Recoverable,
    /// Denied by the policy or by a person: nothing was run.
    Denied,
    /// Waiting for a person's approval: nothing has been run yet.
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

    /// The name of the state in the store and in JSON.
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

    /// True if the state is final: the journal row will not change any more.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Denied => true,
            Self::Interrupted | Self::Recoverable | Self::ApprovalRequired => false,
        }
    }
}

/// One row of the journal. The three texts are JSON that the backend does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The position in the journal, assigned by the store; ignored when a run is stored.
    pub seq: i64,
    /// The id of the run.
    pub id: RunId,
    /// The fork its changes went to, or would have gone to.
    pub fork: ForkName,
    /// How it ended.
    pub state: RunState,
    /// The version that the changes are relative to; the only version if nothing changed.
    pub version_before: Option<VersionId>,
    /// The version with its changes; `None` if it changed nothing or its changes were not kept.
    pub version_after: Option<VersionId>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended; `None` if unknown.
    pub ended_at: Option<Timestamp>,
    /// The exit status; `None` if the command was killed or never ran.
    pub exit_code: Option<i32>,
    /// The signal that killed the command.
    pub signal: Option<i32>,
    /// When its changes were applied to the bound directory; `None` if they were not.
    pub applied_at: Option<Timestamp>,
    /// When its changes were discarded; `None` if they were not.
    pub discarded_at: Option<Timestamp>,
    /// The request as JSON, which the vault does not parse.
    pub request: String,
    /// The decision as JSON, which the vault does not parse.
    pub decision: String,
    /// The result as JSON, which the vault does not parse.
    pub result: String,
}

/// An application of changes to the bound directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationRecord {
    /// The position among the applications, assigned by the store; 0 for a new one.
    pub seq: i64,
    /// The fork that the changes are from.
    pub fork: ForkName,
    /// The runs that made the changes.
    pub runs: Vec<RunId>,
    /// The version before the changes.
    pub before: VersionId,
    /// The version with all of the changes.
    pub after: VersionId,
    /// Which of the changes were selected, as JSON, which the vault does not parse.
    pub choice: String,
    /// Paths whose change the directory already had.
    pub already: Vec<TreePath>,
    /// When it started.
    pub started_at: Timestamp,
    /// When everything was written; `None` if it was interrupted.
    pub ended_at: Option<Timestamp>,
    /// When it was undone in the directory.
    pub undone_at: Option<Timestamp>,
    /// Until when the versions are kept.
    pub expires_at: Timestamp,
}

/// A batch: a list of commands that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    /// The id of the batch.
    pub id: BatchId,
    /// The digest of the whole list.
    pub list: ListDigest,
    /// The version that its first items start from.
    pub base: VersionId,
    /// When it started.
    pub started_at: Timestamp,
    /// When its last item ended; `None` while items remain.
    pub ended_at: Option<Timestamp>,
    /// How the batch is run, as JSON that the backend does not parse.
    pub plan: String,
}

/// The state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// Not decided yet.
    Pending,
    /// Approved, and not used yet.
    Approved,
    /// Denied by a person.
    Denied,
    /// Used by one run; cannot be used again.
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

    /// Whether the transition is allowed. A decision can be changed until the approval is used.
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

/// A request for a person's approval of one exact request. The texts are JSON that the backend does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRecord {
    /// Assigned by the store.
    pub seq: i64,
    /// The id of the approval.
    pub id: ApprovalId,
    /// The only request that it is valid for.
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
    /// The time from which it is no longer valid, decided or not.
    pub expires_at: Timestamp,
    /// When it was decided; `None` while pending.
    pub decided_at: Option<Timestamp>,
    /// The user who decided.
    pub decided_by: Option<String>,
    /// The run that used it.
    pub used_by: Option<RunId>,
}

/// Runs that belong together: the rows of the journal between two marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRecord {
    /// Assigned by the store.
    pub(crate) seq: i64,
    /// Unique in the vault.
    pub name: RecordingName,
    /// The fork whose runs are recorded; `None` for all forks.
    pub fork: Option<ForkName>,
    /// The `seq` of the last run before the recording started.
    pub after_run: i64,
    /// The `seq` of its last run; `None` while it is open.
    pub last_run: Option<i64>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it was stopped; `None` while it is open.
    pub stopped_at: Option<Timestamp>,
}

/// The result of a run, kept for reuse by an identical request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoRecord {
    /// Assigned by the store; a newer result has a higher number.
    pub seq: i64,
    /// The digest of everything the result depends on.
    pub key: MemoKey,
    /// The command's part of the key, used to find similar results.
    pub(crate) command: PartDigest,
    /// Every part of the key, as JSON that the backend does not parse.
    pub parts: String,
    /// The run that produced the result.
    pub run: RunId,
    /// The exit status of the run.
    pub exit_code: i32,
    /// The blob of the standard output.
    pub stdout: BlobId,
    /// The blob of the standard error.
    pub stderr: BlobId,
    /// BLAKE3 of standard output.
    pub stdout_digest: [u8; DIGEST_BYTES],
    /// BLAKE3 of standard error.
    pub stderr_digest: [u8; DIGEST_BYTES],
    /// The version that the run started from.
    pub version_before: Option<VersionId>,
    /// The version with the changes; `None` if the run changed nothing.
    pub version_after: Option<VersionId>,
    /// When the result was stored.
    pub created_at: Timestamp,
    /// The time from which the result is not used.
    pub expires_at: Timestamp,
}

/// The kind of an object that can be swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// Pages of directories.
    Tree,
    /// Blobs.
    Blob,
}

/// The contents of a store, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the vault file.
    pub file_bytes: u64,
    /// Bytes of the file that are not in use.
    pub free_bytes: u64,
    /// Blobs, chunk lists included.
    pub blobs: u64,
    /// Bytes of the blobs as stored.
    pub blob_stored_bytes: u64,
    /// Bytes of the decoded content of the blobs, chunk lists excluded.
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
