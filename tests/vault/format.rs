//! The file itself: foreign files are detected, damage never panics, and vaults can be read without write access.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use avfs_types::diagnose::Diagnose;
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::{FORMAT, OnClose, OpenOptions, sibling};
use avfs_vault::export::Overwrite;
use avfs_vault::fsck::Thoroughness;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::meter::Meter;
use avfs_vault::ops::Depth;
use avfs_vault::{Result, Vault, VaultError, audit};

use crate::golden::{GOLDEN_6_LISTING, describe, golden};
use crate::support;
use crate::support::pause::Pauses;
use crate::support::{Scratch, main_fork, path, reference};
use crate::worker::Worker;

fn open(path: &Path) -> Result<Vault> {
    Vault::open(path, OpenOptions::default(), support::fixed_context())
}

#[track_caller]
fn assert_refused(path: &Path, expected: &str) {
    let code = match open(path) {
        Ok(_) => "it was opened",
        Err(error) => avfs_types::diagnose::Diagnose::code(&error),
    };
    assert_eq!(code, expected, "{}", path.display());
}

#[test]
fn foreign_files_are_detected_and_left_unchanged() {
    let scratch = Scratch::new();
    let text = scratch.join("text");
    fs::write(&text, "just some text, longer than the header of a database has to be\n".repeat(50)).unwrap();
    let empty = scratch.join("empty");
    fs::write(&empty, "").unwrap();
    let foreign = scratch.join("foreign.db");
    support::sql(&foreign).execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    let pretender = scratch.join("pretender.db");
    support::sql(&pretender).execute_batch("PRAGMA application_id = 1; CREATE TABLE fork (name);").unwrap();
    for path in [&text, &empty, &foreign, &pretender] {
        let before = fs::read(path).unwrap();
        assert_refused(path, "vault.foreign");
        assert!(fs::read(path).unwrap() == before, "{} was changed", path.display());
    }
    assert_refused(scratch.path(), "vault.foreign");
    assert_refused(&scratch.join("nothing"), "vault.not_found");
    assert_refused(&text.join("beneath-a-file"), "vault.io");
    let made = Vault::create(&text, None, OpenOptions::default(), support::fixed_context()).map(drop);
    assert!(matches!(made, Err(VaultError::Backend(BackendError::Foreign { .. }))), "{made:?}");
    let left: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "something was left behind: {left:?}");
}

#[test]
fn newer_vault_is_refused_and_left_unchanged() {
    let scratch = Scratch::new();
    let file = golden(&scratch);
    support::sql(&file).pragma_update(None, "user_version", FORMAT + 1).unwrap();
    let before = fs::read(&file).unwrap();
    match open(&file).map(drop) {
        Err(VaultError::Backend(BackendError::Newer { found, known, .. })) => {
            assert_eq!((found, known), (FORMAT + 1, FORMAT));
        }
        other => panic!("{other:?}"),
    }
    assert!(fs::read(&file).unwrap() == before);
}

/// Everything that a reader could do with a damaged vault. Only the outcome counts: it must not panic.
fn use_up(file: &Path, out: &Path) -> avfs_vault::transfer::Result<bool> {
    let vault = open(file)?;
    let report = vault.fsck(Thoroughness::Full, &Meter::default())?;
    let reader = vault.read()?;
    audit::verify(&*reader, None)?;
    let (version, _) = avfs_vault::version::resolve(&*reader, &reference("main"))?;
    let root = avfs_vault::version::full_root_of(&*reader, &version)?;
    drop(reader);
    let options = avfs_vault::export::ExportOptions {
        overwrite: Overwrite::Refuse,
        paths: &[],
        set_ids: avfs_vault::set_ids::SetIds::Kept,
        meter: &Meter::default(),
        unwritten: None,
    };
    vault.export(&root, out, &options)?;
    vault.gc(&|_| {})?;
    Ok(report.findings.is_empty())
}

#[test]
fn truncated_vault_is_refused_or_reported_as_damaged() {
    let scratch = Scratch::new();
    let file = golden(&scratch);
    let whole = fs::read(&file).unwrap();
    for (n, cut) in [
        1,
        50,
        100,
        512,
        4096,
        8192,
        8193,
        20_000,
        40_960,
        whole.len() / 2,
        whole.len() - 8192,
        whole.len() - 1,
    ]
    .into_iter()
    .enumerate()
    {
        let cut_file = scratch.join(&format!("cut-{n}.db"));
        fs::write(&cut_file, &whole[..cut]).unwrap();
        let outcome = use_up(&cut_file, &scratch.join(&format!("out-{n}")));
        assert!(!matches!(outcome, Ok(true)), "a vault cut at {cut} passes as intact");
    }
}

#[test]
fn flipped_byte_never_panics_or_changes_content_unnoticed() {
    let scratch = Scratch::new();
    let file = golden(&scratch);
    let whole = fs::read(&file).unwrap();
    let expected = GOLDEN_6_LISTING.split("--\n").next().unwrap();
    let (mut refused, mut found, mut harmless) = (0, 0, 0);
    // Every page is hit at least twice.
    for (n, at) in (0..whole.len()).step_by(support::usual_or_long(4111, 457)).enumerate() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let damaged_file = scratch.join("damaged.db");
        fs::write(&damaged_file, &damaged).unwrap();
        let out = scratch.join(&format!("out-{n}"));
        match use_up(&damaged_file, &out) {
            Err(_) => refused += 1,
            Ok(false) => found += 1,
            Ok(true) => {
                harmless += 1;
                assert_eq!(describe(&out), expected, "byte {at} changed the export unnoticed");
            }
        }
        for leftover in ["", "-wal", "-shm", "-lock", "-use", "-gate"] {
            let _ = fs::remove_file(sibling(&damaged_file, leftover));
        }
    }
    assert!(refused > 0 && found > 0, "{refused} refused, {found} found, {harmless} harmless");
}

#[test]
fn read_only_vault_can_be_read() {
    if support::is_root() {
        support::skip("format::read_only_vault_can_be_read", "root ignores modes");
        return;
    }
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (file_mode, dir_mode, on_close) in [
        (0o444, 0o755, OnClose::Settle),
        (0o644, 0o555, OnClose::Settle),
        (0o444, 0o555, OnClose::Settle),
        (0o444, 0o555, OnClose::LeaveLog),
    ] {
        let scratch = Scratch::new();
        let file = scratch.dir("place").join("vault.db");
        let options = OpenOptions { on_close, ..OpenOptions::default() };
        let vault = Vault::create(&file, None, options, support::fixed_context()).unwrap();
        support::write(&vault, "f", b"content");
        drop(vault);
        set(&file, file_mode);
        set(&scratch.join("place"), dir_mode);
        let what = format!("file {file_mode:o} in directory {dir_mode:o}, {on_close:?}");
        // The log is next to the file, not next to a symlink to it.
        std::os::unix::fs::symlink(&file, scratch.join("link")).unwrap();
        let by_link = open(&scratch.join("link")).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        support::export(&by_link, "main", &scratch.join("out-by-link"));
        assert_eq!(fs::read(scratch.join("out-by-link/f")).unwrap(), b"content", "{what}");
        drop(by_link);
        let vault = open(&file).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        support::export(&vault, "main", &scratch.join("out"));
        assert_eq!(fs::read(scratch.join("out/f")).unwrap(), b"content", "{what}");
        support::assert_clean(&vault);
        let before = vault.fork(&main_fork()).unwrap().head;
        let refused = vault.write_file(&main_fork(), &path("g"), &b"x"[..], None, "w").map(drop);
        assert!(
            matches!(refused, Err(VaultError::Backend(BackendError::ReadOnly { .. }))),
            "{what}: {refused:?}"
        );
        let refused = vault.gc(&|_| {}).map(drop);
        assert!(
            matches!(refused, Err(VaultError::Backend(BackendError::ReadOnly { .. }))),
            "{what}: {refused:?}"
        );
        assert_eq!(vault.fork(&main_fork()).unwrap().head, before);
    }
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    drop(support::create_vault(&file));
    set(&file, 0o000);
    assert_refused(&file, "vault.no_permission");
}

#[test]
fn concurrent_creation_makes_one_vault() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let made: Vec<Result<Vault>> = std::thread::scope(|scope| {
        let make = || Vault::create(&file, None, OpenOptions::default(), support::real_context());
        let makers: Vec<_> = (0..6).map(|_| scope.spawn(make)).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    let winners = made.iter().filter(|made| made.is_ok()).count();
    assert_eq!(winners, 1);
    for refused in made.iter().filter_map(|made| made.as_ref().err()) {
        assert!(matches!(refused, VaultError::Backend(BackendError::Exists { .. })), "{refused:?}");
    }
    support::assert_clean(made.iter().find_map(|made| made.as_ref().ok()).unwrap());
    let strays: Vec<String> = fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new-"))
        .collect();
    assert_eq!(strays, Vec::<String>::new());
}

/// Another process creates the vault while this one is starting, or is about to rename its file into place.
#[test]
fn vault_created_meanwhile_is_not_replaced() {
    let code = BackendError::Exists { path: "v".into() }.code();
    for point in ["vault-begun", "publish"] {
        let scratch = Scratch::new();
        let file = scratch.join("vault.db");
        let pauses = Pauses::new(scratch.path());
        pauses.hold(point);
        let mut worker = Worker::paused(&pauses, "create", &[("VAULT", file.to_str().unwrap())]);
        pauses.wait(point, &mut worker.child);
        let vault = support::create_vault(&file);
        let id = vault.id().unwrap();
        pauses.release(point);
        assert_eq!(worker.finish().refused(), [code], "{point}");
        assert_eq!(open(&file).unwrap().id().unwrap(), id, "{point}");
        let names = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let strays: Vec<_> = names.filter(|name| name.to_string_lossy().contains(".new-")).collect();
        assert!(strays.is_empty(), "{point}: {strays:?}");
    }
}

/// SQLite would use the leftover log of a deleted vault as the log of the new one.
#[test]
fn new_vault_ignores_the_log_of_a_deleted_one() {
    let scratch = Scratch::new();
    let options = OpenOptions { on_close: OnClose::LeaveLog, ..OpenOptions::default() };
    let old = scratch.join("old.db");
    let vault = Vault::create(&old, None, options, support::fixed_context()).unwrap();
    support::write(&vault, "f", b"content");
    drop(vault);
    let file = scratch.join("vault.db");
    fs::copy(sibling(&old, "-wal"), sibling(&file, "-wal")).unwrap();
    fs::write(sibling(&file, "-shm"), "stale").unwrap();
    let vault = support::create_vault(&file);
    assert_eq!(vault.read().unwrap().usage().unwrap().versions, 1);
    support::assert_clean(&vault);
}

#[test]
fn deletion_waits_for_writers_and_later_writes_fail() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let (vault, other) = (support::create_vault(&file), open(&file).unwrap());
    let turn = other.backend().write().unwrap();
    let refused = vault.delete(Duration::from_millis(20));
    assert!(matches!(refused, Err(VaultError::Backend(BackendError::Busy { .. }))), "{refused:?}");
    drop(turn);
    open(&file).unwrap().delete(Duration::from_secs(200)).unwrap();
    let gone = |what: &str| {
        let written = other.write_file(&main_fork(), &path("f"), &b"x"[..], None, "w").map(drop);
        let not_found = matches!(written, Err(VaultError::Backend(BackendError::NotFound { .. })));
        assert!(not_found, "{what}: {written:?}");
    };
    gone("deleted");
    let new = support::create_vault(&file);
    gone("another in its place");
    assert_eq!(new.read().unwrap().usage().unwrap().versions, 1);
    drop((other, new));
    support::assert_clean(&open(&file).unwrap());
}

/// A reader without write permission sees the current state at each read, and does not mistake new data for damage.
#[test]
fn reader_without_write_permission_sees_new_versions() {
    if support::is_root() {
        let name = "format::reader_without_write_permission_sees_new_versions";
        return support::skip(name, "root ignores modes");
    }
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for on_close in [OnClose::Settle, OnClose::LeaveLog] {
        let scratch = Scratch::new();
        let (dir, file) = (scratch.dir("dir"), scratch.join("dir/vault.db"));
        let options = OpenOptions { on_close, ..OpenOptions::default() };
        let open = || Vault::open(&file, options, support::real_context()).unwrap();
        drop(support::create_real_vault(&file));
        support::write(&open(), "f", b"0");
        set(&file, 0o444);
        set(&dir, 0o555);
        let mut reader = Some(open());
        for round in 1..6 {
            // Within a process SQLite opens a log with the access of its first user: the reader closes before the
            // write.
            if on_close == OnClose::LeaveLog {
                drop(reader.take());
            }
            set(&dir, 0o755);
            set(&file, 0o644);
            let written = support::write(&open(), "f", &support::noise(round, 300_000)).version.id;
            set(&file, 0o444);
            set(&dir, 0o555);
            if on_close == OnClose::LeaveLog {
                reader = Some(open());
            }
            let reader = reader.as_ref().unwrap();
            let head = reader.fork(&main_fork()).unwrap().head;
            assert_eq!(head, written, "{on_close:?}, round {round}");
            let report = reader.fsck(Thoroughness::Full, &Meter::default()).unwrap();
            assert_eq!(report.findings, [], "{on_close:?}, round {round}");
        }
        drop(reader);
        set(&dir, 0o755);
    }
}

/// A reader without locks gets an error if the file is written and truncated meanwhile, instead of a report of damage
/// or a SIGBUS for reading beyond the end of the file.
#[test]
fn reader_without_locks_gets_an_error_when_the_file_changes() {
    if support::is_root() {
        let name = "format::reader_without_locks_gets_an_error_when_the_file_changes";
        return support::skip(name, "root ignores modes");
    }
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let scratch = Scratch::new();
    let (dir, file) = (scratch.dir("dir"), scratch.join("dir/vault.db"));
    let vault = support::create_real_vault(&file);
    for n in 0..12 {
        support::write(&vault, &format!("f{n}"), &support::noise(n, 300_000));
    }
    let root = support::root(&vault, "main");
    drop(vault);
    set(&file, 0o444);
    set(&dir, 0o555);
    let vault = support::open_vault(&file);
    let session = vault.read().unwrap();
    assert!(session.tree(&root.tree).unwrap().is_some());

    set(&dir, 0o755);
    set(&file, 0o644);
    let owner = support::open_vault(&file);
    let all: Vec<_> = (0..12).map(|n| support::path(&format!("f{n}"))).collect();
    owner.remove(&main_fork(), &all, Depth::FilesOnly, "rm").unwrap();
    owner.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    let before = fs::metadata(&file).unwrap().len();
    owner.gc(&|_| {}).unwrap();
    drop(owner);
    assert!(fs::metadata(&file).unwrap().len() < before / 2);

    let blobs: Vec<_> = (0..12).map(|n| avfs_vault::content::id_of(&support::noise(n, 300_000))).collect();
    for id in blobs {
        let read = session.blob(&id);
        assert!(matches!(&read, Err(BackendError::Unsteady { .. })), "{read:?}");
    }
}
