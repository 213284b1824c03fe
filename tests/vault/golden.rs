//! Vaults of every past format: their contents stay readable.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};

use avfs_types::clock::Timestamp;
use avfs_types::ids::{
    ApprovalId, ApprovalPrefix, BatchId, BatchItem, BatchPrefix, CheckpointName, ListDigest, RecordingName,
    RequestDigest, RunPrefix,
};
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::approval::{Answer, Claim, Question};
use avfs_vault::backend::sqlite::FORMAT;
use avfs_vault::backend::{ApprovalRecord, BatchRecord, Extent, Life, RunRecord, RunState};
use avfs_vault::checkpoint::Origin;
use avfs_vault::fsck::Thoroughness;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::memo::{Memo, MemoParts};
use avfs_vault::meter::Meter;
use avfs_vault::run::{AuditTexts, Landing};
use avfs_vault::stored_output::read_output;
use avfs_vault::version::{Draft, root_of, root_of_either};
use avfs_vault::{Vault, VaultError, audit, require_version};

use crate::runs::Changes;
use crate::support::snapshot::Kind;
use crate::support::{Scratch, fork, main_fork, path, reference, snapshot};
use crate::{runs, support};

/// A vault file of format 1, compressed.
const GOLDEN_1: &[u8] = include_bytes!("../golden/vault-format-1.db.zst");
const GOLDEN_1_HEAD: &str = include_str!("../golden/vault-format-1.head");
const GOLDEN_1_LISTING: &str = include_str!("../golden/vault-format-1.txt");
/// A vault of format 2: the same, and two runs.
const GOLDEN_2: &[u8] = include_bytes!("../golden/vault-format-2.db.zst");
const GOLDEN_2_HEAD: &str = include_str!("../golden/vault-format-2.head");
const GOLDEN_2_LISTING: &str = include_str!("../golden/vault-format-2.txt");

/// A vault of format 3: also an approval and its answer.
const GOLDEN_3: &[u8] = include_bytes!("../golden/vault-format-3.db.zst");
const GOLDEN_3_HEAD: &str = include_str!("../golden/vault-format-3.head");
const GOLDEN_3_LISTING: &str = include_str!("../golden/vault-format-3.txt");
/// A vault of format 4: also a recording, a cached result, and a batch with two runs.
const GOLDEN_4: &[u8] = include_bytes!("../golden/vault-format-4.db.zst");
const GOLDEN_4_HEAD: &str = include_str!("../golden/vault-format-4.head");
const GOLDEN_4_LISTING: &str = include_str!("../golden/vault-format-4.txt");

/// A vault of format 5: also an applied and an unapplied change.
const GOLDEN_5: &[u8] = include_bytes!("../golden/vault-format-5.db.zst");
const GOLDEN_5_HEAD: &str = include_str!("../golden/vault-format-5.head");
const GOLDEN_5_LISTING: &str = include_str!("../golden/vault-format-5.txt");

/// A vault of format 6: also a run with partial versions.
const GOLDEN_6: &[u8] = include_bytes!("../golden/vault-format-6.db.zst");
const GOLDEN_6_HEAD: &str = include_str!("../golden/vault-format-6.head");
pub const GOLDEN_6_LISTING: &str = include_str!("../golden/vault-format-6.txt");

/// A directory with entries of every kind, always the same.
fn make_golden_dir(dir: &Path) {
    fs::create_dir_all(dir.join("sub/empty")).unwrap();
    fs::write(dir.join("plain"), "plain text\n").unwrap();
    fs::write(dir.join("compressed"), "the same line again\n".repeat(100)).unwrap();
    fs::write(dir.join("hollow"), [vec![b'x'; 10], vec![0; 200_000], vec![b'y'; 10]].concat()).unwrap();
    for n in 0..120 {
        fs::write(dir.join(format!("sub/n{n:03}")), format!("{n}")).unwrap();
    }
    fs::hard_link(dir.join("plain"), dir.join("sub/linked")).unwrap();
    symlink("../nowhere", dir.join("sub/symlink")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    rustix::fs::setxattr(dir.join("compressed"), "user.note", b"golden", XattrFlags::empty()).unwrap();
    let mut all: Vec<PathBuf> =
        walkdir::WalkDir::new(dir).into_iter().map(|entry| entry.unwrap().into_path()).collect();
    all.reverse();
    for path in all {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if !kind.is_symlink() {
            let mode = if kind.is_dir() { 0o755 } else { 0o640 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let time = Timespec { tv_sec: 1_500_000_000, tv_nsec: 987_654_321 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn make_golden_vault(scratch: &Scratch, file: &Path) {
    let dir = scratch.dir("golden");
    make_golden_dir(&dir);
    let vault = support::create_vault(file);
    support::write(&vault, "given-up", b"pruned later");
    support::import(&vault, &dir);
    vault
        .save_checkpoint(
            &main_fork(),
            Some(CheckpointName::parse("imported").unwrap()),
            "kept",
            Origin::ByHand,
        )
        .unwrap();
    vault
        .create_fork(
            &fork("side"),
            &reference("main"),
            Life::Ephemeral { expires_at: support::START.plus_seconds(9) },
        )
        .unwrap();
    vault.write_file(&fork("side"), &path("side/new"), &b"only here"[..], Some(0o755), "side").unwrap();
    support::write(&vault, "sub/n007", b"changed in the vault");
    vault.prune(&Keep { last: Some(2), since: None }, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    land_golden_runs(&vault);
    ask_golden_question(&vault);
    record_golden_runs(&vault);
    crate::journal::mark_applied(&vault, &fork("run-1"), &runs::run_id(1)).unwrap();
    let applied = vault.read().unwrap().applications_of_fork(&fork("run-1")).unwrap();
    vault.undo_applications(&applied, "paths=1").unwrap();
    crate::journal::mark_applied(&vault, &fork("run-6"), &runs::run_id(6)).unwrap();
    land_golden_partial_run(&vault);
    vault.backend().settle().unwrap();
}

const LATER: Timestamp = Timestamp(support::START.0 + 1_000_000_000_000_000_000);

fn golden_parts() -> MemoParts {
    let mut parts = MemoParts::default();
    parts.set("command", b"true");
    parts.set("base", b"golden");
    parts
}

fn golden_batch(vault: &Vault) -> BatchRecord {
    BatchRecord {
        id: BatchId::from_random([7; 5]),
        list: ListDigest([7; 32]),
        base: vault.fork(&main_fork()).unwrap().head,
        started_at: support::START,
        ended_at: None,
        plan: r#"{"mode":"fan-out","fork":null,"items":2,"list":"golden.txt"}"#.to_owned(),
    }
}

/// The additions of format 4: a recording of three runs, the first with a cached result, the others for the items
/// of a batch, one of which failed.
fn record_golden_runs(vault: &Vault) {
    let name = RecordingName::parse("golden").unwrap();
    vault.start_recording(Some(&name), None).unwrap();
    let base = vault.fork(&main_fork()).unwrap().head;
    let memo = Memo::new(vault, golden_parts(), 0, [&mut &b"out\n"[..], &mut &b""[..]], LATER).unwrap();
    let quiet = RunRecord { version_before: Some(base), ..runs::record(5, &main_fork()) };
    let landed = Changes::default().land_with(vault, Landing::RecordOnly, quiet, Some(memo)).unwrap();
    assert!(landed.remembered);
    let batch = golden_batch(vault);
    vault.begin_batch(&batch).unwrap();
    let item = |number| BatchItem { batch: batch.id.clone(), number };
    let (own, life) = (fork("run-6"), Life::Ephemeral { expires_at: LATER });
    let landing = Landing::NewFork { name: &own, base, parent: &main_fork(), life };
    let changes = Changes::default().put("made", "by an item\n");
    changes.land_for(vault, landing, runs::record(6, &own), &item(0)).unwrap();
    let failed =
        RunRecord { version_before: Some(base), exit_code: Some(1), ..runs::record(7, &main_fork()) };
    Changes::default().land_for(vault, Landing::RecordOnly, failed, &item(1)).unwrap();
    vault.stop_recording(Some(&name)).unwrap();
}

/// A run that a user approved.
fn ask_golden_question(vault: &Vault) -> ApprovalRecord {
    let asking = RunRecord { state: RunState::ApprovalRequired, ..runs::record(3, &main_fork()) };
    let question = Question {
        id: ApprovalId::from_random([3; 5]),
        digest: RequestDigest([3; 32]),
        reason: "because".to_owned(),
        expires_seconds: 1_000_000_000,
    };
    let asked = vault.ask_approval(&question, &asking, AuditTexts::default()).unwrap();
    vault.answer_approval(&ApprovalPrefix::from(&asked.id), Answer::Approve).unwrap()
}

/// A run on its own fork, and a run without changes.
fn land_golden_runs(vault: &Vault) {
    let base = vault.fork(&main_fork()).unwrap().head;
    let life = Life::Ephemeral { expires_at: support::START.plus_seconds(1_000_000_000) };
    let name = fork("run-1");
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life };
    let changes = Changes::default().put("plain", "by a run\n").remove("sub/n008");
    changes.land(vault, landing, runs::record(1, &name)).unwrap();
    let nothing =
        RunRecord { version_before: Some(base), exit_code: Some(3), ..runs::record(2, &main_fork()) };
    Changes::default().land(vault, Landing::RecordOnly, nothing).unwrap();
}

/// A run of which only the touched paths are known.
fn land_golden_partial_run(vault: &Vault) {
    let root = support::root(vault, "main");
    let draft = Draft { message: "partial", run: None, parents: Vec::new(), extent: Extent::Partial };
    let base = vault.transact(|transaction| transaction.put_version(&root, draft)).unwrap().id;
    let (name, life) = (fork("run-9"), Life::Ephemeral { expires_at: LATER });
    let landing = Landing::NewFork { name: &name, base, parent: &main_fork(), life };
    Changes::default().put("touched", "by a run\n").land(vault, landing, runs::record(9, &name)).unwrap();
}

/// A directory as lines of text.
pub fn describe(dir: &Path) -> String {
    let line = |(path, fact): (&Vec<u8>, &snapshot::Fact)| {
        let kind = match &fact.kind {
            Kind::Dir => "dir".to_owned(),
            Kind::File { size, digest } => format!("file {size} {}", &digest.as_ref().unwrap()[..16]),
            Kind::Symlink(target) => format!("symlink {}", target.escape_ascii()),
            Kind::Fifo => "fifo".to_owned(),
            Kind::Other => panic!("nothing else can be exported"),
        };
        let (seconds, nanos) = fact.mtime;
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let xattrs = fact.xattrs.iter().map(|(name, value)| format!(" {}={}", shown(name), shown(value)));
        let linked = fact.linked_to.iter().map(|to| format!(" ={}", shown(to)));
        let more: String = xattrs.chain(linked).collect();
        format!("{:?} {:o} {seconds}.{nanos:09} {kind}{more}\n", shown(path), fact.mode)
    };
    snapshot::take(dir).facts.iter().map(line).collect()
}

/// Regenerates the golden files on request: for a new format, beside the old ones.
#[test]
fn golden_vault_can_be_made_and_is_the_same_in_every_format() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    make_golden_vault(&scratch, &file);
    let vault = support::open_vault(&file);
    support::export(&vault, "main", &scratch.join("out"));
    support::export(&vault, "side", &scratch.join("out-side"));
    let listing =
        format!("{}--\n{}", describe(&scratch.join("out")), describe(&scratch.join("out-side/side")));
    let head = vault.fork(&main_fork()).unwrap().head.to_hex();
    drop(vault);
    if std::env::var_os("AVFS_GOLDEN_REGENERATE").is_some() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        let compressed = zstd::bulk::compress(&fs::read(&file).unwrap(), 19).unwrap();
        fs::write(golden.join(format!("vault-format-{FORMAT}.db.zst")), compressed).unwrap();
        fs::write(golden.join(format!("vault-format-{FORMAT}.txt")), &listing).unwrap();
        fs::write(golden.join(format!("vault-format-{FORMAT}.head")), &head).unwrap();
        return;
    }
    // A vault made now equals the old ones in every format: same ids, same files.
    assert_eq!((head.as_str(), listing.as_str()), (GOLDEN_6_HEAD, GOLDEN_6_LISTING));
    assert_eq!((head.as_str(), listing.as_str()), (GOLDEN_5_HEAD, GOLDEN_5_LISTING));
    assert_eq!((head.as_str(), listing.as_str()), (GOLDEN_4_HEAD, GOLDEN_4_LISTING));
    assert_eq!((head.as_str(), listing.as_str()), (GOLDEN_3_HEAD, GOLDEN_3_LISTING));
    assert_eq!((head.as_str(), listing.as_str()), (GOLDEN_2_HEAD, GOLDEN_2_LISTING));
    assert_eq!((head.as_str(), listing.as_str()), (GOLDEN_1_HEAD, GOLDEN_1_LISTING));
}

pub fn golden(scratch: &Scratch) -> PathBuf {
    unpack(scratch, GOLDEN_6)
}

fn unpack(scratch: &Scratch, compressed: &[u8]) -> PathBuf {
    let file = scratch.join("golden.db");
    fs::write(&file, zstd::bulk::decompress(compressed, 4 << 20).unwrap()).unwrap();
    file
}

fn format_of(file: &Path) -> i64 {
    support::sql(file).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn vault_of_format_6_opens() {
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_6);
    assert_eq!(format_of(&file), 6);
    let vault = support::open_vault(&file);
    assert_eq!(format_of(&file), FORMAT);
    support::assert_clean(&vault);
    let reader = vault.read().unwrap();
    let run = vault.run(&RunPrefix::from(&runs::run_id(9))).unwrap();
    for id in [run.version_before, run.version_after] {
        let version = require_version(&*reader, &id.unwrap()).unwrap();
        assert_eq!(version.extent, Extent::Partial);
        assert!(matches!(root_of(&version), Err(VaultError::Partial { .. })));
        root_of_either(&version).unwrap();
        let from = reference(&version.id.to_hex());
        let made = vault.create_fork(&fork("whole"), &from, Life::Persistent);
        assert!(matches!(made, Err(VaultError::Partial { .. })), "{made:?}");
    }
    // The mark is part of the id: without it the version has another id.
    let unmarked =
        "UPDATE version SET parents = substr(parents, 33) WHERE length(parents) = 64 AND run IS NOT NULL";
    drop(reader);
    assert_eq!(support::sql(&file).execute(unmarked, []).unwrap(), 1);
    assert_ne!(vault.fsck(Thoroughness::Full, &Meter::default()).unwrap().findings, []);
}

#[test]
fn vault_of_format_5_opens() {
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_5);
    assert_eq!(format_of(&file), 5);
    let vault = support::open_vault(&file);
    assert_eq!(format_of(&file), FORMAT);
    support::assert_clean(&vault);
    let reader = vault.read().unwrap();
    let state = |n| {
        let run = vault.run(&RunPrefix::from(&runs::run_id(n))).unwrap();
        in_directory(&*reader, &run).unwrap()
    };
    assert_eq!(
        [state(1), state(2), state(6)],
        [Some(InDirectory::Unapplied), None, Some(InDirectory::Applied)]
    );
    assert_eq!(reader.applications_after(Timestamp(0)).unwrap().len(), 2);
    assert_eq!(audit::verify(&*reader, None).unwrap().problems, []);
}

#[test]
fn vault_of_format_4_opens() {
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_4);
    assert_eq!(format_of(&file), 4);
    let vault = support::open_vault(&file);
    assert_eq!(format_of(&file), FORMAT);
    support::assert_clean(&vault);
    assert_eq!(vault.fork(&main_fork()).unwrap().head.to_hex(), GOLDEN_4_HEAD);
    let verdict = audit::verify(&*vault.read().unwrap(), None).unwrap();
    assert_eq!((verdict.rows, verdict.problems.as_slice()), (40, &[][..]));
    let recordings = vault.recordings().unwrap();
    let [recording] = recordings.as_slice() else { panic!("{recordings:?}") };
    assert_eq!((recording.name.as_str(), recording.is_open()), ("golden", false));
    let ids = |runs: Vec<RunRecord>| runs.into_iter().map(|run| run.id).collect::<Vec<_>>();
    let runs = vault.runs(i64::MAX, 10).unwrap();
    let held: Vec<RunRecord> = runs.into_iter().filter(|run| recording.holds(run)).collect();
    assert_eq!(ids(held), [7, 6, 5].map(runs::run_id));
    // A result of the older format is found by its key, with the output of the command.
    let reader = vault.read().unwrap();
    let memo = reader.memo(&golden_parts().key()).unwrap().unwrap();
    assert_eq!((memo.run.clone(), memo.exit_code), (runs::run_id(5), 0));
    assert_eq!(read_output(&*reader, &memo.stdout).unwrap(), b"out\n");
    drop(reader);
    // A batch of the older format can be resumed.
    let batch = vault.batch(&BatchPrefix::parse("0707").unwrap()).unwrap();
    assert_eq!(batch, golden_batch(&vault));
    let items = |vault: &Vault| {
        let mut items = Vec::new();
        let each = |item, run: RunRecord| {
            items.push((item, run.id, run.exit_code));
            Ok::<(), avfs_vault::VaultError>(())
        };
        vault.each_batch_run(&batch.id, each).unwrap();
        items
    };
    let before = [(0, runs::run_id(6), Some(0)), (1, runs::run_id(7), Some(1))];
    assert_eq!(items(&vault), before);
    let again = BatchItem { batch: batch.id.clone(), number: 1 };
    let record = RunRecord { version_before: Some(batch.base), ..runs::record(8, &main_fork()) };
    Changes::default().land_for(&vault, Landing::RecordOnly, record, &again).unwrap();
    assert_eq!(items(&vault)[2], (1, runs::run_id(8), Some(0)));
    vault.end_batch(&batch, "items=2").unwrap();
    assert!(vault.batches(10).unwrap()[0].ended_at.is_some());
    support::assert_clean(&vault);
}

#[test]
fn vault_of_format_3_opens() {
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_3);
    assert_eq!(format_of(&file), 3);
    let vault = support::open_vault(&file);
    assert_eq!(format_of(&file), FORMAT);
    assert_eq!(vault.memos(i64::MAX, 10).unwrap(), []);
    support::assert_clean(&vault);
    let states: Vec<RunState> = vault.runs(i64::MAX, 10).unwrap().into_iter().map(|run| run.state).collect();
    assert_eq!(states, [RunState::ApprovalRequired, RunState::Completed, RunState::Completed]);
    let claim = vault.claim_approval(&RequestDigest([3; 32]), None, &runs::run_id(4)).unwrap();
    assert!(matches!(claim, Claim::Granted(_)), "{claim:?}");
    assert_eq!((vault.recordings().unwrap(), vault.batches(10).unwrap()), (Vec::new(), Vec::new()));
    let verdict = audit::verify(&*vault.read().unwrap(), None).unwrap();
    assert_eq!((verdict.rows, verdict.problems.as_slice()), (24, &[][..]));
}

#[test]
fn vault_of_format_2_opens() {
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_2);
    assert_eq!(format_of(&file), 2);
    let vault = support::open_vault(&file);
    assert_eq!(format_of(&file), FORMAT);
    support::assert_clean(&vault);
    assert_eq!(vault.fork(&main_fork()).unwrap().head.to_hex(), GOLDEN_2_HEAD);
    let runs = vault.runs(i64::MAX, 10).unwrap();
    let base = vault.fork(&main_fork()).unwrap().head;
    let made = vault.fork(&fork("run-1")).unwrap();
    let expected = [
        RunRecord { seq: 2, version_before: Some(base), exit_code: Some(3), ..runs::record(2, &main_fork()) },
        RunRecord {
            seq: 1,
            version_before: Some(base),
            version_after: Some(made.head),
            ..runs::record(1, &fork("run-1"))
        },
    ];
    assert_eq!(runs, expected);
    support::export(&vault, "run:0100", &scratch.join("out"));
    assert_eq!(fs::read_to_string(scratch.join("out/plain")).unwrap(), "by a run\n");
    assert!(!scratch.join("out/sub/n008").exists());
    let verdict = audit::verify(&*vault.read().unwrap(), None).unwrap();
    assert_eq!((verdict.rows, verdict.problems.as_slice()), (12, &[][..]));
    ask_golden_question(&vault);
    record_golden_runs(&vault);
    assert_eq!(vault.runs(i64::MAX, 10).unwrap().len(), 6);
    support::assert_clean(&vault);
}

#[test]
fn read_only_vault_of_an_older_format_is_read_without_migration() {
    if support::is_root() {
        let name = "format::read_only_vault_of_an_older_format_is_read_without_migration";
        return support::skip(name, "root ignores modes");
    }
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_1);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let before = fs::read(&file).unwrap();
    let vault = support::open_vault(&file);
    support::export(&vault, "main", &scratch.join("out"));
    assert_eq!(describe(&scratch.join("out")), GOLDEN_1_LISTING.split("--\n").next().unwrap());
    assert_eq!(vault.runs(i64::MAX, 10).unwrap(), []);
    assert_eq!(vault.read().unwrap().usage().unwrap().runs, 0);
    assert_eq!(vault.memos(i64::MAX, 10).unwrap(), []);
    assert_eq!(vault.backend().format(), Some(1));
    support::assert_clean(&vault);
    drop(vault);
    assert!(fs::read(&file).unwrap() == before, "a read-only file was written");
}

#[test]
fn vault_of_format_1_opens() {
    let scratch = Scratch::new();
    let file = unpack(&scratch, GOLDEN_1);
    assert_eq!(format_of(&file), 1);
    let vault = support::open_vault(&file);
    assert_eq!(format_of(&file), FORMAT);
    support::assert_clean(&vault);
    assert_eq!(vault.fork(&main_fork()).unwrap().head.to_hex(), GOLDEN_1_HEAD);
    support::export(&vault, "main", &scratch.join("out"));
    support::export(&vault, "side", &scratch.join("out-side"));
    let listing =
        format!("{}--\n{}", describe(&scratch.join("out")), describe(&scratch.join("out-side/side")));
    assert_eq!(listing, GOLDEN_1_LISTING);
    let reader = vault.read().unwrap();
    let history: Vec<bool> =
        avfs_vault::version::History::new(&*reader, vault.fork(&main_fork()).unwrap().head)
            .map(|version| version.unwrap().pruned_at.is_some())
            .collect();
    assert_eq!(history, [false, false, true, true]);
    assert_eq!(reader.checkpoints().unwrap().len(), 1);
    assert!(matches!(reader.fork(&fork("side")).unwrap().unwrap().life, Life::Ephemeral { .. }));
    let verdict = audit::verify(&*reader, None).unwrap();
    assert_eq!((verdict.rows, verdict.problems.as_slice()), (9, &[][..]));
    drop(reader);
    // It can also be written.
    support::write(&vault, "added", b"by a later avfs");
    assert_eq!(vault.runs(i64::MAX, 10).unwrap(), []);
    land_golden_runs(&vault);
    assert_eq!(vault.runs(i64::MAX, 10).unwrap().len(), 2);
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}
