//! Arguments that need care: they name the wrong place, have no effect, or mean something else.

use serde_json::json;

use crate::env::TestEnv;

#[test]
fn absolute_path_means_the_file_in_the_bound_directory() {
    let env = TestEnv::with_project();
    let at = |path: &str| env.project().join(path).to_str().unwrap().to_owned();
    assert_eq!(env.ok(&["cat", "main", &at("README.md")]), "hello\n");
    assert_eq!(env.ok(&["ls", "main", &at("src")]), env.ok(&["ls", "main", "src"]));
    assert_eq!(env.ok(&["ls", "main", &at("")]), env.ok(&["ls", "main"]));
    assert_eq!(env.ok(&["tree", "main", &at("src")]), env.ok(&["tree", "main", "src"]));
    assert_eq!(env.ok(&["find", "main", &at("src")]), env.ok(&["find", "main", "src"]));
    assert_eq!(env.ok(&["grep", "main", "fn", &at("src")]), env.ok(&["grep", "main", "fn", "src"]));
    assert_eq!(env.ok(&["log", "main", "--", &at("README.md")]), env.ok(&["log", "main", "--", "README.md"]));
    // Through a symlink, and a file that only the version has.
    std::os::unix::fs::symlink(env.project(), env.at("link")).unwrap();
    let through = env.at("link/new/file.txt").to_str().unwrap().to_owned();
    env.ok(&["write", &through, "--text", "new"]);
    assert_eq!(env.ok(&["cat", "main", "new/file.txt"]), "new");
    env.ok(&["mkdir", &at("dir")]);
    env.ok(&["cp", &at("new/file.txt"), &at("dir/")]);
    env.ok(&["mv", &at("README.md"), &at("dir/README.txt")]);
    assert_eq!(env.ok(&["cat", "main", "dir/file.txt", "dir/README.txt"]), "newhello\n");
    env.ok(&["rm", &at("dir/file.txt")]);
    let out = env.at("out");
    env.ok(&["export", "main", out.to_str().unwrap(), &at("dir")]);
    assert_eq!(std::fs::read_to_string(out.join("dir/README.txt")).unwrap(), "hello\n");
    assert!(env.ok(&["diff", "main~1", "main", "--", &at("dir")]).contains("dir/file.txt"));

    let before = env.state();
    let outside = env.at("home/x").to_str().unwrap().to_owned();
    for words in [
        &["cat", "main", "/README.md"][..],
        &["cat", "main", "/etc/passwd"],
        &["ls", "main", "/"],
        &["write", &outside, "--text", "x"],
        &["rm", "/src", "-r"],
        &["mv", "src", &outside],
    ] {
        let refusal = env.refused(words, 2, "path.outside");
        let message = refusal["error"]["message"].as_str().unwrap();
        assert!(message.contains(env.project().to_str().unwrap()), "{message}");
    }
    assert_eq!(env.state(), before);
    // A vault without a directory has its files where the command of a run sees them.
    env.ok(&["vault", "copy", "copy.db"]);
    assert_eq!(env.ok(&["--vault", "copy.db", "cat", "main", "/workspace/src/main.rs"]), "fn main() {}\n");
    env.refused(&["--vault", "copy.db", "cat", "main", &at("src/main.rs")], 2, "path.outside");
}

#[test]
fn quota_below_the_current_use_is_noted() {
    let env = TestEnv::with_project();
    env.ok(&["write", "new", "--text", "x"]);
    for (option, small, large, part) in [
        ("--bytes", "1", "1GiB", "more than the limit of 1 B"),
        ("--versions", "1", "100", "versions, more than the limit of 1"),
        ("--files", "1", "100", "entries, more than the limit of 1"),
    ] {
        let set = env.run(&["quota", "set", option, small]);
        assert_eq!(set.code, 0, "{set:?}");
        assert!(set.stderr.contains(part) && set.stderr.lines().count() == 1, "{set:?}");
        assert!(env.run(&["quota", "show"]).stderr.contains(part));
        assert_eq!(env.run(&["quota", "set", option, large]).stderr, "");
    }
    env.ok(&["quota", "set", "--versions", "1"]);
    assert_eq!(env.result(&["quota", "show"])["versions"], json!(1));
    env.refused(&["write", "newer", "--text", "x"], 1, "quota.exceeded");
}

#[test]
fn options_without_an_effect_are_refused() {
    let env = TestEnv::with_project();
    env.ok(&["write", "new", "--text", "x"]);
    for words in [&["diff", "main", "--limit", "1"][..], &["diff", "main", "--limit", "1", "--patch"]] {
        let refused = env.run(words);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("--tree") && refused.stderr.contains("--stat"), "{refused:?}");
    }
    env.ok(&["diff", "main", "--limit", "1", "--tree"]);
    env.ok(&["diff", "main", "--limit", "1", "--stat"]);
    env.refused(&["clean", "--vault", "nope"], 1, "vault.not_found");
    env.ok(&["clean"]);
    env.ok(&["clean", "--vault", "."]);
}

#[test]
fn wrong_usage_of_a_run_has_the_exit_code_of_avfs_run() {
    let env = TestEnv::with_project();
    for words in [
        &["run", "--json=foo", "--", "true"][..],
        &["--json=foo", "run", "--", "true"],
        &["proxy", "exec", "--json=foo", "--", "true"],
        &["run", "--vault=", "--", "true"],
    ] {
        let refused = env.run(words);
        assert_eq!(refused.code, 125, "{refused:?}");
    }
    let refused = env.run(&["run", "--json=foo", "--", "true"]);
    let envelope: serde_json::Value = serde_json::from_str(&refused.stdout).unwrap();
    assert_eq!((&envelope["kind"], &envelope["error"]["code"]), (&json!("execution"), &json!("usage")));
    assert_eq!(env.run(&["log", "--json=foo"]).code, 2);
}

#[test]
fn commands_without_a_fork_cannot_keep_files_for_it() {
    let env = TestEnv::with_project();
    env.put("list", b"true\n");
    env.ok(&["write", "new", "--text", "x"]);
    let before = env.state();
    for option in [&["--keep-tmp"][..], &["--home", "persistent"]] {
        for verb in [
            &["bisect", "main", "--shell", "true"][..],
            &["race", "-n", "2", "--shell", "true"],
            &["replay", "list"],
            &["batch", "list", "--mode", "fan-out"],
            &["batch", "list", "--mode", "needs"],
        ] {
            let refusal = env.refused(&[verb, option].concat(), 2, "usage");
            let message = refusal["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(&option.join(" ")), "{message}");
        }
    }
    assert_eq!(env.state(), before);
}
