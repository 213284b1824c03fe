//! Hard links that exist before the run: a write through one name is a write to all of them.

use serde_json::json;

use crate::env::TestEnv;
use crate::oracle::{Ends, Trial, WAYS, Way, mixed};
use crate::support::settle;

/// A file with three names, one with two, and one with a single name.
fn linked(env: &TestEnv) {
    mixed(env);
    env.put("h/a", b"first\n");
    env.put("h/alone", b"alone\n");
    env.put("other", b"other\n");
    env.put("p/1", b"pair\n");
    for (from, to) in [("h/a", "h/b"), ("h/a", "top"), ("p/1", "p/2")] {
        std::fs::hard_link(env.project().join(from), env.project().join(to)).unwrap();
    }
    // A run distinguishes copied files from new ones by their timestamps, which have a limited resolution.
    settle();
}

/// Compares each line separately: within one run, a write through one name is not visible through another.
#[track_caller]
fn agree_on(lines: &[&str]) {
    agree_in(&WAYS, lines);
}

#[track_caller]
fn agree_in(ways: &[Way<'_>], lines: &[&str]) {
    for line in lines {
        let lines = [format!("set -e; {line}")];
        Trial { fixture: &linked, lines: &lines, of_the_host: &[], ends: Ends::Well }.agrees(ways);
    }
}

#[test]
fn a_write_in_place_changes_all_names() {
    agree_on(&[
        "echo more >> h/a; cat h/a h/alone > /dev/null; echo x >> h/alone",
        "chmod 600 h/b; printf x | dd of=p/2 bs=1 seek=2 conv=notrunc",
        ": > top; ln top h/new; rm h/b",
    ]);
}

#[test]
fn a_replaced_file_becomes_independent() {
    agree_on(&[
        "echo x >> h/alone; sed -i s/first/second/ h/a",
        "cp -p p/1 t; echo x >> t; mv t p/1",
        "rm h/a; echo new > h/a; rm p/1; echo x >> p/2",
    ]);
}

/// A copy that has the times of the original and replaces it is another file. The first line copies a file up, after
/// which times do not show it.
#[test]
fn a_replacement_with_the_times_of_the_original_becomes_independent() {
    let copied_up = "echo x >> h/alone; echo x >> other";
    let lines = [
        "cp -p h/a t; printf 'FIRST\\n' > t; touch -r h/a t; mv t h/a",
        "cp -p top h/t; echo more >> h/t; mv h/t h/b",
        "cp -p h/a h/t; mv h/t h/a",
        "cd h; cp -p a ../t; echo more >> ../t; mv ../t \"$PWD/../top\"",
        // A name of the old file that is moved over the copy.
        "cp -p h/a t; mv t h/b; mv h/a h/b; echo more >> h/b",
        // A file with a single name.
        "cp -p h/alone t; printf 'ALONE\\n' > t; touch -r h/alone t; mv t h/alone",
    ];
    let lines = lines.map(|line| format!("{copied_up}; {line}"));
    agree_on(&lines.each_ref().map(String::as_str));
}

#[test]
fn renamed_names_stay_linked() {
    agree_in(
        &[WAYS[0], WAYS[4], WAYS[7]],
        &[
            "mv h/a h/z",
            "mv h g",
            "echo more >> h/a; mv h/a h/z; echo new > h/a",
            "mv h/a h/z; echo more >> h/z; chmod 600 h/z",
            "mv h g; mv g/a z; rm top; mkdir h; echo new > h/a",
            "mkdir made; mv h/a h/b made; mv made moved; mv p/1 moved/1",
            "mv h/a other; mv p/1 h/b; echo more >> h/b",
            "mv -n h/a other || true; echo more >> other",
            "cp -a h copy; rm -r h; mv copy h; echo more >> h/a",
        ],
    );
}

/// A directory that is copied for a rename, and has its old name afterwards.
#[test]
fn names_in_copied_directories_stay_linked() {
    let rename = "python3 -c 'import os, sys; os.rename(*sys.argv[1:])'";
    let refused = |names: &str| format!("! {rename} {names} 2> /dev/null");
    let lines = [
        "mv h g; mv g h; echo more >> other".to_owned(),
        "mv h g; mv g h; echo more >> h/a".to_owned(),
        "mkdir up; mv h up/h; mv up/h h; chmod 600 h/b; mv p q; mv q p".to_owned(),
        "mv h g; mv g/b g/c; mv g h; echo more >> top".to_owned(),
        format!("{}; echo more >> h/a", refused("h d")),
        // New files with the content and times of the old ones.
        "mv h g; mkdir h; cp -p g/a h/a".to_owned(),
        "mv h g; mv g h; cp -p h/a t; mv t h/a".to_owned(),
    ];
    agree_in(&[WAYS[0], WAYS[4], WAYS[7]], &lines.each_ref().map(String::as_str));
}

/// The directories in a directory are copied first: here some are copied before one is too large.
#[test]
fn names_in_a_directory_that_cannot_be_copied_completely_stay_linked() {
    let env = TestEnv::new();
    for dir in 0..20 {
        env.put(&format!("h/d{dir}/a"), format!("{dir}\n").as_bytes());
        std::fs::hard_link(
            env.project().join(format!("h/d{dir}/a")),
            env.project().join(format!("h/d{dir}/b")),
        )
        .unwrap();
    }
    env.put("h/d10/large", &crate::support::noise(3, 3 << 20));
    settle();
    let line = "python3 -c 'import os; os.rename(\"h\", \"g\")' 2> /dev/null || \
                for dir in h/*; do echo more >> $dir/a; done; ls -d h";
    let answer = env.json(&["--scratch", "memory", "--disk", "1MiB", "--fork", "work"], line);
    assert_eq!(answer["result"]["stdout"], json!("h\n"), "{answer}");
    assert!(answer["result"]["notes"].to_string().contains("rename.refused"), "{answer}");
    let export = env.export("work", "export");
    for dir in 0..20 {
        let [a, b] = ["a", "b"].map(|name| export.join(format!("h/d{dir}/{name}")));
        assert_eq!(std::fs::read_to_string(&b).unwrap(), format!("{dir}\nmore\n"));
        use std::os::unix::fs::MetadataExt;
        let [a, b] = [a, b].map(|path| path.metadata().unwrap().ino());
        assert_eq!(a, b, "h/d{dir}");
    }
}

#[test]
fn new_names_of_several_names_stay_linked() {
    agree_in(
        &[WAYS[0], WAYS[4], WAYS[7]],
        &["cp -al h copy", "ln h/a new; mv new newer", "ln p/1 q; ln p/2 r; echo more >> r"],
    );
}

#[test]
fn links_that_are_only_opened_or_touched_stay_linked() {
    agree_on(&["exec 3<>h/a; exec 3<>p/1", "touch h/b", "touch -d 2001-02-03 p/1"]);
}

#[test]
fn the_next_run_sees_one_file_with_several_names() {
    for scratch in ["memory", "disk"] {
        let env = TestEnv::new();
        env.avfs(&["init"]).expect(0);
        linked(&env);
        let first = env.json(&["--fork", "work", "--scratch", scratch], "echo more >> h/a; cat top");
        assert_eq!(first["result"]["stdout"], json!("first\n"), "{first}");
        let notes = first["result"]["notes"].to_string();
        assert!(notes.contains("links.joined") && notes.contains("h/b, top"), "{first}");
        let seen = env.ok(&["--fork", "work"], "cat h/a h/b top; stat -c %h top; cat p/2");
        assert_eq!(seen, "first\nmore\nfirst\nmore\nfirst\nmore\n3\npair\n", "{scratch}");
        env.assert_sound();
    }
}

#[test]
fn names_that_were_written_separately_are_reported() {
    let env = TestEnv::new();
    linked(&env);
    let answer = env.json(&["--fork", "work"], "echo 1 >> h/a; echo 2 >> h/b");
    let notes = answer["result"]["notes"].to_string();
    assert!(notes.contains("links.split") && notes.contains("h/a, h/b"), "{answer}");
    assert_eq!(env.cat("work", "h/a"), "first\n1\n");
    assert_eq!(env.cat("work", "h/b"), "first\n2\n");
    assert_eq!(env.cat("work", "top"), "first\n");
    // The same content: outside, the second write appends to what the first one wrote.
    let answer = env.json(&["--fork", "other"], "echo 1 >> h/a; echo 1 >> h/b");
    let notes = answer["result"]["notes"].to_string();
    assert!(notes.contains("links.repeated") && notes.contains("h/a, h/b"), "{answer}");
    assert_eq!(env.cat("other", "top"), "first\n1\n");
    let answer = env.json(&["--fork", "third"], "echo 1 >> h/a");
    assert!(!answer["result"]["notes"].to_string().contains("links.repeated"), "{answer}");
}
