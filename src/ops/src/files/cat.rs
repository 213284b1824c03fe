//! The contents of files of a version.

use std::io::Write;

use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_vault::backend::Reader;
use avfs_vault::page::{FileNode, Node};
use avfs_vault::{VaultError, copy_content, read_content};
use avfs_wire::{Cat, CatFile};
use avfs_workplace::{OpError, Workplace};

use crate::error::{VerbError, of_copy};
use crate::given_path::{GivenPath, within};
use crate::view::View;

/// The limit for an answer in JSON, which is built in memory.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// The files to read, in this order.
pub struct CatQuery {
    pub reference: Reference,
    pub paths: Vec<GivenPath>,
}

/// The content of a file.
pub struct Content<'v> {
    file: &'v FileNode,
    reader: &'v dyn Reader,
}

impl Content<'_> {
    /// Writes the content piece by piece. A failure to write is an error of the receiver.
    pub fn copy_to(&self, to: &mut dyn Write) -> Result<(), OpError> {
        copy_content(self.reader, self.file, to).map_err(of_copy)
    }
}

/// The contents, collected; together at most 64 MiB.
pub fn cat(workplace: &Workplace, query: &CatQuery) -> Result<Cat, OpError> {
    let view = View::open(&workplace.vault, &query.reference)?;
    let files = files(workplace, &view, query)?;
    let size = files.iter().fold(0_u64, |sum, (_, file)| sum.saturating_add(file.size));
    if size > JSON_BYTES_MAX {
        return Err(VerbError::TooLargeForJson { size, max: JSON_BYTES_MAX }.into());
    }
    let files = files
        .iter()
        .map(|(path, file)| Ok(CatFile::of(path, read_content(view.reader(), file)?)))
        .collect::<Result<_, OpError>>()?;
    Ok(Cat { version: view.version.id.to_hex(), files })
}

/// Passes the content of each file to `receive`.
pub fn each_content(
    workplace: &Workplace,
    query: &CatQuery,
    receive: &mut dyn FnMut(Content<'_>) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let view = View::open(&workplace.vault, &query.reference)?;
    let files = files(workplace, &view, query)?;
    files.iter().try_for_each(|(_, file)| receive(Content { file, reader: view.reader() }))
}

/// Looks up all paths, to report an unknown path before any content.
fn files(
    workplace: &Workplace,
    view: &View<'_>,
    query: &CatQuery,
) -> Result<Vec<(TreePath, FileNode)>, OpError> {
    let file_at = |path: TreePath| match view.node(&path)? {
        Node::File(file) => Ok((path, file)),
        other @ (Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_)) => {
            let error = VaultError::NotAFile { kind: other.kind(), path };
            Err(VerbError::in_version(&query.reference)(error))
        }
    };
    within(&query.paths, &workplace.vault)?.into_iter().map(file_at).collect()
}
