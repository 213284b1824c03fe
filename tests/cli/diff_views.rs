//! Changes as a tree, a diffstat and a unified diff: bounded, with a count of the omitted changes.

use serde_json::json;

use crate::env::{Answer, TestEnv};
use crate::support;

/// A project, and a fork with a change of each kind.
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
fn tree_shows_every_change_in_its_directory() {
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
fn omitted_changes_are_counted() {
    let env = changed();
    let limited: Answer = env.run(&["diff", "fix", "--tree", "--limit", "2"]);
    assert!(limited.stderr.contains("note: 3 changes omitted"), "{limited:?}");
    let tree = env.result(&["diff", "fix", "--tree", "--limit", "2"]);
    let marked = tree["tree"].as_array().unwrap().iter().filter(|line| !line["kind"].is_null()).count();
    assert_eq!((marked, &tree["left_off"]), (2, &json!(3)));
    assert_eq!(tree["changes"].as_array().unwrap().len(), 5, "the list of changes is complete");
    let stat = env.result(&["diff", "fix", "--stat", "--limit", "1"]);
    assert_eq!((stat["stat"].as_array().unwrap().len(), &stat["left_off"]), (1, &json!(4)));
    assert!(env.run(&["diff", "fix", "--stat", "--limit", "1"]).stderr.contains("4 changes omitted"));
}

#[test]
fn file_too_large_to_compare_is_not_called_binary() {
    let env = TestEnv::with_project();
    env.put("large.txt", &b"a line\n".repeat(1_300_000));
    env.put("other.bin", &[0, 1]);
    env.ok(&["import"]);
    let text = env.ok(&["diff", "main", "--stat"]);
    assert!(text.contains(" large.txt | too large to compare\n other.bin | binary\n"), "{text}");
    let stat = env.result(&["diff", "main", "--stat"])["stat"].take();
    assert_eq!((&stat[0]["too_large"], &stat[1]["too_large"]), (&json!(true), &json!(false)), "{stat}");
}

/// Imports the files before and after, and checks that patch(1) turns the old files into the new ones.
fn patched(test: &str, files: &[(&str, Vec<u8>, Vec<u8>)]) -> TestEnv {
    let env = TestEnv::new();
    let old = env.at("old");
    std::fs::create_dir(&old).unwrap();
    for (name, before, _) in files {
        env.put(name, before);
        std::fs::write(old.join(name), before).unwrap();
    }
    env.ok(&["init", "--import"]);
    files.iter().for_each(|(name, _, after)| env.put(name, after));
    env.ok(&["import"]);
    let patch = env.at("changes.patch");
    std::fs::write(&patch, env.ok(&["diff", "main", "--patch", "--patch-max", "16MiB"])).unwrap();
    let mut command = env.clean("patch".as_ref());
    match command.args(["--binary", "-p1", "-d"]).arg(&old).arg("-i").arg(&patch).output() {
        Err(_) => support::skip(test, "there is no patch(1) here"),
        Ok(patched) => {
            assert!(patched.status.success(), "{:?}", Answer::from(patched));
            for (name, _, after) in files {
                assert!(std::fs::read(old.join(name)).unwrap() == *after, "{name}");
            }
        }
    }
    env
}

#[test]
fn lone_carriage_return_does_not_end_a_line() {
    let file = |name, before: &[u8], after: &[u8]| (name, before.to_vec(), after.to_vec());
    let files = [
        file("a", b"\r", b"hello\n"),
        file("b", b"x\ry\nend\r\n", b"x\rz\nend\r\n"),
        file("c", b"1\n2\r", b"1\n2"),
    ];
    let env = patched("cli::lone_carriage_return_does_not_end_a_line", &files);
    let stat = env.result(&["diff", "main", "--stat"])["stat"].take();
    for file in stat.as_array().unwrap() {
        assert_eq!((&file["lines_added"], &file["lines_deleted"]), (&json!(1), &json!(1)), "{file}");
    }
}

/// Two kinds of lines in random order: the shortest diff of such files would take hours.
#[test]
fn files_costly_to_compare_are_replaced_by_one_hunk() {
    let lines = |seed: u8| -> Vec<u8> {
        let bits = support::noise(u64::from(seed), 1 << 15);
        let lines = bits.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1));
        lines.flat_map(|bit| [b'0' + bit, b'\n']).collect()
    };
    let test = "cli::files_costly_to_compare_are_replaced_by_one_hunk";
    let env = patched(test, &[("costly", lines(1), lines(2))]);
    let patch = env.ok(&["diff", "main", "--patch", "--patch-max", "16MiB"]);
    assert_eq!(patch.matches("@@ -").count(), 1);
    assert!(patch.matches("\n+").count() > 260_000, "the file was compared to its end");
}

#[test]
fn patch_size_is_bounded() {
    let env = changed();
    let long = "a line that is there often\n".repeat(100);
    env.ok(&["write", "src/long", "--text", &long, "--fork", "fix"]);
    let whole = env.run(&["diff", "fix", "--patch"]);
    assert!(whole.stdout.contains("+fn main() { run() }") && whole.stderr.is_empty(), "{whole:?}");
    let cut = env.run(&["diff", "fix", "--patch", "--patch-max", "1K"]);
    assert!(cut.stdout.contains("Files /dev/null and b/src/long differ"), "{cut:?}");
    assert!(cut.stdout.len() <= 1024 && cut.stderr.contains("1 path shortened, 0 paths omitted"), "{cut:?}");
    let least = env.json(&["diff", "fix", "--patch", "--patch-max", "10"])["result"].take();
    // The new directory is not counted: git creates it with the file in it.
    assert_eq!((&least["patch"], &least["left_off"]), (&json!(""), &json!(5)));
    assert_eq!(env.run(&["diff", "fix", "--patch-max", "1K"]).code, 2, "there is no patch to bound");
}
