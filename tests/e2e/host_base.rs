//! Runs on a fork of a large directory: the directory itself is the lower layer as long as its content equals the
//! version that the fork started from.

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::limits::notes;
use crate::shared::Shared;
use crate::support::{many_files, settle};

/// Enough entries to make a copy more expensive than several scans.
const FILES: usize = 1100;

/// A large project with unversioned files.
fn project() -> TestEnv {
    let env = TestEnv::with_project();
    many_files(&env.project().join("many"), FILES);
    env.put(".avfsignore", b"target/\n*.log\n");
    env.put("target/debug/built", b"built\n");
    env.put("many/noise.log", b"noise\n");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        env.project().join("src/socket"),
        rustix::fs::FileType::Socket,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    settle();
    env
}

fn base(envelope: &Value) -> &str {
    envelope["enforcement"]["base"].as_str().unwrap_or_else(|| panic!("{envelope}"))
}

fn bases(env: &TestEnv) -> usize {
    std::fs::read_dir(env.at("cache/avfs/base")).map_or(0, Iterator::count)
}

const UNVERSIONED: &str = "ls -d target many/noise.log src/socket .avfs 2>/dev/null | wc -l";

#[test]
fn a_new_fork_uses_the_directory_as_its_lower_layer_without_unversioned_files() {
    for scratch in ["memory", "disk"] {
        let env = project();
        let on_fork = ["--fork", "f", "--scratch", scratch];
        let first = env.json(&on_fork, &format!("{UNVERSIONED}; echo new > src/new; rm README.md"));
        assert_eq!((base(&first), &first["result"]["stdout"]), ("live", &json!("0\n")), "{first}");
        assert_eq!(bases(&env), 0, "no base is stored");
        // The second run sees the changes of the first in a layer over the directory.
        let second =
            env.json(&on_fork, &format!("{UNVERSIONED}; cat src/new; ls README.md; echo 2 >> src/new"));
        assert_eq!((base(&second), &second["result"]["stdout"]), ("live", &json!("0\nnew\n")), "{second}");
        let third = env.json(&on_fork, "cat src/new; mkdir target; echo mine > target/x; ls target");
        assert_eq!((base(&third), &third["result"]["stdout"]), ("live", &json!("new\n2\nx\n")), "{third}");
        assert_eq!(bases(&env), 0);
        // The host's files are unchanged, and the fork contains the directory with the changes of its runs.
        assert_eq!(std::fs::read_to_string(env.project().join("target/debug/built")).unwrap(), "built\n");
        let forked = env.export("f", "out");
        let native = env.at("native");
        let copy = "cp -a \"$1\" \"$2\" && cd \"$2\" && rm -r target many/noise.log src/socket .avfs README.md \
                    && printf 'new\\n2\\n' > src/new";
        let status = std::process::Command::new("sh")
            .args(["-c", copy, "sh"])
            .arg(env.project())
            .arg(&native)
            .status()
            .unwrap();
        assert!(status.success());
        let same = std::process::Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([&forked, &native])
            .status()
            .unwrap();
        assert!(same.success());
        env.assert_sound();
    }
}

#[test]
fn a_directory_that_changed_between_runs_is_not_used_as_lower_layer() {
    let env = project();
    assert_eq!(base(&env.json(&["--fork", "f"], "echo 1 > made")), "live");
    env.put("README.md", b"edited on the host\n");
    let next = env.json(&["--fork", "f"], "cat made README.md");
    assert_eq!(base(&next), "materialized", "{next}");
    assert_eq!(next["result"]["stdout"], json!("1\nhello\n"), "the fork is unchanged: {next}");
    assert_eq!(bases(&env), 1);
    // Later runs use the base in the cache.
    assert_eq!(base(&env.json(&["--fork", "f"], "cat made")), "reused");
    env.assert_sound();
}

#[test]
fn concurrent_changes_to_the_lower_directory_are_noted() {
    let env = project();
    let shared = Shared::new(&env);
    let line = "touch $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done; echo 1 > made";
    let running = shared.start(&env, &["--json", "--fork", "f"], line);
    let running = shared.wait_for_word(running, "ready");
    // Changes made from now on have other timestamps than those that the run's scan found.
    settle();
    env.put("theirs", b"made on the host\n");
    shared.put("go");
    let envelope = running.answer().expect(0).envelope();
    assert_eq!(base(&envelope), "live", "{envelope}");
    assert!(notes(&envelope).contains(&"host.changed"), "{envelope}");
    assert_eq!(env.cat("f", "README.md"), "hello\n");
    assert_eq!(env.json(&["--fork", "f"], "cat made README.md")["result"]["stdout"], json!("1\nhello\n"));
}

#[test]
fn after_several_runs_the_directory_is_materialized_instead_of_scanned() {
    let env = project();
    for n in 0..16 {
        assert_eq!(base(&env.json(&["--fork", "f"], "true")), "live", "at run {n}");
    }
    assert_eq!(base(&env.json(&["--fork", "f"], "true")), "materialized");
    assert_eq!(base(&env.json(&["--fork", "f"], "true")), "reused");
}

#[test]
fn small_directories_are_used_as_lower_layer_only_on_request() {
    let env = TestEnv::with_project();
    env.put(".avfsignore", b"*.log\n");
    env.put("a.log", b"noise\n");
    assert_eq!(base(&env.json(&["--fork", "small"], "true")), "materialized");
    let live = ["--fork", "f", "--base", "live"];
    let first = env.json(&live, "ls; echo 1 > made");
    assert_eq!(base(&first), "live", "{first}");
    assert_eq!(first["result"]["stdout"], json!("README.md\nlink\nsrc\n"), "{first}");
    assert_eq!(env.json(&live, "cat made")["result"]["stdout"], json!("1\n"));
    env.put("README.md", b"edited on the host\n");
    let refused = env.run(&["--json", "--fork", "f", "--base", "live", "--", "true"]).envelope();
    assert_eq!(refused["error"]["code"], json!("request.no_live_base"), "{refused}");
    // Without --base live a base is materialized.
    assert_eq!(env.ok(&["--fork", "f"], "cat made README.md"), "1\nhello\n");
}

#[test]
fn a_directory_with_few_large_files_is_used_as_lower_layer() {
    let env = TestEnv::with_project();
    env.put("large", &vec![7; 33 << 20]);
    for run in 0..20 {
        assert_eq!(base(&env.json(&["--fork", &format!("f{run}")], "true")), "live", "run {run}");
    }
}

#[test]
fn deleting_a_vault_removes_its_layers() {
    let env = project();
    env.ok(&["--fork", "f", "--scratch", "disk"], "echo 1 > made");
    let layers = || std::fs::read_dir(env.at("cache/avfs/layer")).map_or(0, Iterator::count);
    assert_eq!(layers(), 1);
    env.avfs(&["vault", "delete", "--yes"]).expect(0);
    assert_eq!(layers(), 0);
}
