//! Results of verbs as wire types.

use avfs_changes::{Extent, LineStat, TreeLine, file_sizes};
use avfs_types::diagnose::Diagnose;
use avfs_types::path::TreePath;
use avfs_vault::diff::Change;
use avfs_vault::fork_use::ForkUse;
use avfs_vault::import::{Imported, Trouble, TroubleReason};
use avfs_vault::{Committed, VaultError};
use avfs_wire::{
    ChangeTotals, DiffTreeLine, Edited, FileStat, ForkUseObject, Import, LeftOutObject, PathText,
    TroubleObject,
};

#[must_use]
pub fn edited(fork: &avfs_types::ids::ForkName, committed: &Committed) -> Edited {
    Edited {
        fork: fork.to_string(),
        changed: committed.changed(),
        version: crate::version(&committed.version),
        previous: committed.previous.to_hex(),
    }
}

#[must_use]
pub fn import(
    fork: &avfs_types::ids::ForkName,
    dir: &std::path::Path,
    imported: &Imported,
    counts: Option<ChangeTotals>,
) -> Import {
    Import {
        edited: crate::edited(fork, &imported.committed),
        dir: dir.to_string_lossy().into_owned(),
        files_read: imported.scanned.files_read,
        bytes_read: imported.scanned.bytes_read,
        mended: imported.scanned.mended,
        change_counts: counts,
        troubles: imported.scanned.troubles.iter().map(crate::trouble).collect(),
    }
}

#[must_use]
pub fn trouble(trouble: &Trouble) -> TroubleObject {
    let reason = match trouble.reason {
        TroubleReason::Special(_) => "special",
        TroubleReason::Vanished => "vanished",
        TroubleReason::Torn => "torn",
        TroubleReason::NoPermission => "no_permission",
        TroubleReason::Unreadable => "unreadable",
        TroubleReason::TooLarge => "too_large",
        TroubleReason::Attribute(_) => "attribute",
    };
    TroubleObject {
        path: PathText::of(&trouble.path),
        reason: reason.to_owned(),
        message: trouble.reason.to_string(),
    }
}

#[must_use]
pub fn left_out(path: &TreePath, why: &VaultError) -> LeftOutObject {
    LeftOutObject { path: PathText::of(path), code: why.code().to_owned(), message: why.to_string() }
}

#[must_use]
pub fn fork_use(used: &ForkUse) -> ForkUseObject {
    ForkUseObject {
        fork: crate::fork(&used.fork),
        depth: used.depth,
        versions_ahead: used.versions_ahead,
        last_run: used.last_run.as_ref().map(crate::run),
        held_bytes: used.held_bytes,
    }
}

#[must_use]
pub fn diff_tree_line(line: &TreeLine) -> DiffTreeLine {
    let (size_before, size_after) = line.change.as_ref().map(file_sizes).unwrap_or_default();
    let kind = line.change.as_ref().map(|change| crate::change_kind(&change.kind));
    DiffTreeLine { depth: line.depth, name: line.name.clone(), kind, size_before, size_after }
}

#[must_use]
pub fn file_stat(change: &Change, extent: Extent) -> FileStat {
    let path = PathText::of(&change.path);
    match extent {
        Extent::Lines(LineStat { added, deleted }) => {
            FileStat { path, lines_added: added, lines_deleted: deleted, binary: false, too_large: false }
        }
        Extent::Binary => FileStat { path, lines_added: 0, lines_deleted: 0, binary: true, too_large: false },
        Extent::TooLarge => {
            FileStat { path, lines_added: 0, lines_deleted: 0, binary: true, too_large: true }
        }
    }
}
