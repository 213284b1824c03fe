//! Remembered results: stored with their run, found by their key, deleted with the versions they need.

use avfs_types::clock::Timestamp;
use avfs_vault::backend::fault::{FaultBackend, Fuse};
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::{Life, MemoRecord};
use avfs_vault::discard::ChangesOf;
use avfs_vault::fsck::Thoroughness;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::memo::{Forget, Lost, Memo, MemoParts, lost, of_run};
use avfs_vault::meter::Meter;
use avfs_vault::quota::Quota;
use avfs_vault::run::Landing;
use avfs_vault::stored_output::{copy_output, is_full, output_bytes, read_output};
use avfs_vault::{Result, Vault, VaultError, audit};

use crate::runs::{Changes, head, record, run_id};
use crate::support;
use crate::support::{Scratch, fork, main_fork};

const LATER: Timestamp = Timestamp(support::START.0 + 1_000_000_000_000_000);

fn parts(base: &[u8]) -> MemoParts {
    let mut parts = MemoParts::default();
    parts.set("command", b"make");
    parts.set("base", base);
    parts
}

fn memo(vault: &Vault, base: &[u8], mut stdout: &[u8], expires_at: Timestamp) -> Memo {
    Memo::new(vault, parts(base), 3, [&mut stdout, &mut &b"oops\n"[..]], expires_at).unwrap()
}

/// A run on its own fork that changes a file, and whose result is cached.
fn remember(vault: &Vault, n: u8, memo: Memo) -> Result<MemoRecord> {
    let (name, base) = (fork(&format!("run-{n}")), head(vault, &main_fork()));
    let life = Life::Ephemeral { expires_at: LATER };
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life };
    let changes = Changes::default().put("made", &format!("by run {n}"));
    let landed = changes.land_with(vault, landing, record(n, &name), Some(memo))?;
    assert!(landed.remembered);
    Ok(of_run(&*vault.read()?, &run_id(n))?.unwrap())
}

fn actions(vault: &Vault) -> Vec<String> {
    let rows = vault.read().unwrap().audit_after(0, 1000).unwrap();
    rows.into_iter()
        .filter(|row| row.action.starts_with("cache."))
        .map(|row| row.action + " " + &row.detail)
        .collect()
}

#[test]
fn result_is_stored_with_its_run_and_found_by_its_key() {
    let scratch = Scratch::new();
    let on_disk = support::create_vault(&scratch.join("vault.db"));
    let in_memory = Vault::over(Box::new(MemoryBackend::default()), support::fixed_context()).unwrap();
    // A single blob, a chunk list, a file with a hole, and empty output.
    let outputs = [b"out\n".to_vec(), support::noise(1, 3 << 20), vec![0; 200_000], Vec::new()];
    for vault in [on_disk, in_memory] {
        support::write(&vault, "top", b"old");
        for (n, output) in (1_u8..).zip(&outputs) {
            let kept = remember(&vault, n, memo(&vault, &[n], output, LATER)).unwrap();
            assert_eq!((kept.exit_code, kept.expires_at), (3, LATER));
            assert_eq!(kept.stdout_digest, *blake3::hash(output).as_bytes());
            let reader = vault.read().unwrap();
            assert_eq!(reader.memo(&parts(&[n]).key()).unwrap(), Some(kept.clone()));
            assert!(read_output(&*reader, &kept.stdout).unwrap() == *output);
            assert_eq!(read_output(&*reader, &kept.stderr).unwrap(), b"oops\n");
            assert_eq!(MemoParts::from_json(&kept.parts), Some(parts(&[n])));
            let run = reader.run(&run_id(n)).unwrap().unwrap();
            assert_eq!((kept.version_before, kept.version_after), (run.version_before, run.version_after));
        }
        let command = parts(b"").get("command").unwrap();
        let known = vault.read().unwrap().memos_of_command(&command, 3).unwrap();
        assert_eq!(known.iter().map(|memo| memo.run.clone()).collect::<Vec<_>>(), [4, 3, 2].map(run_id));
        assert_eq!(vault.memos(known[2].seq, 10).unwrap().len(), 1);
        support::assert_clean(&vault);
        assert_eq!(actions(&vault)[0], format!("cache.remember run={}", run_id(1)));
        // The same key again: the newer result replaces the older.
        remember(&vault, 9, memo(&vault, &[1], b"newer", LATER)).unwrap();
        let reader = vault.read().unwrap();
        assert_eq!(reader.memo(&parts(&[1]).key()).unwrap().unwrap().run, run_id(9));
        assert_eq!(of_run(&*reader, &run_id(1)).unwrap(), None);
        assert_eq!(reader.memos(i64::MAX, 10).unwrap().len(), outputs.len());
    }
}

#[test]
fn output_is_kept_until_the_result_is_forgotten() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let output = support::noise(2, 2 << 20);
    let kept = remember(&vault, 1, memo(&vault, b"", &output, LATER)).unwrap();
    assert_eq!(vault.gc(&|_| {}).unwrap().blobs, 0);
    assert!(read_output(&*vault.read().unwrap(), &kept.stdout).unwrap() == output);
    assert_eq!(vault.forget(&Forget::OfRun(run_id(2))).unwrap(), []);
    assert_eq!(vault.forget(&Forget::OfRun(run_id(1))).unwrap().as_slice(), std::slice::from_ref(&kept));
    assert!(vault.gc(&|_| {}).unwrap().blobs > 2);
    assert!(!vault.read().unwrap().has_blob(&kept.stdout).unwrap());
    // The run itself is unchanged.
    assert!(vault.read().unwrap().version(&kept.version_after.unwrap()).unwrap().is_some());
    support::assert_clean(&vault);
    let expected =
        [format!("cache.remember run={}", run_id(1)), format!("cache.forget run={} asked", run_id(1))];
    assert_eq!(actions(&vault), expected);
}

#[test]
fn large_output_is_stored_before_its_run() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    let output = support::noise(3, 12 << 20);
    let blobs = || -> u32 {
        support::sql(&file).query_row("SELECT count(*) FROM blob", [], |row| row.get(0)).unwrap()
    };
    let before = blobs();
    let stored = memo(&vault, b"", &output, LATER);
    assert!(blobs() > before + 20, "most of it is stored");
    let kept = remember(&vault, 1, stored).unwrap();
    assert_eq!(kept.stdout_digest, *blake3::hash(&output).as_bytes());
    assert_eq!(vault.gc(&|_| {}).unwrap().blobs, 0);
    assert!(read_output(&*vault.read().unwrap(), &kept.stdout).unwrap() == output);
    let mut copied = Vec::new();
    copy_output(&*vault.read().unwrap(), &kept.stdout, &mut copied).unwrap();
    assert!(copied == output && output_bytes(&*vault.read().unwrap(), &kept.stdout).unwrap() == 12 << 20);
    // Output whose run is not kept is swept.
    drop(memo(&vault, b"other", &support::noise(4, 12 << 20), LATER));
    assert!(vault.gc(&|_| {}).unwrap().blobs > 10);
    support::assert_clean(&vault);
}

#[test]
fn large_output_must_leave_room_for_the_changes_of_its_run() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let full = |lengths, changes| is_full(&*vault.read().unwrap(), lengths, changes).unwrap();
    assert!(!full([1 << 50, 1 << 50], 1 << 50), "without a quota");
    vault.change_quota(|quota| Quota { bytes: Some(50 << 20), ..quota }).unwrap();
    assert!(!full([20 << 20, 20 << 20], 0) && full([30 << 20, 30 << 20], 0));
    assert!(!full([30 << 20, 0], 10 << 20) && full([30 << 20, 0], 30 << 20));
    // A small output is stored after the changes.
    assert!(!full([1 << 20, 1 << 20], 1 << 50));
    let output = support::noise(5, 60 << 20);
    let parts = parts(b"");
    let stored = Memo::new(&vault, parts, 0, [&mut &output[..], &mut &b""[..]], LATER);
    assert!(matches!(stored, Err(VaultError::Quota { .. })), "{stored:?}");
}

#[test]
fn result_is_lost_with_its_versions_or_when_it_expires() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let now = || vault.now();
    let why = |memo: &MemoRecord| lost(&*vault.read().unwrap(), memo, now()).unwrap();
    let discarded = remember(&vault, 1, memo(&vault, b"1", b"", LATER)).unwrap();
    let expired = remember(&vault, 2, memo(&vault, b"2", b"", support::START)).unwrap();
    let stays = remember(&vault, 3, memo(&vault, b"3", b"", LATER)).unwrap();
    vault.discard(&ChangesOf::Fork(fork("run-1"))).unwrap();
    assert_eq!(why(&discarded), None, "the versions exist until they are swept");
    assert_eq!(why(&expired), Some(Lost::Expired));
    assert_eq!(vault.gc(&|_| {}).unwrap().memos, 2);
    assert_eq!(vault.memos(i64::MAX, 10).unwrap().as_slice(), std::slice::from_ref(&stays));
    assert_eq!(why(&discarded), Some(Lost::Version));
    // Pruned versions are unusable too.
    support::write(&vault, "top", b"more");
    vault.write_file(&fork("run-3"), &support::path("x"), &b"y"[..], None, "more").unwrap();
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    assert_eq!(why(&stays), Some(Lost::Version));
    assert_eq!(vault.forget(&Forget::Lost(stays.key, Lost::Version)).unwrap(), [stays]);
    support::assert_clean(&vault);
    assert!(actions(&vault).contains(&format!("cache.forget run={} expired", run_id(2))));
}

#[test]
fn result_of_a_run_without_changes_needs_no_version() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let base = head(&vault, &main_fork());
    let row = avfs_vault::backend::RunRecord { version_before: Some(base), ..record(1, &main_fork()) };
    let landed = Changes::default()
        .land_with(&vault, Landing::RecordOnly, row, Some(memo(&vault, b"", b"looked", LATER)))
        .unwrap();
    assert!(landed.remembered);
    support::write(&vault, "top", b"new");
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    let kept = of_run(&*vault.read().unwrap(), &run_id(1)).unwrap().unwrap();
    assert_eq!(lost(&*vault.read().unwrap(), &kept, vault.now()).unwrap(), None);
    assert_eq!(read_output(&*vault.read().unwrap(), &kept.stdout).unwrap(), b"looked");
}

#[test]
fn rebased_run_is_not_remembered() {
    let scratch = Scratch::new();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let (name, base) = (fork("task"), head(&vault, &main_fork()));
    vault.create_fork(&name, &support::reference("main"), Life::Persistent).unwrap();
    vault.write_file(&name, &support::path("other"), &b"meanwhile"[..], None, "meanwhile").unwrap();
    let landed = Changes::default()
        .put("made", "by the run")
        .land_with(
            &vault,
            Landing::Fork { name: &name, base },
            record(1, &name),
            Some(memo(&vault, b"", b"", LATER)),
        )
        .unwrap();
    assert!(matches!(landed.landed, avfs_vault::run::Landed::Rebased { .. }), "{landed:?}");
    assert!(!landed.remembered);
    assert_eq!(vault.memos(i64::MAX, 10).unwrap(), []);
}

#[test]
fn edited_result_or_missing_output_is_detected() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    remember(&vault, 1, memo(&vault, b"", b"out", LATER)).unwrap();
    let findings = |vault: &Vault| {
        let report = vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
        report.findings.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    assert_eq!(findings(&vault), [""; 0]);
    support::sql(&file).execute("UPDATE memo SET parts = replace(parts, 'base', 'vase')", []).unwrap();
    assert_eq!(findings(&vault), ["damaged"]);
    support::sql(&file).execute("DELETE FROM blob WHERE digest = (SELECT stdout FROM memo)", []).unwrap();
    assert_eq!(findings(&vault), ["damaged", "missing"]);
    let kept = vault.memos(i64::MAX, 1).unwrap().remove(0);
    assert_eq!(lost(&*vault.read().unwrap(), &kept, vault.now()).unwrap(), Some(Lost::Output));
}

#[test]
fn failed_write_stores_neither_the_run_nor_its_result() {
    for writes in 0..200 {
        let fuse = Fuse::off();
        let backend = FaultBackend::new(MemoryBackend::default(), fuse.clone());
        let vault = Vault::over(Box::new(backend), support::fixed_context()).unwrap();
        let memo = memo(&vault, b"", b"out", LATER);
        fuse.arm(writes);
        let kept = remember(&vault, 1, memo);
        let blown = !fuse.disarm();
        let reader = vault.read().unwrap();
        let (run, memos) = (reader.run(&run_id(1)).unwrap(), reader.memos(i64::MAX, 10).unwrap());
        assert_eq!(audit::verify(&*reader, None).unwrap().problems, []);
        if !blown {
            assert_eq!(memos, [kept.unwrap()]);
            assert!(writes > 10, "{writes}");
            return;
        }
        assert!(kept.is_err() && run.is_none() && memos.is_empty(), "{writes}: {kept:?}");
    }
    panic!("the write never succeeded");
}
