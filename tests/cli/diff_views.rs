//! Changes as a tree, a diffstat and a unified diff: bounded, and saying what is left off.

use serde_json::json;

use crate::env::{Answer, TestEnv};
use crate::support;

/// A project and, over it, a change of each kind.
fn changed() -> TestEnv {
    let env = TestEnv::with_project();
    env.ok(&["fork", "create", "fix"]);
    for (path, text) in [("src/main.rs", "fn main() { run() }\n"), ("src-old/note", "1\n2\n3\n")] {
        env.ok(&["write", path, "--text", text, "--fork", "fix"]);
    }
    env.ok(&["mv", "README.md", "src/READ.md", "--fork", "fix"]);
    env.ok(&["rm", "src/data.bin", "--fork", "fix"]);
    env
}

#[test]
fn a_tree_shows_every_change_in_its_place() {
    let env = changed();
    let text = env.ok(&["diff", "fix", "--tree"]);
    let expected = [
        "  src/",
        "R   READ.md  (from README.md)",
        "D   data.bin  (4 B)",
        "M   main.rs  (13 B -> 20 B)",
        "A src-old/",
        "A   note  (6 B)",
        "2 added, 1 modified, 1 deleted, 1 renamed",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_left_off_is_counted() {
    let env = changed();
    let limited: Answer = env.run(&["diff", "fix", "--tree", "--limit", "2"]);
    assert!(limited.stderr.contains("note: 3 changes left off"), "{limited:?}");
    let tree = env.result(&["diff", "fix", "--tree", "--limit", "2"]);
    let marked = tree["tree"].as_array().unwrap().iter().filter(|line| !line["kind"].is_null()).count();
    assert_eq!((marked, &tree["left_off"]), (2, &json!(3)));
    assert_eq!(tree["changes"].as_array().unwrap().len(), 5, "the list of changes is whole");
    let stat = env.result(&["diff", "fix", "--stat", "--limit", "1"]);
    assert_eq!((stat["stat"].as_array().unwrap().len(), &stat["left_off"]), (1, &json!(4)));
    assert!(env.run(&["diff", "fix", "--stat", "--limit", "1"]).stderr.contains("4 changes left off"));
}

#[test]
fn what_is_too_large_to_compare_is_not_called_binary() {
    let env = TestEnv::with_project();
    env.put("large.txt", &b"a line\n".repeat(1_300_000));
    env.put("other.bin", &[0, 1]);
    env.ok(&["import"]);
    let text = env.ok(&["diff", "main", "--stat"]);
    assert!(text.contains(" large.txt | too large to be compared\n other.bin | binary\n"), "{text}");
    let stat = env.result(&["diff", "main", "--stat"])["stat"].take();
    assert_eq!((&stat[0]["too_large"], &stat[1]["too_large"]), (&json!(true), &json!(false)), "{stat}");
}

/// The patch is what GNU patch makes the new files of.
#[test]
fn a_lone_carriage_return_is_no_end_of_a_line() {
    let env = TestEnv::new();
    let files: [(&str, &[u8], &[u8]); 3] =
        [("a", b"\r", b"hello\n"), ("b", b"x\ry\nend\r\n", b"x\rz\nend\r\n"), ("c", b"1\n2\r", b"1\n2")];
    let old = env.at("old");
    std::fs::create_dir(&old).unwrap();
    for (name, before, _) in files {
        env.put(name, before);
        std::fs::write(old.join(name), before).unwrap();
    }
    env.ok(&["init", "--import"]);
    files.iter().for_each(|(name, _, after)| env.put(name, after));
    env.ok(&["import"]);
    let stat = env.result(&["diff", "main", "--stat"])["stat"].take();
    for file in stat.as_array().unwrap() {
        assert_eq!((&file["lines_added"], &file["lines_deleted"]), (&json!(1), &json!(1)), "{file}");
    }
    let patch = env.at("changes.patch");
    std::fs::write(&patch, env.ok(&["diff", "main", "--patch"])).unwrap();
    let mut command = env.clean("patch".as_ref());
    let Ok(patched) = command.args(["--binary", "-p1", "-d"]).arg(&old).arg("-i").arg(&patch).output() else {
        return support::skip("cli::a_lone_carriage_return_is_no_end_of_a_line", "there is no patch(1) here");
    };
    assert!(patched.status.success(), "{:?}", Answer::from(patched));
    for (name, _, after) in files {
        assert_eq!(std::fs::read(old.join(name)).unwrap(), after, "{name}");
    }
}

#[test]
fn a_patch_is_bounded_by_bytes() {
    let env = changed();
    let long = "a line that is there often\n".repeat(100);
    env.ok(&["write", "src/long", "--text", &long, "--fork", "fix"]);
    let whole = env.run(&["diff", "fix", "--patch"]);
    assert!(whole.stdout.contains("+fn main() { run() }") && whole.stderr.is_empty(), "{whole:?}");
    let cut = env.run(&["diff", "fix", "--patch", "--patch-max", "1K"]);
    assert!(cut.stdout.contains("differ; too much to be shown"), "{cut:?}");
    assert!(cut.stdout.len() <= 1024 && cut.stderr.contains("1 path shortened, 0 paths left off"), "{cut:?}");
    let least = env.result(&["diff", "fix", "--patch", "--patch-max", "10"]);
    assert_eq!((&least["patch"], &least["left_off"]), (&json!(""), &json!(6)));
    assert_eq!(env.run(&["diff", "fix", "--patch-max", "1K"]).code, 2, "there is no patch to bound");
}
