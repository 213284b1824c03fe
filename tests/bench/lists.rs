//! Lists: `avfs batch` and `avfs replay` compared with the same commands run one by one.

use std::process::Command;

use crate::peers::run;
use crate::runs::Place;
use crate::{Bench, Goal, Row, program};

const ITEMS: usize = 500;
/// Items of a list that measures only memory.
const MANY: usize = 100_000;

pub fn lists(bench: &Bench) -> Vec<Row> {
    let place = Place::new(bench, "lists", 1_000);
    place.run_true(&["--fork", "bench"]);
    let mut rows = scheduler(&place);
    rows.push(cached(&place));
    rows.push(memory(&place));
    rows
}

fn row(what: &str, ours: f64, peer: &str, theirs: f64, goal: Goal) -> Row {
    Row { what: what.to_owned(), ours, unit: "s", peer: peer.to_owned(), theirs, goal }
}

/// The peer has no scheduler: as many processes as jobs, each with its share of the list.
fn scheduler(place: &Place) -> Vec<Row> {
    let list = place.work.join("true.txt");
    std::fs::write(&list, "true\n".repeat(ITEMS)).unwrap();
    let loop_of = |count: usize| {
        let program = program("avfs-run");
        let program = program.display();
        format!(
            "i=0; while [ $i -lt {count} ]; do {program} -q --from main -- true || exit 1; i=$((i+1)); done"
        )
    };
    let shell = |line: String| {
        let mut command = Command::new("sh");
        command.args(["-c", &line]).current_dir(&place.work);
        place.around(&mut command);
        run(&mut command)
    };
    let batch = |jobs: &str| {
        run(place
            .avfs(&["batch", "true.txt", "--mode", "fan-out", "--from", "main", "--jobs", jobs])
            .arg("--json"))
    };
    // Alternating, so that other load on the machine affects both.
    let mut best = [f64::MAX; 4];
    for _ in 0..3 {
        let half = loop_of(ITEMS / 2);
        let figures =
            [batch("2"), shell(format!("({half}) & ({half}) & wait")), batch("1"), shell(loop_of(ITEMS))];
        for (best, figure) in best.iter_mut().zip(figures) {
            *best = best.min(figure);
        }
    }
    let [two, plain_two, one, plain_one] = best;
    vec![
        row(
            "batch of 500 × `true`, 2 jobs",
            two,
            "two loops of `avfs-run -- true`",
            plain_two,
            Goal::AtMost(1.3),
        ),
        row(
            "batch of 500 × `true`, 1 job",
            one,
            "a loop of `avfs-run -- true`",
            plain_one,
            Goal::AtMost(1.3),
        ),
    ]
}

/// A fully cached replay, compared with one that executes everything.
fn cached(place: &Place) -> Row {
    let items: String = (0..ITEMS).map(|n| format!("echo {n} > made\n")).collect();
    std::fs::write(place.work.join("made.txt"), items).unwrap();
    run(place.avfs(&["batch", "made.txt", "--fork", "made", "--cache", "write"]).arg("--json"));
    let replay = |cache: &str| {
        run(place.avfs(&["replay", "made", "--jobs", "2", "--verify", "--cache", cache]).arg("--json"))
    };
    // Alternating, and the best of each, as above.
    let (mut running, mut remembered) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        running = running.min(replay("off"));
        remembered = remembered.min(replay("read")).min(replay("read"));
    }
    row("replay of 500 runs, executed", running, "fully cached", remembered, Goal::AtLeast(20.0))
}

/// The memory of the process that runs a long list: the batch ends with its first item.
fn memory(place: &Place) -> Row {
    let list = format!("false\n{}", "true\n".repeat(MANY - 1));
    std::fs::write(place.work.join("many.txt"), list).unwrap();
    let mut command =
        place.avfs(&["batch", "many.txt", "--mode", "fan-out", "--from", "main", "--jobs", "1"]);
    let child = command.arg("--json").stdout(std::process::Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let peak = peak_of(child, pid);
    Row {
        what: "batch of 100,000 items, memory".to_owned(),
        ours: peak,
        unit: "MB",
        peer: String::new(),
        theirs: 0.0,
        goal: Goal::Below(150.0),
    }
}

/// The peak memory of a process, in megabytes.
fn peak_of(mut child: std::process::Child, pid: rustix::process::Pid) -> f64 {
    let status = format!("/proc/{}/status", pid.as_raw_nonzero());
    let mut peak = 0.0_f64;
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib =
            line.and_then(|rest| rest.split_whitespace().next()).and_then(|text| text.parse::<f64>().ok());
        peak = peak.max(kib.unwrap_or(0.0) / 1e3);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    peak
}
