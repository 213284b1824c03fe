//! The oracle with generated lines: whatever a shell does, it does the same in the sandbox.

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use crate::env::TestEnv;
use crate::oracle::{Ends, Runs, Trial, WAYS};

/// Few names, so that lines meet: files, directories and links of [`crate::oracle::mixed`] and new ones.
const NAMES: [&str; 14] =
    ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "x", "x/y", "empty", "to-a", "new", "d/new/deep"];
const MODES: [&str; 5] = ["700", "755", "750", "1777", "711"];

fn name() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&NAMES[..])
}

/// One line. It may fail, on both sides alike: what it says of itself goes into a file that is compared too.
fn line() -> impl Strategy<Value = String> {
    // Who opens a fifo waits for somebody at its other end.
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
        // How much of a directory that is copied into itself is copied depends on the order of its entries, and
        // what is copied over a fifo waits.
        3 => (name(), name()).prop_map(|(from, to)| {
            let inside = format!("case \"$(realpath -m {to})/\" in \"$(realpath -m {from})\"/*) true ;; *) false ;; esac");
            let onto_fifo = format!("find -L {to} -type p | grep -q .");
            format!("{{ {inside} || {onto_fifo} || cp -a {from} {to}; }}")
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
        cases: 40,
        max_shrink_iters: 60,
        max_shrink_time: 60_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_lines_do_the_same_as_in_a_plain_directory(
        lines in proptest::collection::vec(line(), 1..14),
        way in proptest::sample::select(&WAYS[..]),
    ) {
        // A run for each line would take long; a few lines in each show the same.
        let lines: Vec<String> = match way.runs {
            Runs::One => lines,
            Runs::Each => lines.chunks(5).map(|some| some.join("\n")).collect(),
        };
        let trial = Trial { fixture: &small, lines: &lines, of_the_host: &[], ends: Ends::Somehow };
        let found = trial.differences(way);
        prop_assert!(found.is_empty(), "{way:?}: {found:#?}");
    }
}

fn small(env: &TestEnv) {
    crate::oracle::mixed(env);
    std::fs::remove_file(env.project().join("big")).unwrap();
}
