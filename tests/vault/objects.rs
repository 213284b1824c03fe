//! Objects and their ids: the same everywhere, verified on every read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::XattrFlags;

use avfs_vault::audit::Problem;
use avfs_vault::fsck::Thoroughness;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::import::OnTrouble;
use avfs_vault::meter::Meter;
use avfs_vault::ops::Depth;
use avfs_vault::quota::Quota;
use avfs_vault::{VaultError, audit, content};

use crate::attributes::set_mtime;
use crate::support;
use crate::support::pause::Pauses;
use crate::support::{Scratch, main_fork, path};
use crate::worker::Worker;

/// A directory whose every bit is known.
fn known_dir(at: &Path, mtime: i64) {
    fs::create_dir(at).unwrap();
    fs::create_dir(at.join("sub")).unwrap();
    let mut all = vec![at.join("sub"), at.to_owned()];
    for (name, content, mode) in [
        ("hello", b"hello\n".to_vec(), 0o644),
        ("sub/script", b"#!/bin/sh\n".repeat(30), 0o755),
        ("sub/chunked", support::noise(7, 1_300_000), 0o600),
    ] {
        fs::write(at.join(name), content).unwrap();
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
        all.insert(0, at.join(name));
    }
    // Enough names for pages of pages.
    for n in 0..1200 {
        symlink(format!("{n}"), at.join(format!("sub/n{n:04}"))).unwrap();
        all.insert(0, at.join(format!("sub/n{n:04}")));
    }
    fs::hard_link(at.join("hello"), at.join("sub/hello")).unwrap();
    rustix::fs::setxattr(at.join("hello"), "user.note", b"kept", XattrFlags::empty()).unwrap();
    for dir in [at.join("sub"), at.to_owned()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    all.iter().for_each(|path| set_mtime(path, mtime, 123_456_789));
}

#[test]
fn equal_content_has_equal_ids_on_every_machine() {
    let scratch = Scratch::new();
    let dir = scratch.join("dir");
    known_dir(&dir, 1_600_000_000);
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    let root = support::root(&vault, "main");
    // These ids are the format. A change here makes all existing vaults unreadable: introduce a new format instead.
    assert_eq!(
        content::id_of(b"hello\n").to_hex(),
        "8e4c7c1b99dbfd50e7a95185fead5ee1448fa904a2fdd778eaf5f2dbfd629a99"
    );
    assert_eq!(root.tree.to_hex(), "3001d42ac3085c127c7ab6d1f21badf3132d56a4d179a16c5044ac620797fa62");
    assert_eq!(root.content.to_hex(), "c5316a042eb99c2bfce52ff73f87d9737e13d0578c9c4b3e733790ffd02ed29e");
    assert_eq!((root.totals.entries, root.totals.bytes), (1205, 1_300_312));
    let written = support::write(&vault, "sub/new", b"by the vault itself");
    assert_eq!(
        [written.version.root.to_hex(), written.version.id.to_hex()],
        [
            "9c04dd708eabc30be10e098cedef13ce869ed91df090113ede78d49f612f2483",
            "cedd8e86e7796c3ec2475c7d70455428600ac4c727d23cd0faa7141908ce4153",
        ]
    );
    // Edits make the same tree as an import, in any order.
    let other = support::create_vault(&scratch.join("other.db"));
    support::export(&vault, "main", &scratch.join("out"));
    support::import(&other, &scratch.join("out"));
    assert_eq!(support::root(&other, "main").tree, written.version.root);
}

#[test]
fn blobs_fill_the_pages_of_the_file() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for n in 0..2000 {
        fs::write(dir.join(n.to_string()), support::noise(n as u64, 100 + n * 7919 % 6000)).unwrap();
    }
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    vault.backend().settle().unwrap();
    let usage = vault.read().unwrap().usage().unwrap();
    let stored = usage.blob_stored_bytes + usage.tree_bytes;
    // In arrival order, rows of such lengths would leave a third of the file empty.
    let most = stored * 110 / 100;
    assert!(usage.file_bytes < most, "{} bytes for {stored} stored bytes", usage.file_bytes);
    support::assert_clean(&vault);
}

#[test]
fn times_do_not_count_as_content() {
    let scratch = Scratch::new();
    known_dir(&scratch.join("a"), 1_600_000_000);
    known_dir(&scratch.join("b"), 1_700_000_000);
    let vault = support::create_vault(&scratch.join("vault.db"));
    let a = support::import(&vault, &scratch.join("a")).committed.version;
    let b = support::import(&vault, &scratch.join("b")).committed.version;
    assert_ne!(a.root, b.root);
    assert_eq!(a.content, b.content);
    fs::set_permissions(scratch.join("b/hello"), fs::Permissions::from_mode(0o600)).unwrap();
    let c = support::import(&vault, &scratch.join("b")).committed.version;
    assert_ne!(b.content, c.content, "modes count");
}

#[test]
fn small_edit_of_a_large_file_stores_little() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let mut large = support::noise(1, 12 << 20);
    support::write(&vault, "large", &large);
    let stored = || vault.read().unwrap().usage().unwrap().blob_stored_bytes;
    let before = stored();
    large[8 << 20..(8 << 20) + 100].copy_from_slice(&[7; 100]);
    support::write(&vault, "large", &large);
    let overwritten = stored() - before;
    assert!((1..1 << 20).contains(&overwritten), "100 changed bytes took {overwritten}");
    let before = stored();
    large.splice(3 << 20..3 << 20, *b"some bytes more, so that all that follows is moved");
    support::write(&vault, "large", &large);
    let inserted = stored() - before;
    assert!((1..1 << 20).contains(&inserted), "50 inserted bytes took {inserted}");
    support::export(&vault, "main", &scratch.join("out"));
    assert!(fs::read(scratch.join("out/large")).unwrap() == large);
    // The same content a second time adds only its entry.
    let before = stored();
    support::write(&vault, "again", &large);
    assert_eq!(stored(), before);
}

/// A set of attributes may be larger than any other blob.
#[test]
fn large_set_of_attributes_round_trips() {
    let set: Vec<(Vec<u8>, Vec<u8>)> =
        (0..24).map(|n| (format!("user.{n:02}").into_bytes(), vec![b'x'; 60_000])).collect();
    let blob = content::encode_xattrs(&set).unwrap();
    assert!(blob.size > content::WHOLE_BYTES_MAX as u64);
    assert_eq!(content::decode_xattrs(&content::decode(blob).unwrap()).unwrap(), set);
}

#[test]
fn every_edit_of_the_audit_log_is_detected() {
    let rows = 5;
    let tampering = [
        ("an actor", "UPDATE audit SET actor = 'nobody' WHERE seq = 3"),
        ("an action", "UPDATE audit SET action = 'fork.nothing' WHERE seq = 3"),
        ("a subject", "UPDATE audit SET subject = 'other' WHERE seq = 1"),
        ("a time", "UPDATE audit SET at = at + 1 WHERE seq = 5"),
        ("a detail", "UPDATE audit SET detail = '' WHERE seq = 2"),
        ("a digest before", "UPDATE audit SET before = zeroblob(32) WHERE seq = 2"),
        ("a digest after", "UPDATE audit SET after = NULL WHERE seq = 3"),
        ("a link of the chain", "UPDATE audit SET digest = randomblob(32) WHERE seq = 3"),
        ("the last link", "UPDATE audit SET digest = randomblob(32) WHERE seq = 5"),
        ("the first row", "DELETE FROM audit WHERE seq = 1"),
        ("a row in the middle", "DELETE FROM audit WHERE seq = 3"),
        ("the last row", "DELETE FROM audit WHERE seq = 5"),
        ("all rows", "DELETE FROM audit"),
        (
            "the order",
            "UPDATE audit SET seq = CASE seq WHEN 2 THEN -3 ELSE -2 END WHERE seq IN (2, 3); UPDATE audit SET seq = -seq WHERE seq < 0",
        ),
        ("a gap closed", "DELETE FROM audit WHERE seq = 3; UPDATE audit SET seq = seq - 1 WHERE seq > 3"),
        (
            "a row added",
            "INSERT INTO audit SELECT 6, at, actor, action, subject, before, after, detail, digest FROM audit WHERE seq = 5",
        ),
        ("the end mark", "DELETE FROM meta WHERE key = 'audit_head'"),
        (
            "the end and its mark",
            "DELETE FROM audit WHERE seq = 5; UPDATE meta SET value = CAST(x'0000000000000004' || (SELECT digest FROM audit WHERE seq = 3) AS BLOB) WHERE key = 'audit_head'",
        ),
    ];
    let scratch = Scratch::new();
    let original = scratch.join("vault.db");
    let vault = support::create_vault(&original);
    for n in 0..rows - 1 {
        support::write(&vault, &format!("f{n}"), b"x");
    }
    let sound = audit::verify(&*vault.read().unwrap(), None).unwrap();
    assert_eq!((sound.rows, sound.problems.as_slice()), (rows, &[][..]));
    for (n, (what, statements)) in tampering.into_iter().enumerate() {
        let file = scratch.join(&format!("{n}.db"));
        vault.copy(&file).unwrap();
        support::sql(&file).execute_batch(statements).unwrap();
        let vault = support::open_vault(&file);
        let verdict = audit::verify(&*vault.read().unwrap(), None).unwrap();
        assert!(!verdict.problems.is_empty(), "{what} was not noticed");
        let report = vault.fsck(Thoroughness::Quick, &Meter::default()).unwrap();
        assert!(report.findings.iter().any(|finding| finding.code == "audit"), "{what}: not found by fsck");
    }
}

/// A rewrite of the whole end of the log, including its marks, is detected by a digest kept elsewhere.
#[test]
fn log_rewritten_to_its_end_does_not_match_a_saved_digest() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    support::write(&vault, "a", b"1");
    let at_one = audit::verify(&*vault.read().unwrap(), None).unwrap().head.unwrap();
    support::write(&vault, "b", b"2");
    let kept = audit::verify(&*vault.read().unwrap(), None).unwrap().head.unwrap().digest;
    assert_eq!(audit::verify(&*vault.read().unwrap(), Some(&kept)).unwrap().problems, []);
    drop(vault);
    let sql = support::sql(&file);
    sql.execute("DELETE FROM audit WHERE seq > ?1", [at_one.seq]).unwrap();
    let mark = [&at_one.seq.to_be_bytes()[..], &at_one.digest.0].concat();
    sql.execute("UPDATE meta SET value = ?1 WHERE key = 'audit_head'", [mark]).unwrap();
    sql.execute("UPDATE fork SET head = (SELECT after FROM audit WHERE seq = ?1)", [at_one.seq]).unwrap();
    drop(sql);
    let vault = support::open_vault(&file);
    assert_eq!(audit::verify(&*vault.read().unwrap(), None).unwrap().problems, []);
    let verdict = audit::verify(&*vault.read().unwrap(), Some(&kept)).unwrap();
    assert_eq!(verdict.problems, [Problem::NotInLog(kept)]);
}

#[test]
fn exceeded_quota_leaves_the_vault_unchanged() {
    let scratch = Scratch::new();
    let (dir, file) = (scratch.dir("dir"), scratch.join("vault.db"));
    support::many_files(&dir, 60);
    let vault = support::create_vault(&file);
    support::write(&vault, "a", b"1");
    let head = || vault.fork(&main_fork()).unwrap().head;
    let before = head();
    let refused = |outcome: avfs_vault::Result<avfs_vault::Committed>, expected: &str| {
        let is_quota_error = matches!(&outcome, Err(VaultError::Quota { what, .. }) if *what == expected);
        assert!(is_quota_error, "{expected}: {outcome:?}");
        assert_eq!(head(), before);
        support::assert_clean(&vault);
    };
    let import = || {
        support::try_import(&vault, &dir, None, OnTrouble::Fail)
            .map(|done| done.committed)
            .map_err(support::vault_error)
    };
    let write = |content: &[u8]| vault.write_file(&main_fork(), &path("b"), content, None, "write");

    vault.change_quota(|_| Quota { files: Some(10), ..Quota::default() }).unwrap();
    let blobs = || vault.read().unwrap().usage().unwrap().blobs;
    let stored = blobs();
    refused(import(), "files");
    assert_eq!(blobs(), stored, "a refused import left blobs");
    vault.change_quota(|_| Quota { versions: Some(2), ..Quota::default() }).unwrap();
    refused(write(b"x"), "versions");
    let used = vault.read().unwrap().bytes_used().unwrap();
    vault.change_quota(|_| Quota { bytes: Some(used + (1 << 20)), ..Quota::default() }).unwrap();
    refused(write(&support::noise(1, 20 << 20)), "bytes");
    // Objects that the refused attempt had stored are garbage; a sweep frees the space for content that fits.
    vault.gc(&|_| {}).unwrap();
    assert!(vault.read().unwrap().bytes_used().unwrap() <= used + (64 << 10));
    write(&support::noise(2, 300_000)).unwrap();
    // With a quota below the current size only a smaller version is accepted, and then there is room again.
    vault.change_quota(|_| Quota { bytes: Some(320_000), ..Quota::default() }).unwrap();
    assert!(matches!(write(&support::noise(3, 300_000)), Err(VaultError::Quota { what: "bytes", .. })));
    // A new file that is slightly smaller than the old one still adds data.
    let smaller = write(&support::noise(4, 299_000));
    assert!(matches!(smaller, Err(VaultError::Quota { what: "bytes", .. })), "{smaller:?}");
    vault.remove(&main_fork(), &[path("b")], Depth::FilesOnly, "rm").unwrap();
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    write(b"little").unwrap();
    vault.change_quota(|_| Quota::default()).unwrap();
    import().unwrap();
    support::assert_clean(&vault);
}

/// Another process sets one limit while this one is about to set another.
#[test]
fn limits_set_concurrently_all_apply() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    let pauses = Pauses::new(scratch.path());
    pauses.hold("write");
    let settings = [("VAULT", file.to_str().unwrap()), ("FILES", "7")];
    let mut worker = Worker::paused(&pauses, "limit", &settings);
    pauses.wait("write", &mut worker.child);
    vault.change_quota(|old| Quota { bytes: Some(1 << 30), ..old }).unwrap();
    pauses.release("write");
    worker.finish();
    let both = Quota { bytes: Some(1 << 30), versions: None, files: Some(7) };
    assert_eq!(vault.quota().unwrap(), both);
}

/// An unreadable row is reported along with everything else that a check finds.
#[test]
fn fsck_continues_after_an_unreadable_row() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    support::write(&vault, "a", b"first");
    support::write(&vault, "b", b"second");
    drop(vault);
    let sql = support::sql(&file);
    sql.execute_batch("PRAGMA ignore_check_constraints=ON; UPDATE blob SET size = 'many' WHERE id = 1")
        .unwrap();
    sql.execute("UPDATE blob SET data = zeroblob(length(data)) WHERE id = 2", []).unwrap();
    drop(sql);
    let report = support::open_vault(&file).fsck(Thoroughness::Full, &Meter::default()).unwrap();
    let found: Vec<&str> = report.findings.iter().map(|finding| finding.what.as_str()).collect();
    assert!(found.iter().any(|what| what.contains("a row cannot be read")), "{found:?}");
    assert!(found.iter().any(|what| what.contains("its digest does not match")), "{found:?}");
    assert!(report.audit_rows > 0 && report.versions == 3, "{report:?}");
}
