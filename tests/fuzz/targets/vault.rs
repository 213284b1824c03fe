//! A vault that another user crafted: objects with correct digests and arbitrary content, and rows of any value. It is
//! opened, checked, compared, exported and applied; each operation ends with a result or an error, and writes only
//! below the given directory, and there only user attributes and no set-id bits.
//!
//! Rows are changed by SQL: changed bytes of the file itself would be rejected by SQLite.

#![no_main]

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use rusqlite::Connection;
use rusqlite::types::Value;

use avfs_changes::{
    ApplyOptions, ChangeSummary, Filter, PatchLimits, PatchUse, Shown, Subject, apply, patch_view,
};
use avfs_hostfs::{beneath, xattr};
use avfs_types::clock::{FileTime, SteppingClock, Timestamp};
use avfs_types::encode::put_number;
use avfs_types::ids::{BlobId, ContentId, DigestKind, ForkName, LinkId, TreeId, VersionId};
use avfs_types::reference::Reference;
use avfs_vault::backend::Extent;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::discard::ChangesOf;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::fsck::Thoroughness;
use avfs_vault::gc::Trial;
use avfs_vault::meter::Meter;
use avfs_vault::page::{
    Body, DirMeta, DirRef, Entry, FifoNode, FileContent, FileNode, Node, PageRef, SymlinkNode, Totals,
};
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::{Draft, root_of};
use avfs_vault::{Context, Vault, VaultError, content, transfer};

const STEPS_MAX: usize = 24;
/// The limit for writing out: a walk sees no more entries than the version counts.
const ENTRIES_WRITTEN_MAX: u64 = 300;
const START: Timestamp = Timestamp(1_700_000_000_000_000_000);

const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b".avfs",
    b".avfsignore",
    b"..",
    b".",
    b"",
    b"a/b",
    b"../up",
    b"/abs",
    b"nul\0",
    b"\xff",
    b"new\nline",
];
const TARGETS: [&[u8]; 5] = [b"a", b"..", b"/etc/passwd", b"", b"nul\0"];
const XATTRS: [&[u8]; 6] = [
    b"user.a",
    b"user.overlay.opaque",
    b"security.capability",
    b"trusted.x",
    b"system.posix_acl_access",
    b"",
];
/// Columns that may have any value.
const COLUMNS: [(&str, &str); 22] = [
    ("tree", "data"),
    ("tree", "digest"),
    ("blob", "data"),
    ("blob", "digest"),
    ("blob", "size"),
    ("blob", "codec"),
    ("version", "root"),
    ("version", "content_root"),
    ("version", "parents"),
    ("version", "entries"),
    ("version", "bytes"),
    ("version", "at"),
    ("version", "message"),
    ("version", "pruned_at"),
    ("fork", "head"),
    ("fork", "base"),
    ("fork", "name"),
    ("fork", "expires_at"),
    ("meta", "value"),
    ("meta", "key"),
    ("audit", "digest"),
    ("audit", "detail"),
];

/// Bytes on demand; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let wide = self.byte();
        (0..wide % 9).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> Option<T> {
        let at = usize::from(self.byte());
        (!choices.is_empty()).then(|| choices[at % choices.len()].clone())
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}

/// Objects that were made so far, for others to refer to.
struct Forge<'c> {
    rows: &'c Connection,
    dirs: Vec<DirRef>,
    pages: Vec<(u8, PageRef)>,
    files: Vec<(FileContent, u64)>,
    xattrs: Vec<BlobId>,
}

impl Forge<'_> {
    /// Stores a blob, unless the table refuses it.
    fn put_blob(&self, id: BlobId, size: u64, codec: i64, data: &[u8]) {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let statement = "INSERT OR IGNORE INTO blob (digest, size, codec, data) VALUES (?, ?, ?, ?)";
        let _ = self.rows.execute(statement, (id.0.as_slice(), size, codec, data));
    }

    fn blob(&mut self, input: &mut Input<'_>) {
        let bytes = input.bytes();
        let id = content::id_of(bytes);
        self.put_blob(id, bytes.len() as u64, 0, bytes);
        self.files.push((FileContent::Whole(id), bytes.len() as u64));
    }

    fn list(&mut self, input: &mut Input<'_>) {
        let count = input.byte() % 5;
        let mut data = vec![1, count];
        let mut length = 0_u64;
        for _ in 0..count {
            let tag = input.byte() % 4;
            let (id, size) = match input.of(&self.files) {
                Some((content, size)) => (*content.id(), size),
                None => (BlobId([7; 32]), 1),
            };
            let size = if input.byte() < 192 { size } else { input.number() };
            data.push(tag);
            put_number(&mut data, size);
            if tag != 1 {
                data.extend_from_slice(&id.0);
            }
            length = length.saturating_add(size);
        }
        let id = BlobId(DigestKind::ChunkList.digest(&data));
        self.put_blob(id, length, 2, &data);
        self.files.push((FileContent::Chunked(id), length));
    }

    fn attributes(&mut self, input: &mut Input<'_>) {
        let name = input.of(&XATTRS).unwrap_or_default().to_vec();
        if let Some(blob) = content::encode_xattrs(&vec![(name, input.bytes().to_vec())]) {
            if let Ok(plain) = content::decode(blob.clone()) {
                self.put_blob(blob.id, plain.len() as u64, 0, &plain);
            }
            self.xattrs.push(blob.id);
        }
    }

    fn node(&mut self, input: &mut Input<'_>) -> Node {
        let mtime = FileTime::default();
        let link = (input.byte() >= 224).then(|| LinkId([input.byte() % 2; 16]));
        let mode = if input.byte() < 128 { 0o644 } else { (input.number() & 0xffff_ffff) as u32 };
        match input.byte() % 6 {
            0 => Node::Symlink(SymlinkNode {
                mtime,
                target: input.of(&TARGETS).unwrap_or_default().to_vec(),
                link,
            }),
            1 => Node::Fifo(FifoNode { mode, mtime, link }),
            2 | 3 if !self.dirs.is_empty() => {
                let dir = input.of(&self.dirs).expect("a directory exists");
                let entries = if input.byte() < 192 { dir.totals.entries } else { input.number() };
                Node::Dir(DirRef { totals: Totals { entries, ..dir.totals }, ..dir })
            }
            _ => {
                let (content, size) =
                    input.of(&self.files).unwrap_or((FileContent::Whole(BlobId([9; 32])), 1));
                let size = if input.byte() < 192 { size } else { input.number() };
                let xattrs = if input.byte() < 128 { input.of(&self.xattrs) } else { None };
                Node::File(FileNode { mode, mtime, size, content, xattrs, link })
            }
        }
    }

    fn page(&mut self, input: &mut Input<'_>) {
        let inner = input.byte() >= 192 && !self.pages.is_empty();
        let mut body = if inner {
            let pages: Vec<(u8, PageRef)> =
                (0..input.byte() % 4 + 1).filter_map(|_| input.of(&self.pages)).collect();
            let level = if input.byte() < 192 { pages[0].0 + 1 } else { input.byte() };
            Body::Inner { level, pages: pages.into_iter().map(|(_, page)| page).collect() }
        } else {
            let count = input.byte() % 5;
            let entry =
                |_| Entry { name: input.of(&NAMES).unwrap_or_default().to_vec(), node: self.node(input) };
            Body::Leaf((0..count).map(entry).collect())
        };
        if input.byte() < 224
            && let Body::Leaf(entries) = &mut body
        {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.dedup_by(|a, b| a.name == b.name);
        }
        let top = input.byte() < 192;
        let mode = if input.byte() < 192 { 0o755 } else { (input.number() & 0o7777) as u32 };
        let meta = DirMeta { mode, mtime: FileTime::default(), xattrs: input.of(&self.xattrs) };
        let sealed = body.seal(top.then_some(&meta));
        let (mut data, mut tree) = (sealed.data, sealed.tree);
        if input.byte() >= 240 {
            let at = usize::from(input.byte()) % data.len();
            data[at] ^= input.byte();
            tree = TreeId(DigestKind::Tree.digest(&data));
        }
        let statement = "INSERT OR IGNORE INTO tree (digest, data) VALUES (?, ?)";
        let _ = self.rows.execute(statement, (tree.0.as_slice(), &data));
        if top {
            self.dirs.push(DirRef { tree, content: sealed.content, totals: sealed.totals });
        } else {
            let (level, first) = (body.level().min(100), body.first().to_vec());
            let page = PageRef { first, tree, content: sealed.content, totals: sealed.totals };
            self.pages.push((level, page));
        }
    }

    /// A version of the last directory, at the head of the `main` fork.
    fn version(&self, parent: VersionId, input: &mut Input<'_>) {
        let Some(mut root) = self.dirs.last().copied() else { return };
        if input.byte() >= 224 {
            root.totals.entries = input.number();
            root.content = ContentId([3; 32]);
        }
        let made = Draft { message: "hostile", run: None, parents: vec![parent], extent: Extent::Full }
            .finish(&root, "intruder", START);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let _ = self.rows.execute(
            "INSERT OR IGNORE INTO version
                 (digest, root, content_root, parents, message, author, at, entries, bytes)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                made.id.0.as_slice(),
                made.root.0.as_slice(),
                made.content.0.as_slice(),
                parent.0.as_slice(),
                made.message,
                made.author,
                made.at.0,
                number(made.entries),
                number(made.bytes),
            ),
        );
        let _ = self.rows.execute("UPDATE fork SET head = ?", [made.id.0.as_slice()]);
    }
}

/// Sets any value in any row.
fn scramble(rows: &Connection, input: &mut Input<'_>) {
    let (table, column) = input.of(&COLUMNS).expect("there are columns");
    let value = match input.byte() % 5 {
        0 => Value::Null,
        1 => Value::Integer(input.number().cast_signed()),
        2 => Value::Text(String::from_utf8_lossy(input.bytes()).into_owned()),
        3 => Value::Blob([input.byte(); 32].to_vec()),
        _ => Value::Blob(input.bytes().to_vec()),
    };
    let row = i64::from(input.byte() % 4);
    // Some of the tables have no row ids: rows are chosen by position.
    let statement = format!(
        "UPDATE OR IGNORE {table} SET {column} = ?1
         WHERE {column} IS (SELECT {column} FROM {table} LIMIT 1 OFFSET ?2)"
    );
    let _ = rows.execute(&statement, (value, row));
}

fn context() -> Context {
    Context { clock: Arc::new(SteppingClock::starting_at(START)), actor: "fuzz".to_owned() }
}

/// A directory of this process in memory, with the vault that every input starts from.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = PathBuf::from(format!("/dev/shm/avfs-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(place.join("inside")).expect("the place");
        let made = Vault::create(&place.join("empty.db"), None, OpenOptions::default(), context());
        drop(made.expect("a vault"));
        place
    })
}

fn clear(dir: &Path) {
    if std::fs::remove_dir_all(dir).is_err() && dir.exists() {
        // Directories without permissions.
        let _ = std::process::Command::new("chmod").args(["-R", "u+rwx", "--"]).arg(dir).status();
        std::fs::remove_dir_all(dir).expect("the directory can be removed");
    }
}

fn assert_harmless(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            assert_harmless(&entry.path());
        }
        if !(kind.is_dir() || kind.is_file()) {
            continue;
        }
        let mode = entry.metadata().expect("a mode").mode();
        assert!(kind.is_dir() || mode & 0o6000 == 0, "{:?} has mode {mode:o}", entry.path());
        if let Ok(file) = std::fs::File::open(entry.path()) {
            let other = |name: &[u8]| panic!("{:?} has {}", entry.path(), String::from_utf8_lossy(name));
            xattr::read_noting(file.as_fd(), other).expect("attributes");
        }
    }
}

fn compare(vault: &Vault) -> Result<(), VaultError> {
    let reader = vault.read()?;
    let version =
        |text: &str| Ok::<_, VaultError>(avfs_vault::version::resolve(&*reader, &Reference::parse(text)?)?.0);
    let (before, after) = (root_of(&version("main~1")?)?, root_of(&version("main")?)?);
    if after.totals.entries <= ENTRIES_WRITTEN_MAX {
        let roots = (&before, &after);
        let summary = ChangeSummary::compare(vault, &&*reader, roots, &[], Shown::WithTimes)?;
        assert!(summary.changes.len() as u64 <= ENTRIES_WRITTEN_MAX + 1, "more changes than entries");
        patch_view(&*reader, &summary, PatchUse::Bytes, PatchLimits::DEFAULT, |_| Ok::<(), VaultError>(()))?;
    }
    Ok(())
}

fn write_out(vault: &Vault, inside: &Path) -> transfer::Result<()> {
    let reader = vault.read()?;
    let main = Reference::parse("main").map_err(VaultError::from)?;
    let root = root_of(&avfs_vault::version::resolve(&*reader, &main)?.0)?;
    drop(reader);
    if root.totals.entries > ENTRIES_WRITTEN_MAX {
        return Ok(());
    }
    let meter = Meter::default();
    let options = ExportOptions {
        overwrite: Overwrite::Refuse,
        paths: &[],
        meter: &meter,
        unwritten: None,
        set_ids: SetIds::Stripped,
    };
    let exported = vault.export(&root, &inside.join("out"), &options);
    let subject = Subject::of(vault, &ChangesOf::Fork(ForkName::main()))?;
    let options = ApplyOptions {
        filter: &Filter::default(),
        keep_seconds: 0,
        trial: Trial::Real,
        set_ids: SetIds::Stripped,
        meter: &meter,
    };
    // Refused or done: an error is a valid result.
    let _ = apply(vault, &subject, &inside.join("dir"), &options);
    exported.map(drop)
}

fuzz_target!(|bytes: &[u8]| {
    let place = place();
    let (inside, file) = (place.join("inside"), place.join("vault.db"));
    clear(&inside);
    std::fs::create_dir_all(inside.join("dir")).expect("a directory");
    for left in ["vault.db-wal", "vault.db-shm"] {
        let _ = std::fs::remove_file(place.join(left));
    }
    std::fs::copy(place.join("empty.db"), &file).expect("a copy");
    let mut input = Input(bytes);
    {
        #[expect(clippy::disallowed_methods, reason = "another program writes the file")]
        let rows = Connection::open(&file).expect("a connection");
        let head: Vec<u8> = rows.query_row("SELECT head FROM fork", [], |row| row.get(0)).expect("main");
        let parent = VersionId(head.try_into().expect("a digest"));
        let mut forge = Forge { rows: &rows, dirs: vec![], pages: vec![], files: vec![], xattrs: vec![] };
        for _ in 0..STEPS_MAX {
            if input.0.is_empty() {
                break;
            }
            match input.byte() % 8 {
                0 => forge.blob(&mut input),
                1 => forge.list(&mut input),
                2 => forge.attributes(&mut input),
                _ => forge.page(&mut input),
            }
        }
        forge.version(parent, &mut input);
        for _ in 0..input.byte() % 4 {
            scramble(&rows, &mut input);
        }
    }
    // A vault that cannot be read is refused.
    if let Ok(vault) = Vault::open(&file, OpenOptions::default(), context()) {
        let _ = vault.fsck(Thoroughness::Full, &Meter::default());
        let _ = compare(&vault);
        let _ = write_out(&vault, &inside);
        let _ = vault.gc(&|_| {});
    }
    assert_harmless(&inside);
    let names = |dir: &Path| {
        let listed = beneath::names(beneath::open_root(dir).expect("the place").as_fd()).expect("names");
        let mut names: Vec<String> =
            listed.into_iter().map(|listed| String::from_utf8_lossy(&listed.name).into_owned()).collect();
        names.retain(|name| !name.contains(".db"));
        names.sort();
        names
    };
    assert_eq!(names(place), ["inside"]);
    assert!(names(&inside).iter().all(|name| name == "out" || name == "dir"), "{:?}", names(&inside));
});
