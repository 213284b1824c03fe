//! Tried: outliving the time limit: every process ignores what it can ignore, and new ones are made meanwhile.
//! Stopped by: after the grace everything inside is killed with the first process.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::env::{Running, TestEnv};
use crate::shared::{alive, marker};

/// Sixteen at a time at most.
const DEAF: &str = "
import os, signal, sys, time
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
for _ in range(4):
    if os.fork() == 0: os.setsid()
while True: time.sleep(1000)";

#[test]
fn who_does_not_listen_is_killed_in_time() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    // Control: it does not listen.
    let mut control = env.clean(std::path::Path::new("timeout"));
    control.args([
        "-k",
        "2",
        "1",
        "python3",
        "-c",
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(1000)",
    ]);
    // It kills itself with the one it was to end.
    assert_eq!(Running::start(&mut control).answer().signal, Some(9));
    let begun = Instant::now();
    let words = ["--json", "--timeout", "1s", "--grace", "300ms", "--", "python3", "-c", DEAF, &marker];
    let envelope = env.run(&words).expect(124).envelope();
    assert!(begun.elapsed() < Duration::from_secs(60), "{envelope}");
    assert_eq!((&envelope["result"]["timed_out"], &envelope["result"]["signal"]), (&json!(true), &json!(9)));
    assert_eq!(alive(&marker), [""; 0]);
}
