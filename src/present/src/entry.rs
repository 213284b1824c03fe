//! Entries of trees and changes as wire types.

use std::sync::Arc;

use avfs_changes::{ChangeCounts, ChangeSummary};
use avfs_types::base64::base64;
use avfs_types::clock::{FileTime, time_of_file};
use avfs_types::ids::to_hex;
use avfs_types::path::TreePath;
use avfs_vault::diff::{Change, ChangeKind, Side};
use avfs_vault::page::{DirMeta, Node};
use avfs_wire::{
    ChangeKindName, ChangeObject, ChangeTotals, EntryObject, LongList, NodeKind, PathText, RowError,
};

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

#[must_use]
pub fn node_kind(node: &Node) -> NodeKind {
    match node {
        Node::File(_) => NodeKind::File,
        Node::Dir(_) => NodeKind::Dir,
        Node::Symlink(_) => NodeKind::Symlink,
        Node::Fifo(_) => NodeKind::Fifo,
    }
}

/// `dir_meta` is the metadata of a directory, which its parent does not contain.
#[must_use]
pub fn entry(path: &TreePath, node: &Node, dir_meta: Option<&DirMeta>) -> EntryObject {
    let (mode, time) = mode_and_time(node, dir_meta);
    let mut entry = EntryObject {
        path: PathText::of(path),
        kind: crate::node_kind(node),
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

#[must_use]
pub fn change_kind(kind: &ChangeKind) -> ChangeKindName {
    match kind {
        ChangeKind::Added => ChangeKindName::Added,
        ChangeKind::Deleted => ChangeKindName::Deleted,
        ChangeKind::Modified => ChangeKindName::Modified,
        ChangeKind::Renamed { .. } => ChangeKindName::Renamed,
        ChangeKind::Mode => ChangeKindName::Mode,
        ChangeKind::Type => ChangeKindName::Type,
        ChangeKind::Time => ChangeKindName::Time,
    }
}

#[must_use]
pub fn change(change: &Change) -> ChangeObject {
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
    ChangeObject {
        path: PathText::of(&change.path),
        kind: crate::change_kind(&change.kind),
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

/// The changes as a list that is made while it is written.
#[must_use]
pub fn change_list(summary: &ChangeSummary) -> LongList<ChangeObject> {
    let changes = Arc::clone(&summary.changes);
    LongList::new(move |each| {
        for one in changes.iter() {
            let one = one.map_err(|error| RowError::Make(error.to_string()))?;
            each(crate::change(&one))?;
        }
        Ok(())
    })
}

#[must_use]
pub fn change_totals(counts: &ChangeCounts) -> ChangeTotals {
    ChangeTotals {
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
