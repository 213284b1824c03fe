//! The oracle with generated lines: whatever a shell does, it does the same in the sandbox.

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use crate::env::TestEnv;
use crate::oracle::{Ends, Runs, Trial, WAYS};
use crate::support::is_long;

/// Few names, so that lines meet: files, directories and links of [`crate::oracle::mixed`] and new ones.
const NAMES: [&str; 14] =
    ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "x", "x/y", "empty", "to-a", "new", "d/new/deep"];
const MODES: [&str; 5] = ["700", "755", "750", "1777", "711"];

/// Comes before the lines of each shell.
///
/// A copy of a directory into itself depends on the order of its entries, and a copy over a fifo waits for a reader.
/// The kernel resolves the paths: unlike realpath(1) it gives up on a link that leads through itself. Whatever a line
/// does, it ends: after some seconds of processor time at the latest, on both sides.
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

/// One line. It may fail, on both sides alike: what it says of itself goes into a file that is compared too.
fn line() -> impl Strategy<Value = String> {
    // To open a fifo is to wait for its other end.
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
        cases: if is_long() { 200 } else { 16 },
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
        lines in proptest::collection::vec(line(), 1..24),
        way in proptest::sample::select(&WAYS[..]),
    ) {
        // A run for each line would take long; a few lines in each show the same.
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

fn small(env: &TestEnv) {
    crate::oracle::mixed(env);
    std::fs::remove_file(env.project().join("big")).unwrap();
}
