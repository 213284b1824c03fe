//! The truth about a command that was taken for one that only looks: what it changed.

use avfs_types::path::TreePath;
use avfs_vault::capture::Captured;
use avfs_vault::edit::Edit;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::{Result, Vault, tree};

/// Paths that were changed in more than the time of a directory, which files made and removed in it leave.
pub fn touched(vault: &Vault, before: &DirRef, captured: &Captured<'_>) -> Result<Vec<TreePath>> {
    let reader = vault.read()?;
    let mut touched = Vec::new();
    for (path, edit) in &captured.edits {
        let time_only = match edit {
            // Only a directory is worth looking up: every other edit is a change by itself.
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

/// What a command changed that was to look only, in a few words; nothing if it kept to that.
#[must_use]
pub fn violation(touched: &[TreePath]) -> Option<String> {
    let first = touched.first()?;
    Some(match touched.len() {
        1 => first.to_string(),
        count => format!("{first} and {} more", count - 1),
    })
}
