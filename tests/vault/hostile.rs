//! Vaults crafted to harm their readers: few rows that expand to any number of paths, levels or bytes.
//! Every attempt has a control, the same vault on a small scale, which is read like any other.

use std::path::{Path, PathBuf};

use avfs_changes::{ApplyError, ApplyOptions, Filter, Subject, apply};
use avfs_types::clock::FileTime;
use avfs_types::diagnose::Diagnose;
use avfs_types::encode::put_number;
use avfs_types::ids::{BlobId, DigestKind, VersionId};
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::{Backend, BlobRecord, Codec, Durability, Extent};
use avfs_vault::diff::{collect, diff};
use avfs_vault::discard::ChangesOf;
use avfs_vault::expansion::{Expansion, SHARED_BYTES_MAX};
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::fsck::Thoroughness;
use avfs_vault::gc::Trial;
use avfs_vault::links::Overlay;
use avfs_vault::meter::Meter;
use avfs_vault::page::{DirMeta, DirRef, Entry, FifoNode, FileContent, FileNode, Node, Totals};
use avfs_vault::pages::{NewPages, build};
use avfs_vault::set_ids::SetIds;
use avfs_vault::tree::{ENTRIES_MAX, Pages, Walk};
use avfs_vault::version::{Draft, root_of};
use avfs_vault::{Result, Vault, content, copy_content};

use crate::support;
use crate::support::{Scratch, main_fork, reference, sql};

/// A vault whose `main` fork was moved to a version of the given tree by direct writes to the database.
struct Hostile {
    scratch: Scratch,
    file: PathBuf,
}

impl Hostile {
    fn new((root, new): (DirRef, NewPages)) -> Self {
        let scratch = Scratch::new();
        let file = scratch.join("vault.db");
        drop(support::create_vault(&file));
        let rows = sql(&file);
        let head: Vec<u8> = rows.query_row("SELECT head FROM fork", [], |row| row.get(0)).unwrap();
        for (id, data) in new.pages {
            let row = (id.0.as_slice(), data);
            rows.execute("INSERT OR IGNORE INTO tree (digest, data) VALUES (?, ?)", row).unwrap();
        }
        let parent = VersionId(head.clone().try_into().unwrap());
        let draft = Draft { message: "hostile", run: None, parents: vec![parent], extent: Extent::Full };
        let made = draft.finish(&root, "intruder", support::START);
        let entries = i64::try_from(made.entries).unwrap();
        rows.execute(
            "INSERT INTO version (digest, root, content_root, parents, message, author, at, entries, bytes)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                made.id.0.as_slice(),
                made.root.0.as_slice(),
                made.content.0.as_slice(),
                head,
                made.message,
                made.author,
                made.at.0,
                entries,
            ),
        )
        .unwrap();
        rows.execute("UPDATE fork SET head = ?", [made.id.0.as_slice()]).unwrap();
        Self { scratch, file }
    }

    fn vault(&self) -> Vault {
        support::open_vault(&self.file)
    }

    /// The result of each way to read the version.
    fn read(&self) -> Vec<(&'static str, std::result::Result<(), &'static str>)> {
        let vault = self.vault();
        let coded = |result: Result<()>| result.map_err(|error| error.code());
        let (out, dir) = (self.scratch.join("out"), self.scratch.dir("dir"));
        vec![
            ("diff", coded(self.diff(&vault))),
            ("walk", coded(self.walk(&vault))),
            ("export", self.export(&vault, &out).map_err(|error| error.code())),
            ("apply", self.apply(&vault, &dir).map_err(|error| error.code())),
        ]
    }

    fn root(&self, vault: &Vault, at: &str) -> Result<DirRef> {
        let reader = vault.read()?;
        root_of(&avfs_vault::version::resolve(&*reader, &reference(at))?.0)
    }

    fn diff(&self, vault: &Vault) -> Result<()> {
        let (before, after) = (self.root(vault, "main~1")?, self.root(vault, "main")?);
        let reader = vault.read()?;
        diff(&&*reader, &before, &after).map(drop)
    }

    fn walk(&self, vault: &Vault) -> Result<()> {
        let root = self.root(vault, "main")?;
        let reader = vault.read()?;
        let pages: &dyn Pages = &&*reader;
        Walk::new(pages, &root, &support::path("")).try_for_each(|walked| walked.map(drop))
    }

    fn export(&self, vault: &Vault, out: &Path) -> avfs_vault::transfer::Result<()> {
        let options = ExportOptions {
            overwrite: Overwrite::Refuse,
            paths: &[],
            meter: &Meter::default(),
            unwritten: None,
            set_ids: SetIds::Stripped,
        };
        vault.export(&self.root(vault, "main")?, out, &options).map(drop)
    }

    fn apply(&self, vault: &Vault, dir: &Path) -> std::result::Result<(), ApplyError> {
        let subject = Subject::of(vault, &ChangesOf::Fork(main_fork()))?;
        let options = ApplyOptions {
            filter: &Filter::default(),
            keep_seconds: 0,
            trial: Trial::Real,
            set_ids: SetIds::Stripped,
            meter: &Meter::default(),
        };
        apply(vault, &subject, dir, &options).map(drop)
    }

    #[track_caller]
    fn assert_refused(&self, code: &'static str) {
        for (how, came) in self.read() {
            assert_eq!(came, Err(code), "{how}");
        }
        let vault = self.vault();
        vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
        vault.gc(&|_| {}).unwrap();
    }

    /// The tree can be walked, but not held in memory.
    #[track_caller]
    fn assert_not_compared(&self) {
        let vault = self.vault();
        assert_eq!(self.diff(&vault).map_err(|error| error.code()), Err("vault.too_large"));
        let applied = self.apply(&vault, &self.scratch.dir("dir"));
        assert_eq!(applied.map_err(|error| error.code()), Err("vault.too_large"));
        vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
        vault.gc(&|_| {}).unwrap();
    }

    #[track_caller]
    fn assert_read(&self) {
        for (how, came) in self.read() {
            assert_eq!(came, Ok(()), "{how}");
        }
        let report = self.vault().fsck(Thoroughness::Full, &Meter::default()).unwrap();
        // The audit log does not know the version.
        assert!(report.findings.iter().all(|found| found.code == "audit"), "{:#?}", report.findings);
    }
}

fn entry(name: &str, node: Node) -> Entry {
    Entry { name: name.as_bytes().to_vec(), node }
}

/// Nested directories, each containing the next one under all `names`; `said` edits each reference to a directory.
fn levels(count: usize, names: &[&str], said: impl Fn(DirRef) -> DirRef) -> (DirRef, NewPages) {
    let mut new = NewPages::default();
    let mut dir = build(&DirMeta::default(), Vec::new(), &mut new);
    for _ in 0..count {
        let entries = names.iter().map(|name| entry(name, Node::Dir(said(dir))));
        dir = build(&DirMeta::default(), entries.collect(), &mut new);
    }
    (dir, new)
}

#[test]
fn expansion_of_shared_directories_is_bounded() {
    let honest = |dir| dir;
    Hostile::new(levels(4, &["a", "b"], honest)).assert_read();
    Hostile::new(levels(40, &["a", "b"], honest)).assert_refused("vault.too_large");
    // Counts forged in the references are detected where they are first compared with the directory.
    let few = |dir: DirRef| DirRef { totals: Totals { entries: 1, ..dir.totals }, ..dir };
    Hostile::new(levels(40, &["a", "b"], few)).assert_refused("object.damaged");
    // So are counts that only the version forges.
    let (root, new) = levels(40, &["a", "b"], honest);
    Hostile::new((few(root), new)).assert_refused("object.damaged");
}

/// The number of changes collected before the end, and the result.
fn collected(
    (root, new): &(DirRef, NewPages),
    before: &DirRef,
    max_bytes: u64,
) -> (u64, std::result::Result<(), &'static str>) {
    let empty = MemoryBackend::default();
    let reader = empty.read().unwrap();
    let stored: &dyn Pages = &&*reader;
    let pages = Overlay::new(new, stored);
    let mut kept = 0;
    let came = collect(&pages, before, root, &mut Expansion::within(max_bytes), &mut |_| kept += 1);
    (kept, came.map_err(|error| error.code()))
}

/// An empty directory, whose pages are added to those of the tree.
fn beside((_, new): &mut (DirRef, NewPages)) -> DirRef {
    build(&DirMeta { mode: 0o700, ..DirMeta::default() }, Vec::new(), new)
}

#[test]
fn changes_of_shared_directories_are_bounded() {
    // Fewer entries than the limit of a version, and more than fit in memory.
    let mut tree = levels(23, &["a", "b"], |dir| dir);
    let before = beside(&mut tree);
    assert!(tree.0.totals.entries < ENTRIES_MAX);
    // It is detected before anything is collected, except the root itself.
    assert_eq!(collected(&tree, &before, SHARED_BYTES_MAX), (1, Err("vault.too_large")));
    Hostile::new(tree).assert_not_compared();
    // Control: with enough room, and on a small scale.
    let mut small = levels(10, &["a", "b"], |dir| dir);
    let before = beside(&mut small);
    let entries = small.0.totals.entries;
    assert_eq!(collected(&small, &before, SHARED_BYTES_MAX), (entries + 1, Ok(())));
    let (kept, came) = collected(&small, &before, 64 << 10);
    assert_eq!(came, Err("vault.too_large"));
    assert!(kept < 128, "{kept} changes for 64 KiB");
    Hostile::new(levels(4, &["a", "b"], |dir| dir)).assert_read();
}

/// Few changes with long paths: the limit counts bytes.
#[test]
fn long_paths_of_shared_directories_are_bounded() {
    let (short, long) = ("d".to_owned(), "d".repeat(250));
    let long_way = |name: &str| {
        let (mut dir, mut new) = levels(10, &["a", "b"], |dir| dir);
        for _ in 0..100 {
            dir = build(&DirMeta::default(), vec![entry(name, Node::Dir(dir))], &mut new);
        }
        let mut tree = (dir, new);
        let before = beside(&mut tree);
        collected(&tree, &before, 8 << 20).1
    };
    assert_eq!(long_way(&long), Err("vault.too_large"));
    assert_eq!(long_way(&short), Ok(()));
}

/// Directories that differ, and share the pages with their entries.
#[test]
fn changes_of_shared_pages_are_bounded() {
    let mut new = NewPages::default();
    let fifo = || Node::Fifo(FifoNode { mode: 0o644, mtime: FileTime::default(), link: None });
    let dirs = |count: u32, new: &mut NewPages| {
        let dirs = (0..count).map(|mode| {
            let entries = (0..2000).map(|n| entry(&format!("{n:04}"), fifo()));
            let meta = DirMeta { mode, ..DirMeta::default() };
            entry(&format!("{mode:04}"), Node::Dir(build(&meta, entries.collect(), new)))
        });
        let dirs = dirs.collect();
        build(&DirMeta::default(), dirs, new)
    };
    let (one, many) = (dirs(1, &mut new), dirs(50, &mut new));
    let empty = build(&DirMeta { mode: 0o700, ..DirMeta::default() }, Vec::new(), &mut new);
    let (mut one, mut many) = ((one, new), (many, NewPages::default()));
    // Control: a directory that is stored once does not count.
    assert_eq!(collected(&one, &empty, 0), (2002, Ok(())));
    std::mem::swap(&mut one.1, &mut many.1);
    let (kept, came) = collected(&many, &empty, 1 << 20);
    assert_eq!(came, Err("vault.too_large"));
    assert!(kept < 10_000, "{kept}");
    assert_eq!(collected(&many, &empty, SHARED_BYTES_MAX), (many.0.totals.entries + 1, Ok(())));
}

/// A directory in both versions under different names is collected for each.
#[test]
fn renamed_directories_are_not_shared() {
    let mut new = NewPages::default();
    let dir = build(&DirMeta::default(), vec![entry("x", Node::Dir(levels(0, &[], |dir| dir).0))], &mut new);
    new.pages.extend(levels(0, &[], |dir| dir).1.pages);
    let mut named = |name| build(&DirMeta::default(), vec![entry(name, Node::Dir(dir))], &mut new);
    let (before, after) = (named("old"), named("new"));
    assert_eq!(collected(&(after, new), &before, 0), (4, Ok(())));
}

#[test]
fn depth_is_bounded() {
    let name = "d".repeat(250);
    Hostile::new(levels(20, &[&name], |dir| dir)).assert_read();
    Hostile::new(levels(200, &[&name], |dir| dir)).assert_refused("vault.too_large");
}

/// A chunk list of arbitrary length, in a file whose recorded size is small enough to be compared as text.
#[test]
fn chunk_list_longer_than_its_file_is_refused() {
    let read = |length: u64| {
        // A single hole.
        let mut data = vec![1, 1, 1];
        put_number(&mut data, length);
        let id = BlobId(DigestKind::ChunkList.digest(&data));
        let store = MemoryBackend::default();
        let mut writer = store.write().unwrap();
        writer.put_blobs(&[BlobRecord { id, size: length, codec: Codec::List, data }]).unwrap();
        writer.commit(Durability::Synced).unwrap();
        let file = FileNode {
            mode: 0o644,
            mtime: FileTime::default(),
            size: 1 << 20,
            content: FileContent::Chunked(id),
            xattrs: None,
            link: None,
        };
        let mut bytes = Vec::new();
        let copied = copy_content(&*store.read().unwrap(), &file, &mut bytes);
        (copied.map_err(|error| error.code()), bytes.len())
    };
    assert_eq!(read(1 << 20), (Ok(()), 1 << 20));
    assert_eq!(read(1 << 43), (Err("object.damaged"), 0));
}

/// Root may set attributes that grant privileges; a version may not contain them.
#[test]
fn only_user_attributes_are_decoded() {
    let decoded = |name: &str| {
        let blob = content::encode_xattrs(&vec![(name.as_bytes().to_vec(), b"1".to_vec())]).unwrap();
        content::decode_xattrs(&content::decode(blob).unwrap()).is_ok()
    };
    assert!(decoded("user.a"));
    assert!(!decoded("security.capability"));
    assert!(!decoded("trusted.overlay.opaque"));
}
