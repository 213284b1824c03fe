//! Invalid input is refused: one sentence, a hint, a stable code, a non-zero exit status, and an unchanged vault.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv};
use crate::support;
use crate::support::pause::Pauses;
use crate::support::{as_unknown_user, skip, sql};

#[test]
fn missing_vault_is_refused() {
    let env = TestEnv::new();
    env.refused(&["log"], 1, "vault.not_found");
    env.refused(&["log", "--vault", "nowhere"], 1, "vault.not_found");
    env.refused(&["log", "--vault", "./nowhere.db"], 1, "vault.not_found");
    assert!(!env.project().join("nowhere.db").exists(), "looking for a vault does not create one");
    assert!(!env.project().join(".avfs").exists());
}

#[test]
fn foreign_file_is_refused_as_a_vault() {
    let env = TestEnv::new();
    env.put("notes.txt", b"these are notes, not a vault\n");
    env.put("empty.db", b"");
    sql(&env.project().join("other.db"))
        .execute_batch("CREATE TABLE t (x); PRAGMA user_version = 7")
        .unwrap();
    for file in ["notes.txt", "./notes.txt", "empty.db", "other.db"] {
        let before = std::fs::read(env.project().join(file)).unwrap();
        env.refused(&["log", "--vault", file], 1, "vault.foreign");
        let refusal = env.refused(&["vault", "delete", file, "--yes"], 1, "vault.foreign");
        let hint = refusal["error"]["hint"].as_str().unwrap();
        assert!(!hint.contains("rm ") && !hint.contains("init") && hint.contains("vault list"), "{hint}");
        assert_eq!(std::fs::read(env.project().join(file)).unwrap(), before, "{file} was changed");
    }
    std::fs::create_dir(env.project().join("dir.db")).unwrap();
    env.refused(&["log", "--vault", "./dir.db"], 1, "vault.not_found");
}

#[test]
fn hints_about_a_vault_to_delete_create_and_remove_nothing() {
    let env = TestEnv::new();
    // A damaged database that is not a vault.
    let other = env.project().join("other.db");
    sql(&other).execute_batch("CREATE TABLE t (x); CREATE TABLE u (x)").unwrap();
    let whole = std::fs::read(&other).unwrap();
    env.put("cut.db", &whole[..whole.len() / 2]);
    for file in ["cut.db", "nowhere", "./nowhere.db", "./nowhere/"] {
        let answer = env.json(&["vault", "delete", file, "--yes"]);
        let hint = answer["error"]["hint"].as_str().unwrap();
        assert!(!hint.contains("rm ") && !hint.contains("init") && hint.contains("vault list"), "{answer}");
    }
    let hint = env.refused(&["vault", "delete", "--yes"], 1, "vault.not_found")["error"]["hint"].take();
    assert!(!hint.as_str().unwrap().contains("init"), "{hint}");
}

#[test]
fn vault_of_a_newer_format_is_refused() {
    let env = TestEnv::with_project();
    sql(&env.vault_file()).pragma_update(None, "user_version", 999).unwrap();
    let refusal = env.refused(&["import"], 1, "vault.newer");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("999"));
    let version: i64 =
        sql(&env.vault_file()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 999);
}

#[test]
fn init_refuses_to_replace_other_files() {
    let env = TestEnv::with_project();
    env.put("notes.db", b"these are notes, not a vault\n");
    env.put("empty.db", b"");
    std::os::unix::fs::symlink("nowhere", env.project().join("dangling.db")).unwrap();
    assert!(Command::new("mkfifo").arg(env.project().join("fifo.db")).status().unwrap().success());
    for file in ["notes.db", "empty.db", "dangling.db", "fifo.db"] {
        let refusal = env.refused(&["init", "--vault", file], 1, "vault.foreign");
        let hint = refusal["error"]["hint"].as_str().unwrap();
        assert!(hint.contains("--vault") && hint.contains("move"), "{file}: {hint}");
    }
    let whole = std::fs::read(env.vault_file()).unwrap();
    env.put("cut.db", &whole[..whole.len() / 2]);
    env.refused(&["init", "--vault", "cut.db"], 1, "vault.corrupt");
    // A corrupt vault is not deleted, but the hint shows how to delete it.
    env.put("cut.db-lock", b"");
    let refusal = env.refused(&["vault", "delete", "cut.db", "--yes"], 1, "vault.corrupt");
    let hint = refusal["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("rm ") && hint.contains("cut.db ") && hint.ends_with("cut.db-lock"), "{hint}");
}

#[test]
fn init_of_an_existing_vault_changes_nothing() {
    let env = TestEnv::with_project();
    let before = env.state();
    let again = env.result(&["init"]);
    assert_eq!(again["made"], json!(false));
    assert_eq!(env.state(), before);
    // A vault that is bound to another directory is refused.
    std::fs::create_dir(env.at("elsewhere")).unwrap();
    let vault = env.project().join(".avfs/vault.db");
    env.refused(&["--vault", vault.to_str().unwrap(), "init", "../elsewhere"], 1, "vault.exists");
}

#[test]
fn invalid_names_and_paths_are_refused() {
    let env = TestEnv::with_project();
    let before = env.state();
    let long = "x".repeat(300);
    for name in ["a//b", "/a", "a/", "a/.b", "..", "", "a b", "-x=", &long] {
        env.refused(&["fork", "create", "--", name], 2, "name.invalid");
        env.refused(&["checkpoint", "save", "--", name], 2, "name.invalid");
    }
    env.refused(&["log", "--vault", &long], 2, "name.invalid");
    for path in ["../x", "a/../b", &long] {
        env.refused(&["write", path, "--text", "x"], 2, "path.invalid");
        env.refused(&["cat", "main", path], 2, "path.invalid");
    }
    assert_eq!(env.state(), before);
}

#[test]
fn unknown_references_are_refused() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["ls", "nope"], 1, "ref.unknown");
    env.refused(&["ls", "0000"], 1, "ref.unknown");
    env.refused(&["ls", "run:7"], 1, "ref.unknown");
    env.refused(&["ls", "main~99"], 1, "ref.before_first");
    env.refused(&["ls", "main@nope"], 1, "checkpoint.not_found");
    env.refused(&["ls", "nope@x"], 1, "fork.not_found");
    env.refused(&["ls", "a b"], 2, "ref.invalid");
    env.refused(&["ls", "main~x"], 2, "ref.invalid");
    env.refused(&["import", "--fork", "nope"], 1, "fork.not_found");
    let refusal = env.refused(&["fork", "create", "main"], 1, "fork.exists");
    assert!(!refusal["error"]["hint"].as_str().unwrap().contains("fork delete"), "{refusal}");
    env.refused(&["fork", "delete", "main"], 1, "fork.main");
    env.refused(&["diff", "main~1"], 1, "diff.no_parent");
    assert_eq!(env.state(), before);
}

#[test]
fn ambiguous_reference_is_refused() {
    use avfs_vault::version::Draft;
    let env = TestEnv::with_project();
    let vault = support::open_vault(&env.vault_file());
    // Among so many digests two share their first four digits.
    let root = support::root(&vault, "main");
    vault
        .transact(|transaction| {
            for n in 0..1500 {
                let draft = Draft {
                    message: &n.to_string(),
                    run: None,
                    parents: Vec::new(),
                    extent: avfs_vault::backend::Extent::Full,
                };
                transaction.put_version(&root, draft)?;
            }
            Ok(())
        })
        .unwrap();
    let mut ids: Vec<String> =
        vault.read().unwrap().version_ids().unwrap().iter().map(|id| id.to_hex()).collect();
    drop(vault);
    ids.sort();
    let twin = ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4]).unwrap();
    let refusal = env.refused(&["show", &twin[0][..4]], 1, "ref.ambiguous");
    assert!(refusal["error"]["message"].as_str().unwrap().contains(&twin[0][..12]), "{refusal}");
    env.ok(&["show", &twin[0][..20]]);
}

#[test]
fn edits_of_unsuitable_paths_are_refused() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["mv", "src", "src/deeper"], 1, "path.cycle");
    env.refused(&["mv", "src", "src"], 1, "path.cycle");
    env.refused(&["cp", "-r", "src", "src/copy"], 1, "path.cycle");
    env.refused(&["mv", "nope", "x"], 1, "path.not_found");
    env.refused(&["rm", "src"], 1, "path.is_a_directory");
    env.refused(&["cp", "src", "copy"], 1, "path.is_a_directory");
    env.refused(&["mkdir", "src"], 1, "path.exists");
    env.refused(&["mkdir", "no/parent"], 1, "path.not_found");
    env.refused(&["write", "README.md/x", "--text", "x"], 1, "path.not_a_directory");
    env.refused(&["cat", "main", "src"], 1, "path.not_a_file");
    env.refused(&["cat", "main", "nope"], 1, "path.not_found");
    assert_eq!(env.state(), before);
}

/// The command in a hint can be run.
#[test]
fn commands_in_path_hints_work() {
    let env = TestEnv::with_project();
    let hint = |words: &[&str], code: &str| {
        let mut refusal = env.refused(words, 1, code);
        let reported = refusal["error"]["message"].take();
        (reported.as_str().unwrap().to_owned(), refusal["error"]["hint"].as_str().unwrap().to_owned())
    };
    for (words, code) in [
        (&["cat", "main", "nope"][..], "path.not_found"),
        (&["cat", "main", "src"], "path.not_a_file"),
        (&["rm", "-r", "."], "path.is_a_directory"),
    ] {
        let (_, hint) = hint(words, code);
        let (_, command) = hint.split_once(": avfs ").unwrap();
        let command = command.replace("REF", "main");
        env.ok(&command.split(' ').collect::<Vec<_>>());
        assert!(!hint.contains("-r "), "{hint}");
    }
    for words in [
        &["mv", "README.md", "README.md"][..],
        &["cp", "README.md", "./README.md"],
        &["mv", "README.md", "."],
        &["cp", "src/main.rs", "src"],
    ] {
        let (reported, _) = hint(words, "path.cycle");
        assert!(reported.starts_with("source and target are the same: "), "{reported}");
    }
    let (reported, _) = hint(&["mv", "README.md", "README.md/x"], "path.cycle");
    assert!(!reported.contains("directory"), "{reported}");
    assert!(hint(&["cp", "-r", ".", "x"], "path.cycle").1.contains("name the entries in it"));
}

#[test]
fn invalid_import_and_export_directories_are_refused() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["import", "nope"], 1, "import.no_directory");
    env.refused(&["import", "README.md"], 1, "import.not_a_directory");
    env.refused(&["export", "main", "."], 1, "export.exists");
    env.refused(&["export", "main", "README.md"], 1, "export.not_a_directory");
    env.refused(&["export", "main", "README.md/x"], 1, "export.not_a_directory");
    std::fs::create_dir_all(env.at("way/README.md")).unwrap();
    let way = env.at("way");
    env.refused(&["export", "main", way.to_str().unwrap(), "--overwrite"], 1, "export.in_the_way");
    assert_eq!(std::fs::read_dir(&way).unwrap().count(), 1, "nothing was written");
    assert_eq!(env.state(), before);
}

#[test]
fn unknown_commands_and_options_are_usage_errors() {
    let env = TestEnv::with_project();
    for words in [&["nonsense"][..], &["fork"], &["fork", "create"], &["log", "--nonsense"], &["prune"]] {
        let human = env.run(words);
        assert_eq!((human.code, human.stdout.as_str()), (2, ""), "{words:?}");
        let value = env.json(words);
        assert_eq!(value["error"]["code"], json!("usage"), "{value}");
    }
    env.refused(&["fork", "create", "x", "--expires", "soon"], 2, "value.invalid");
    env.refused(&["quota", "set", "--bytes", "much"], 2, "value.invalid");
    let kind = env.json(&["fork", "create"])["kind"].clone();
    assert_eq!(kind, json!("fork.create"));
}

#[test]
fn import_into_an_unbound_vault_requires_a_directory() {
    let env = TestEnv::new();
    drop(support::create_real_vault(&env.project().join("v.db")));
    env.refused(&["import", "--vault", "v.db"], 1, "vault.unbound");
    env.refused(&["status", "--vault", "v.db"], 1, "vault.unbound");
    env.put("d/a.txt", b"a");
    env.ok(&["import", "d", "--vault", "v.db"]);
}

#[test]
fn path_that_vanishes_during_an_import_is_reported() {
    let env = TestEnv::with_project();
    // The directory is listed, but no file in it is open yet.
    let import = |gone: &str, words: &[&str]| -> Value {
        let pauses = Pauses::new(&env.at(""));
        pauses.hold("work#1");
        let mut command = env.avfs(words);
        let mut child = pauses.set(&mut command).stdout(Stdio::piped()).spawn().unwrap();
        pauses.wait("work#1", &mut child);
        std::fs::rename(env.project().join(gone), env.at("gone")).unwrap();
        pauses.release("work#1");
        let output = child.wait_with_output().unwrap();
        std::fs::rename(env.at("gone"), env.project().join(gone)).unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (gone, file) in [("file", "file"), ("dir", "dir/file")] {
        env.put(file, b"x\n");
        env.put("new", gone.as_bytes());
        let value = import(gone, &["--json", "import"]);
        assert_eq!(value["error"]["code"], json!("import.vanished"), "{value}");
        let value = import(gone, &["--json", "import", "--keep-going"]);
        let troubles = value["result"]["troubles"].as_array().unwrap();
        let troubles: Vec<_> =
            troubles.iter().map(|trouble| (&trouble["path"], &trouble["reason"])).collect();
        assert_eq!(troubles, [(&json!(gone), &json!("vanished"))], "{value}");
        assert_eq!(env.ok(&["cat", "main", "new"]), gone);
        env.refused(&["cat", "main", file], 1, "path.not_found");
    }
    env.assert_sound();
}

#[test]
fn missing_permissions_are_reported() {
    if support::is_root() {
        return skip("cli::missing_permissions_are_reported", "root ignores modes");
    }
    let env = TestEnv::with_project();
    let before = env.state();
    env.put("closed.txt", b"closed");
    let closed = env.project().join("closed.txt");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    env.refused(&["import"], 1, "import.no_permission");
    assert_eq!(env.state(), before);
    let went_on = env.result(&["import", "--keep-going"]);
    assert_eq!(went_on["troubles"][0]["reason"], json!("no_permission"));
    std::fs::set_permissions(env.vault_file(), std::fs::Permissions::from_mode(0o000)).unwrap();
    env.refused(&["log"], 1, "vault.no_permission");
    std::fs::set_permissions(env.vault_file(), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(env.project(), std::fs::Permissions::from_mode(0o500)).unwrap();
    env.refused(&["export", "main", "sub/dir"], 1, "export.no_permission");
    env.refused(&["init", "--vault", "./new.db"], 1, "vault.no_permission");
    let home = env.project().join(".avfs");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o000)).unwrap();
    env.refused(&["log"], 1, "vault.no_permission");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(env.project(), std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn oversized_ignore_file_is_refused() {
    let env = TestEnv::with_project();
    std::fs::File::create(env.project().join("src/.avfsignore")).unwrap().set_len(3 << 30).unwrap();
    let refusal = env.refused(&["import"], 1, "import.bad_ignore_file");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("src/.avfsignore"), "{refusal}");
}

#[test]
fn hints_match_the_failed_command() {
    let env = TestEnv::with_project();
    let hint = |refusal: Value| refusal["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint(env.refused(&["fork", "delete", "nope"], 1, "fork.not_found")).contains("avfs fork list"));
    env.put("file", b"x\n");
    for place in ["file", "file/beneath"] {
        assert!(hint(env.refused(&["init", place], 1, "host.io")).contains("another place"));
    }
    let homeless = |words: &[&str]| Answer::of(as_unknown_user(env.avfs(words).env_remove("HOME")));
    let answer = homeless(&["--vault", ".", "materialize", "main"]);
    assert!(answer.stderr.contains("hint: set HOME or XDG_CACHE_HOME\n"), "{answer:?}");
    let answer = homeless(&["log", "--vault", "work"]);
    assert!(answer.stderr.contains("or name the vault by its path"), "{answer:?}");
}

#[test]
fn importing_a_subdirectory_prints_a_note() {
    let env = TestEnv::with_project();
    let note = "note: main now has only the content of";
    let whole = env.run(&["import", "."]);
    assert!(whole.code == 0 && !whole.stderr.contains(note), "{whole:?}");
    std::fs::create_dir(env.at("elsewhere")).unwrap();
    env.ok(&["fork", "create", "other"]);
    let other = env.run(&["import", "../elsewhere", "--fork", "other"]);
    assert!(other.code == 0 && !other.stderr.contains("now has only the content of"), "{other:?}");
    let part = env.run(&["import", "src"]);
    assert!(part.code == 0 && part.stderr.contains(note), "{part:?}");
}

/// A pasted hint must not act on another vault than the refused command.
#[test]
fn hints_repeat_the_vault_option() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("other one")).unwrap();
    let other = env.at("other one").to_str().unwrap().to_owned();
    env.ok(&["init", &other]);
    env.ok(&["--vault", &other, "fork", "create", "fix"]);
    env.ok(&["--vault", &other, "checkpoint", "save", "good", "--fork", "fix"]);
    let refused = ["fork", "delete", "fix"];
    let delete = |words: &[&str]| env.run(&[words, &refused[..]].concat());
    let named = format!("avfs --vault '{other}' fork delete --force fix");
    let answer = delete(&["--vault", &other]);
    assert!(answer.code == 1 && answer.stderr.contains(&named), "{answer:?}");
    let answer = delete(&["--json", "--vault", &other]);
    assert!(answer.stdout.contains(&named), "{answer:?}");
    // Without --vault the hint has no --vault.
    env.ok(&["fork", "create", "fix"]);
    env.ok(&["checkpoint", "save", "good", "--fork", "fix"]);
    let answer = delete(&[]);
    assert!(answer.stderr.contains(": avfs fork delete --force fix"), "{answer:?}");
    let missing = env.run(&["--vault", "my dir/v.db", "log"]);
    assert!(missing.stderr.contains("avfs init --vault 'my dir/v.db'"), "{missing:?}");
    let forced = env.run(&["--vault", &other, "fork", "delete", "--force", "fix"]);
    assert!(forced.stdout.contains(&format!("with: avfs --vault '{other}' gc")), "{forced:?}");
}
