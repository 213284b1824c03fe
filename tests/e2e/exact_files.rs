//! What a command does to files has the result that it has outside, and nothing that a run only looks like is kept.

use serde_json::json;

use crate::env::TestEnv;

#[test]
fn a_file_that_was_made_and_removed_again_is_no_change() {
    let env = TestEnv::with_project();
    for options in [&[][..], &["--scratch", "disk"], &["--backend", "copy"], &["--reproducible"]] {
        let line = "echo x > new; mkdir -p src/d; touch src/d/f; rm -r new src/d; : > /tmp/done";
        let answer = env.json(options, line);
        assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
        assert_eq!(answer["result"]["fork"], json!(null), "{options:?}: {answer}");
        assert_eq!(answer["result"]["version_after"], json!(null), "{options:?}: {answer}");
    }
    // Controls: a mode, and a time that was set on purpose, are changes; so is a new directory.
    for line in ["chmod 700 src", "touch -d 2001-01-01 src", "mkdir made"] {
        let answer = env.json(&[], line);
        assert_ne!(answer["result"]["version_after"], json!(null), "{line}: {answer}");
    }
}

#[test]
fn covers_inside_the_workspace_leave_no_directories_in_the_version() {
    let env = TestEnv::with_project();
    let at = |path: &str| env.project().join(path).to_str().unwrap().to_owned();
    let (tmpfs, hide, deep) = (at("a/b/cover"), at("c/d/secret"), at("src/x/y"));
    let covers = ["--tmpfs", &tmpfs, "--hide", &hide, "--tmpfs", &deep];
    for more in [&[][..], &["--scratch", "disk"], &["--backend", "copy"]] {
        let answer = env.json(&[&covers[..], more].concat(), "echo x > a/b/cover/in; : > /tmp/done");
        assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
        assert_eq!(answer["result"]["version_after"], json!(null), "{more:?}: {answer}");
    }
    // What the command puts beside a cover is kept, with the directories it needs.
    for (more, fork) in [
        (&["--scratch", "memory"][..], "one"),
        (&["--scratch", "disk"], "two"),
        (&["--backend", "copy"], "three"),
    ] {
        let options = [&covers[..], more, &["--fork", fork]].concat();
        env.json(&options, "echo 1 > a/beside; echo x > a/b/cover/in; echo 2 > src/new");
        let found = "find . -mindepth 1 | sort | tr '\\n' ' '";
        let seen = env.ok(&["--fork", fork], found);
        assert_eq!(
            seen, "./README.md ./a ./a/beside ./link ./src ./src/data.bin ./src/main.rs ./src/new ",
            "{more:?}"
        );
        let listed = env.avfs_result(&["ls", "-R", fork])["entries"].to_string();
        assert!(
            listed.contains("a/beside") && !listed.contains("a/b\"") && !listed.contains("src/x"),
            "{listed}"
        );
    }
    env.assert_sound();
}
