//! The Nth write fails, for every N: the vault is unchanged, and the operation succeeds when repeated.

use std::path::Path;

use avfs_types::clock::Timestamp;
use avfs_types::ids::CheckpointName;
use avfs_types::path::TreePath;
use avfs_vault::backend::fault::{FaultBackend, Fuse};
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::sqlite::{OpenOptions, SqliteBackend};
use avfs_vault::backend::{
    Backend, BackendError, CheckpointRecord, ForkRecord, Life, RunRecord, VersionRecord,
};
use avfs_vault::checkpoint::Origin;
use avfs_vault::discard::ChangesOf;
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::fork::Deletion;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::ops::{Depth, Parents};
use avfs_vault::page::{FileContent, FileNode, Node};
use avfs_vault::quota::Quota;
use avfs_vault::run::Landing;
use avfs_vault::tree::{Pages, Walk};
use avfs_vault::version::{History, root_of};
use avfs_vault::{Advance, Result, Vault, VaultError, When, audit, content};

use crate::journal::application;
use crate::runs::Changes;
use crate::support::{Scratch, fork, main_fork, path, reference};
use crate::{runs, support};

/// Everything that a user of the vault can see.
#[derive(Debug, PartialEq)]
struct Seen {
    forks: Vec<ForkRecord>,
    checkpoints: Vec<CheckpointRecord>,
    histories: Vec<Vec<VersionRecord>>,
    listings: Vec<Vec<(TreePath, Node)>>,
    quota: Quota,
    runs: Vec<RunRecord>,
    audit_rows: u64,
}

fn look(vault: &Vault) -> Seen {
    let reader = vault.read().unwrap();
    let forks = reader.forks().unwrap();
    let history = |fork: &ForkRecord| {
        History::new(&*reader, fork.head).map(|version| version.unwrap()).collect::<Vec<_>>()
    };
    let listing = |fork: &ForkRecord| {
        let root = root_of(&reader.version(&fork.head).unwrap().unwrap()).unwrap();
        let pages: &dyn Pages = &&*reader;
        let walk = Walk::new(pages, &root, &TreePath::root());
        walk.map(|walked| walked.map(|walked| (walked.path, walked.node)).unwrap()).collect::<Vec<_>>()
    };
    let verdict = audit::verify(&*reader, None).unwrap();
    assert_eq!(verdict.problems, []);
    Seen {
        histories: forks.iter().map(history).collect(),
        listings: forks.iter().map(listing).collect(),
        checkpoints: reader.checkpoints().unwrap(),
        quota: avfs_vault::quota::read(&*reader).unwrap(),
        runs: reader.runs(i64::MAX, 1000).unwrap(),
        audit_rows: verdict.rows,
        forks,
    }
}

/// Fills a vault with data of every kind.
fn furnish(vault: &Vault) {
    let files = (0..40)
        .fold(Changes::default(), |files, n| files.put(&format!("dir/f{n:02}"), &format!("content {n}")));
    let advance = Advance { action: "fork.write", message: "files", run: None, when: When::Changed };
    vault.commit_edits(&main_fork(), &files.edits, &files.blobs, &advance).unwrap();
    support::write(vault, "large", &support::noise(1, 1_500_000));
    let by_hand = |name: &str, origin| {
        let name = CheckpointName::parse(name).unwrap();
        vault.save_checkpoint(&main_fork(), Some(name), "kept", origin).unwrap();
    };
    by_hand("auto", Origin::Automatic);
    support::write(vault, "dir/f00", b"changed");
    by_hand("saved", Origin::ByHand);
    support::write(vault, "dir/f01", b"changed too");
    vault.create_fork(&fork("side"), &reference("main~3"), Life::Persistent).unwrap();
    vault.write_file(&fork("side"), &path("only/here"), &b"side"[..], Some(0o600), "side").unwrap();
    let base = vault.fork(&main_fork()).unwrap().head;
    let life = Life::Ephemeral { expires_at: Timestamp(i64::MAX) };
    let (name, parent) = (fork("run-0"), main_fork());
    let landing = Landing::NewFork { name: &name, base, parent: &parent, life };
    Changes::default().put("by-a-run", "x").land(vault, landing, runs::record(200, &name)).unwrap();
    let back = fork("back");
    vault.create_fork(&back, &reference("main"), Life::Persistent).unwrap();
    vault.write_file(&back, &path("dir/f09"), &b"undone"[..], None, "write").unwrap();
    vault.undo(&back).unwrap();
}

type Operation<'a> = (&'static str, Box<dyn Fn(&Vault) -> Result<()> + 'a>);

fn operations<'a>(host: &'a Path) -> Vec<Operation<'a>> {
    let noise = support::noise(9, 9 << 20);
    let new_blob = || content::encode(content::id_of(b"captured"), b"captured".to_vec());
    vec![
        ("write", Box::new(|v| v.write_file(&main_fork(), &path("a/b/c"), &b"new"[..], None, "w").map(drop))),
        (
            "write a large file",
            Box::new(move |v| {
                v.write_file(&main_fork(), &path("a/large"), noise.as_slice(), None, "w").map(drop)
            }),
        ),
        ("mkdir", Box::new(|v| v.make_dir(&main_fork(), &path("new/dir"), Parents::Made, "m").map(drop))),
        ("rm", Box::new(|v| v.remove(&main_fork(), &[path("dir")], Depth::Recursive, "r").map(drop))),
        ("mv", Box::new(|v| v.move_path(&main_fork(), &path("dir"), &path("moved"), "m").map(drop))),
        (
            "cp",
            Box::new(|v| {
                v.copy_path(&main_fork(), &path("dir"), &path("copied"), Depth::Recursive, "c").map(drop)
            }),
        ),
        (
            "capture",
            Box::new(move |v| {
                let node = Node::File(FileNode {
                    mode: 0o644,
                    mtime: avfs_types::clock::FileTime { seconds: 1, nanos: 2 },
                    size: 8,
                    content: FileContent::Whole(content::id_of(b"captured")),
                    xattrs: None,
                    link: None,
                });
                let edits =
                    Edits::from([(path("dir/f05"), Edit::Put(node)), (path("dir/f06"), Edit::Remove)]);
                let advance =
                    Advance { action: "run.capture", message: "run", run: Some("7"), when: When::Changed };
                v.commit_edits(&main_fork(), &edits, &[new_blob()], &advance).map(drop)
            }),
        ),
        (
            "run",
            Box::new(|v| {
                let base = v.fork(&main_fork())?.head;
                let changes = Changes::default().put("dir/f07", "by a run").remove("dir/f08");
                let landing = Landing::Fork { name: &main_fork(), base };
                changes.land(v, landing, runs::record(1, &main_fork())).map(drop)
            }),
        ),
        (
            "run beside its fork",
            Box::new(|v| {
                let base = avfs_vault::version::resolve(&*v.read()?, &reference("main~1"))?.0.id;
                let changes = Changes::default().put("dir/f01", "by a run");
                let landing = Landing::Fork { name: &main_fork(), base };
                changes.land(v, landing, runs::record(1, &main_fork())).map(drop)
            }),
        ),
        (
            "run for the record",
            Box::new(|v| {
                let record = runs::record(1, &main_fork());
                Changes::default().land(v, Landing::RecordOnly, record).map(drop)
            }),
        ),
        ("undo", Box::new(|v| v.undo(&main_fork()).map(drop))),
        ("redo", Box::new(|v| v.redo(&fork("back")).map(drop))),
        ("discard", Box::new(|v| v.discard(&ChangesOf::Fork(fork("run-0"))).map(drop))),
        (
            "begin an apply",
            Box::new(|v| v.begin_application(&application(v, &fork("run-0"), &runs::run_id(200))).map(drop)),
        ),
        (
            "end an apply",
            Box::new(|v| {
                let run = runs::run_id(200);
                v.end_application(&application(v, &fork("run-0"), &run), (&[run], &[]), "paths=1")
            }),
        ),
        (
            "unapply",
            Box::new(|v| {
                v.undo_applications(&[application(v, &fork("run-0"), &runs::run_id(200))], "paths=1")
            }),
        ),
        (
            "fork create",
            Box::new(|v| v.create_fork(&fork("third"), &reference("side"), Life::Persistent).map(drop)),
        ),
        ("fork delete", Box::new(|v| v.delete_fork(&fork("side"), Deletion::Careful).map(drop))),
        (
            "checkpoint save",
            Box::new(|v| v.save_checkpoint(&main_fork(), None, "more", Origin::ByHand).map(drop)),
        ),
        (
            "checkpoint delete",
            Box::new(|v| {
                v.delete_checkpoint(&main_fork(), &CheckpointName::parse("saved").unwrap()).map(drop)
            }),
        ),
        ("restore", Box::new(|v| v.restore(&main_fork(), &reference("main@saved"), None).map(drop))),
        (
            "import",
            Box::new(move |v| {
                let options = ImportOptions {
                    on_trouble: OnTrouble::Fail,
                    stat_cache: None,
                    exclude: &[],
                    meter: &Meter::default(),
                };
                v.import(host, &main_fork(), "import", &options).map(drop).map_err(support::vault_error)
            }),
        ),
        ("prune", Box::new(|v| v.prune(&Keep { last: Some(2), since: None }, None, Trial::Real).map(drop))),
        (
            "quota",
            Box::new(|v| v.change_quota(|_| Quota { bytes: None, versions: Some(1000), files: Some(5000) })),
        ),
    ]
}

/// Fails each write of an operation in turn, or only some of many writes; returns approximately their number.
#[track_caller]
fn fail_each(name: &str, vault: &Vault, fuse: &Fuse, operation: &dyn Fn(&Vault) -> Result<()>) -> u32 {
    let before = look(vault);
    let mut writes = 0;
    while writes < 2000 {
        fuse.arm(writes);
        let outcome = operation(vault);
        if fuse.disarm() {
            assert!(outcome.is_ok(), "{name}: {outcome:?} without a fault");
            assert_ne!(look(vault), before, "{name} did nothing");
            support::assert_clean(vault);
            return writes;
        }
        let injected = matches!(outcome, Err(VaultError::Backend(BackendError::Injected { .. })));
        assert!(injected, "{name}: write {writes} failed, but the outcome is {outcome:?}");
        assert_eq!(look(vault), before, "{name}: the failure of write {writes} left a trace");
        if writes % 8 == 0 {
            support::assert_clean(vault);
        }
        writes += if writes < 30 { 1 } else { support::usual_or_long(9, 1) };
    }
    panic!("{name} did not end");
}

fn faulty(backend: impl Backend + 'static) -> (Vault, Fuse) {
    let fuse = Fuse::off();
    let vault = Vault::over(Box::new(FaultBackend::new(backend, fuse.clone())), support::fixed_context());
    (vault.unwrap(), fuse)
}

fn small_host(scratch: &Scratch) -> std::path::PathBuf {
    let host = scratch.dir("host");
    support::many_files(&host, 30);
    std::os::unix::fs::symlink("nowhere", host.join("link")).unwrap();
    std::fs::write(host.join("large"), support::noise(3, 1_400_000)).unwrap();
    host
}

#[test]
fn failed_write_leaves_a_sqlite_vault_unchanged() {
    let scratch = Scratch::new();
    let host = small_host(&scratch);
    for (n, (name, operation)) in operations(&host).into_iter().enumerate() {
        let file = scratch.join(&format!("vault-{n}.db"));
        let (vault, fuse) = faulty(SqliteBackend::create(&file, OpenOptions::default()).unwrap());
        furnish(&vault);
        let writes = fail_each(name, &vault, &fuse, &operation);
        assert!(writes >= 3, "{name} has only {writes} writes: the fuse does not count them");
    }
}

#[test]
fn failed_write_leaves_a_memory_vault_unchanged() {
    let scratch = Scratch::new();
    let host = small_host(&scratch);
    for (name, operation) in operations(&host) {
        let (vault, fuse) = faulty(MemoryBackend::default());
        furnish(&vault);
        fail_each(name, &vault, &fuse, &operation);
    }
}

/// A sweep is many transactions; any of them may fail, and objects in use must still exist.
#[test]
fn failed_write_of_a_sweep_deletes_no_object_in_use() {
    fail_every_write_of_a_sweep(|_| None);
}

#[test]
fn failed_write_of_a_sweep_with_saved_counts_deletes_no_object_in_use() {
    fail_every_write_of_a_sweep(|scratch| Some(scratch.join("counts")));
}

fn fail_every_write_of_a_sweep(counts: fn(&Scratch) -> Option<std::path::PathBuf>) {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let (vault, fuse) = faulty(SqliteBackend::create(&file, OpenOptions::default()).unwrap());
    furnish(&vault);
    let counts = counts(&scratch);
    vault.gc_since(counts.as_deref(), &|_| {}).unwrap();
    for name in ["side", "back"] {
        vault.delete_fork(&fork(name), Deletion::Careful).unwrap();
    }
    vault.discard(&ChangesOf::Fork(fork("run-0"))).unwrap();
    support::write(&vault, "large", b"small now");
    vault.delete_checkpoint(&main_fork(), &CheckpointName::parse("saved").unwrap()).unwrap();
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    let before = look(&vault);
    let usage_before = vault.read().unwrap().usage().unwrap();
    let mut failures = 0;
    loop {
        fuse.arm(failures);
        let outcome = vault.gc_since(counts.as_deref(), &|_| {});
        let ended = fuse.disarm();
        let seen = look(&vault);
        // Only the audit row of the sweep itself may be added.
        assert_eq!(Seen { audit_rows: before.audit_rows, ..seen }, before);
        support::assert_clean(&vault);
        if ended {
            outcome.unwrap();
            break;
        }
        assert!(matches!(outcome, Err(VaultError::Backend(BackendError::Injected { .. }))), "{outcome:?}");
        failures += 1;
        assert!(failures < 2000);
    }
    assert!(failures >= 6, "the sweep has only {failures} writes");
    let usage = vault.read().unwrap().usage().unwrap();
    assert!(usage.file_bytes + 1_000_000 < usage_before.file_bytes, "{usage:?} after {usage_before:?}");
    // Swept objects are gone: the next sweep finds nothing more.
    assert_eq!(vault.gc(&|_| {}).unwrap(), avfs_vault::gc::Swept::default());
}

/// An import of many files is many transactions before the final one.
#[test]
fn import_that_fails_between_batches_has_no_visible_effect() {
    let scratch = Scratch::new();
    let host = scratch.dir("host");
    // Many files, or many bytes.
    let (few, step) = (support::usual_or_long(24, 0), support::usual_or_long(4, 601));
    (0..few).for_each(|n| std::fs::write(host.join(n.to_string()), support::noise(n, 900_000)).unwrap());
    support::many_files(&host, support::usual_or_long(0, 4500));
    let (vault, fuse) =
        faulty(SqliteBackend::create(&scratch.join("vault.db"), OpenOptions::default()).unwrap());
    furnish(&vault);
    let before = look(&vault);
    let cache = scratch.join("cache");
    let import = |vault: &Vault| {
        support::try_import(vault, &host, Some(&cache), OnTrouble::Fail).map(|done| done.committed)
    };
    let mut failures = 0;
    // Objects stored by one attempt are not stored again by the next, so later attempts write less.
    for writes in (0..4800).step_by(step) {
        fuse.arm(writes);
        let outcome = import(&vault).map_err(support::vault_error);
        if fuse.disarm() {
            outcome.unwrap();
            break;
        }
        failures += 1;
        assert!(matches!(outcome, Err(VaultError::Backend(BackendError::Injected { .. }))), "{outcome:?}");
        assert_eq!(look(&vault), before);
        assert!(!cache.exists(), "a failed import kept a stat cache");
        support::assert_clean(&vault);
    }
    assert!(failures >= 4, "only {failures} imports failed");
    support::assert_clean(&vault);
    import(&vault).unwrap();
    support::export(&vault, "main", &scratch.join("out"));
    support::snapshot::assert_same(&host, &scratch.join("out"));
}
