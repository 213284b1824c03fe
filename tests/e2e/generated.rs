//! The oracle with generated lines: any shell command does the same in the sandbox as outside.

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};
use serde_json::Value;

use crate::env::TestEnv;
use crate::oracle::{Ends, Runs, Trial, WAYS, comparable, set_old_times};
use crate::support::snapshot::Snapshot;
use crate::support::{is_long, settle, snapshot};

/// Few names, so that lines affect each other: files, directories and links of [`crate::oracle::mixed`] and new ones.
const NAMES: [&str; 14] =
    ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "x", "x/y", "empty", "to-a", "new", "d/new/deep"];
const MODES: [&str; 5] = ["700", "755", "750", "1777", "711"];

/// Precedes the lines of each shell.
///
/// A copy of a directory into itself depends on the order of its entries, and a copy over a fifo waits for a reader.
/// The kernel resolves the paths: unlike realpath(1) it fails on a link that leads through itself. The limit of
/// processor time ends any line after some seconds, on both sides.
const SETUP: &str = r#"ulimit -t 20
into_itself() {
    [ -d "$1" ] && [ ! -h "$1" ] || return
    below=$(cd -P "$2" && pwd -P || { cd -P "$(dirname "$2")" && pwd -P; })
    case "$below/" in "$(cd -P "$1" && pwd -P)"/*) true ;; *) false ;; esac
} 2>/dev/null
"#;

fn name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMES[..])
}

/// One line. It may fail, on both sides alike: its exit status is appended to a file that is compared too.
fn line() -> impl Strategy<Value = String> {
    // Opening a fifo waits for its other end.
    let write = |redirect: &'static str| {
        (name(), 0..100u32)
            .prop_map(move |(at, n)| format!("{{ [ ! -p {at} ] && echo {n} {redirect} {at}; }}"))
    };
    prop_oneof![
        4 => write(">"),
        3 => write(">>"),
        4 => name().prop_map(|at| format!("rm -rf {at}")),
        3 => name().prop_map(|at| format!("mkdir -p {at}")),
        4 => (name(), name()).prop_map(|(from, to)| format!("mv -f {from} {to}")),
        2 => (name(), name()).prop_map(|(from, to)| format!("mv -fT {from} {to}")),
        3 => (name(), name()).prop_map(|(from, to)| {
            format!("{{ into_itself {from} {to} || find -L {to} -type p | grep -q . || cp -a {from} {to}; }}")
        }),
        2 => (name(), name()).prop_map(|(from, to)| format!("ln -sfn {from} {to}")),
        1 => name().prop_map(|at| format!("mkfifo {at}")),
        2 => (name(), proptest::sample::select(&MODES[..])).prop_map(|(at, mode)| format!("chmod {mode} {at}")),
        2 => (name(), 1..1000u32).prop_map(|(at, n)| format!("touch -hcd @{n}.{n:09} {at}")),
        1 => (name(), 0..200_000u32).prop_map(|(at, n)| format!("truncate -cs {n} {at}")),
        1 => name().prop_map(|at| format!("{{ [ ! -p {at} ] && sed -i s/e/E/ {at}; }}")),
        1 => name().prop_map(|at| format!("rmdir {at}")),
        1 => name().prop_map(|at| format!("find {at} -type f -exec chmod 600 {{}} +")),
        1 => name().prop_map(|at| format!("{{ tar cf /tmp/t-$$ {at} && tar xpf /tmp/t-$$ -C x; rm /tmp/t-$$; }}")),
    ]
    .prop_map(|line| format!("{line} 2>/dev/null; echo \"$?\" >> said"))
}

fn config() -> Config {
    Config {
        cases: if is_long() { 200 } else { 10 },
        max_shrink_iters: 60,
        max_shrink_time: 60_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_lines_have_the_same_result_as_in_a_plain_directory(
        lines in proptest::collection::vec(line(), 1..24),
        way in proptest::sample::select(&WAYS[..]),
    ) {
        // One run per line would take long; several lines per run show the same.
        let at_once = match way.runs {
            Runs::One => lines.len(),
            Runs::Each => 8,
        };
        let lines: Vec<String> =
            lines.chunks(at_once).map(|some| format!("{SETUP}{}", some.join("\n"))).collect();
        let trial = Trial { fixture: &small, lines: &lines, of_the_host: &[], ends: Ends::Somehow };
        let found = trial.differences(way);
        prop_assert!(found.is_empty(), "{way:?}: {found:#?}");
    }
}

/// The changes of a run, without sizes and digests: those of a directory cover only the entries that the version
/// contains. The patch contains the content of files.
fn changes(env: &TestEnv, run: &str) -> (Value, Value) {
    let run = format!("run:{run}");
    let mut changes = env.avfs_result(&["diff", &run, "--times"])["changes"].take();
    for change in changes.as_array_mut().unwrap() {
        for field in ["size_before", "size_after", "digest_before", "digest_after"] {
            change.as_object_mut().unwrap().remove(field).unwrap();
        }
    }
    (changes, env.avfs_result(&["diff", &run, "--patch"])["patch"].take())
}

/// The exit code and the resulting directory of applying a run, and of reverting it. Both may be refused: an ignored
/// file in a directory that is removed is a conflict.
fn applied_and_back(env: &TestEnv, run: &str) -> [(Option<i32>, Snapshot); 2] {
    ["apply", "unapply"].map(|verb| (env.avfs(&[verb, run]).code, comparable(&env.project(), &[])))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_lines_with_a_touched_base_make_the_same_changes_as_a_full_run(
        lines in proptest::collection::vec(line(), 1..16),
        scratch in proptest::sample::select(&["memory", "disk"][..]),
    ) {
        let env = TestEnv::new();
        env.avfs(&["init"]).expect(0);
        small(&env);
        env.put(".avfsignore", b"x/y\n");
        set_old_times(&env.project());
        settle();
        let line = format!("{SETUP}{}", lines.join("\n"));
        let run = |base: &str| env.json(&["--base", base, "--scratch", scratch], &line)["result"].take();
        let (full, touched) = (run("live"), run("touched"));
        prop_assert_eq!(&full["left_out"], &touched["left_out"]);
        prop_assert_eq!(full["fork"].is_string(), touched["fork"].is_string());
        prop_assert_eq!(&full["change_counts"], &touched["change_counts"]);
        if full["fork"].is_string() {
            let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
            let (full, touched) = (id(&full), id(&touched));
            prop_assert_eq!(changes(&env, &full), changes(&env, &touched));
            let (full, touched) = (applied_and_back(&env, &full), applied_and_back(&env, &touched));
            for ((full_code, full), (code, touched)) in full.iter().zip(&touched) {
                let found = snapshot::differences(full, touched);
                prop_assert!(full_code == code && found.is_empty(), "{full_code:?} {code:?} {found:#?}");
            }
        }
        env.assert_sound();
    }
}

fn small(env: &TestEnv) {
    crate::oracle::mixed(env);
    std::fs::remove_file(env.project().join("big")).unwrap();
}
