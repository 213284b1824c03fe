//! Which vault a word means, where one is made, and what it is bound to.

use std::fs;

use crate::env::{Answer, TestEnv};

#[test]
fn a_directory_without_a_vault_does_not_hide_a_named_one() {
    let env = TestEnv::new();
    env.put("a", b"a\n");
    fs::create_dir(env.at("work")).unwrap();
    let here = |words: &[&str]| Answer::from(env.avfs(words).current_dir(env.at("")).output().unwrap());
    // Neither before the vault is made nor after.
    for words in [&["init", "--vault", "work", "project"][..], &["--vault", "work", "import"]] {
        let answer = here(words);
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    assert!(env.at("home/.local/share/avfs/vaults/work.db").exists());
    assert!(fs::read_dir(env.at("work")).unwrap().next().is_none(), "a vault was made in the directory");
    let deleted = here(&["vault", "delete", "work", "--yes"]);
    assert!(deleted.code == 0 && deleted.stdout.contains("vaults/work.db"), "{deleted:?}");
    let missing = here(&["--vault", "work", "log"]);
    assert!(
        missing.stderr.contains("there is no vault at") && missing.stderr.contains("work/.avfs"),
        "{missing:?}"
    );
}

#[test]
fn a_word_that_means_two_vaults_deletes_neither() {
    let env = TestEnv::new();
    env.put("work/a", b"a\n");
    env.ok(&["init", "work"]);
    // By its path: the word alone is the directory's vault.
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
