//! Many processes on one vault: commits of one file each, counted for a while.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use avfs::ids::ForkName;
use avfs::vault::path::TreePath;
use avfs::vault::{Advance, Vault, When};

use crate::commits::files;
use crate::{Bench, Goal, Row, context, new_vault, options};

const SECONDS: u64 = 5;
const PROCESSES: usize = 32;

/// A process of its own: commits until its time is over, then prints how often it did.
pub fn writer(args: &[String]) {
    let [vault, number] = args else { panic!("--writer VAULT NUMBER") };
    let number: u64 = number.parse().unwrap();
    let vault = Vault::open(Path::new(vault), options(), context()).unwrap();
    let path = TreePath::parse(format!("writer/{number}").as_bytes()).unwrap();
    let mut go = [0];
    std::io::stdin().read_exact(&mut go).unwrap();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let mut count = 0_u64;
    while Instant::now() < until {
        let (edits, blobs) = files(std::slice::from_ref(&path), number << 32 | count);
        let advance = Advance { action: "bench", message: "bench", run: None, when: When::Always };
        vault.commit_edits(&ForkName::main(), &edits, &blobs, &advance).unwrap();
        count += 1;
    }
    println!("{count}");
}

/// Commits of each of so many processes.
fn counts(home: &Path, processes: usize, preload: Option<&str>) -> Vec<u64> {
    let vault = home.join(format!("p{processes}-{}.db", preload.is_some()));
    drop(new_vault(&vault));
    let mut children: Vec<_> = (0..processes)
        .map(|number| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("--writer").arg(&vault).arg(number.to_string());
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
    let opened = Vault::open(&vault, options(), context()).unwrap();
    let versions = opened.read().unwrap().versions_kept().unwrap();
    assert_eq!(versions, counts.iter().sum::<u64>() + 1, "commits were lost");
    counts
}

pub fn processes(bench: &Bench) -> Vec<Row> {
    let home = bench.fresh("processes");
    let rate = |counts: &[u64]| counts.iter().sum::<u64>() as f64 / SECONDS as f64;
    let row = |what: &str, ours: f64, unit, peer: &str, theirs: f64, goal| Row {
        what: what.to_owned(),
        ours,
        unit,
        peer: peer.to_owned(),
        theirs,
        goal,
    };
    let (one, many) = (counts(&home, 1, None), counts(&home, PROCESSES, None));
    let (most, least) = (*many.iter().max().unwrap() as f64, *many.iter().min().unwrap() as f64);
    let mut rows = vec![
        row("32 processes", rate(&many), "commits/s", "one process", rate(&one), Goal::AtLeast(0.8)),
        row("32 processes, fairness: most", most, "commits", "fewest", least, Goal::AtMost(1.5)),
    ];
    // Set by scripts/bench to a library that makes every sync 2 ms longer.
    if let Ok(library) = std::env::var("AVFS_BENCH_SLOW_SYNC") {
        let (one, many) = (counts(&home, 1, Some(&library)), counts(&home, PROCESSES, Some(&library)));
        let what = "32 processes, sync 2 ms slower";
        rows.push(row(what, rate(&many), "commits/s", "one process", rate(&one), Goal::AtLeast(3.0)));
    }
    rows
}
