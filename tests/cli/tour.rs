//! The first steps of a new user.

use serde_json::json;

use crate::env::TestEnv;
use crate::support::snapshot;

#[test]
fn new_user_can_fork_edit_compare_and_restore() {
    let env = TestEnv::with_project();
    assert!(env.project().join(".avfs/.gitignore").exists());
    assert!(env.ok(&["import"]).contains("nothing changed"));

    env.ok(&["fork", "create", "experiment"]);
    env.ok(&["write", "notes.txt", "--text", "an idea\n", "--fork", "experiment"]);
    assert!(env.ok(&["checkpoint", "save", "good", "--fork", "experiment"]).contains("experiment@good"));
    env.ok(&["rm", "-r", "src", "--fork", "experiment"]);

    let names = env.ok(&["diff", "experiment", "--name-status"]);
    assert_eq!(names, "A\tnotes.txt\nD\tsrc\nD\tsrc/data.bin\nD\tsrc/main.rs\n");
    env.ok(&["checkpoint", "restore", "good", "--fork", "experiment"]);
    assert_eq!(env.ok(&["diff", "experiment", "--name-status"]), "A\tnotes.txt\n");
    assert_eq!(env.ok(&["cat", "experiment", "notes.txt"]), "an idea\n");
    assert!(!env.project().join("notes.txt").exists(), "the host directory is not changed");
    env.assert_sound();
}

#[test]
fn export_equals_the_imported_directory() {
    let env = TestEnv::with_project();
    let copy = env.at("copy");
    env.ok(&["export".as_ref(), "main".as_ref(), copy.as_os_str()]);
    let original = snapshot::take_without(&env.project(), &[".avfs"]);
    let differences = snapshot::differences(&original, &snapshot::take(&copy));
    assert_eq!(differences, Vec::<String>::new());
}

#[test]
fn restore_appends_a_version_with_the_old_state() {
    let env = TestEnv::with_project();
    env.put("README.md", b"changed\n");
    env.ok(&["import", "-m", "second"]);
    let before = env.result(&["log"])["versions"].as_array().unwrap().len();
    let restored = env.result(&["restore", "main~1"]);
    assert_eq!(restored["changed"], json!(true));
    assert_eq!(env.ok(&["cat", "main", "README.md"]), "hello\n");
    assert_eq!(env.result(&["log"])["versions"].as_array().unwrap().len(), before + 1);
    assert_eq!(env.result(&["restore", "main"])["changed"], json!(false));
}

#[test]
fn status_lists_the_changes_an_import_would_record() {
    let env = TestEnv::with_project();
    assert_eq!(env.result(&["status"])["clean"], json!(true));
    env.put("README.md", b"changed\n");
    env.put("new.txt", b"new\n");
    std::fs::remove_file(env.project().join("src/main.rs")).unwrap();
    let status = env.result(&["status"]);
    let changes: Vec<(&str, &str)> = status["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["kind"].as_str().unwrap(), change["path"].as_str().unwrap()))
        .collect();
    assert_eq!(changes, [("modified", "README.md"), ("added", "new.txt"), ("deleted", "src/main.rs")]);
    env.ok(&["import"]);
    assert_eq!(env.result(&["status"])["clean"], json!(true));
}

#[test]
fn vault_moves_with_its_directory() {
    let env = TestEnv::with_project();
    let moved = env.at("moved");
    std::fs::rename(env.project(), &moved).unwrap();
    std::fs::create_dir(env.project()).unwrap();
    std::fs::write(moved.join("more.txt"), "more").unwrap();
    let vault = moved.join(".avfs/vault.db");
    let status = env.result(&["status".as_ref(), "--vault".as_ref(), vault.as_os_str()]);
    assert_eq!(status["dir"], json!(moved.canonicalize().unwrap().to_str().unwrap()));
    assert_eq!(status["change_counts"]["added"], json!(1));
}

#[test]
fn named_vault_is_bound_to_a_directory_elsewhere() {
    let env = TestEnv::new();
    env.put("a.txt", b"a\n");
    let made = env.result(&["init", "--vault", "work", "--import"]);
    let home = env.at("home").canonicalize().unwrap();
    assert_eq!(made["vault"], json!(home.join(".local/share/avfs/vaults/work.db").to_str().unwrap()));
    assert!(!env.project().join(".avfs").exists());
    let listed = env.result(&["vault", "list"]);
    assert_eq!(listed["vaults"][0]["name"], json!("work"));
    let status = env.result(&["status", "--vault", "work"]);
    assert_eq!(status["clean"], json!(true));
    let by_environment = env.avfs(&["ls", "main"]).env("AVFS_VAULT", "work").output().unwrap();
    assert_eq!(by_environment.stdout, b"a.txt\n");
    env.ok(&["vault", "delete", "work", "--yes"]);
    assert_eq!(env.result(&["vault", "list"])["vaults"], json!([]));
}
