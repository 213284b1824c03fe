//! Entries of a tree and changes between trees on the wire.

use schemars::JsonSchema;
use serde::Serialize;

use crate::hostfs::stat::FileTime;
use crate::ids::to_hex;
use crate::runtime::ChangeCounts;
use crate::vault::diff::{Change, ChangeKind, Side};
use crate::vault::page::{DirMeta, Node};
use crate::vault::path::TreePath;

use super::text::{PathText, base64, time_of_file};

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    File,
    Dir,
    Symlink,
    Fifo,
}

impl NodeKind {
    #[must_use]
    pub fn of(node: &Node) -> Self {
        match node {
            Node::File(_) => Self::File,
            Node::Dir(_) => Self::Dir,
            Node::Symlink(_) => Self::Symlink,
            Node::Fifo(_) => Self::Fifo,
        }
    }
}

/// One entry of a tree.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EntryObject {
    #[serde(flatten)]
    pub path: PathText,
    pub kind: NodeKind,
    /// Four octal digits; nothing for a symlink, which has no mode of its own.
    pub mode: Option<String>,
    /// Bytes of a file, or of all files beneath a directory.
    pub size: u64,
    pub mtime: String,
    pub mtime_ns: i64,
    /// BLAKE3 of a file's bytes (of the chunk list for a large one); for a directory the digest of its content.
    pub digest: Option<String>,
    /// What a symlink points to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Only for a target that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_base64: Option<String>,
    /// The same for every name of one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardlink: Option<String>,
}

impl EntryObject {
    /// `dir_meta` is the metadata of a directory, which its parent does not know.
    #[must_use]
    pub fn of(path: &TreePath, node: &Node, dir_meta: Option<&DirMeta>) -> Self {
        let (mode, time) = mode_and_time(node, dir_meta);
        let mut entry = Self {
            path: PathText::of(path),
            kind: NodeKind::of(node),
            mode: mode.map(|mode| format!("{mode:04o}")),
            size: node.totals().bytes,
            mtime: time_of_file(time),
            mtime_ns: time.saturating_nanos(),
            digest: digest_of(node),
            target: None,
            target_base64: None,
            hardlink: node.link().map(|link| to_hex(&link.0)),
        };
        if let Node::Symlink(link) = node {
            let text = std::str::from_utf8(&link.target);
            entry.target_base64 = text.is_err().then(|| base64(&link.target));
            entry.target = Some(String::from_utf8_lossy(&link.target).into_owned());
        }
        entry
    }
}

fn mode_and_time(node: &Node, dir_meta: Option<&DirMeta>) -> (Option<u32>, FileTime) {
    match node {
        Node::File(file) => (Some(file.mode), file.mtime),
        Node::Symlink(link) => (None, link.mtime),
        Node::Fifo(fifo) => (Some(fifo.mode), fifo.mtime),
        Node::Dir(_) => dir_meta.map_or((None, FileTime::default()), |meta| (Some(meta.mode), meta.mtime)),
    }
}

fn digest_of(node: &Node) -> Option<String> {
    match node {
        Node::File(file) => Some(file.content.id().to_hex()),
        Node::Symlink(link) => Some(to_hex(blake3::hash(&link.target).as_bytes())),
        Node::Dir(dir) => Some(dir.content.to_hex()),
        Node::Fifo(_) => None,
    }
}

#[derive(Clone, Copy, Debug, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKindName {
    Added,
    Modified,
    Deleted,
    Renamed,
    /// Mode, extended attributes or hardlinks, but not the content.
    Mode,
    /// A file became a directory, a link became a file, and so on.
    Type,
    /// Nothing but the modification time.
    Time,
}

impl ChangeKindName {
    #[must_use]
    pub fn of(kind: &ChangeKind) -> Self {
        match kind {
            ChangeKind::Added => Self::Added,
            ChangeKind::Deleted => Self::Deleted,
            ChangeKind::Modified => Self::Modified,
            ChangeKind::Renamed { .. } => Self::Renamed,
            ChangeKind::Mode => Self::Mode,
            ChangeKind::Type => Self::Type,
            ChangeKind::Time => Self::Time,
        }
    }
}

/// One path that differs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ChangeObject {
    #[serde(flatten)]
    pub path: PathText,
    pub kind: ChangeKindName,
    /// Where a renamed file was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<String>,
    pub size_before: Option<u64>,
    pub size_after: Option<u64>,
    pub digest_before: Option<String>,
    pub digest_after: Option<String>,
    pub mode_before: Option<String>,
    pub mode_after: Option<String>,
}

impl From<&Change> for ChangeObject {
    fn from(change: &Change) -> Self {
        let from = match &change.kind {
            ChangeKind::Renamed { from } => Some(PathText::of(from)),
            ChangeKind::Added
            | ChangeKind::Deleted
            | ChangeKind::Modified
            | ChangeKind::Mode
            | ChangeKind::Type
            | ChangeKind::Time => None,
        };
        let size = |side: &Option<Side>| side.as_ref().map(|side| side.node.totals().bytes);
        let digest = |side: &Option<Side>| side.as_ref().and_then(|side| digest_of(&side.node));
        let mode = |side: &Option<Side>| {
            let mode = side.as_ref().and_then(|side| mode_and_time(&side.node, side.dir_meta.as_ref()).0);
            mode.map(|mode| format!("{mode:04o}"))
        };
        Self {
            path: PathText::of(&change.path),
            kind: ChangeKindName::of(&change.kind),
            from_base64: from.as_ref().and_then(|from| from.path_base64.clone()),
            from: from.map(|from| from.path),
            size_before: size(&change.before),
            size_after: size(&change.after),
            digest_before: digest(&change.before),
            digest_after: digest(&change.after),
            mode_before: mode(&change.before),
            mode_after: mode(&change.after),
        }
    }
}

/// Changes by kind.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub struct ChangeTotals {
    pub added: u64,
    pub modified: u64,
    pub deleted: u64,
    pub renamed: u64,
    pub mode: u64,
    pub r#type: u64,
    pub time: u64,
    pub total: u64,
}

impl From<&ChangeCounts> for ChangeTotals {
    fn from(counts: &ChangeCounts) -> Self {
        Self {
            added: counts.added,
            modified: counts.modified,
            deleted: counts.deleted,
            renamed: counts.renamed,
            mode: counts.mode,
            r#type: counts.type_changed,
            time: counts.time,
            total: counts.total(),
        }
    }
}
