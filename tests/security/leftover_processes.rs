//! Tried: continuing after the command has ended: in the background, as a daemon, stopped, as a forking tree.
//! Stopped by: all processes die with init of the pid namespace, before the capture.

use std::path::Path;
use std::process::Stdio;

use crate::env::{Running, TestEnv, wait_for};
use crate::shared::{Shared, alive, marker};

#[test]
fn processes_do_not_outlive_the_command() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    // Control: outside, a daemon outlives the command until its input ends. Its marker differs from the one below.
    let other = marker.replace("marker", "control");
    let daemon = format!("exec 3<&0; setsid sh -c 'read line; : {other}' <&3 >/dev/null 2>&1 & echo done");
    let mut control = env.clean(Path::new("sh"));
    let mut control = Running::start(control.args(["-c", &daemon]).stdin(Stdio::piped()));
    let input = control.child.stdin.take();
    assert_eq!(control.answer().text(), "done\n");
    wait_for("the daemon of the control", || !alive(&other).is_empty());
    drop(input);
    let shared = Shared::new(&env);
    let (stay, word) = ("STAY=: > $S/there; while :; do sleep 1000; done", &marker);
    for (start, then) in [
        // In the background, with the command's output open.
        (format!("sh -c \"$STAY\" {word} &"), ""),
        // A daemon: another session, no open streams.
        (format!("setsid sh -c \"trap '' HUP TERM INT; $STAY\" {word} </dev/null >/dev/null 2>&1 &"), ""),
        // A grandchild in another session.
        (format!("(setsid sh -c '(sh -c \"$STAY\" {word} &) & wait' &)"), ""),
        // Stopped, so that it cannot even exit on its own.
        (format!("sh -c \"$STAY\" {word} &"), "kill -STOP $!"),
    ] {
        let line = format!("{start}\nuntil rm $S/there; do sleep 0.01; done 2>/dev/null\n{then}\necho done");
        let answer = shared.start(&env, &["--env", stay], &line).answer().expect(0);
        assert_eq!(answer.text(), "done\n");
        assert_eq!(alive(&marker), [""; 0]);
    }
}

#[test]
fn process_tree_is_killed() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    // Bounded: two children each, eight levels deep. No process exits on its own; the first one fails as soon as the
    // sixteen of the fourth level exist.
    let line = r#"
import os, signal
for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(signal_number, signal.SIG_IGN)
heard, say = os.pipe()
depth = 0
while depth < 8:
    if depth == 4: os.write(say, b'x')
    depth += 1
    if os.fork() and os.fork():
        break
if os.getpid() == os.getpgrp():
    for _ in range(16): os.read(heard, 1)
    os._exit(9)
while True: signal.pause()
"#;
    let answer = env.run(&["--", "python3", "-c", line, &marker]).expect(9);
    assert_eq!(alive(&marker), [""; 0], "{answer:?}");
}
