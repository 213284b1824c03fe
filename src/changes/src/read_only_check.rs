//! Checks which paths a command changed that was classified read-only.

use avfs_types::path::TreePath;
use avfs_vault::capture::Captured;
use avfs_vault::edit::Edit;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::{Result, Vault, tree};

/// Changed paths, except directories of which only the time changed: creating and removing a file in them has
/// that effect.
pub fn touched(vault: &Vault, before: &DirRef, captured: &Captured<'_>) -> Result<Vec<TreePath>> {
    let reader = vault.read()?;
    let mut touched = Vec::new();
    for (path, edit) in &captured.edits {
        let time_only = match edit {
            // Only a directory needs a lookup: every other edit is a change.
            Edit::Dir(meta) => match tree::lookup(&&*reader, before, path)? {
                Some(Node::Dir(dir)) => {
                    let old = tree::top(&&*reader, &dir.tree)?.0;
                    (old.mode, &old.xattrs) == (meta.mode, &meta.xattrs)
                }
                Some(Node::File(_) | Node::Symlink(_) | Node::Fifo(_)) | None => false,
            },
            Edit::Put(_) | Edit::Remove => false,
        };
        if !time_only {
            touched.push(path.clone());
        }
    }
    Ok(touched)
}

/// The changes of a command that was classified read-only, in a few words; `None` if it changed nothing.
#[must_use]
pub fn violation(touched: &[TreePath]) -> Option<String> {
    let first = touched.first()?;
    Some(match touched.len() {
        1 => first.to_string(),
        count => format!("{first} and {} more", count - 1),
    })
}
