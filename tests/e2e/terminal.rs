//! If the caller has a terminal, the command gets a separate terminal inside the sandbox.

use std::path::Path;

use serde_json::json;

use crate::env::{Running, TestEnv, runner};
use crate::person::{PERSON, person, person_command};
use crate::shared::Shared;
use crate::support::pause::Pauses;

#[test]
fn the_command_has_its_own_terminal() {
    let env = TestEnv::with_project();
    let line = "test -t 0 && test -t 1 && test -t 2 && echo all three; tty; ls $(tty); echo ctty > /dev/tty; stty size";
    let answer = person(&env, "", &["-q", "--shell", line]);
    let text = answer.text().replace('\r', "");
    assert!(text.contains("all three\n/dev/pts/0\n/dev/pts/0\nctty\n40 100\n"), "{text}");
    assert!(text.ends_with("modes as before, code 0\n"), "{text}");
}

#[test]
fn a_terminal_has_its_size_before_the_command_starts() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("streams");
    // A link instead of a rename, because a rename notifies the supervisor, which is held.
    let line = format!("stty size > {0}/part; ln {0}/part {0}/size", shared.text());
    let words = ["-q", "--rw", shared.text(), "--shell", &line];
    let running = Running::start(pauses.set(&mut person_command(&env, "", &words)));
    // avfs-run has not yet touched the terminal that the command uses.
    let mut running = shared.wait_for_word(running, "size");
    // It may reach the point after the command has written the size, but cannot pass it.
    pauses.wait("streams", &mut running.child);
    assert_eq!(std::fs::read_to_string(env.at("shared/size")).unwrap(), "40 100\n");
    pauses.release("streams");
    assert!(running.answer().expect(0).text().ends_with("modes as before, code 0\n"));
}

#[test]
fn a_terminal_is_provided_only_if_the_caller_has_one() {
    let env = TestEnv::with_project();
    assert_eq!(env.shell(&[], "tty").expect(1).text(), "not a tty\n");
    // Output to a file, input from a person.
    let mut command = env.clean(Path::new("python3"));
    let line = format!(
        "exec {} -q --shell 'test -t 0 && echo in; test -t 1 || echo not out' > \"$OUT\"",
        runner().display()
    );
    command.args([
        "-c",
        PERSON.replace("os.execv(words[0], words)", "os.execvp('sh', ['sh', '-c', words[0]])").as_str(),
        "",
        &line,
    ]);
    env.answer(command.env("OUT", env.at("out"))).expect(0);
    assert_eq!(std::fs::read_to_string(env.at("out")).unwrap(), "in\nnot out\n");
    // Captured output is not a terminal.
    let answer = person(&env, "", &["--json", "--shell", "test -t 0 || test -t 1 || echo none"]);
    assert!(answer.text().contains(r#""stdout":"none\n""#), "{answer:?}");
}

#[test]
fn typed_input_reaches_the_command() {
    let env = TestEnv::with_project();
    let script = "wait_for(b'ready'); send(b'typed\\n'); wait_for(b'got typed'); send(b'\\x04')";
    let answer =
        person(&env, script, &["-q", "--shell", "echo ready; read word; echo got $word; cat; echo end"]);
    assert!(answer.text().contains("end"), "{answer:?}");
    assert!(answer.text().ends_with("modes as before, code 0\n"), "{answer:?}");
}

#[test]
fn an_interrupt_from_the_keyboard_reaches_the_foreground_process() {
    let env = TestEnv::with_project();
    let script = "wait_for(b'ready'); send(b'\\x03')";
    let program = r#"
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print('ready', flush=True)
signal.sigwait({signal.SIGINT})
print('interrupted')
"#;
    let answer = person(&env, script, &["-q", "--", "python3", "-c", program]);
    assert!(answer.text().contains("interrupted"), "{answer:?}");
    // A process without a handler is killed, the terminal is restored, and the run ends by the same signal.
    let answer = person(&env, script, &["-q", "--shell", "echo ready; exec sleep infinity"]);
    assert!(answer.text().ends_with("modes as before, code -2\n"), "{answer:?}");
    // As outside, a command that handles the signal decides how it ends.
    for code in [7, 130] {
        let handled = format!("trap 'exit {code}' INT; echo ready; while :; do sleep 1; done");
        let answer = person(&env, script, &["-q", "--", "bash", "-c", &handled]);
        assert!(answer.text().ends_with(&format!("modes as before, code {code}\n")), "{answer:?}");
    }
}

/// ^C ends a loop of a script around the run, as it does around any command that dies of it.
#[test]
fn an_interrupt_from_the_keyboard_ends_the_loop_around_the_run() {
    let env = TestEnv::with_project();
    let line = "echo x >> made; echo ready >&2; exec sleep infinity";
    // The command gets the key as input, or, if stdout is no terminal, the process group gets the signal.
    for stdout in ["", " > /dev/null"] {
        let run = format!("'{}' -q --shell '{line}'{stdout}", runner().display());
        let script = format!("for n in 1 2 3; do {run}; done; echo after");
        let person = "wait_for(b'ready'); send(b'\\x03')";
        let mut command = env.clean(Path::new("python3"));
        command.args(["-c", PERSON, person, "/bin/bash", "-c", &script]).env("TERM", "xterm");
        let text = env.answer(&mut command).expect(0).text();
        assert_eq!((text.matches("ready").count(), text.contains("after")), (1, false), "{text}");
        assert!(text.ends_with("modes as before, code -2\n"), "{text}");
        // The run is recorded, with its change.
        let last = env.avfs_result(&["runs", "show", "last"]);
        assert_eq!((&last["signal"], &last["state"]), (&json!(2), &json!("completed")), "{last}");
        assert_eq!(env.avfs(&["diff", "last", "--patch"]).expect(0).text().matches("+x").count(), 1);
    }
}

#[test]
fn a_resize_reaches_the_command() {
    let env = TestEnv::with_project();
    let program = r#"
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
print('ready', flush=True)
while os.get_terminal_size() != (77, 33): signal.sigwait({signal.SIGWINCH})
print('resized', flush=True)
"#;
    let script = "wait_for(b'ready'); resize(33, 77); wait_for(b'resized')";
    let answer = person(&env, script, &["-q", "--", "python3", "-c", program]);
    assert!(answer.text().ends_with("code 0\n"), "{answer:?}");
}

#[test]
fn a_resize_is_a_single_signal() {
    let env = TestEnv::with_project();
    let program = r#"
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH, signal.SIGUSR1})
print('ready', flush=True)
for count in range(1, 4):
    signal.sigwait({signal.SIGWINCH})
    print('size', count, os.get_terminal_size().lines, flush=True)
# This signal is last in the queue: if it is the only pending one, no other was sent.
os.kill(os.getpid(), signal.SIGUSR1)
print('then', sorted(signal.sigpending()), flush=True)
"#;
    let script =
        "wait_for(b'ready')\nfor n in (1, 2, 3): resize(30 + n, 77); wait_for(b'size %d %d' % (n, 30 + n))";
    let answer = person(&env, script, &["-q", "--", "python3", "-c", program]);
    assert!(answer.text().contains("then [<Signals.SIGUSR1: 10>]"), "{answer:?}");
}

/// A shell with job control that starts one job, and continues it in the foreground each time it has stopped and a
/// line was typed.
const JOB_CONTROL: &str = r#"
import os, signal, sys, termios
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
before = termios.tcgetattr(0)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    if not os.WIFSTOPPED(status): sys.exit(os.waitstatus_to_exitcode(status))
    os.tcsetpgrp(0, os.getpgrp())
    print('shell: stopped, modes', 'as before' if termios.tcgetattr(0) == before else 'changed', flush=True)
    input()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
"#;

#[track_caller]
fn with_job_control(env: &TestEnv, script: &str, words: &[&str]) -> String {
    let shell = "os.execvp('python3', ['python3', '-c', os.environ['JOB_CONTROL']] + words)";
    let mut command = env.clean(Path::new("python3"));
    command
        .args(["-c", &PERSON.replace("os.execv(words[0], words)", shell), script])
        .arg(runner())
        .args(words);
    env.answer(command.env("TERM", "xterm").env("JOB_CONTROL", JOB_CONTROL)).expect(0).text()
}

#[test]
fn a_command_is_suspended_from_the_keyboard_and_resumed() {
    let env = TestEnv::with_project();
    let script = r#"
for n in (b'one', b'two'):
    wait_for(b'ready ' + n)
    send(b'\x1a')
    wait_for(b'shell: stopped, modes as before')
    seen = b''
    send(b'\n')
    wait_for(b'continued')
    send(n + b'\n')
    wait_for(b'got ' + n)
    seen = seen[seen.index(b'got ' + n):]
"#;
    let program = r#"
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
for n in ('one', 'two'):
    print('ready', n, flush=True)
    signal.sigwait({signal.SIGCONT})
    print('continued', flush=True)
    print('got', input(), flush=True)
# One SIGCONT for each time.
sys.exit(len(signal.sigpending()))
"#;
    let text = with_job_control(&env, script, &["-q", "--timeout", "1h", "--", "python3", "-c", program]);
    assert!(text.ends_with("modes as before, code 0\n"), "{text}");
}

/// If no shell can continue the command, ^Z does not stop it permanently.
#[test]
fn a_command_that_no_shell_can_resume_continues() {
    let env = TestEnv::with_project();
    let script =
        "wait_for(b'ready'); send(b'\\x1a'); wait_for(b'continued'); send(b'x\\n'); wait_for(b'got x')";
    let program = r#"
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
print('ready', flush=True)
signal.sigwait({signal.SIGCONT})
print('continued', flush=True)
print('got', input(), flush=True)
"#;
    let answer = person(&env, script, &["-q", "--", "python3", "-c", program]);
    assert!(answer.text().ends_with("modes as before, code 0\n"), "{answer:?}");
}

#[test]
fn a_command_that_changes_terminal_modes_does_not_affect_the_callers_terminal() {
    let env = TestEnv::with_project();
    for line in ["stty raw -echo", "stty raw -echo; kill -9 $$", "stty -isig; exit 3"] {
        let answer = person(&env, "", &["-q", "--shell", line]);
        assert!(answer.text().contains("modes as before"), "{line}: {answer:?}");
    }
}

/// Types lines into an interactive bash, in which `sh "$JOB"` starts the command.
#[track_caller]
fn with_bash(env: &TestEnv, script: &str, program: &str) -> String {
    let job = format!("exec '{}' -q -- python3 -uc \"$PROGRAM\"\n", runner().display());
    std::fs::write(env.at("job"), job).unwrap();
    let shell = "os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])";
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", &PERSON.replace("os.execv(words[0], words)", shell), script]);
    command.envs([("TERM", "dumb"), ("PS1", "shell$ "), ("HISTFILE", "/dev/null")]);
    command.env("JOB", env.at("job")).env("PROGRAM", program);
    env.answer(&mut command).expect(0).text()
}

#[test]
fn a_command_started_in_the_background_reads_the_terminal_once_it_is_in_the_foreground() {
    let env = TestEnv::with_project();
    let script = r#"
send(b'sh "$JOB" &\n')
wait_for(b'ready')
resize(33, 77)
send(b'fg\n')
send(b'typed\n')
wait_for(b'got typed')
# The command reads everything until it ends.
seen = seen[seen.index(b'got typed'):]
wait_for(b'shell$')
send(b'exit\n')
"#;
    let program = "import os\nprint('rea' + 'dy')\nprint('got', input(), os.get_terminal_size().lines)";
    let text = with_bash(&env, script, program);
    assert!(text.contains("got typed 33\r\n"), "{text}");
    assert!(text.contains("modes as before, code 0\n"), "{text}");
}

#[test]
fn a_command_resumed_in_the_background_reads_the_terminal_once_it_is_in_the_foreground() {
    let env = TestEnv::with_project();
    let script = r#"
send(b'sh "$JOB"\n')
wait_for(b'ready')
send(b'\x1a')
wait_for(b'Stopped')
send(b'bg\n')
wait_for(b'continued')
send(b'fg\n')
send(b'typed\n')
wait_for(b'got typed')
# The command reads everything until it ends.
seen = seen[seen.index(b'got typed'):]
wait_for(b'shell$')
send(b'exit\n')
"#;
    let program = r#"
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
print('ready')
signal.sigwait({signal.SIGCONT})
print('continued')
print('got', input())
"#;
    let text = with_bash(&env, script, program);
    assert!(text.contains("modes as before, code 0\n"), "{text}");
}

/// Runs a shell line on the terminal, in which `run` is `avfs-run` with a directory that the test sees as `$S`.
#[track_caller]
fn with_pipe(env: &TestEnv, script: &str, line: &str, program: &str) -> String {
    let shared = Shared::new(env);
    let run = r#"run() { "$RUN" -q --rw "$S" --env "S=$S" "$@"; };"#;
    let shell = "os.execvp('sh', ['sh', '-c', words[0]])";
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", &PERSON.replace("os.execv(words[0], words)", shell), script]);
    command.arg(format!("{run} {line}")).env("RUN", runner()).env("S", shared.text()).env("PROGRAM", program);
    env.answer(command.env("TERM", "xterm")).expect(0).text()
}

/// A program that reads stdout, and takes keys from the terminal until that ends.
const PAGER: &str = r#"
import os, sys, termios
terminal = os.open('/dev/tty', os.O_RDWR)
lines = open(0)
print('first line', lines.readline(), end='', flush=True)
before = termios.tcgetattr(terminal)
keys = termios.tcgetattr(terminal)
keys[3] &= ~(termios.ICANON | termios.ECHO)
termios.tcsetattr(terminal, termios.TCSADRAIN, keys)
keys = termios.tcgetattr(terminal)
print('pager ready', flush=True)
for key in 'kq':
    print('key', os.read(terminal, 1).decode(), termios.tcgetattr(terminal) == keys, flush=True)
open(os.environ['S'] + '/go', 'w').close()
print('last line', lines.read(), end='')
print('kept', termios.tcgetattr(terminal) == keys, flush=True)
termios.tcsetattr(terminal, termios.TCSADRAIN, before)
"#;

#[test]
fn a_pager_at_the_end_of_the_pipe_has_the_terminal() {
    let env = TestEnv::with_project();
    let script = "wait_for(b'pager ready'); send(b'k'); wait_for(b'key k'); send(b'q'); wait_for(b'key q')";
    let command = "echo one; while ! test -e $S/go; do sleep 0.01; done; echo two";
    let line = format!("run --shell '{command}' | python3 -c \"$PROGRAM\"");
    let text = with_pipe(&env, script, &line, PAGER).replace('\r', "");
    let wanted = "first line one\npager ready\nkey k True\nkey q True\nlast line two\nkept True\n\nmodes as before, code 0\n";
    assert_eq!(text, wanted);
}

#[test]
fn lines_are_typed_in_the_modes_of_the_terminal_if_stdout_is_a_pipe() {
    let env = TestEnv::with_project();
    let script = r#"
wait_for(b'ready')
send(b'one\n')
wait_for(b'got one')
assert termios.tcgetattr(terminal) == before
send(b'tow\x7f\x7fwo\n')
wait_for(b'got two')
# The end of a line without a newline, and of the input.
send(b'three\x04')
wait_for(b'got three')
send(b'\x04')
"#;
    let program = r#"
import os, sys
print('ready', file=sys.stderr)
while data := os.read(0, 100): print('got', data.decode().strip(), flush=True)
print('end of input')
"#;
    let text = with_pipe(&env, script, "run -- python3 -c \"$PROGRAM\" | cat", program);
    // Each line is echoed once.
    let wanted = "ready\r\none\r\ngot one\r\ntow\u{8} \u{8}\u{8} \u{8}wo\r\ngot two\r\nthreegot three\r\nend of input\r\n";
    assert_eq!(text.replacen("\r\r", "\r", 1), format!("{wanted}\nmodes as before, code 0\n"));
}

#[test]
fn keys_and_passwords_reach_the_command_if_stdout_is_a_pipe() {
    let env = TestEnv::with_project();
    let script = r#"
import time
def wait_until(condition):
    while not condition(): time.sleep(0.01)
def echoes(): return termios.tcgetattr(terminal)[3] & termios.ECHO
wait_for(b'secret?')
assert not echoes()
send(b'hidden\n')
wait_for(b'6 letters')
wait_until(lambda: termios.tcgetattr(terminal) == before)
send(b'\n')
wait_for(b'key?')
assert not echoes()
send(b'K')
wait_for(b'got K')
"#;
    let command = "stty -echo; echo secret? >&2; read x; stty echo; echo ${#x} letters; read x; \
                   stty -icanon -echo; echo key? >&2; echo got $(dd bs=1 count=1 2> /dev/null)";
    let text = with_pipe(&env, script, &format!("run --shell '{command}' | cat"), "");
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.ends_with("modes as before, code 0\n"), "{text}");
}

#[test]
fn each_interrupt_reaches_the_command_once_if_stdout_is_a_pipe() {
    let env = TestEnv::with_project();
    let script = r#"
wait_for(b'ready')
for n in (b'one', b'two', b'three'):
    send(b'\x03')
    wait_for(b'interrupt ' + n)
send(b'\n')
"#;
    let program = r#"
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print('ready', flush=True)
for n in ('one', 'two', 'three'):
    signal.sigwait({signal.SIGINT})
    print('interrupt', n, flush=True)
input()
print('pending', len(signal.sigpending()))
"#;
    let line = "trap : INT; run -- python3 -c \"$PROGRAM\" | (trap '' INT; exec cat)";
    let text = with_pipe(&env, script, line, program);
    assert!(text.contains("pending 0\r\n"), "{text}");
    assert!(text.ends_with("modes as before, code 0\n"), "{text}");
}
