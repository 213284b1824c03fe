//! The rows a backend keeps.

use crate::clock::Timestamp;
use crate::ids::{AuditDigest, BlobId, CheckpointName, ContentId, DIGEST_BYTES, ForkName, TreeId, VersionId};

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
    pub const fn number(self) -> i64 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
            Self::List => 2,
        }
    }

    #[must_use]
    pub const fn from_number(number: i64) -> Option<Self> {
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
}
