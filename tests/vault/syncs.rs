//! Disk syncs of a commit, as the kernel sees them: exactly one, and never an acknowledgement before it.

use std::process::Command;

use crate::support::Scratch;
use crate::{support, worker};

#[test]
fn acknowledged_commit_has_synced_exactly_once() {
    assert_synced_once("write");
}

#[test]
fn landed_run_has_synced_exactly_once() {
    assert_synced_once("land");
}

#[track_caller]
fn assert_synced_once(role: &str) {
    let scratch = Scratch::new();
    let (path, trace) = (scratch.join("v.db"), scratch.join("trace"));
    drop(support::create_real_vault(&path));
    let mut traced = Command::new("strace");
    traced.arg("-f").args(["-e", "trace=fsync,fdatasync,write", "-s", "16", "-o"]).arg(&trace);
    traced.arg(std::env::current_exe().unwrap());
    let vault = path.to_str().unwrap();
    let settings = [("VAULT", vault), ("ROUNDS", "24"), ("NAME", "one"), ("FORK", "main")];
    let mut worker = worker::Worker::start_as(traced, role, &settings);
    worker.wait_ready();
    worker.go();
    let acknowledged = worker.finish().acks().len();
    let mut syncs = Vec::new();
    let mut since = 0;
    let trace = std::fs::read_to_string(&trace).unwrap();
    let began = trace.find("\\nready").unwrap();
    for line in trace[began..].lines() {
        if line.contains("fsync(") || line.contains("fdatasync(") {
            since += 1;
        } else if line.contains("\\nack ") {
            syncs.push(since);
            since = 0;
        }
    }
    assert_eq!(acknowledged, 24);
    // Too few commits for a checkpoint of the log, which needs more syncs.
    assert!(syncs[0] >= 1, "the first commit, which creates the log, was acknowledged before it was synced");
    assert_eq!(syncs[1..], [1; 23]);
}
