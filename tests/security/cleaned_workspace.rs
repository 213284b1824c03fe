//! Tried: `git clean -fdx` in the workspace, as tools and agents run it.
//! Stopped by: a vault outside the workspace; otherwise a run reports the danger.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use serde_json::json;

use crate::env::{Answer, TestEnv};
use crate::support;

fn git(env: &TestEnv, words: &[&str]) {
    let mut command: Command = env.clean("git".as_ref());
    let done = command.current_dir(env.project()).args(words).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn notes(answer: &Answer) -> Vec<String> {
    let envelope = answer.envelope();
    let notes = envelope["result"]["notes"].as_array().unwrap().clone();
    notes.iter().map(|note| note["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn unapplied_work_survives_git_clean() {
    let env = TestEnv::new();
    git(&env, &["init", "-q"]);
    std::fs::write(env.at("config/avfs/avfs.toml"), "[vault]\nplace = 'data'\n").unwrap();
    let work = ["--json", "--shell", "echo work > file"];
    let first = env.run(&work).expect(0);
    assert!(!env.project().join(".avfs").exists());
    assert!(!notes(&first).contains(&"vault.git_clean".to_owned()), "{first:?}");
    git(&env, &["clean", "-fdxq"]);
    let run = format!("run:{}", first.envelope()["run_id"].as_str().unwrap());
    assert_eq!(env.avfs(&["cat", &run, "file"]).expect(0).text(), "work\n");
    // It is found from a subdirectory, and is separate from the vaults of other directories.
    std::fs::create_dir(env.project().join("below")).unwrap();
    let mut below = env.clean(&crate::env::avfs());
    below.current_dir(env.project().join("below")).args(["cat", &run, "file"]);
    assert!(below.output().unwrap().status.success());
    env.avfs(&["apply", &run]).expect(0);
    assert_eq!(std::fs::read_to_string(env.project().join("file")).unwrap(), "work\n");
}

#[test]
fn run_reports_once_that_git_clean_removes_its_changes() {
    // Control: a vault in the workspace is removed with everything else, and the first run with changes reports that.
    let env = TestEnv::new();
    git(&env, &["init", "-q"]);
    env.run(&["--", "true"]).expect(0);
    let work = ["--json", "--shell", "echo work > file"];
    assert!(notes(&env.run(&work).expect(0)).contains(&"vault.git_clean".to_owned()));
    assert!(!notes(&env.run(&work).expect(0)).contains(&"vault.git_clean".to_owned()));
    git(&env, &["clean", "-fdxq"]);
    assert!(!env.vault_file().exists());
    let gone = env.avfs(&["--json", "runs", "list"]).expect(1).envelope();
    assert_eq!(gone["error"]["code"], json!("vault.not_found"));
}

#[test]
fn record_of_the_note_made_by_root_belongs_to_the_owner_of_the_vault() {
    if !support::is_root() {
        return support::skip(
            "security::record_of_the_note_made_by_root_belongs_to_the_owner_of_the_vault",
            "only root gives files away",
        );
    }
    const USER: u32 = 1234;
    let env = TestEnv::new();
    git(&env, &["init", "-q"]);
    env.run(&["--", "true"]).expect(0);
    for entry in walkdir::WalkDir::new(env.project()).into_iter().flatten() {
        std::os::unix::fs::lchown(entry.path(), Some(USER), Some(USER)).unwrap();
    }
    env.run(&["--shell", "echo work > file"]).expect(0);
    let made = env.project().join(".avfs/git-clean-noted").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (USER, USER));
}
