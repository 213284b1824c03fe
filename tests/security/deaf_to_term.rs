//! Tried: outliving the timeout: many processes, each ignoring every signal that can be ignored.
//! Stopped by: after the grace period everything inside is killed with init.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::env::{Running, TestEnv, wait_for};
use crate::shared::{Shared, alive, marker};
use crate::support::pause::Pauses;

const DEAF: &str = "
import os, signal, sys
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
";
const PROCESSES: usize = 16;
/// Becomes [`PROCESSES`] processes. Each leaves a file in the shared directory and never exits.
const MULTIPLY: &str = "
for _ in range(4):
    if os.fork() == 0: os.setsid()
open(f'{sys.argv[1]}/{os.getpid()}', 'w').close()
while True: signal.pause()";

#[test]
fn processes_that_ignore_signals_are_killed_after_the_grace_period() {
    let env = TestEnv::with_project();
    // Control: a process that ignores SIGTERM still answers after receiving it.
    let answering = format!("{DEAF}print('ready', flush=True); sys.stdin.read(); print('alive')");
    let mut control = env.clean(Path::new("python3"));
    control.args(["-c", &answering]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut control = control.spawn().unwrap();
    let mut said = BufReader::new(control.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    kill_process(Pid::from_child(&control), Signal::TERM).unwrap();
    drop(control.stdin.take());
    assert_eq!(said.next().unwrap().unwrap(), "alive");
    control.wait().unwrap();

    let (marker, shared, pauses) = (marker(&env), Shared::new(&env), Pauses::new(&env.at("")));
    let program = format!("{DEAF}{MULTIPLY}");
    let mut command = env.command(&["--json", "--rw", shared.text(), "--timeout", "1ms", "--grace", "1ms"]);
    command.args(["--", "python3", "-c", &program, shared.text(), &marker]);
    pauses.hold("timed-out");
    let mut running = Running::start(pauses.set(&mut command));
    pauses.wait("timed-out", &mut running.child);
    // Do not send a signal before every process ignores it.
    wait_for("all processes", || std::fs::read_dir(shared.text()).unwrap().count() == PROCESSES);
    pauses.release("timed-out");
    let envelope = running.answer().expect(124).envelope();
    assert_eq!((&envelope["result"]["timed_out"], &envelope["result"]["signal"]), (&json!(true), &json!(9)));
    assert!(pauses.reached().iter().any(|point| point == "grace-over"));
    assert_eq!(alive(&marker), [""; 0]);
}
