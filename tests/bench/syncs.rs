//! How long runs wait for the disk: with every sync 20 ms longer, compared with the same run without the delay.

use std::process::Command;

use crate::peers::run;
use crate::runs::Place;
use crate::{Bench, Goal, Row, median, program, quiet};

const ROUNDS: usize = 40;
const FILES: usize = 1_000;
const LONGER_MS: f64 = 20.0;
const ITEMS: usize = 400;

pub fn syncs(bench: &Bench) -> Vec<Row> {
    // Set by scripts/bench to a library that makes every sync longer.
    let Ok(library) = std::env::var("AVFS_BENCH_SLOW_SYNC") else { return Vec::new() };
    let place = Place::new(bench, "syncs", FILES);
    let timed = |options: &[&str], script: &str, slow: bool| {
        let mut command = Command::new(program("avfs-run"));
        command.arg("-q").args(options).args(["--", "sh", "-c", script]).current_dir(&place.work);
        place.around(&mut command);
        if slow {
            command.env("LD_PRELOAD", &library).env("AVFS_SLOW_SYNC_US", (LONGER_MS * 1e3).to_string());
        }
        run(&mut command) * 1e3
    };
    let both = |options: &[&str], script: &str| {
        timed(options, script, false);
        quiet();
        let rounds = (0..ROUNDS).map(|_| (timed(options, script, true), timed(options, script, false)));
        let (slow, fast): (Vec<f64>, Vec<f64>) = rounds.unzip();
        (median(slow), median(fast))
    };
    let mut rows = Vec::new();
    let unchanged = [
        ("a run without changes", &[][..], "true"),
        ("a discarded run", &["--discard"], "echo x > new"),
        ("a run without changes on a fork", &["--fork", "w"], "true"),
    ];
    for (what, options, script) in unchanged {
        let (ours, theirs) = both(options, script);
        let (what, peer) = (format!("{what}, syncs 20 ms longer"), "without the delay".to_owned());
        rows.push(Row { what, ours, unit: "ms", peer, theirs, goal: Goal::AtMost(1.05) });
    }
    for (what, options) in
        [("a run with a change", &[][..]), ("a run with a change on a fork", &["--fork", "w"])]
    {
        let (slow, fast) = both(options, "date +%N > new");
        rows.push(Row {
            what: format!("{what}, syncs 20 ms longer: added time"),
            ours: slow - fast,
            unit: "ms",
            peer: "one sync".to_owned(),
            theirs: LONGER_MS,
            goal: Goal::AtMost(1.05),
        });
    }
    rows.push(batch(&place, &library));
    rows
}

/// The syncs of a batch whose items all make a version.
fn batch(place: &Place, library: &str) -> Row {
    let list: String = (0..ITEMS).map(|item| format!("touch item-{item}\n")).collect();
    std::fs::write(place.work.join("items.txt"), list).unwrap();
    let log = place.work.join("../sync-log");
    let mut batch = place.avfs(&["batch", "items.txt", "--mode", "fan-out", "--jobs", "8", "--json"]);
    run(batch.env("LD_PRELOAD", library).env("AVFS_SLOW_SYNC_US", "0").env("AVFS_SYNC_LOG", &log));
    Row {
        what: "syncs of a batch, 8 jobs".to_owned(),
        ours: std::fs::metadata(&log).unwrap().len() as f64,
        unit: "syncs",
        peer: "items".to_owned(),
        theirs: ITEMS as f64,
        goal: Goal::AtMost(0.25),
    }
}
