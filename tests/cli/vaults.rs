//! Which vault a word selects, where a vault is created, and which directory it is bound to.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::env::{Answer, TestEnv, USER, binary};
use crate::support;
use crate::support::as_unknown_user;

#[test]
fn directory_without_a_vault_does_not_hide_a_named_vault() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    fs::create_dir(env.at("work")).unwrap();
    let here = |words: &[&str]| Answer::of(env.avfs(words).current_dir(env.at("")));
    // Neither before nor after the vault is created.
    for words in [&["init", "--vault", "work", "project"][..], &["--vault", "work", "import"]] {
        let answer = here(words);
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    assert!(env.at("home/.local/share/avfs/vaults/work.db").exists());
    assert!(fs::read_dir(env.at("work")).unwrap().next().is_none(), "a vault was created in the directory");
    let deleted = here(&["vault", "delete", "work", "--yes"]);
    assert!(deleted.code == 0 && deleted.stdout.contains("vaults/work.db"), "{deleted:?}");
    let missing = here(&["--vault", "work", "log"]);
    assert!(
        missing.stderr.contains("there is no vault at") && missing.stderr.contains("work/.avfs"),
        "{missing:?}"
    );
}

#[test]
fn ambiguous_vault_name_deletes_neither_vault() {
    let env = TestEnv::new();
    env.put("work/a", b"a\n");
    env.ok(&["init", "work"]);
    // By its path, because the word alone selects the vault of the directory.
    let named = env.at("home/.local/share/avfs/vaults/work.db");
    env.ok(&["init".as_ref(), "--vault".as_ref(), named.as_os_str(), "work".as_ref()]);
    let inside = env.project().join("work/.avfs/vault.db");
    let refusal = env.refused(&["vault", "delete", "work", "--yes"], 1, "vault.ambiguous");
    env.refused(&["--vault", "work", "vault", "delete", "--yes"], 1, "vault.ambiguous");
    assert!(named.exists() && inside.exists());
    let hint = refusal["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("./work ") && hint.contains(named.to_str().unwrap()), "{hint}");
    assert!(env.ok(&["--vault", "work", "vault", "info"]).contains("work/.avfs/vault.db"));
    env.ok(&["vault", "delete", "./work", "--yes"]);
    assert!(named.exists() && !inside.exists());
    env.ok(&["vault", "delete", "work", "--yes"]);
    assert!(!named.exists());
}

#[test]
fn umask_777_does_not_make_a_vault_unusable() {
    if !support::is_root() {
        return support::skip("umask_777_does_not_make_a_vault_unusable", "only root gives files away");
    }
    let env = TestEnv::new();
    env.put("a", b"a\n");
    fs::create_dir(env.at("out")).unwrap();
    env.give_away();
    let user = USER.to_string();
    let words = "umask 777 && \"$0\" init --import && \"$0\" export main ../out/new && exec \"$0\" fsck";
    let mut command = env.clean(Path::new("setpriv"));
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", words]).arg(binary());
    let answer = Answer::of(command);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(fs::read(env.at("out/new/a")).unwrap(), b"a\n");
    let mode = |path: PathBuf| path.metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode(env.project().join(".avfs")), mode(env.vault_file())), (0o700, 0o600));
}

/// As with an unset variable in a script.
#[test]
fn empty_vault_argument_is_a_usage_error() {
    let env = TestEnv::with_project();
    for words in [&["vault", "delete", "", "--yes"][..], &["vault", "delete", "--vault", "", "--yes"]] {
        let answer = env.run(words);
        assert!(answer.code == 2 && answer.stderr.contains("a value is required"), "{words:?}: {answer:?}");
        assert_eq!(env.json(words)["error"]["code"], json!("usage"));
    }
    for verb in [&["log"][..], &["init"], &["gc"], &["vault", "info"], &["import"]] {
        let answer = env.run(&[verb, &["--vault="]].concat());
        assert_eq!(answer.code, 2, "{verb:?}: {answer:?}");
    }
    assert!(env.vault_file().exists());
    // An empty environment variable counts as unset.
    let unset = Answer::of(env.avfs(&["log"]).env("AVFS_VAULT", ""));
    assert_eq!(unset.code, 0, "{unset:?}");
}

#[test]
fn delete_refuses_arguments_for_two_vaults() {
    let env = TestEnv::with_project();
    env.ok(&["init", "--vault", "./copy.db", "."]);
    let (here, copy) = (".avfs/vault.db", "./copy.db");
    env.refused(&["vault", "delete", here, "--vault", copy, "--yes"], 2, "usage");
    assert!(env.vault_file().exists() && env.project().join(copy).exists());
    env.ok(&["vault", "delete", copy, "--vault", "copy.db", "--yes"]);
    assert!(env.vault_file().exists() && !env.project().join(copy).exists());
}

/// Runs the command that `init` prints after `next:` in a shell.
fn follow(env: &TestEnv, words: &[&str]) -> Answer {
    let made = env.run(words);
    assert_eq!(made.code, 0, "{made:?}");
    let (_, next) = made.stderr.split_once("next: avfs ").unwrap_or_else(|| panic!("{made:?}"));
    let mut shell = env.clean(Path::new("sh"));
    shell.arg("-c").arg(format!("\"$0\" {next}")).arg(binary());
    Answer::of(shell)
}

#[test]
fn next_step_printed_by_init_can_be_pasted() {
    let env = TestEnv::new();
    env.put("inner/a b/one", b"1\n");
    env.put("two", b"2\n");
    env.put("inner/three", b"3\n");
    for (words, version) in [
        // First there is no vault at or above the working directory; then there is one, with other files.
        (&["init", "inner/a b"][..], "inner/a b"),
        (&["init"], "."),
        (&["init", "inner"], "inner"),
        (&["init", "--vault", "named", "inner/a b"], "named"),
        (&["init", "--vault", "./a vault.db", "inner/a b"], "./a vault.db"),
    ] {
        let answer = follow(&env, words);
        assert_eq!(answer.code, 0, "{words:?}: {answer:?}");
        let log = env.result(&["--vault", version, "log"]);
        assert_eq!(
            log["versions"].as_array().unwrap().len(),
            2,
            "{words:?} imported into another vault: {log}"
        );
    }
    assert_eq!(env.ok(&["--vault", "inner/a b", "ls", "main"]), "one\n");
    assert_eq!(env.ok(&["--vault", "./a vault.db", "ls", "main"]), "one\n");
}

#[test]
fn vault_behind_a_symlink_is_used_only_by_its_real_path() {
    let env = TestEnv::new();
    for (name, store) in [("one", "store"), ("two", "elsewhere/.avfs")] {
        env.put(&format!("{name}/{name}.txt"), b"x\n");
        let (dir, store) = (env.project().join(name), env.at(store));
        fs::create_dir_all(&store).unwrap();
        let vault = store.join("vault.db").to_str().unwrap().to_owned();
        env.ok(&["init", name, "--vault", &vault]);
        symlink(&store, dir.join(".avfs")).unwrap();
        env.refused(&["--vault", name, "vault", "info"], 1, "vault.unsafe");
        let info = env.result(&["--vault", &vault, "vault", "info"]);
        assert_eq!(info["bound"], json!(dir.canonicalize().unwrap()), "{info}");
        env.ok(&["--vault", &vault, "import"]);
        assert!(env.ok(&["--vault", &vault, "ls", "main"]).contains(&format!("{name}.txt\n")));
        env.ok(&["vault", "delete", &vault, "--yes"]);
        assert!(!store.join("vault.db").exists(), "the vault was not removed");
    }
}

#[test]
fn vault_list_works_without_home_if_a_vault_is_named() {
    let env = TestEnv::with_project();
    let homeless = |words: &[&str], dir: &Path| {
        Answer::of(as_unknown_user(env.avfs(words).env_remove("HOME").current_dir(dir)))
    };
    let listed = homeless(&["--vault", ".", "vault", "list"], &env.project());
    assert!(listed.code == 0 && listed.stdout.contains(".avfs/vault.db"), "{listed:?}");
    assert!(homeless(&["vault", "list"], Path::new("/")).stderr.contains("HOME"));
}

#[test]
fn vault_can_be_used_from_a_removed_working_directory() {
    let env = TestEnv::with_project();
    let gone = |words: &[&str]| {
        let mut shell = env.clean(Path::new("sh"));
        let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$@\"";
        Answer::of(shell.args(["-c", script]).arg(binary()).args(words))
    };
    let vault = env.vault_file();
    let answer = gone(&["--vault", vault.to_str().unwrap(), "cat", "main", "README.md"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, "hello\n"), "{answer:?}");
    let answer = gone(&["--vault", vault.to_str().unwrap(), "export", "main", "out"]);
    assert!(answer.code == 1 && answer.stderr.starts_with("error: "), "{answer:?}");
    let answer = gone(&["log"]);
    assert!(answer.code == 1 && answer.stderr.contains("find the working directory"), "{answer:?}");
}

/// The vault determines the mode of a new lock file, not the umask of the first process that uses it.
#[test]
fn lock_files_have_the_mode_of_the_vault() {
    let env = TestEnv::with_project();
    for (mode, umask) in [(0o644, "077"), (0o600, "000"), (0o664, "022")] {
        fs::set_permissions(env.vault_file(), PermissionsExt::from_mode(mode)).unwrap();
        LOCKS.iter().for_each(|suffix| drop(fs::remove_file(lock(&env, suffix))));
        let mut shell = env.clean(Path::new("sh"));
        shell.args(["-c", &format!("umask {umask} && \"$0\" gc && \"$0\" mkdir d{mode:o}")]).arg(binary());
        let answer = Answer::of(shell);
        assert_eq!(answer.code, 0, "{answer:?}");
        for suffix in LOCKS {
            let made = lock(&env, suffix).metadata().unwrap().mode() & 0o7777;
            assert_eq!(made, mode, "{suffix} has mode {made:o}, the vault has {mode:o}");
        }
    }
}

#[test]
fn files_made_by_root_beside_the_vault_belong_to_its_owner() {
    if !support::is_root() {
        return support::skip(
            "cli::files_made_by_root_beside_the_vault_belong_to_its_owner",
            "only root gives files away",
        );
    }
    let env = TestEnv::with_project();
    let companions = || LOCKS.into_iter().chain(["-head"]);
    companions().for_each(|suffix| drop(fs::remove_file(lock(&env, suffix))));
    env.give_away();
    let mut shell = env.clean(Path::new("sh"));
    shell.args(["-c", "umask 077 && \"$0\" gc && \"$0\" mkdir by-root"]).arg(binary());
    let answer = Answer::of(shell);
    assert_eq!(answer.code, 0, "{answer:?}");
    for suffix in companions() {
        let made = lock(&env, suffix).metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (USER, USER), "{suffix}");
    }
    let answer = env.run_as_user(&["mkdir", "by-its-owner"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    // The error names a lock file that the owner cannot open.
    std::os::unix::fs::chown(lock(&env, "-lock"), Some(0), Some(0)).unwrap();
    fs::set_permissions(lock(&env, "-lock"), PermissionsExt::from_mode(0o600)).unwrap();
    let answer = env.run_as_user(&["mkdir", "more"]);
    assert!(answer.code == 1 && answer.stderr.contains("no permission to use"), "{answer:?}");
    assert!(answer.stderr.matches("vault.db-lock").count() == 2, "{answer:?}");
}

#[test]
fn vault_made_by_root_belongs_to_the_owner_of_the_directory() {
    if !support::is_root() {
        return support::skip(
            "cli::vault_made_by_root_belongs_to_the_owner_of_the_directory",
            "only root gives files away",
        );
    }
    let env = TestEnv::new();
    env.give_away();
    env.ok(&["init"]);
    let home = env.project().join(".avfs");
    let made: Vec<PathBuf> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(made.contains(&home.join("vault.db")) && made.contains(&home.join(".gitignore")), "{made:?}");
    for path in made.iter().chain([&home]) {
        assert_eq!(path.metadata().unwrap().uid(), USER, "{}", path.display());
    }
    env.run_as_user(&["vault", "trust"]);
    let answer = env.run_as_user(&["mkdir", "by-its-owner"]);
    assert_eq!(answer.code, 0, "{answer:?}");
}

#[test]
fn init_does_not_write_gitignore_through_a_symlink() {
    let env = TestEnv::new();
    let home = env.project().join(".avfs");
    fs::create_dir(&home).unwrap();
    symlink(env.at("outside"), home.join(".gitignore")).unwrap();
    env.ok(&["init"]);
    assert!(!env.at("outside").exists());
}

#[test]
fn a_lost_log_is_reported_by_the_first_command() {
    for words in [&["--json", "log"][..], &["vault", "trust"], &["init"], &["vault", "delete"]] {
        let env = TestEnv::with_project();
        env.ok(&["write", "new", "--text", "newest\n"]);
        fs::remove_file(env.vault_file().with_file_name("vault.db-wal")).unwrap();
        let _ = fs::remove_file(env.vault_file().with_file_name("vault.db-shm"));
        let first = env.run(words);
        assert!(first.stderr.contains("warning: the vault was replaced by an older copy"), "{first:?}");
        assert_eq!(env.run(&["--json", "log"]).stderr, "");
    }
}

const LOCKS: [&str; 3] = ["-lock", "-use", "-gate"];

fn lock(env: &TestEnv, suffix: &str) -> PathBuf {
    env.project().join(format!(".avfs/vault.db{suffix}"))
}

/// The file alone may lack the newest versions, which are in its WAL; a copy has them, even if others write meanwhile.
#[test]
fn vault_copy_is_complete_in_one_file() {
    let env = TestEnv::with_project();
    env.ok(&["write", "new", "--text", "newest\n"]);
    let log = env.vault_file().with_file_name("vault.db-wal");
    assert!(fs::metadata(log).unwrap().len() > 0, "the newest version is in the log");
    let copy = env.at("copies/one.db");
    fs::create_dir(env.at("copies")).unwrap();
    let copied = env.result(&["vault", "copy", copy.to_str().unwrap()]);
    assert_eq!(copied["copy"], json!(copy));
    let names = || fs::read_dir(env.at("copies")).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = names().filter(|name| name != "one.db" && name != "one.db-lock").collect();
    assert!(beside.is_empty(), "{beside:?}");
    let from = |words: &[&str]| env.ok(&[&["--vault", copy.to_str().unwrap()], words].concat());
    assert_eq!(from(&["cat", "main", "new"]), "newest\n");
    from(&["fsck"]);
    from(&["write", "more", "--text", "more\n"]);
    env.refused(&["cat", "main", "more"], 1, "path.not_found");
    // Neither a vault nor any other file is overwritten.
    env.refused(&["vault", "copy", copy.to_str().unwrap()], 1, "vault.exists");
    fs::write(env.at("copies/other"), "mine").unwrap();
    env.refused(&["vault", "copy", env.at("copies/other").to_str().unwrap()], 1, "vault.foreign");
    assert_eq!(fs::read_to_string(env.at("copies/other")).unwrap(), "mine");
    let refusal = env.refused(&["vault", "copy", "nowhere/copy.db"], 1, "vault.not_found");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("/nowhere does not exist"), "{refusal}");
}
