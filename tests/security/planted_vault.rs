//! Tried: placing a vault where another user's commands find it: above their directory, or in a repository.
//! Stopped by: a vault that is found is used only if its user created it or trusts it.

use std::path::Path;

use serde_json::json;

use crate::env::{Running, TestEnv, avfs, runner};
use crate::support::sql;

/// Creates a vault as another user, who has another list of trusted vaults.
fn plant(env: &TestEnv, words: &[&str]) {
    let mut attacker = env.clean(&avfs());
    attacker.env("XDG_DATA_HOME", env.at("attacker")).current_dir(env.at("")).args(words);
    Running::start(&mut attacker).answer().expect(0);
}

fn in_dir(env: &TestEnv, program: &Path, dir: &Path, words: &[&str]) -> crate::env::Answer {
    let mut command = env.clean(program);
    command.current_dir(dir).args(words);
    Running::start(&mut command).answer()
}

#[test]
fn untrusted_vault_above_the_directory_is_not_used() {
    let env = TestEnv::new();
    let private = env.at("shared/private");
    std::fs::create_dir_all(&private).unwrap();
    std::fs::write(private.join("diary"), "secret").unwrap();
    plant(&env, &["init", "shared"]);
    for words in [&["--json", "--", "true"][..], &["--json", "--fork", "f", "--", "true"]] {
        let refused = in_dir(&env, &runner(), &private, words).expect(125).envelope();
        assert_eq!(refused["error"]["code"], json!("vault.untrusted"), "{refused}");
        assert!(refused["error"]["hint"].as_str().unwrap().contains("avfs vault trust "), "{refused}");
    }
    let refused = in_dir(&env, &avfs(), &private, &["--json", "import"]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], json!("vault.untrusted"), "{refused}");
    // Control: if it is trusted, the private file gets into the other user's vault.
    in_dir(&env, &avfs(), &private, &["vault", "trust", ".."]).expect(0);
    let run = in_dir(&env, &runner(), &private, &["--", "true"]).expect(0);
    assert!(run.stderr.contains("using the vault "), "{run:?}");
    let vault = env.at("shared");
    let read = in_dir(
        &env,
        &avfs(),
        &env.at(""),
        &["--vault", vault.to_str().unwrap(), "cat", "main", "private/diary"],
    );
    assert_eq!(read.expect(0).text(), "secret");
}

#[test]
fn vault_in_a_repository_does_not_determine_the_view() {
    let env = TestEnv::new();
    let clone = env.at("clone");
    std::fs::create_dir(&clone).unwrap();
    std::fs::write(env.at("home/key"), "secret").unwrap();
    let vault = clone.join(".avfs/vault.db");
    plant(&env, &["init", "--vault", vault.to_str().unwrap(), env.at("home").to_str().unwrap()]);
    let words = ["--", "cat", "key"];
    in_dir(&env, &runner(), &clone, &words).expect(125);
    // Control: a vault that is named explicitly shows its directory.
    let named = ["--vault", vault.to_str().unwrap(), "--", "cat", "key"];
    assert_eq!(in_dir(&env, &runner(), &clone, &named).expect(0).text(), "secret");
}

#[test]
fn vault_behind_a_symlink_or_in_a_world_writable_directory_is_refused() {
    let env = TestEnv::with_project();
    let home = env.project().join(".avfs");
    std::fs::rename(&home, env.at("real")).unwrap();
    std::os::unix::fs::symlink(env.at("real"), &home).unwrap();
    let refused = env.avfs(&["--json", "log"]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], json!("vault.unsafe"), "{refused}");
    let dir = env.project();
    for words in [&["--vault", dir.to_str().unwrap(), "--json", "log"][..], &["--json", "init"]] {
        let refused = env.avfs(words).expect(1).envelope();
        assert_eq!(refused["error"]["code"], json!("vault.unsafe"), "{words:?}: {refused}");
    }
    // A symlink that leads nowhere, or to a directory without a vault, is refused too: nothing is created behind it.
    for target in ["nowhere", "src"] {
        std::fs::remove_file(&home).unwrap();
        std::os::unix::fs::symlink(target, &home).unwrap();
        for cwd in [env.project(), env.project().join("src")] {
            let refused = in_dir(&env, &runner(), &cwd, &["--json", "--", "true"]).expect(125).envelope();
            assert_eq!(refused["error"]["code"], json!("vault.unsafe"), "{target}: {refused}");
        }
    }
    assert!(!dir.join("src/vault.db").exists() && !dir.join("nowhere").exists());
    std::fs::remove_file(&home).unwrap();
    std::fs::rename(env.at("real"), &home).unwrap();
    let mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(env.project(), permissions).unwrap();
    };
    mode(0o777);
    let refused = env.avfs(&["--json", "log"]).expect(1).envelope();
    assert_eq!(refused["error"]["code"], json!("vault.unsafe"), "{refused}");
    // Control: the same vault in a directory that no other user can write.
    mode(0o755);
    env.avfs(&["log"]).expect(0);
}

#[test]
fn run_does_not_create_a_vault_around_the_home() {
    let env = TestEnv::new();
    for dir in [env.at("home"), env.at("")] {
        let refused = in_dir(&env, &runner(), &dir, &["--json", "--", "true"]).expect(125).envelope();
        assert_eq!(refused["error"]["code"], json!("vault.around_home"), "{refused}");
        assert!(!dir.join(".avfs").exists());
    }
    // Control: on purpose.
    in_dir(&env, &avfs(), &env.at("home"), &["init"]).expect(0);
    in_dir(&env, &runner(), &env.at("home"), &["--", "true"]).expect(0);
}

#[test]
fn vault_with_foreign_tables_triggers_or_views_is_refused() {
    let trigger =
        "CREATE TRIGGER t AFTER INSERT ON approval BEGIN UPDATE approval SET state = 'approved'; END";
    let view = "ALTER TABLE checkpoint RENAME TO hidden; CREATE VIEW checkpoint AS SELECT * FROM hidden";
    for (name, statement) in [("t", trigger), ("hidden", view), ("own", "CREATE TABLE own (x)")] {
        let env = TestEnv::with_project();
        let vault = sql(&env.vault_file());
        vault.execute_batch(statement).unwrap();
        if name == "t" {
            // Control: in any other program the trigger fires.
            vault
                .execute_batch(
                    "INSERT INTO approval (id, request_digest, state, asked_by, reason, request, decision, created_at, \
                     expires_at) VALUES ('0123456789', zeroblob(32), 'pending', '', '', '', '', 0, 0)",
                )
                .unwrap();
            let state: String = vault.query_row("SELECT state FROM approval", [], |row| row.get(0)).unwrap();
            assert_eq!(state, "approved");
        }
        drop(vault);
        let refused = env.avfs(&["--json", "log"]).expect(1).envelope();
        assert_eq!(refused["error"]["code"], json!("vault.foreign_object"), "{refused}");
    }
}
