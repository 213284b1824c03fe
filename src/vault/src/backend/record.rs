//! The rows a backend keeps.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    ApprovalId, AuditDigest, BatchId, BlobId, CheckpointName, ContentId, DIGEST_BYTES, ForkName, ListDigest,
    MemoKey, PartDigest, RecordingName, RequestDigest, RunId, TreeId, VersionId,
};

/// How a blob's data is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Raw,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRecord {
    pub id: BlobId,
    /// Bytes of the content it stands for, not of `data`.
    pub size: u64,
    pub codec: Codec,
    pub data: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRecord {
    pub id: VersionId,
    pub root: TreeId,
    pub content: ContentId,
    pub parents: Vec<VersionId>,
    pub run: Option<String>,
    pub message: String,
    pub author: String,
    pub at: Timestamp,
    /// Entries of the whole tree, and the bytes of its files.
    pub entries: u64,
    pub bytes: u64,
    /// When the content was given up by a prune; the record itself stays.
    pub pruned_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Persistent,
    Ephemeral { expires_at: Timestamp },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkRecord {
    pub name: ForkName,
    pub head: VersionId,
    /// Where it began, and on which fork that version was taken from.
    pub base: VersionId,
    pub parent: Option<ForkName>,
    pub created_at: Timestamp,
    pub life: Life,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    pub fork: ForkName,
    pub name: CheckpointName,
    pub version: VersionId,
    pub automatic: bool,
    pub message: String,
    pub at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    pub seq: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub before: Option<[u8; DIGEST_BYTES]>,
    pub after: Option<[u8; DIGEST_BYTES]>,
    pub detail: String,
    pub digest: AuditDigest,
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
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Failed,
        Self::Interrupted,
        Self::Recoverable,
        Self::Denied,
        Self::ApprovalRequired,
    ];

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
    pub id: RunId,
    /// The fork its changes went to, or would have gone to.
    pub fork: ForkName,
    pub state: RunState,
    /// The version its changes are changes of; the only one there is if it changed nothing.
    pub version_before: Option<VersionId>,
    pub version_after: Option<VersionId>,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// When its changes were written to the bound directory, or dropped.
    pub applied_at: Option<Timestamp>,
    pub discarded_at: Option<Timestamp>,
    pub request: String,
    pub decision: String,
    pub result: String,
}

/// A list of commands that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    pub id: BatchId,
    /// Of the whole list.
    pub list: ListDigest,
    /// What its first items stand on.
    pub base: VersionId,
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
    pub id: ApprovalId,
    /// The only request it is good for.
    pub request_digest: RequestDigest,
    pub state: ApprovalState,
    /// The run that asked.
    pub asked_by: RunId,
    pub reason: String,
    pub request: String,
    pub decision: String,
    pub created_at: Timestamp,
    /// From then on it is worth nothing, decided or not.
    pub expires_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    pub decided_by: Option<String>,
    /// The run it let through.
    pub used_by: Option<RunId>,
}

/// Runs that belong together: the rows of the journal between two marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRecord {
    /// Given by the store.
    pub(crate) seq: i64,
    pub name: RecordingName,
    /// The fork whose runs are meant; nothing for all of them.
    pub fork: Option<ForkName>,
    /// The last run before it began, and the last one before it ended, by their sequence numbers.
    pub after_run: i64,
    pub last_run: Option<i64>,
    pub started_at: Timestamp,
    /// Nothing while it is open.
    pub stopped_at: Option<Timestamp>,
}

/// What came of a run, kept to be taken for another one like it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoRecord {
    /// Given by the store; a newer result has a higher one.
    pub seq: i64,
    pub key: MemoKey,
    /// The part of the key that is the command, to find results that are nearly the same.
    pub(crate) command: PartDigest,
    /// Every part of the key, as JSON that the backend does not look into.
    pub parts: String,
    pub run: RunId,
    pub exit_code: i32,
    /// What the command wrote: where it is kept, and its plain BLAKE3.
    pub stdout: BlobId,
    pub stderr: BlobId,
    pub stdout_digest: [u8; DIGEST_BYTES],
    pub stderr_digest: [u8; DIGEST_BYTES],
    pub version_before: Option<VersionId>,
    /// Nothing if it changed nothing.
    pub version_after: Option<VersionId>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// What is swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Tree,
    Blob,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the vault file, and those of them that hold nothing.
    pub file_bytes: u64,
    pub free_bytes: u64,
    pub blobs: u64,
    /// Bytes of the blobs as stored, and of the content they stand for (chunk lists apart).
    pub blob_stored_bytes: u64,
    pub blob_content_bytes: u64,
    pub trees: u64,
    pub tree_bytes: u64,
    pub versions: u64,
    pub audit_rows: u64,
    pub runs: u64,
}
