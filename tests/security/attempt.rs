//! Runs a hostile program: outside the sandbox as the control, inside as the proof.
//!
//! No attempt is aimed at the machine the suite runs on. An attempt that would do harm if it succeeded runs on a host
//! that the test makes ([`own_host`]), or stops once access is granted.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::env::{Answer, Running, TestEnv, avfs, runner};

/// Prefix of every program: raw system calls, and one line of output per attempt with its outcome.
const PRELUDE: &str = r#"
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == 'x86_64'
def call(number, *arguments):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    if result < 0: raise OSError(ctypes.get_errno(), '')
    return result
def tried(name, act):
    try: act()
    except OSError as error: print(name, errno.errorcode.get(error.errno, error.errno), flush=True)
    else: print(name, 'gained', flush=True)
"#;

/// The word that a program prints for an attempt that succeeded.
pub const GAINED: &str = "gained";

pub fn program(text: &str) -> String {
    format!("{PRELUDE}{text}")
}

/// Runs a program in the sandbox.
#[track_caller]
pub fn inside(env: &TestEnv, options: &[&str], text: &str) -> Answer {
    let program = program(text);
    let mut words = options.to_vec();
    words.extend(["--", "python3", "-c", &program]);
    env.run(&words)
}

/// The same program without a sandbox, not yet started.
pub fn outside(env: &TestEnv, text: &str) -> Command {
    let mut command = env.clean(Path::new("python3"));
    command.args(["-c", &program(text)]);
    command
}

#[track_caller]
pub fn natively(env: &TestEnv, text: &str) -> Answer {
    Running::start(&mut outside(env, text)).answer()
}

/// Runs a script on a separate host: init, the processes, the network, the mounts and the shared memory belong to the
/// test, and so does any victim. `$RUN` and `$AVFS` are the commands, `$P` is the program.
#[track_caller]
pub fn own_host(env: &TestEnv, script: &str, text: &str) -> Answer {
    env.answer(&mut own_host_command(env, script, text))
}

pub fn own_host_command(env: &TestEnv, script: &str, text: &str) -> Command {
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urmpinf", "--mount-proc", "--kill-child", "sh", "-uc", script]);
    command.env("RUN", runner()).env("AVFS", avfs()).env("P", program(text));
    command
}

/// The outcome of each attempt.
#[track_caller]
pub fn outcomes(answer: &Answer) -> BTreeMap<String, String> {
    let text = answer.text();
    let pairs = text.lines().filter_map(|line| line.rsplit_once(' '));
    let found: BTreeMap<String, String> =
        pairs.map(|(name, outcome)| (name.to_owned(), outcome.to_owned())).collect();
    assert!(!found.is_empty(), "nothing was tried: {answer:?}");
    found
}

/// The names of the attempts that succeeded.
#[track_caller]
pub fn gained(answer: &Answer) -> Vec<String> {
    let all = outcomes(answer).into_iter();
    all.filter(|(_, outcome)| outcome == GAINED).map(|(name, _)| name).collect()
}

/// Fails unless every attempt was made and none succeeded.
#[track_caller]
pub fn assert_nothing_gained(answer: &Answer, names: &[&str]) {
    let found = outcomes(answer);
    let tried: Vec<&str> = found.keys().map(String::as_str).collect();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(tried, expected, "{answer:?}");
    assert_eq!(gained(answer), [""; 0], "{answer:?}");
}

/// The control: fails unless each of these attempts succeeded without confinement.
#[track_caller]
pub fn assert_all_gained(answer: &Answer, names: &[&str]) {
    let found = gained(answer);
    for name in names {
        assert!(found.iter().any(|gained| gained == name), "the control of {name} failed: {answer:?}");
    }
}
