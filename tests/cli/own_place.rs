//! What is avfs's own beside the files of a workspace: never versioned, never written over, never mistaken for theirs.

use std::fs;

use serde_json::json;

use crate::env::TestEnv;

#[test]
fn no_edit_reaches_the_vaults_own_directory() {
    let env = TestEnv::with_project();
    let before = env.state();
    for words in [
        &["write", ".avfs/vault.db", "--text", "JUNK"][..],
        &["write", "x/.avfs/y", "--text", "JUNK"],
        &["mkdir", ".avfs"],
        &["mv", "README.md", ".avfs"],
        &["cp", "README.md", ".avfs"],
    ] {
        env.refused(words, 1, "path.invalid");
    }
    assert_eq!(env.state(), before);
}

#[test]
fn an_export_does_not_write_over_the_vault_it_comes_from() {
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
    // Elsewhere it is a file like any other.
    run(&["export", "main", "../out"]);
    assert_eq!(fs::read(env.at("out/v.db")).unwrap(), b"JUNK");
}

#[test]
fn a_vault_in_its_own_directory_changes_nothing_there() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    env.ok(&["init", "--vault", "./v.db", "."]);
    let import = || env.result(&["--vault", "./v.db", "import"]);
    let first = import();
    std::thread::sleep(std::time::Duration::from_millis(120));
    import();
    for _ in 0..3 {
        assert_eq!(import()["changed"], json!(false), "after {first}");
    }
    env.put("b", b"b\n");
    assert_eq!(import()["changed"], json!(true));
}

#[test]
fn what_only_looks_like_a_staging_directory_stays() {
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
    assert!(!left.exists(), "what a killed export left is removed");
}

#[test]
fn what_an_export_has_staged_is_not_imported() {
    let env = TestEnv::with_project();
    env.put(".avfs-export-0123456789abcdef/half", b"half\n");
    env.put(".avfs-export-mine/whole", b"whole\n");
    assert_eq!(env.result(&["status"])["change_counts"]["added"], json!(2));
    env.ok(&["import"]);
    assert_eq!(env.ok(&["find", "main", "--name", "*al*"]), "");
    assert_eq!(env.ok(&["find", "main", "--name", "*who*"]), ".avfs-export-mine/whole\n");
}
