//! Commands that misbehave: they do not end, ignore signals, flood or close their streams, or leave processes behind.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use avfs_hostfs::lock::{FileLock, Mode};
use avfs_vault::backend::sqlite::sibling;

use crate::env::{TestEnv, wait_for};
use crate::shared::{Shared, alive, marker, points, start_held};

/// Waits for signals without missing one, which a shell cannot guarantee.
const LISTENER: &str = r#"
import os, signal, sys
all = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
signal.pthread_sigmask(signal.SIG_BLOCK, all)
shared, name = sys.argv[1:3]
child = os.fork()
if child: open(f'{shared}/ready-{name}', 'w').close()
got = signal.sigwait(all)
if child: os.waitpid(child, 0)
os.write(1, f"{'command' if child else 'child'} got {got.name}\n".encode())
if len(sys.argv) > 4 and child:
    open(f'{shared}/got-{name}', 'w').close()
    while True: signal.sigwait(all)
sys.exit(7)
"#;

#[test]
fn signals_are_forwarded_to_the_command_and_its_process_group() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    for (signal, name) in [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::TERM, "SIGTERM"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
    ] {
        let words = ["--json", "--rw", shared.text(), "--", "python3", "-c", LISTENER, shared.text(), name];
        let running = shared.wait_for_word(env.start(&words), &format!("ready-{name}"));
        running.signal(signal);
        let answer = running.answer().expect(7);
        let expected = format!("child got {name}\ncommand got {name}\n");
        assert_eq!(answer.envelope()["result"]["stdout"], json!(expected));
    }
}

/// A run that waited for another writer has a second thread, which must not receive signals.
#[test]
fn signals_reach_the_command_after_a_wait_for_the_vault() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let path = sibling(&env.vault_file(), "-lock");
    let turn = FileLock::acquire(&path, Mode::Exclusive, Duration::ZERO).unwrap();
    let line = "trap 'exit 7' USR1; : > $S/ready; while :; do sleep 0.02; done";
    let (running, pauses) = start_held(&env, &mut shared.command(&env, &["--fork", "f"], line), "lock-wait");
    drop(turn);
    pauses.release("lock-wait");
    let running = shared.wait_for_word(running, "ready");
    running.signal(Signal::USR1);
    running.answer().expect(7);
}

#[test]
fn a_command_killed_by_a_signal_is_reported_and_its_changes_are_kept() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let running = shared.start(&env, &["--json"], "echo begun > begun; : > $S/ready; exec sleep 1000");
    let running = shared.wait_for_word(running, "ready");
    running.signal(Signal::TERM);
    let envelope = running.answer().expect(143).envelope();
    assert_eq!((&envelope["result"]["signal"], &envelope["success"]), (&json!(15), &json!(false)));
    assert_eq!(envelope["result"]["changes"][0]["path"], json!("begun"));
}

#[test]
fn a_second_termination_signal_kills_the_command() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    let shared = Shared::new(&env);
    for (first, second) in
        [(Signal::INT, Signal::INT), (Signal::INT, Signal::TERM), (Signal::TERM, Signal::TERM)]
    {
        let name = format!("{}-{}", first.as_raw(), second.as_raw());
        let (dir, listener) = (shared.text(), LISTENER);
        let running =
            env.start(&["--rw", dir, "--", "python3", "-c", listener, dir, &name, &marker, "goes on"]);
        let running = shared.wait_for_word(running, &format!("ready-{name}"));
        running.signal(first);
        shared.wait_for(&format!("got-{name}"));
        running.signal(second);
        running.answer().expect(137);
        assert_eq!(alive(&marker), [""; 0]);
    }
}

/// Printing the changes may take long, and they are stored by then.
#[test]
fn signals_end_a_run_whose_changes_are_stored() {
    let env = TestEnv::with_project();
    let words = ["--scratch", "memory", "--show", "patch", "--shell", "echo new > new"];
    let (running, _pauses) = start_held(&env, &mut env.command(&words), "changes");
    running.signal(Signal::INT);
    running.signal(Signal::TERM);
    let answer = running.answer();
    assert!(answer.code.is_some_and(|code| [130, 143].contains(&code)), "{answer:?}");
    let listed = env.avfs_result(&["runs", "list"]);
    assert_eq!(listed["runs"][0]["state"], json!("completed"), "{listed}");
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}

/// Changes in memory exist nowhere else: until they are stored, only SIGKILL ends the run. With a scratch on disk a
/// second termination signal does.
#[test]
fn signals_do_not_interrupt_a_capture() {
    let (others, requests) = ([Signal::USR1, Signal::USR2], [Signal::HUP, Signal::QUIT]);
    for (scratch, signals, codes) in [
        ("memory", others.to_vec(), [0, 0]),
        // Once everything is stored, two termination signals end the remaining work.
        ("memory", [others, requests].concat(), [129, 131]),
        ("disk", others.to_vec(), [0, 0]),
    ] {
        let env = TestEnv::with_project();
        let words = ["--json", "--scratch", scratch, "--shell", "for n in 1 2 3 4; do echo $n > r$n; done"];
        let (mut running, pauses) = start_held(&env, &mut env.command(&words), "session-Released");
        let mut at = "session-Released";
        for next in ["capturing", "work", "commit", "committed"] {
            signals.iter().for_each(|signal| running.signal(*signal));
            pauses.hold(next).release(at);
            pauses.wait(next, &mut running.child);
            at = next;
        }
        pauses.release(at);
        let answer = running.answer();
        assert!(answer.code.is_some_and(|code| codes.contains(&code)), "{scratch}: {answer:?}");
        let listed = env.avfs_result(&["runs", "list"]);
        assert_eq!(listed["runs"][0]["state"], json!("completed"), "{scratch}: {listed}");
        let id = format!("run:{}", listed["runs"][0]["id"].as_str().unwrap());
        let diff = env.avfs_result(&["diff", &id]);
        assert_eq!(diff["changes"].as_array().unwrap().len(), 4, "{scratch}: {diff}");
        env.assert_sound();
    }
}

/// Waits for SIGTERM without missing it, reports it, and then exits or waits forever.
const ON_TERM: &str = r#"
import os, signal, sys
shared, then = sys.argv[1:3]
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
open('begun', 'w').close()
open(f'{shared}/ready-{then}', 'w').close()
signal.sigwait({signal.SIGTERM})
open('bye', 'w').close()
open(f'{shared}/bye-{then}', 'w').close()
if then == 'ends': sys.exit(3)
while True: signal.pause()
"#;

#[test]
fn a_timeout_sends_sigterm_then_sigkill_and_keeps_the_changes() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let dir = shared.text();
    // The timeout takes effect when the command is ready for it.
    let start = |grace: &str, then: &str| {
        let options = ["--json", "--timeout", "1ms", "--grace", grace, "--rw", dir];
        let words = [&options[..], &["--", "python3", "-c", ON_TERM, dir, then]].concat();
        let (running, pauses) = start_held(&env, &mut env.command(&words), "timed-out");
        (shared.wait_for_word(running, &format!("ready-{then}")), pauses)
    };
    let (mut running, pauses) = start("1ms", "stays");
    pauses.hold("grace-over").release("timed-out");
    pauses.wait("grace-over", &mut running.child);
    let running = shared.wait_for_word(running, "bye-stays");
    pauses.release("grace-over");
    let envelope = running.answer().expect(124).envelope();
    let result = &envelope["result"];
    assert_eq!((&result["timed_out"], &result["signal"]), (&json!(true), &json!(9)), "{envelope}");
    assert_eq!((&envelope["success"], &result["landing"]), (&json!(false), &json!("advanced")));
    let (running, pauses) = start("1h", "ends");
    pauses.release("timed-out");
    let envelope = running.answer().expect(124).envelope();
    let result = &envelope["result"];
    assert_eq!((&result["timed_out"], &result["exit_code"]), (&json!(true), &json!(3)), "{envelope}");
    let paths: Vec<&Value> =
        result["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["begun", "bye"]);
    let printed = env.run(&["--timeout", "1ms", "--grace", "1ms", "--", "sleep", "infinity"]).expect(124);
    assert!(printed.stderr.contains("the command timed out"), "{printed:?}");
    env.shell(&["--timeout", "none"], "true").expect(0);
}

#[test]
fn both_streams_are_drained_concurrently() {
    let env = TestEnv::with_project();
    // A reader that drains one stream after the other waits forever.
    let line = "for n in 1 2 3 4; do head -c 1000000 /dev/zero >&2; head -c 1000000 /dev/zero; done";
    let envelope = env.json(&[], line);
    for stream in ["stdout", "stderr"] {
        assert_eq!(envelope["result"][stream].as_str().unwrap().len(), 4_000_000);
    }
}

#[test]
fn a_command_may_close_its_streams() {
    let env = TestEnv::with_project();
    let line = "echo before; exec <&- >&- 2>&-; echo x > after";
    let envelope = env.json(&[], line);
    assert_eq!(envelope["result"]["stdout"], json!("before\n"));
    assert_eq!(envelope["result"]["changes"][0]["path"], json!("after"));
}

#[test]
fn a_capture_waits_for_the_last_writer() {
    let env = TestEnv::with_project();
    let line = "for n in 1 2 3 4; do \
                setsid sh -c \"while :; do echo $n >> w-$n; mkdir -p m-$n; rmdir m-$n; done\" & done; \
                for n in 1 2 3 4; do while [ ! -s w-$n ]; do :; done; done; exit 0";
    for options in [&["--scratch", "memory"][..], &["--scratch", "disk"], &["--backend", "copy"]] {
        let envelope = env.json(options, line);
        assert_eq!((&envelope["success"], &envelope["error"]), (&json!(true), &Value::Null), "{envelope}");
    }
    env.assert_sound();
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let env = TestEnv::with_project();
    let line = r#"
import os, sys
for _ in range(100):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
def zombies():
    count = 0
    for name in os.listdir('/proc'):
        if name.isdigit():
            try: count += open(f'/proc/{name}/stat').read().rsplit(')', 1)[1].split()[0] == 'Z'
            except OSError: pass
    return count
while zombies(): pass
print('none left')
"#;
    assert_eq!(env.run(&["--", "python3", "-c", line]).expect(0).text(), "none left\n");
}

#[test]
fn resource_limits_and_umask_of_the_caller_apply_inside() {
    let env = TestEnv::with_project();
    let mut command = env.clean(std::path::Path::new("/bin/sh"));
    command.args([
        "-c",
        "ulimit -n 99; ulimit -f 1000; umask 027; exec \"$RUN\" --shell 'ulimit -n; umask; : > made'",
    ]);
    let answer = env.answer(command.env("RUN", crate::env::runner())).expect(0);
    assert_eq!(answer.text(), "99\n0027\n");
    let run = answer.stderr.split("run ").nth(1).unwrap()[..10].to_owned();
    let made = env.export(&format!("run:{run}"), "export").join("made");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(made).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn an_interrupt_before_the_command_starts_leaves_nothing_behind() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let marker = marker(&env);
    let command = |then: &str| shared.command(&env, &[], &format!(": {marker}; {then}"));
    // The first run passes other points: it surveys the directory.
    env.ok(&[], "true");
    let (answer, mut points) = points(&env, &mut command("true"));
    answer.expect(0);
    let place = |points: &[String], name: &str| points.iter().position(|point| point == name).unwrap();
    let (launching, executing) = (place(&points, "launching"), place(&points, "executing"));
    assert!(0 < launching && launching < executing, "{points:?}");
    points.truncate(executing + 1);
    for (number, point) in points.iter().enumerate() {
        let (running, pauses) = start_held(&env, &mut command("exec sleep infinity"), point);
        running.signal(Signal::TERM);
        pauses.release(point);
        let answer = running.answer();
        // avfs-run does not block signals yet, or cancels the launch, or forwards the signal to the command.
        let expected = match (answer.code, answer.signal) {
            (None, Some(15)) => number < launching,
            (Some(130), None) => (launching..executing).contains(&number),
            (Some(143), None) => number >= launching,
            _ => false,
        };
        assert!(expected, "{point}: {answer:?}");
        wait_for("all processes are dead", || alive(&marker).is_empty());
    }
    env.ok(&[], "true");
    assert_eq!(env.scratches(), [""; 0]);
    env.assert_sound();
}
