//! Files of avfs in a workspace: never versioned, never overwritten, never confused with the user's files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::env::TestEnv;
use crate::file_systems::with_mounts;

#[test]
fn edits_cannot_touch_the_vault_directory() {
    let env = TestEnv::with_project();
    let before = env.state();
    for words in [
        &["write", ".avfs/vault.db", "--text", "JUNK"][..],
        &["write", "x/.avfs/y", "--text", "JUNK"],
        &["mkdir", ".avfs"],
        &["mv", "README.md", ".avfs"],
        &["cp", "README.md", ".avfs"],
    ] {
        env.refused(words, 2, "path.invalid");
    }
    assert_eq!(env.state(), before);
}

#[test]
fn export_does_not_overwrite_its_own_vault() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    env.ok(&["init", "--vault", "./v.db", "."]);
    let vault = ["--vault", "./v.db"];
    let run = |words: &[&str]| env.ok(&[&vault[..], words].concat());
    run(&["import"]);
    run(&["write", "v.db", "--text", "JUNK"]);
    run(&["write", "v.db-wal", "--text", "JUNK"]);
    run(&["export", "main", ".", "--overwrite"]);
    run(&["fsck"]);
    // Elsewhere it is an ordinary file.
    run(&["export", "main", "../out"]);
    assert_eq!(fs::read(env.at("out/v.db")).unwrap(), b"JUNK");
}

#[test]
fn vault_inside_the_bound_directory_is_not_a_change() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    env.ok(&["init", "--vault", "./v.db", "."]);
    let import = || env.result(&["--vault", "./v.db", "import"]);
    let first = import();
    crate::support::settle();
    import();
    for _ in 0..3 {
        assert_eq!(import()["changed"], json!(false), "after {first}");
    }
    env.put("b", b"b\n");
    assert_eq!(import()["changed"], json!(true));
}

#[test]
fn export_keeps_files_that_only_resemble_staging_directories() {
    let env = TestEnv::with_project();
    let out = env.at("out");
    fs::create_dir_all(out.join(".avfs-export-mine")).unwrap();
    fs::write(out.join(".avfs-export-mine/x"), "precious").unwrap();
    fs::write(out.join(".avfs-export-f"), "").unwrap();
    fs::write(out.join(".avfs-export-0123456789abcdef"), "a file").unwrap();
    let left = out.join(".avfs-export-fedcba9876543210");
    fs::create_dir(&left).unwrap();
    env.ok(&["export", "main", "../out/new"]);
    assert_eq!(fs::read(out.join(".avfs-export-mine/x")).unwrap(), b"precious");
    assert!(out.join(".avfs-export-f").exists() && out.join(".avfs-export-0123456789abcdef").exists());
    assert!(!left.exists(), "the leftover of a killed export is removed");
}

#[test]
fn staging_directories_are_not_imported() {
    let env = TestEnv::with_project();
    env.put(".avfs-export-0123456789abcdef/half", b"half\n");
    env.put(".avfs-export-mine/whole", b"whole\n");
    assert_eq!(env.result(&["status"])["change_counts"]["added"], json!(2));
    env.ok(&["import"]);
    assert_eq!(env.ok(&["find", "main", "--name", "*al*"]), "");
    assert_eq!(env.ok(&["find", "main", "--name", "*who*"]), ".avfs-export-mine/whole\n");
}

#[test]
fn files_whose_name_starts_with_the_vault_name_are_ordinary_files() {
    let env = TestEnv::new();
    env.ok(&["init", "--vault", "./v.db", "."]);
    let others = ["v.db-schema.sql", "v.db.d/x", "v.db.md", "v.db.policy.toml.old", "v.dbx"];
    others.iter().for_each(|name| env.put(name, b"theirs\n"));
    env.put("v.db.policy.toml", b"");
    let run = |words: &[&str]| env.ok(&[&["--vault", "./v.db"], words].concat());
    run(&["import"]);
    assert_eq!(run(&["find", "main", "--type", "f"]).lines().collect::<Vec<_>>(), others);
    run(&["write", "v.db.md", "--text", "mine"]);
    run(&["export", "main", ".", "--overwrite"]);
    assert_eq!(fs::read(env.project().join("v.db.md")).unwrap(), b"mine");
}

/// An entry with this name would be treated as the directory of a vault.
#[test]
fn entries_named_like_the_vault_directory_are_not_imported_or_exported() {
    let env = TestEnv::with_project();
    env.put("planted/vault.db", b"");
    std::os::unix::fs::symlink("../planted", env.project().join("src/.avfs")).unwrap();
    env.put("docs/.avfs", b"a file\n");
    env.ok(&["import"]);
    assert_eq!(env.ok(&["find", "main", "--name", ".avfs"]), "");
    env.ok(&["export", "main", "../out"]);
    assert!(fs::symlink_metadata(env.at("out/src/.avfs")).is_err());
    assert!(env.at("out/planted/vault.db").exists());
}

#[test]
fn vault_file_has_mode_0600() {
    let env = TestEnv::new();
    env.put("open/.avfs/avfs.toml", b"");
    env.ok(&["init", "open"]);
    env.ok(&["init", "--vault", "./v.db", "."]);
    for file in ["open/.avfs/vault.db", "v.db"] {
        let mode = fs::metadata(env.project().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{file}");
    }
}

/// A hard link is the same file, which grows while it is imported.
#[test]
fn vault_is_not_imported_under_another_name() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    env.ok(&["init", "--vault", "./v.db", "."]);
    fs::hard_link(env.project().join("v.db"), env.project().join("linked")).unwrap();
    let run = |words: &[&str]| env.ok(&[&["--vault", "./v.db"], words].concat());
    assert!(!run(&["status"]).contains("linked"));
    // Writers under different names would use different WAL files.
    let refusal = env.refused(&["--vault", "./v.db", "import"], 1, "vault.linked");
    let hint = refusal["error"]["hint"].as_str().unwrap();
    let remedy = hint.strip_prefix("make it a separate file with: ").unwrap().split(", or").next().unwrap();
    let done = env.clean(Path::new("sh")).args(["-c", remedy]).status().unwrap();
    assert!(done.success(), "{hint}");
    fs::remove_file(env.project().join("linked")).unwrap();
    // It is another file than the one that was recorded.
    env.refused(&["--vault", "./v.db", "import"], 1, "vault.untrusted");
    env.ok(&["vault", "trust", "./v.db"]);
    run(&["import"]);
    assert_eq!(run(&["find", "main", "--type", "f"]), "a\n");
    // Its directory, mounted elsewhere.
    let script = "
        mkdir ../elsewhere && mount --bind . ../elsewhere || exit 9
        $AVFS --vault ./v.db import ../elsewhere || exit 1
        $AVFS --vault ./v.db find main --type f";
    let name = "own_place::vault_is_not_imported_under_another_name";
    let Some(answer) = with_mounts(&env, name, script) else { return };
    assert!(answer.code == 0 && answer.stdout.ends_with("\na\n"), "{answer:?}");
}

#[test]
fn leftovers_of_a_killed_init_are_removed_and_never_imported() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    // A name that only shares the prefix is an ordinary file.
    env.put("v.db.new-notes", b"notes\n");
    let (dead, alive) = ("v.db.new-0123456789abcdef", "v.db.new-fedcba9876543210");
    for name in [dead, alive] {
        for end in ["", "-wal", "-shm", "-lock"] {
            env.put(&format!("{name}{end}"), b"");
        }
    }
    let working = fs::File::open(env.project().join(alive)).unwrap();
    rustix::fs::flock(&working, rustix::fs::FlockOperation::LockExclusive).unwrap();
    env.ok(&["init", "--vault", "./v.db", "."]);
    let left: Vec<String> = fs::read_dir(env.project())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("v.db.new-"))
        .collect();
    assert!(!left.iter().any(|name| name.starts_with(dead)), "{left:?}");
    assert_eq!(left.iter().filter(|name| name.starts_with(alive)).count(), 4, "{left:?}");
    env.ok(&["--vault", "./v.db", "import"]);
    assert_eq!(env.ok(&["--vault", "./v.db", "ls", "main"]), "a\nv.db.new-notes\n");
}
