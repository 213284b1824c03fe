//! Tried: getting a file of root by giving it a name that root's avfs hands to the owner of a directory.
//! Stopped by: avfs changes the owner or group only of files that it has just created, through their descriptors, and
//! SQLite of no file.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::env::{Running, TestEnv, avfs};
use crate::shared::start_held;
use crate::support;
use crate::support::sql;

const USER: u32 = 54321;
const GROUP: u32 = 54320;
/// Names that SQLite or avfs uses next to a vault.
const NAMES: [&str; 8] = ["-wal", "-shm", "-head", "-lock", "-use", "-gate", ".policy.toml", "-journal"];

/// A directory of another user. Everything else belongs to root.
fn dir_of_user(env: &TestEnv, name: &str) -> PathBuf {
    let dir = env.at(name);
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(USER), Some(USER)).unwrap();
    dir
}

/// A file that only its owner can read. The owner of its directory can rename it.
fn secret(at: &Path) {
    std::fs::write(at, "secret").unwrap();
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o600)).unwrap();
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = path.symlink_metadata().unwrap();
    (meta.uid(), meta.gid())
}

fn as_user(env: &TestEnv, program: &Path) -> Command {
    let mut command = env.clean(Path::new("setpriv"));
    let user = USER.to_string();
    command.args(["--reuid", &user, "--regid", &user, &format!("--groups={GROUP}")]).arg(program);
    for name in ["cache", "data", "config"] {
        let dir = env.at("of-user").join(name);
        command.env(format!("XDG_{}_HOME", name.to_uppercase()), dir);
    }
    command
}

/// Every file in a directory that another program would give away by its name.
fn not_of_root(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let given = all.filter(|entry| owner(&entry.path()).0 != 0);
    given.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn skips(test: &str) -> bool {
    let skips = !support::is_root();
    if skips {
        support::skip(test, "only root gives files away");
    }
    skips
}

#[test]
fn files_next_to_a_vault_of_another_user_stay_roots() {
    if skips("given_files::files_next_to_a_vault_of_another_user_stay_roots") {
        return;
    }
    for suffix in NAMES {
        let env = TestEnv::new();
        dir_of_user(&env, "of-user");
        let dir = dir_of_user(&env, "dir");
        let init = |words: &[&str]| Running::start(as_user(&env, &avfs()).args(words)).answer();
        init(&["init", dir.to_str().unwrap()]).expect(0);
        let vault = dir.join(".avfs/vault.db");
        drop(sql(&vault));
        let planted = dir.join(format!(".avfs/vault.db{suffix}"));
        let name = vault.to_str().unwrap();
        let _ = std::fs::remove_file(&planted);
        secret(&dir.join("secret"));
        std::fs::rename(dir.join("secret"), &planted).unwrap();
        for words in [&["--vault", name, "log"][..], &["--vault", name, "gc"], &["--vault", name, "import"]] {
            // Some of them are invalid as what they are named.
            env.avfs(words);
        }
        env.run(&["--vault", name, "--", "true"]);
        assert!(!planted.exists() || owner(&planted).0 == 0, "{suffix}");
        // Control: any other program that opens the database as root gives its log and the index of that away.
        if ["-wal", "-shm"].contains(&suffix) {
            secret(&dir.join("secret"));
            std::fs::rename(dir.join("secret"), &planted).unwrap();
            let _ = sql(&vault).query_row("SELECT count(*) FROM meta", [], |_| Ok(()));
            assert!(!planted.exists() || owner(&planted).0 == USER, "the control failed: {suffix}");
        }
    }
}

/// Root creates the vault of another user's directory, which becomes that user's; the names are taken.
#[test]
fn new_vault_gives_away_no_existing_file() {
    if skips("given_files::new_vault_gives_away_no_existing_file") {
        return;
    }
    let env = TestEnv::new();
    let dir = dir_of_user(&env, "dir");
    let home = dir.join(".avfs");
    // A directory that only root can use, renamed by the owner of the directory above.
    std::fs::create_dir(dir.join("private")).unwrap();
    std::fs::set_permissions(dir.join("private"), PermissionsExt::from_mode(0o700)).unwrap();
    for name in ["vault.db-lock", "vault.db-use", "vault.db-head", ".gitignore", "policy.toml"] {
        secret(&dir.join("private").join(name));
    }
    std::fs::rename(dir.join("private"), &home).unwrap();
    env.avfs(&["init", dir.to_str().unwrap()]).expect(0);
    assert_eq!(owner(&home).0, 0);
    let given = not_of_root(&home);
    let mut new: Vec<&str> = given.iter().map(|name| name.trim_start_matches("vault.db")).collect();
    new.sort_unstable();
    assert!(
        new.contains(&"") && new.iter().all(|name| ["", "-wal", "-shm", "-gate", "-reserve"].contains(name)),
        "{given:?}"
    );
    // Control: a vault in a directory without such files belongs to the owner of the directory, with all files.
    let clean = dir_of_user(&env, "clean");
    env.avfs(&["init", clean.to_str().unwrap()]).expect(0);
    for entry in walkdir::WalkDir::new(&clean).into_iter().map(|entry| entry.unwrap()) {
        assert_eq!(owner(entry.path()), (USER, USER), "{}", entry.path().display());
    }
    dir_of_user(&env, "of-user");
    let mut log = as_user(&env, &avfs());
    Running::start(log.args(["--vault", clean.to_str().unwrap(), "log"])).answer().expect(0);
}

/// The new directory is replaced before it is given away.
#[test]
fn directory_that_replaces_a_new_one_stays_roots() {
    if skips("given_files::directory_that_replaces_a_new_one_stays_roots") {
        return;
    }
    for has_file in [true, false] {
        // The list of vaults exists already, so the next new directory is the vault's.
        let env = TestEnv::with_project();
        let dir = dir_of_user(&env, "dir");
        let (home, private) = (dir.join(".avfs"), dir.join("private"));
        std::fs::create_dir(&private).unwrap();
        std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
        if has_file {
            secret(&private.join("key"));
        }
        let mut init = env.clean(&avfs());
        let (running, pauses) = start_held(&env, init.args(["init", dir.to_str().unwrap()]), "dir-made");
        std::fs::rename(&home, dir.join("moved")).unwrap();
        std::fs::rename(&private, &home).unwrap();
        // Control: the swap leads a program that works by name to the other directory.
        assert_eq!(home.join("key").exists(), has_file);
        pauses.release("dir-made");
        running.answer();
        assert_eq!(owner(&home).0, 0, "has a file: {has_file}");
    }
}

/// Users who share a vault through its group get its log, and no other file of its owner.
#[test]
fn group_of_a_vault_gets_no_existing_file() {
    if skips("given_files::group_of_a_vault_gets_no_existing_file") {
        return;
    }
    let env = TestEnv::new();
    dir_of_user(&env, "of-user");
    let dir = dir_of_user(&env, "dir");
    let vault = dir.join("v.db");
    let name = vault.to_str().unwrap();
    let run = |words: &[&str]| Running::start(as_user(&env, &avfs()).args(words)).answer();
    run(&["init", "--vault", name, dir.to_str().unwrap()]).expect(0);
    drop(sql(&vault));
    std::os::unix::fs::chown(&vault, None, Some(GROUP)).unwrap();
    for suffix in ["-wal", "-shm", "-head"] {
        let planted = dir.join(format!("v.db{suffix}"));
        let _ = std::fs::remove_file(&planted);
        secret(&planted);
        std::os::unix::fs::chown(&planted, Some(USER), Some(USER)).unwrap();
        run(&["--vault", name, "log"]);
        assert!(!planted.exists() || owner(&planted).1 == USER, "{suffix}");
        // Control: a new file gets the group.
        let _ = std::fs::remove_file(&planted);
        run(&["--vault", name, "write", "main", suffix]);
        assert!(!planted.exists() || owner(&planted).1 == GROUP, "{suffix}");
    }
}
