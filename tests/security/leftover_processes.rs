//! Tried: going on after the command has ended: in the background, as a daemon, stopped, as a tree that forks on.
//! Stopped by: everybody dies with the first process of the pid namespace, before the capture.

use std::path::Path;

use crate::env::{Running, TestEnv, wait_for};
use crate::shared::{alive, marker};

#[test]
fn whoever_outlives_the_command_dies_with_it() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    // Control: outside a daemon goes on, until it has slept. It has a word of its own, so that nobody takes it for
    // one of those that are looked for below.
    let other = marker.replace("marker", "control");
    let mut control = env.clean(Path::new("sh"));
    control
        .args(["-c", &format!("setsid sh -c 'sleep 5; : {other}' </dev/null >/dev/null 2>&1 & echo done")]);
    assert_eq!(Running::start(&mut control).answer().text(), "done\n");
    wait_for("the daemon of the control", || !alive(&other).is_empty());
    for line in [
        // In the background, with the command's output open.
        "sleep 1000 & echo done",
        // A daemon: a session of its own, nothing open.
        "setsid sh -c 'trap \"\" HUP TERM INT; sleep 1000' </dev/null >/dev/null 2>&1 & echo done",
        // Twice removed.
        "(setsid sh -c '(sleep 1000 &) & wait' &) ; echo done",
        // Stopped, so that it cannot even die by itself.
        "sleep 1000 & kill -STOP $!; echo done",
    ] {
        let answer = env.shell(&[], &format!(": {marker}; {line}")).expect(0);
        assert_eq!(answer.text(), "done\n");
        assert_eq!(alive(&marker), [""; 0]);
    }
}

#[test]
fn a_tree_of_processes_is_felled() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    // Bounded: two children each, eight deep; none of them ends by itself, and the first one fails.
    let line = r#"
import os, signal, sys, time
for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(signal_number, signal.SIG_IGN)
depth = 0
while depth < 8:
    depth += 1
    if os.fork() and os.fork():
        break
if os.getpid() == os.getsid(0): os._exit(9)
while True: time.sleep(1000)
"#;
    let answer = env.run(&["--", "python3", "-c", line, &marker]).expect(9);
    assert_eq!(alive(&marker), [""; 0], "{answer:?}");
}
