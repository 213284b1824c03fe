//! One file of 1 GiB: time, memory, and the size of the WAL.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use avfs_types::ids::ForkName;
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::meter::Meter;

use crate::generate::{Numbers, noise};
use crate::{Bench, Goal, Row, median, new_vault, peers, plain, quiet, thrice, timed};

const BYTES: usize = 1 << 30;

/// Half text-like, half noise, as large files in workspaces tend to be.
fn content(compressible: bool) -> Vec<u8> {
    let mut numbers = Numbers::new(11);
    let block = noise(3, 4 << 20);
    let mut bytes = Vec::with_capacity(BYTES);
    while bytes.len() < BYTES {
        if compressible && bytes.len() / (1 << 20) % 2 == 0 {
            for _ in 0..(1 << 20) / 16 {
                bytes.extend_from_slice(format!("{:015} ", numbers.below(1 << 30)).as_bytes());
            }
        } else {
            let at = numbers.below(block.len() - (1 << 10));
            bytes.extend_from_slice(&noise(numbers.next(), 1 << 20));
            bytes.extend_from_slice(&block[at..at + 512]);
        }
    }
    bytes.truncate(BYTES);
    bytes
}

pub fn large(bench: &Bench) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, compressible) in [("mixed", true), ("incompressible", false)] {
        let home = bench.fresh("large");
        let tree = home.join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("large.bin"), content(compressible)).unwrap();
        quiet();
        let copies: Vec<(f64, f64)> = (0..3)
            .map(|n| {
                quiet();
                let copy = home.join(format!("copy-{n}"));
                let time = peers::run(Command::new("cp").arg(tree.join("large.bin")).arg(&copy));
                (time, time + peers::run(Command::new("sync").arg("-d").arg(&copy)))
            })
            .collect();
        let copy = median(copies.iter().map(|(copy, _)| *copy).collect());
        let durable = median(copies.iter().map(|(_, durable)| *durable).collect());
        let path = home.join("vault.db");
        let vault = new_vault(&path);
        quiet();
        let (done, log_max) = (AtomicBool::new(false), AtomicU64::new(0));
        let time = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let log = std::fs::metadata(avfs_vault::backend::sqlite::sibling(&path, "-wal"));
                    log_max.fetch_max(log.map_or(0, |log| log.len()), Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            let meter = Meter::default();
            let how =
                ImportOptions { on_trouble: OnTrouble::Fail, stat_cache: None, exclude: &[], meter: &meter };
            let time = timed(|| vault.import(&tree, &ForkName::main(), "large", &how).unwrap()).0;
            done.store(true, Ordering::Relaxed);
            time
        });
        let row = |what: &str, ours, unit, peer: &str, theirs, goal| Row {
            what: format!("{what}, {name}"),
            ours,
            unit,
            peer: peer.to_owned(),
            theirs,
            goal,
        };
        rows.push(row("import of 1 GiB", time, "s", "cp", copy, Goal::AtMost(3.0)));
        // An import is durable when it returns; a copy is not.
        rows.push(row("import of 1 GiB", time, "s", "cp && sync", durable, Goal::AtMost(3.0)));
        let in_rows = thrice(|| plain::large_file(&bench.fresh("plain"), &tree.join("large.bin"))) / 1e3;
        rows.push(row("import of 1 GiB", time, "s", "plain rows of SQLite", in_rows, Goal::AtMost(1.5)));
        let log = log_max.load(Ordering::Relaxed) as f64 / 1e6;
        rows.push(row("longest log during the import", log, "MB", "", 0.0, Goal::Below(80.0)));
    }
    rows
}
