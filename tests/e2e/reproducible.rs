//! Reproducible runs: the same tree at any time and in any place.

use std::process::Command;

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::support::snapshot;

/// Leaves a file of every kind, and prints what it can see of its environment.
const LINE: &str = "hostname; umask; env | sort; touch x; mkdir d; ln -s a b; mkfifo p; echo y > d/f; ln d/f d/g; \
                    echo z >> README.md; rm src/data.bin; mkdir closed; touch closed/in; chmod 0 closed; date > /dev/null";
/// 1980-01-01T00:00:00Z.
const EPOCH: i64 = 315_532_800;

/// The ways in which writes of a command are stored before they become a version.
const WAYS: [&[&str]; 3] = [&["--scratch", "memory"], &["--scratch", "disk"], &["--backend", "copy"]];

fn with<'a>(some: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [some, more].concat()
}

/// The digest of the tree of a version, including times.
fn tree(env: &TestEnv, reference: &str) -> String {
    env.avfs_result(&["show", reference])["version"]["root"].as_str().unwrap().to_owned()
}

pub fn has_faketime() -> bool {
    let dirs = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ];
    dirs.iter().any(|dir| std::path::Path::new(dir).join("faketime/libfaketimeMT.so.1").exists())
}

#[test]
fn the_same_line_produces_the_same_tree() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let (mut trees, mut outputs) = (Vec::new(), Vec::new());
    for (number, way) in WAYS.iter().enumerate() {
        for again in ["one", "two"] {
            let fork = format!("{again}-{number}");
            let ran = env.json(&with(way, &["--reproducible", "--fork", &fork]), LINE);
            assert_eq!((&ran["result"]["exit_code"], &ran["success"]), (&json!(0), &json!(true)), "{ran}");
            let held = if has_faketime() { "files+programs" } else { "files" };
            assert_eq!(ran["enforcement"]["clock"], json!(held));
            trees.push(tree(&env, &fork));
            outputs.push(ran["result"]["stdout"].as_str().unwrap().to_owned());
        }
    }
    assert!(trees.iter().all(|tree| *tree == trees[0]), "{trees:?}");
    assert!(outputs.iter().all(|output| *output == outputs[0]), "{outputs:?}");
    let seen = &outputs[0];
    assert!(seen.starts_with("avfs\n0022\n"), "{seen}");
    for line in
        ["LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC", "PYTHONHASHSEED=0", "SOURCE_DATE_EPOCH=315532800"]
    {
        assert!(seen.lines().any(|seen| seen == line), "{line}: {seen}");
    }
    // Control: without the option the times differ.
    env.json(&["--fork", "plain-1"], LINE);
    env.json(&["--fork", "plain-2"], LINE);
    assert_ne!(tree(&env, "plain-1"), tree(&env, "plain-2"));
    env.assert_sound();
}

#[test]
fn only_files_the_command_wrote_get_the_fixed_time() {
    for way in WAYS {
        let env = TestEnv::with_project();
        // Recently written: a new file of the user is not one that the command wrote.
        env.put("fresh", b"fresh\n");
        env.put("dir/old", b"old\n");
        env.avfs(&["import"]).expect(0);
        let before = snapshot::take(&env.export("main", "before"));
        env.json(
            &with(way, &["--clock-fixed", "--fork", "w"]),
            "chmod +x fresh; echo new > dir/new; mv README.md moved",
        );
        let after = snapshot::take(&env.export("w", "after"));
        let time = |of: &snapshot::Snapshot, path: &str| of.facts[path.as_bytes()].mtime;
        for (path, from) in [
            ("fresh", "fresh"),
            ("dir/old", "dir/old"),
            ("src/main.rs", "src/main.rs"),
            ("moved", "README.md"),
            ("src", "src"),
        ] {
            assert_eq!(time(&after, path), time(&before, from), "{path} with {way:?}");
        }
        for path in ["", "dir", "dir/new"] {
            assert_eq!(time(&after, path), (EPOCH, 0), "{path:?} with {way:?}");
        }
        env.assert_sound();
    }
}

#[test]
fn the_next_run_sees_the_fixed_times() {
    for way in WAYS {
        let env = TestEnv::with_project();
        let options = with(way, &["--reproducible", "--fork", "w"]);
        env.ok(&options, "touch x; mkdir d; ln -s a b");
        let first = tree(&env, "w");
        assert_eq!(env.ok(&options, "stat -c %Y . x d b"), "315532800\n".repeat(4), "{way:?}");
        assert_eq!(tree(&env, "w"), first, "a read-only line changed something with {way:?}");
        // The same change again makes no version.
        let again = env.json(&options, "touch x");
        assert_eq!(again["result"]["landing"], json!("nothing"), "{again}");
    }
}

#[test]
fn the_fixed_clock_can_be_set_to_a_given_time() {
    let env = TestEnv::with_project();
    let line = "echo $SOURCE_DATE_EPOCH; touch x; hostname";
    let envelope = env.json(&["--clock-fixed=2020-02-03T04:05:06Z", "--fork", "w"], line);
    let seen = envelope["result"]["stdout"].as_str().unwrap().to_owned();
    assert_eq!(seen.lines().next(), Some("1580702706"));
    // The option sets only the clock.
    assert_ne!(seen.lines().nth(1), Some("avfs"));
    assert_eq!(
        (&envelope["request"]["clock_fixed"], &envelope["request"]["reproducible"]),
        (&json!("2020-02-03T04:05:06Z"), &json!(false))
    );
    assert_eq!(env.ok(&["--fork", "w"], "stat -c %Y x"), "1580702706\n");
    assert_eq!(env.json(&["--fork", "w"], "true")["enforcement"]["clock"], Value::Null);
    let set = env.ok(
        &["--reproducible", "--env", "SOURCE_DATE_EPOCH=1", "--env", "TZ"],
        "echo $SOURCE_DATE_EPOCH $TZ",
    );
    assert_eq!(set, "1 UTC\n");
    let bad = env.run(&["--clock-fixed=yesterday", "--", "true"]).expect(125);
    assert!(bad.stderr.contains("invalid time \"yesterday\""), "{bad:?}");
}

#[test]
fn programs_see_the_fixed_time_if_the_host_supports_it() {
    let env = TestEnv::with_project();
    let ran = env.json(&["--reproducible"], "date +%s");
    let seen: i64 = ran["result"]["stdout"].as_str().unwrap().trim().parse().unwrap();
    // The reported enforcement matches the observed time.
    assert_eq!(ran["enforcement"]["clock"] == json!("files+programs"), seen == EPOCH, "{ran}");
}

#[test]
fn a_request_from_an_envelope_has_the_same_result_for_another_user() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let envelope = env.json(&["--reproducible", "--env", "A=b", "--fork", "one"], LINE);
    let mut request = envelope["request"].clone();
    request["fork"] = json!("two");
    let file = env.at("request.json");
    std::fs::write(&file, request.to_string()).unwrap();
    let mut command: Command = env.command(&["--json", "--request", file.to_str().unwrap()]);
    command
        .env("LANG", "de_DE.UTF-8")
        .env("TZ", "Asia/Tokyo")
        .env("SOURCE_DATE_EPOCH", "5")
        .env("USER", "another");
    let again = env.answer(&mut command).expect(0).envelope();
    assert_eq!(again["result"]["stdout"], envelope["result"]["stdout"]);
    assert_eq!(tree(&env, "two"), tree(&env, "one"));
}

#[test]
fn a_recovery_sets_the_fixed_times_too() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let line = "touch x; mkdir d";
    env.ok(&["--reproducible", "--scratch", "disk", "--fork", "one"], line);
    // The vault cannot be written when the command has ended.
    env.avfs(&["quota", "set", "--versions", "1"]).expect(0);
    let failed = env.shell(&["--reproducible", "--scratch", "disk", "--fork", "two"], line);
    assert_eq!(failed.code, Some(123), "{failed:?}");
    env.avfs(&["quota", "set", "--versions", "none"]).expect(0);
    env.avfs(&["recover"]).expect(0);
    assert_eq!(tree(&env, "two"), tree(&env, "one"));
}
