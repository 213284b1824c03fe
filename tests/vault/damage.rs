//! Damage to a vault: it is found, never passed on, kept apart from intact data, and healed.

use std::fs;
use std::path::{Path, PathBuf};

use avfs_types::diagnose::Diagnose;
use avfs_vault::Vault;
use avfs_vault::checkpoint::Origin;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::fsck::{Report, Thoroughness};
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::{History, root_of};
use avfs_vault::write_out::Unwritten;

use crate::support;
use crate::support::{Scratch, main_fork, reference, snapshot};

/// A vault that is damaged repeatedly, in copies, and its exports.
struct Sample {
    scratch: Scratch,
    now: PathBuf,
    first: PathBuf,
}

impl Sample {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (_, vault) = sample(&scratch);
        let (first, now) = (scratch.join("first"), scratch.join("now"));
        support::export(&vault, "main~1", &first);
        support::export(&vault, "main", &now);
        Self { scratch, now, first }
    }

    /// A copy in which a statement changed rows, and a directory for exports.
    #[track_caller]
    fn damaged(&self, what: &str, statement: &str) -> (Scratch, Vault) {
        let scratch = Scratch::new();
        let file = scratch.join("vault.db");
        support::open_vault(&self.scratch.join("vault.db")).copy(&file).unwrap();
        assert!(support::sql(&file).execute(statement, []).unwrap() > 0, "{what}: nothing was damaged");
        (scratch, support::open_vault(&file))
    }
}

fn sample(scratch: &Scratch) -> (PathBuf, Vault) {
    let file = scratch.join("vault.db");
    let vault = support::create_vault(&file);
    let dir = scratch.dir("sample");
    support::many_files(&dir, 60);
    fs::write(dir.join("large"), support::noise(4, 3 << 19)).unwrap();
    support::import(&vault, &dir);
    support::write(&vault, "text", &b"compressible ".repeat(100));
    vault.save_checkpoint(&main_fork(), None, "", Origin::ByHand).unwrap();
    (file, vault)
}

/// Ways to damage objects.
const DAMAGES: [(&str, &str); 16] = [
    (
        "a byte of a blob",
        "UPDATE blob SET data = CAST(substr(data, 1, length(data) - 1) || x'ff' AS BLOB) WHERE codec = 0 AND size < 100000",
    ),
    (
        "a byte of a compressed blob",
        "UPDATE blob SET data = CAST(substr(data, 1, 20) || x'00ff00' || substr(data, 24) AS BLOB) WHERE codec = 1",
    ),
    ("a truncated blob", "UPDATE blob SET data = substr(data, 1, length(data) / 2) WHERE codec < 2"),
    ("an emptied blob", "UPDATE blob SET data = x'' WHERE codec = 1"),
    ("a blob's size", "UPDATE blob SET size = size + 1 WHERE codec < 2"),
    ("a blob's codec", "UPDATE blob SET codec = 0 WHERE codec = 1"),
    ("a blob as text", "UPDATE blob SET data = CAST(data AS TEXT) WHERE codec = 1"),
    (
        "a chunk list",
        "UPDATE blob SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE codec = 2",
    ),
    ("a chunk list's length", "UPDATE blob SET size = size - 1 WHERE codec = 2"),
    ("missing chunks", "DELETE FROM blob WHERE codec = 0 AND size > 10000"),
    ("missing blobs", "DELETE FROM blob WHERE codec = 1"),
    ("wrong digests of blobs", "UPDATE blob SET digest = randomblob(32) WHERE codec = 1"),
    (
        "trees",
        "UPDATE tree SET data = CAST(substr(data, 1, length(data) - 1) || x'7f' AS BLOB) WHERE length(data) > 200",
    ),
    (
        "a page of a directory's tree",
        "UPDATE tree SET data = zeroblob(length(data)) WHERE id = (SELECT min(id) FROM tree WHERE length(data) > 200)",
    ),
    ("missing trees", "DELETE FROM tree WHERE length(data) > 200"),
    ("swapped trees", "UPDATE tree SET data = (SELECT data FROM tree ORDER BY id LIMIT 1)"),
];

fn root_of_main(vault: &Vault) -> avfs_vault::transfer::Result<DirRef> {
    let (version, _) = avfs_vault::version::resolve(&*vault.read()?, &reference("main"))?;
    Ok(root_of(&version)?)
}

/// Every kind of damage to a row is found by a full check, and by any reader of the damaged data.
#[test]
fn damaged_rows_are_found_and_never_returned() {
    let sample = Sample::new();
    for (what, statement) in DAMAGES {
        let (scratch, vault) = sample.damaged(what, statement);
        let report = vault.fsck(Thoroughness::Full, &Meter::default()).unwrap();
        assert!(!report.findings.is_empty(), "{what} was not noticed");
        let exported = root_of_main(&vault).and_then(|root| {
            let options = ExportOptions {
                overwrite: Overwrite::Refuse,
                paths: &[],
                set_ids: SetIds::Kept,
                meter: &Meter::default(),
                unwritten: None,
            };
            vault.export(&root, &scratch.join("out"), &options)
        });
        let code = exported.as_ref().map_err(|error| error.code());
        assert!(
            matches!(code, Err("object.damaged" | "object.missing" | "vault.corrupt")),
            "{what}: export gave {exported:?}"
        );
        assert!(!scratch.join("out").exists());
    }
}

#[test]
fn damaged_history_is_found() {
    let damages = [
        ("a message", "UPDATE version SET message = 'forged' WHERE id = 2"),
        ("an author", "UPDATE version SET author = 'forged' WHERE id = 2"),
        ("a time", "UPDATE version SET at = at + 1 WHERE id = 2"),
        ("a root", "UPDATE version SET root = (SELECT root FROM version WHERE id = 1) WHERE id = 2"),
        ("a content digest", "UPDATE version SET content_root = zeroblob(32) WHERE id = 2"),
        ("totals", "UPDATE version SET entries = entries + 1 WHERE id = 2"),
        ("parents", "UPDATE version SET parents = x'' WHERE id = 2"),
        ("a missing parent", "DELETE FROM version WHERE id = 2"),
        ("a cycle", "UPDATE version SET parents = (SELECT head FROM fork WHERE name = 'main') WHERE id = 2"),
        ("a missing head", "UPDATE fork SET head = randomblob(32)"),
        ("a checkpoint of a missing version", "UPDATE checkpoint SET version = randomblob(32)"),
        ("a checkpoint of a missing fork", "UPDATE checkpoint SET fork = 'gone'"),
        ("a pruned checkpoint", "UPDATE version SET pruned_at = 1"),
    ];
    let sample = Sample::new();
    for (what, statement) in damages {
        let (_scratch, vault) = sample.damaged(what, statement);
        let report = vault.fsck(Thoroughness::Quick, &Meter::default()).unwrap();
        assert!(!report.findings.is_empty(), "{what} was not noticed");
        // A cycle ends a walk through the history with an error instead of looping.
        let reader = vault.read().unwrap();
        let head = vault.fork(&main_fork()).unwrap().head;
        assert!(History::new(&*reader, head).count() <= 4);
    }
}

fn checked(vault: &Vault) -> Report {
    vault.fsck(Thoroughness::Full, &Meter::default()).unwrap()
}

/// Returns how many blobs and trees were restored.
fn heal(vault: &Vault, from: &Path) -> (usize, usize) {
    let options = ImportOptions {
        on_trouble: OnTrouble::KeepGoing,
        stat_cache: None,
        exclude: &[],
        meter: &Meter::default(),
    };
    let (healed, left) = vault.heal(Thoroughness::Full, from, &options).unwrap();
    assert_eq!(left, checked(vault));
    (healed.blobs.len(), healed.trees.len())
}

/// Intact data can be exported, with a list of the rest; the rest is healed from a directory that still has it.
#[test]
fn intact_data_is_exported_and_the_rest_is_healed() {
    let sample = Sample::new();
    for (what, statement) in DAMAGES {
        let (scratch, vault) = sample.damaged(what, statement);
        let (first, now) = (&sample.first, &sample.now);
        let versions = vault.read().unwrap().version_ids().unwrap().len();
        let unwritten = Unwritten::default();
        let (rest, meter) = (scratch.join("rest"), Meter::default());
        let options = ExportOptions {
            overwrite: Overwrite::Refuse,
            paths: &[],
            set_ids: SetIds::Kept,
            meter: &meter,
            unwritten: Some(&unwritten),
        };
        match root_of_main(&vault).and_then(|root| vault.export(&root, &rest, &options)) {
            Ok(_) => {
                let unwritten: Vec<String> =
                    unwritten.into_sorted().into_iter().map(|(path, _)| path.to_string()).collect();
                assert!(!unwritten.is_empty(), "{what}: nothing is listed as left out");
                let [there, whole] = [&rest, now].map(|dir| snapshot::take(dir));
                for difference in snapshot::differences(&whole, &there) {
                    // For a directory that lost a page its own path is listed, otherwise the paths of single files.
                    let listed =
                        unwritten.iter().any(|path| path == "." || difference.contains(path.as_str()));
                    assert!(listed, "{what}: {difference} is not in {unwritten:?}");
                }
            }
            // Without the top page nothing can be exported.
            Err(error) => {
                assert!(["trees", "missing trees", "swapped trees"].contains(&what), "{what}: {error}");
                assert!(!rest.exists());
            }
        }

        let (of_now, of_first) = (heal(&vault, now), heal(&vault, first));
        assert_ne!(of_now, (0, 0), "{what}: nothing was healed");
        assert_eq!(heal(&vault, now), (0, 0), "{what}: {of_now:?}, {of_first:?}");
        support::export(&vault, "main", &scratch.join("healed"));
        snapshot::assert_same(now, &scratch.join("healed"));
        // No directory is left that contains the empty directory that every vault starts with.
        if what != "swapped trees" {
            assert_eq!(checked(&vault).findings, [], "{what}");
        }
        assert_eq!(vault.read().unwrap().version_ids().unwrap().len(), versions, "healing added a version");
    }
}

/// A restored row keeps its id: a sweep treats rows with lower ids as older.
#[test]
fn healing_changes_only_damaged_rows() {
    let scratch = Scratch::new();
    let (file, vault) = sample(&scratch);
    let now = scratch.join("now");
    support::export(&vault, "main", &now);
    drop(vault);
    let rows = |of: &str| -> Vec<(i64, Vec<u8>, Vec<u8>)> {
        let sql = support::sql(&file);
        let mut statement = sql.prepare(&format!("SELECT id, digest, data FROM {of} ORDER BY id")).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let before = ["blob", "tree"].map(rows);
    let hurt = "UPDATE blob SET data = zeroblob(length(data)) WHERE id % 3 = 0;
                UPDATE tree SET data = zeroblob(length(data)) WHERE id % 3 = 0";
    support::sql(&file).execute_batch(hurt).unwrap();
    assert!(["blob", "tree"].map(rows) != before);
    // Files added to the directory since then are ignored.
    fs::write(now.join("new"), "nothing of the vault").unwrap();
    let vault = support::open_vault(&file);
    let head = vault.fork(&main_fork()).unwrap().head;
    let (blobs, trees) = heal(&vault, &now);
    assert!(blobs > 20 && trees > 0, "{blobs} blobs, {trees} trees");
    assert_eq!(vault.fork(&main_fork()).unwrap().head, head);
    let seen: Vec<String> =
        vault.read().unwrap().audit_after(0, 100).unwrap().into_iter().map(|row| row.action).collect();
    assert_eq!(seen.last().map(String::as_str), Some("vault.heal"), "{seen:?}");
    drop(vault);
    let [blobs, trees] = ["blob", "tree"].map(rows);
    assert!(blobs == before[0], "a blob differs");
    let shape = |rows: &[(i64, Vec<u8>, Vec<u8>)]| -> Vec<(i64, Vec<u8>)> {
        rows.iter().map(|(id, digest, _)| (*id, digest.clone())).collect()
    };
    assert_eq!(shape(&trees), shape(&before[1]));
}

/// An import that has the content replaces damaged objects instead of building on them.
#[test]
fn importing_again_repairs_damaged_content() {
    let sample = Sample::new();
    for (what, statement) in DAMAGES {
        let (scratch, vault) = sample.damaged(what, statement);
        let now = &sample.now;
        let imported = support::import(&vault, now);
        let of_content = statement.starts_with("UPDATE blob") && !statement.contains("digest");
        assert_eq!(imported.scanned.mended > 0, of_content, "{what}: {imported:?}");
        support::export(&vault, "main", &scratch.join("again"));
        snapshot::assert_same(now, &scratch.join("again"));
        assert_eq!(support::import(&vault, now).scanned.mended, 0, "{what}");
    }
}

/// A check reads the objects that versions need. Damage to objects that no version needs any more is not noticed;
/// the stat cache of the version that needed them must not vouch for them.
#[test]
fn import_does_not_build_on_pruned_and_damaged_objects() {
    let scratch = Scratch::new();
    let file = scratch.join("vault.db");
    let vault = support::create_real_vault(&file);
    let (dir, cache) = (scratch.dir("sample"), scratch.join("cache"));
    support::many_files(&dir, 30);
    support::settle();
    let import =
        |vault: &Vault| support::try_import(vault, &dir, Some(&cache), OnTrouble::Fail).unwrap().scanned;
    assert_eq!(import(&vault).files_read, 30);
    assert_eq!(import(&vault).files_read, 0);
    // The fork continues without these files.
    support::import(&vault, &scratch.dir("empty"));
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    drop(vault);
    let hurt = "UPDATE blob SET data = zeroblob(length(data)); \
                UPDATE tree SET data = zeroblob(length(data)) \
                WHERE digest NOT IN (SELECT root FROM version WHERE pruned_at IS NULL)";
    support::sql(&file).execute_batch(hurt).unwrap();
    let vault = support::open_vault(&file);
    assert_eq!(checked(&vault).findings, []);
    let again = import(&vault);
    assert!(again.files_read == 30 && again.mended > 0, "{again:?}");
    assert_eq!(import(&vault).files_read, 0);
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
    support::assert_clean(&vault);
}

/// Damages every page that no version needs; returns how many there are.
fn damage_unneeded_pages(file: &Path) -> usize {
    let sql = support::sql(file);
    let mut statement = sql.prepare("SELECT id, data FROM tree").unwrap();
    let rows: Vec<(i64, Vec<u8>)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let put = |id: i64, data: &[u8]| {
        sql.execute("UPDATE tree SET data = ?2 WHERE id = ?1", rusqlite::params![id, data]).unwrap();
    };
    let mut damaged = 0;
    for (id, data) in rows {
        put(id, &vec![0; data.len()]);
        if checked(&support::open_vault(file)).findings.is_empty() {
            damaged += 1;
        } else {
            put(id, &data);
        }
    }
    damaged
}

/// If a file cannot be read, the scanned directory alone is not the tree of any version: no version needs its pages.
#[test]
fn import_does_not_build_on_damaged_pages_beside_an_unreadable_file() {
    let scratch = Scratch::new();
    if support::is_root() {
        return support::skip(
            "damage::import_does_not_build_on_damaged_pages_beside_an_unreadable_file",
            "root ignores modes",
        );
    }
    let file = scratch.join("vault.db");
    let vault = support::create_real_vault(&file);
    let (dir, cache) = (scratch.dir("sample"), scratch.join("cache"));
    support::many_files(&dir, 30);
    support::settle();
    let import =
        |vault: &Vault| support::try_import(vault, &dir, Some(&cache), OnTrouble::KeepGoing).unwrap();
    import(&vault);
    crate::attributes::set_mode(&dir.join("d000/f00003"), 0);
    support::settle();
    let known = import(&vault).committed.version.root;
    assert_eq!(import(&vault).scanned.files_read, 0);
    drop(vault);
    assert!(damage_unneeded_pages(&file) > 0);
    let vault = support::open_vault(&file);
    assert_eq!(import(&vault).committed.version.root, known);
    support::assert_clean(&vault);
    // Nor are they if the unreadable file is deleted and no timestamp shows it.
    damage_unneeded_pages(&file);
    let time = fs::metadata(dir.join("d000")).unwrap().modified().unwrap();
    fs::remove_file(dir.join("d000/f00003")).unwrap();
    fs::File::open(dir.join("d000")).unwrap().set_modified(time).unwrap();
    let vault = support::open_vault(&file);
    import(&vault);
    support::assert_clean(&vault);
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
}
