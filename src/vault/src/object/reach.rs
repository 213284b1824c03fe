//! The references of an object, one step at a time: used by the walks of a sweep and of a count.
//!
//! Does not keep track of visited objects; the caller does.

use avfs_types::ids::{BlobId, TreeId, VersionId};

use super::chunk::Item;
use super::page::{Body, FileContent, Node};
use super::tree::Pages;
use super::{chunk, content};
use crate::backend::{Codec, Reader};
use crate::{Result, require_version};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Object {
    Version(VersionId),
    Tree(TreeId),
    /// Content without references.
    Blob(BlobId),
    /// A list of chunks.
    List(BlobId),
}

/// The objects that an object itself refers to.
pub(crate) fn refers_to(reader: &dyn Reader, object: Object) -> Result<Vec<Object>> {
    match object {
        Object::Version(id) => {
            let version = require_version(reader, &id)?;
            let root = version.pruned_at.is_none().then_some(Object::Tree(version.root));
            Ok(version.parents.into_iter().map(Object::Version).chain(root).collect())
        }
        Object::Tree(id) => of_tree(reader, id),
        Object::Blob(_) => Ok(Vec::new()),
        Object::List(id) => of_list(reader, id),
    }
}

fn of_tree(reader: &dyn Reader, id: TreeId) -> Result<Vec<Object>> {
    let page = (&reader).page(&id)?;
    let mut found: Vec<Object> =
        page.meta.and_then(|meta| meta.xattrs).map(Object::Blob).into_iter().collect();
    match page.body {
        Body::Inner { pages, .. } => found.extend(pages.iter().map(|page| Object::Tree(page.tree))),
        Body::Leaf(entries) => {
            for entry in entries {
                match entry.node {
                    Node::Dir(dir) => found.push(Object::Tree(dir.tree)),
                    Node::Symlink(_) | Node::Fifo(_) => {}
                    Node::File(file) => {
                        found.extend(file.xattrs.map(Object::Blob));
                        found.push(match file.content {
                            FileContent::Whole(id) => Object::Blob(id),
                            FileContent::Chunked(id) => Object::List(id),
                        });
                    }
                }
            }
        }
    }
    Ok(found)
}

fn of_list(reader: &dyn Reader, id: BlobId) -> Result<Vec<Object>> {
    let blob = content::fetch(reader, &id)?;
    if blob.codec != Codec::List {
        return Ok(Vec::new());
    }
    let items = chunk::open_list(&blob)?;
    let named = items.into_iter().filter_map(|item| match item {
        Item::List { id, .. } => Some(Object::List(id)),
        Item::Chunk { id, .. } => Some(Object::Blob(id)),
        Item::Hole { .. } => None,
    });
    Ok(named.collect())
}
