//! The entries of a version, as `avfs ls`, `avfs tree` and `avfs find` list them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use globset::{Glob, GlobMatcher};

use avfs_types::path::TreePath;
use avfs_types::reference::Reference;
use avfs_types::{Size, UnitError};
use avfs_vault::backend::Reader;
use avfs_vault::page::Node;
use avfs_vault::tree;
use avfs_wire::{Entries, EntryObject, NodeKind};
use avfs_workplace::{OpError, Workplace};

use crate::given_path::GivenPath;
use crate::view::View;

/// What to list.
pub struct EntriesQuery {
    pub reference: Reference,
    /// A directory, whose entries are listed, or another entry.
    pub path: GivenPath,
    /// The number of levels below the path; `None` for all.
    pub depth: Option<usize>,
    pub filter: EntryFilter,
}

/// The entries to list: those that pass every test.
#[derive(Default)]
pub struct EntryFilter {
    pub name: Option<NamePattern>,
    pub kind: Option<NodeKind>,
    pub size: Option<SizeTest>,
}

/// A pattern for base names: `*`, `?`, `[abc]`, `{a,b}`.
#[derive(Clone, Debug)]
pub struct NamePattern(GlobMatcher);

impl FromStr for NamePattern {
    type Err = globset::Error;

    fn from_str(text: &str) -> Result<Self, globset::Error> {
        Glob::new(text).map(|glob| Self(glob.compile_matcher()))
    }
}

/// A test for the bytes of a file: `+N`, `-N` or `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeTest {
    Above(u64),
    Below(u64),
    Exactly(u64),
}

impl FromStr for SizeTest {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(above), _) => size(above).map(Self::Above),
            (None, Some(below)) => size(below).map(Self::Below),
            (None, None) => size(text).map(Self::Exactly),
        }
    }
}

impl SizeTest {
    const fn accepts(self, size: u64) -> bool {
        match self {
            Self::Above(limit) => size > limit,
            Self::Below(limit) => size < limit,
            Self::Exactly(wanted) => size == wanted,
        }
    }
}

impl EntryFilter {
    fn accepts(&self, path: &TreePath, node: &Node) -> bool {
        let is_named = |NamePattern(glob): &NamePattern| match path.split() {
            Some((_, name)) => glob.is_match(Path::new(OsStr::from_bytes(name))),
            None => glob.is_match("."),
        };
        let is_sized = |test: SizeTest| match node {
            Node::File(file) => test.accepts(file.size),
            Node::Dir(_) | Node::Symlink(_) | Node::Fifo(_) => false,
        };
        self.name.as_ref().is_none_or(is_named)
            && self.size.is_none_or(is_sized)
            && self.kind.is_none_or(|wanted| wanted == avfs_present::node_kind(node))
    }
}

/// An entry of a version. Its complete form is made only on request, because it costs more than the walk.
pub struct Entry<'v> {
    pub path: TreePath,
    node: Node,
    reader: &'v dyn Reader,
}

impl Entry<'_> {
    #[must_use]
    pub fn kind(&self) -> NodeKind {
        avfs_present::node_kind(&self.node)
    }

    /// The target of a symlink.
    #[must_use]
    pub fn target(&self) -> Option<&[u8]> {
        match &self.node {
            Node::Symlink(link) => Some(&link.target),
            Node::Dir(_) | Node::File(_) | Node::Fifo(_) => None,
        }
    }

    /// The complete entry; reads a page for a directory.
    pub fn object(&self) -> Result<EntryObject, OpError> {
        let meta = match &self.node {
            Node::Dir(dir) => Some(tree::top(&self.reader, &dir.tree)?.0),
            Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => None,
        };
        Ok(avfs_present::entry(&self.path, &self.node, meta.as_ref()))
    }
}

/// The entries in the order of their paths, collected.
pub fn entries(workplace: &Workplace, query: &EntriesQuery) -> Result<Entries, OpError> {
    let view = View::open(&workplace.vault, &query.reference)?;
    let mut entries = Vec::new();
    walk(workplace, &view, query, &mut |entry| {
        entries.push(entry.object()?);
        Ok(())
    })?;
    Ok(Entries { version: view.version.id.to_hex(), entries })
}

/// Passes the entries to `receive` in the order of their paths. Returns the path that they are at or below.
pub fn each_entry(
    workplace: &Workplace,
    query: &EntriesQuery,
    receive: &mut dyn FnMut(Entry<'_>) -> Result<(), OpError>,
) -> Result<TreePath, OpError> {
    let view = View::open(&workplace.vault, &query.reference)?;
    walk(workplace, &view, query, receive)
}

fn walk(
    workplace: &Workplace,
    view: &View<'_>,
    query: &EntriesQuery,
    receive: &mut dyn FnMut(Entry<'_>) -> Result<(), OpError>,
) -> Result<TreePath, OpError> {
    let path = query.path.within(&workplace.vault)?;
    view.each(&path, query.depth, |path, node| match query.filter.accepts(&path, &node) {
        true => receive(Entry { path, node, reader: view.reader() }),
        false => Ok(()),
    })?;
    Ok(path)
}
