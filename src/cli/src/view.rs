//! A version opened for reading, and the text forms of its parts.

use avfs_types::Zone;
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::SHORT_HEX_DIGITS;
use avfs_types::path::{Shown, TreePath};
use avfs_types::reference::Reference;
use avfs_vault::backend::{Reader, VersionRecord};
use avfs_vault::page::{DirRef, Node};
use avfs_vault::tree::{Pages, Walk};
use avfs_vault::version::root_of;
use avfs_vault::{Result, Vault, VaultError, tree};
use avfs_wire::EntryObject;

use crate::ui::Format;

pub use avfs_ops::text::{command_line, first_line, message_line, plural};

/// One consistent view of the vault, at one version.
pub struct View<'v> {
    reader: Box<dyn Reader + 'v>,
    pub version: VersionRecord,
    pub root: DirRef,
}

/// An entry found by a walk.
pub struct WalkedEntry {
    pub path: TreePath,
    pub node: Node,
}

impl<'v> View<'v> {
    pub fn open(vault: &'v Vault, reference: &Reference) -> Result<Self> {
        let reader = vault.read()?;
        let (version, _) = avfs_vault::version::resolve(&*reader, reference)?;
        let root = root_of(&version)?;
        Ok(Self { reader, version, root })
    }

    pub fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    pub fn node(&self, path: &TreePath) -> Result<Node> {
        tree::require(&self.reader(), &self.root, path)
    }

    /// The entries at or beneath `path`, at most `depth` levels below it. A directory itself is not included.
    pub fn walk(&self, path: &TreePath, depth: Option<usize>) -> Result<Vec<WalkedEntry>> {
        let mut found = Vec::new();
        self.each(path, depth, |walked| {
            found.push(walked);
            Ok::<_, VaultError>(())
        })?;
        Ok(found)
    }

    /// Like [`Self::walk`], but passes each entry to `visit`.
    pub fn each<E: From<VaultError>>(
        &self,
        path: &TreePath,
        depth: Option<usize>,
        mut visit: impl FnMut(WalkedEntry) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let reader = self.reader();
        let pages: &dyn Pages = &reader;
        let node = self.node(path)?;
        let Node::Dir(dir) = &node else { return visit(WalkedEntry { path: path.clone(), node }) };
        let mut walk = Walk::new(pages, dir, path);
        while let Some(walked) = walk.next() {
            let walked = walked?;
            if depth.is_some_and(|depth| walked.path.depth() - path.depth() >= depth) {
                walk.skip_dir();
            }
            visit(WalkedEntry { path: walked.path, node: walked.node })?;
        }
        Ok(())
    }

    pub fn entry(&self, found: &WalkedEntry) -> Result<EntryObject> {
        let meta = match &found.node {
            Node::Dir(dir) => Some(tree::top(&self.reader(), &dir.tree)?.0),
            Node::File(_) | Node::Symlink(_) | Node::Fifo(_) => None,
        };
        Ok(avfs_present::entry(&found.path, &found.node, meta.as_ref()))
    }

    pub fn entries(&self, found: &[WalkedEntry]) -> Result<Vec<EntryObject>> {
        found.iter().map(|found| self.entry(found)).collect()
    }

    /// The entries for JSON output; the text output uses the walked entries directly.
    pub fn entries_for(&self, format: Format, found: &[WalkedEntry]) -> Result<Vec<EntryObject>> {
        match format {
            Format::Json => self.entries(found),
            Format::Human => Ok(Vec::new()),
        }
    }
}

/// The target of a symlink, to print after its name.
pub fn arrow(node: &Node) -> String {
    match node {
        Node::Symlink(link) => format!(" -> {}", Shown(&link.target)),
        Node::Dir(_) | Node::File(_) | Node::Fifo(_) => String::new(),
    }
}

/// A time in the local time zone.
pub fn local_time(at: Timestamp) -> String {
    Zone::system().show(at)
}

pub fn local_file_time(time: FileTime) -> String {
    Zone::system().show_file_time(time)
}

/// The first digits of the id of a version, for people.
pub fn short(id: &str) -> &str {
    id.get(..SHORT_HEX_DIGITS).unwrap_or(id)
}
