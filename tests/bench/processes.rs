//! Many processes on one vault: commits of one file each on a large parent, counted for some seconds.

use std::cell::Cell;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use avfs_types::ids::ForkName;
use avfs_vault::backend::sqlite::sibling;
use avfs_vault::{Advance, Vault, When};

use crate::generate::Numbers;
use crate::{Bench, Goal, Row, commits, context, in_turns, median, options, quiet};

const SECONDS: u64 = 5;
const PROCESSES: usize = 32;
const TURNS: usize = 3;

/// A writer process: commits until its time is over, then prints the number of commits.
pub fn writer(args: &[String]) {
    let [vault, number, files] = args else { panic!("--writer VAULT NUMBER FILES") };
    let number: u64 = number.parse().unwrap();
    let paths = commits::paths(files.parse().unwrap(), false);
    let mut numbers = Numbers::new(number + 1);
    let vault = Vault::open(Path::new(vault), options(), context()).unwrap();
    let mut go = [0];
    std::io::stdin().read_exact(&mut go).unwrap();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let mut count = 0_u64;
    while Instant::now() < until {
        let path = &paths[numbers.below(paths.len())];
        let (edits, blobs) = commits::files(std::slice::from_ref(path), (number + 1) << 32 | count);
        let advance = Advance { action: "bench", message: "bench", run: None, when: When::Always };
        vault.commit_edits(&ForkName::main(), &edits, &blobs, &advance).unwrap();
        count += 1;
    }
    println!("{count}");
}

/// The number of commits of each process.
fn counts(parent: &Path, files: usize, processes: usize, preload: Option<&str>) -> Vec<u64> {
    let vault = parent.with_file_name(format!("p{processes}-{}.db", preload.is_some()));
    for left in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(sibling(&vault, left));
    }
    std::fs::copy(parent, &vault).unwrap();
    quiet();
    let versions = || {
        let opened = Vault::open(&vault, options(), context()).unwrap();
        opened.read().unwrap().versions_kept().unwrap()
    };
    let before = versions();
    let mut children: Vec<_> = (0..processes)
        .map(|number| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("--writer").arg(&vault).arg(number.to_string()).arg(files.to_string());
            if let Some(library) = preload {
                command.env("LD_PRELOAD", library);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"g").unwrap();
    }
    let finish = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let counts: Vec<u64> = children.into_iter().map(finish).collect();
    assert_eq!(versions(), counts.iter().sum::<u64>() + before, "commits were lost");
    counts
}

pub fn processes(bench: &Bench) -> Vec<Row> {
    let parent = bench.fresh("processes").join("parent.db");
    drop(commits::populated(&parent, &commits::paths(bench.files, false)));
    let counts = |processes, preload| counts(&parent, bench.files, processes, preload);
    let rate = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / SECONDS as f64;
    let row = |what: &str, ours: f64, unit, peer: &str, theirs: f64, goal| Row {
        what: what.to_owned(),
        ours,
        unit,
        peer: peer.to_owned(),
        theirs,
        goal,
    };
    let one_and_many = |preload| {
        let many = Cell::new((0.0, 0.0));
        let rates = in_turns(
            TURNS,
            quiet,
            [&mut || rate(&counts(1, preload)), &mut || {
                let each = counts(PROCESSES, preload);
                many.set((*each.iter().max().unwrap() as f64, *each.iter().min().unwrap() as f64));
                rate(&each)
            }],
        );
        (rates.map(median), many.get())
    };
    let ([one, many], (most, least)) = one_and_many(None);
    let mut rows = vec![
        row("32 processes", many, "commits/s", "one process", one, Goal::AtLeast(0.8)),
        row("32 processes, fairness: most", most, "commits", "fewest", least, Goal::AtMost(1.5)),
    ];
    // Set by scripts/bench to a library that makes every sync 2 ms longer.
    if let Ok(library) = std::env::var("AVFS_BENCH_SLOW_SYNC") {
        let ([one, many], _) = one_and_many(Some(&library));
        let what = "32 processes, sync 2 ms slower";
        rows.push(row(what, many, "commits/s", "one process", one, Goal::AtLeast(3.0)));
    }
    rows
}
