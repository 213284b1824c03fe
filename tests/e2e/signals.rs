//! Signals and other attributes of a process that the command inherits from the caller.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::env::{Answer, Running, TestEnv, runner, wait_for};
use crate::shared::Shared;

/// Executes a program that ignores exactly these signals.
const IGNORING: &str = r#"
import os, signal, sys
ignored, words = sys.argv[1].split(), sys.argv[2:]
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    name = number.name[3:] if isinstance(number, signal.Signals) else str(number)
    try: signal.signal(number, signal.SIG_IGN if name in ignored else signal.SIG_DFL)
    except OSError: pass
os.execvp(words[0], words)
"#;

fn ignoring(env: &TestEnv, ignored: &str) -> Command {
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", IGNORING, ignored]);
    command
}

#[test]
fn the_command_ignores_the_same_signals_as_the_caller() {
    let env = TestEnv::with_project();
    for ignored in ["", "HUP", "INT QUIT", "PIPE XFSZ", "CHLD", "TERM USR1 USR2 TSTP CONT WINCH", "ALRM 40"] {
        let seen = |before: &[&Path]| {
            let mut command = ignoring(&env, ignored);
            command.args(before).args(["grep", "SigIgn", "/proc/self/status"]);
            env.answer(&mut command).expect(0).text()
        };
        assert_eq!(seen(&[&runner(), Path::new("-q"), Path::new("--")]), seen(&[]), "{ignored}");
    }
}

#[test]
fn the_command_blocks_the_same_signals_as_the_caller() {
    let env = TestEnv::with_project();
    let program = "import os, signal, sys
signal.pthread_sigmask(signal.SIG_SETMASK, [int(word) for word in sys.argv[1].split()])
os.execvp(sys.argv[2], sys.argv[2:])";
    for blocked in ["", "1 10 17", "2 15 40 64"] {
        let seen = |before: &[&Path]| {
            let mut command = env.clean(Path::new("python3"));
            command.args(["-c", program, blocked]).args(before).args(["grep", "SigBlk", "/proc/self/status"]);
            env.answer(&mut command).expect(0).text()
        };
        assert_eq!(seen(&[&runner(), Path::new("-q"), Path::new("--")]), seen(&[]), "{blocked}");
    }
}

#[test]
fn signals_ignored_by_the_caller_do_not_end_the_run() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let mut command = ignoring(&env, "HUP INT QUIT TERM");
    let line = "touch $S/ready; until test -e $S/go; do sleep 0.01; done; echo done";
    command.arg(runner()).args(shared.command(&env, &["-q"], line).get_args());
    let running = shared.wait_for_word(Running::start(&mut command), "ready");
    for signal in [Signal::HUP, Signal::INT, Signal::INT, Signal::TERM, Signal::TERM, Signal::QUIT] {
        running.signal(signal);
    }
    // All of them are pending or read by now; none is left once the pending set is empty.
    let pid = running.child.id();
    wait_for("all signals are read", || pending(pid) == 0);
    shared.put("go");
    assert_eq!(running.answer().expect(0).text(), "done\n");
}

/// The pending signals of a process, as a mask.
fn pending(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap_or("0");
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// A handler of the command is called even if the caller ignores the signal.
#[test]
fn a_handler_receives_a_signal_that_the_caller_ignores() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let mut command = ignoring(&env, "HUP");
    let program = r#"
import os, signal
signal.signal(signal.SIGHUP, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
open(os.environ['S'] + '/ready', 'w')
print(signal.sigwait({signal.SIGHUP}).name)
"#;
    let line = format!("exec python3 -c \"{program}\"");
    command.arg(runner()).args(shared.command(&env, &["-q"], &line).get_args());
    let running = shared.wait_for_word(Running::start(&mut command), "ready");
    running.signal(Signal::HUP);
    assert_eq!(running.answer().expect(0).text(), "SIGHUP\n");
}

#[test]
fn a_caller_that_ignores_sigchld_gets_the_result() {
    let env = TestEnv::with_project();
    let run = |words: &[&str]| -> Answer {
        env.answer(ignoring(&env, "CHLD").arg(runner()).args(["--timeout", "none"]).args(words))
    };
    run(&["-q", "--", "sh", "-c", "exit 7"]).expect(7);
    let envelope = run(&["--json", "--", "sh", "-c", "kill -9 $$"]).expect(137).envelope();
    assert_eq!(envelope["result"]["signal"], json!(9));
    // A command whose children are reaped by the kernel.
    assert_eq!(run(&["-q", "--", "sh", "-c", "sleep 0 & echo out"]).expect(0).text(), "out\n");
    run(&["-q", "--", "no-such-command"]).expect(127);
}

/// Also without a terminal: everything inside stops, and so does avfs-run, until it is continued.
#[test]
fn a_run_is_stopped_and_continued_as_a_whole() {
    use std::os::unix::process::CommandExt;
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    // The program starts no processes: a process that waits for vfork(2) cannot be stopped.
    let program = r#"
import os, time
open(os.environ['S'] + '/ready', 'w')
while not os.path.exists(os.environ['S'] + '/go'): time.sleep(0.01)
print('done')
"#;
    let line = format!("exec python3 -c \"{program}\"");
    let mut command = shared.command(&env, &["-q"], &line);
    let running = shared.wait_for_word(Running::start(command.process_group(0)), "ready");
    running.signal(Signal::TSTP);
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().unwrap_or_default().chars().next()
    };
    let pid = running.child.id();
    wait_for("avfs-run has stopped", || state(pid) == Some('T'));
    let inside = crate::shared::children(crate::shared::children(pid)[0]);
    wait_for("the command has stopped", || inside.iter().all(|pid| state(*pid) == Some('T')));
    shared.put("go");
    running.signal(Signal::CONT);
    assert_eq!(running.answer().expect(0).text(), "done\n");
}

/// The timeout continues while a command is stopped.
#[test]
fn a_command_that_stops_itself_times_out() {
    let env = TestEnv::with_project();
    env.run(&["-q", "--timeout", "100ms", "--grace", "0s", "--", "sh", "-c", "kill -STOP $$"]).expect(124);
}

/// Inherited attributes of a process are the same inside.
#[test]
fn priority_affinity_and_umask_are_inherited() {
    let env = TestEnv::with_project();
    let caller =
        "umask 027; echo 500 > /proc/self/oom_score_adj; exec nice -n 5 ionice -c 2 -n 6 taskset -c 0 \"$@\"";
    let script =
        "nice; ionice; taskset -p $$ | sed 's/.*: //'; cat /proc/self/oom_score_adj; umask; ulimit -n";
    let seen = |before: &[&Path]| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", caller, "sh"]).args(before).args(["sh", "-c", script]);
        env.answer(&mut command).expect(0).text()
    };
    let inside = seen(&[&runner(), Path::new("-q"), Path::new("--")]);
    assert_eq!(inside, seen(&[]));
    assert!(inside.starts_with("5\nbest-effort: prio 6\n1\n500\n0027\n"), "{inside}");
}
