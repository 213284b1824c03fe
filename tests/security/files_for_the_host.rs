//! Tried: leaving files that tools on the host execute without being asked, once the changes are applied.
//! Stopped by: nothing is applied unnoticed: `result.runs_on_host` lists these paths before they are applied.

use std::path::Path;

use serde_json::Value;

use crate::env::{Running, TestEnv};

fn paths(runs_on_host: &Value) -> Vec<String> {
    let all = runs_on_host.as_array().unwrap().iter();
    all.map(|one| one["path"].as_str().unwrap().to_owned()).collect()
}

/// The paths that a run reports, and that an apply of it would report.
#[track_caller]
fn reported(env: &TestEnv, options: &[&str], line: &str) -> Vec<String> {
    let envelope = env.json(options, line);
    let found = paths(&envelope["result"]["runs_on_host"]);
    let run = format!("run:{}", envelope["run_id"].as_str().unwrap());
    assert_eq!(paths(&env.avfs_result(&["apply", &run, "--dry-run"])["runs_on_host"]), found, "{line}");
    found
}

/// Runs a program on the host, outside of the sandbox.
fn on_host(env: &TestEnv, words: &[&str]) {
    Running::start(env.clean(Path::new(words[0])).args(&words[1..])).answer();
}

/// The settings of a repository that name a program, and a line that creates the repository in `docs/x`.
fn repository(env: &TestEnv) -> String {
    let program = format!("touch {}; false", env.at("executed").display());
    let settings = format!(
        "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n\\tfsmonitor = \"{program}\"\\n"
    );
    format!(
        "mkdir -p docs/x/objects docs/x/refs; printf '{settings}' > docs/x/config; \
         echo 'ref: refs/heads/x' > docs/x/HEAD"
    )
}

#[test]
fn embedded_bare_repository_is_reported() {
    let env = TestEnv::with_project();
    let line = repository(&env);
    assert_eq!(reported(&env, &[], &line), ["docs/x/HEAD", "docs/x/config"]);
    assert_eq!(reported(&env, &["--base", "touched"], &line), ["docs/x/HEAD", "docs/x/config"]);
    let human = env.shell(&[], &line).expect(0);
    assert!(human.stderr.contains("executed on the host once applied: docs/x/config"), "{human:?}");
    // Control: git executes the program when it examines the directory.
    env.avfs(&["apply"]).expect(0);
    assert!(!env.at("executed").exists());
    on_host(&env, &["git", "-C", "docs/x", "status"]);
    assert!(env.at("executed").exists());
}

#[test]
fn last_part_of_a_bare_repository_is_reported() {
    let env = TestEnv::with_project();
    let whole = repository(&env);
    let (parts, head) = whole.rsplit_once(';').unwrap();
    assert_eq!(reported(&env, &[], parts), [""; 0], "without HEAD git does not use it");
    env.avfs(&["apply"]).expect(0);
    for options in [&[][..], &["--base", "touched"], &["--fork", "f"]] {
        assert_eq!(reported(&env, options, head), ["docs/x/HEAD"], "{options:?}");
    }
    // Other ways to complete it, and files that no version contains.
    let odd = "mkdir src/objects; ln -s objects src/refs; ln -s ../docs/none src/HEAD";
    assert_eq!(reported(&env, &[], odd), ["src/HEAD"]);
    let apart = "mkdir src/y; echo ../x > src/y/commondir; echo 'ref: refs/heads/x' > src/y/HEAD";
    assert_eq!(reported(&env, &[], apart), ["src/y/HEAD", "src/y/commondir"]);
    std::fs::write(env.project().join(".avfsignore"), "objects/\nrefs/\n").unwrap();
    assert_eq!(reported(&env, &[], head), ["docs/x/HEAD"]);
    // Control: git uses it then.
    env.avfs(&["apply"]).expect(0);
    on_host(&env, &["git", "-C", "docs/x", "status"]);
    assert!(env.at("executed").exists());
}

#[test]
fn changes_of_a_bare_repository_are_reported_only_if_git_runs_them() {
    let env = TestEnv::with_project();
    let line = "git init -q --bare b && mkdir b/hooks -p && rm -f b/hooks/*";
    assert_eq!(reported(&env, &[], line), ["b/HEAD", "b/config"]);
    env.avfs(&["apply"]).expect(0);
    let commit =
        "mkdir w && cd w && git init -q && git -c user.name=t -c user.email=t@t commit -qm x --allow-empty";
    let push = format!("{commit} && git push -q ../b HEAD:refs/heads/main && cd .. && rm -rf w");
    assert_eq!(reported(&env, &[], &push), [""; 0]);
    assert_eq!(reported(&env, &[], "echo 'ref: refs/heads/main' > b/HEAD"), [""; 0]);
    let hooks = "echo x > b/hooks/post-receive; echo x > b/hooks/x.sample; ln -s ../x b/hooks/pre-receive";
    assert_eq!(reported(&env, &[], hooks), ["b/hooks/post-receive", "b/hooks/pre-receive"]);
    assert_eq!(reported(&env, &[], "mv b moved"), ["moved/HEAD", "moved/config"]);
    // The same names elsewhere.
    let other =
        "mkdir -p n/hooks n/objects; echo x > n/config; echo x > n/hooks/use.ts; echo x > n/HEAD; rm -r b";
    assert_eq!(reported(&env, &[], other), [""; 0]);
}

/// The workspace can be a home directory.
#[test]
fn files_of_a_home_are_reported() {
    let env = TestEnv::with_project();
    let version = "$(python3 -c 'import sys; print(\"python%d.%d\" % sys.version_info[:2])')";
    let site = format!("d=.local/lib/{version}/site-packages; mkdir -p $d");
    let write = format!("open({:?}, 'w')", env.at("executed").to_str().unwrap());
    let line = format!("{site}; echo \"import os; {}\" > $d/x.pth", write.replace('"', "'"));
    let found = reported(&env, &[], &line);
    assert!(found.len() == 1 && found[0].ends_with("site-packages/x.pth"), "{found:?}");
    // Control: every start of Python executes it.
    env.avfs(&["apply"]).expect(0);
    let mut python = env.clean(Path::new("python3"));
    Running::start(python.env("HOME", env.project()).args(["-c", "pass"])).answer().expect(0);
    assert!(env.at("executed").exists());
    let names = [
        ".forward",
        ".ssh/authorized_keys",
        ".codex/hooks.json",
        ".github/hooks/x.json",
        ".vim/plugin/x.vim",
    ];
    for name in names {
        let line = format!("mkdir -p $(dirname {name}); echo x > {name}");
        assert_eq!(reported(&env, &[], &line), [name]);
    }
    // Control: the same names where no tool looks for them.
    let line =
        "mkdir docs; for n in forward authorized_keys hooks.json x.vim x.pth; do echo x > docs/$n; done";
    assert_eq!(reported(&env, &[], line), [""; 0]);
}
