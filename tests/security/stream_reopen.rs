//! Tried: opening a file that was given as a stream once more through /proc/self/fd, for writing; cutting it off.
//! Stopped by: of a file the command gets a pipe that the supervisor serves.

use std::fs::File;
use std::path::Path;

use crate::attempt::{outside, program};
use crate::env::{Running, TestEnv, runner};

#[test]
fn a_file_given_as_a_stream_cannot_be_opened_again() {
    let env = TestEnv::with_project();
    let victim = env.at("victim");
    let content = || std::fs::read_to_string(&victim).unwrap();
    let reopen = "fd = os.open('/proc/self/fd/0', os.O_RDWR); os.pwrite(fd, b'escaped', 0)";
    std::fs::write(&victim, "precious").unwrap();
    let control = Running::start(outside(&env, reopen).stdin(File::open(&victim).unwrap())).answer();
    assert_eq!((control.code, content()), (Some(0), "escapeds".to_owned()));
    std::fs::write(&victim, "precious").unwrap();
    let program = program(reopen);
    let mut command = env.command(&["--", "python3", "-c", &program]);
    env.answer(command.stdin(File::open(&victim).unwrap()));
    assert_eq!(content(), "precious");
}

#[test]
fn a_file_given_for_output_is_not_cut_off() {
    let env = TestEnv::with_project();
    let victim = env.at("victim");
    for stream in ["", "2>&1"] {
        let truncated_by = |start: &str| {
            std::fs::write(&victim, "precious").unwrap();
            let mut command = env.clean(Path::new("/bin/sh"));
            command.args(["-c", &format!("exec {start} -- python3 -c \"$P\" >>\"$V\" {stream}")]);
            command.env("RUN", runner()).env("P", "import os; os.ftruncate(1, 0)").env("V", &victim);
            Running::start(&mut command).answer();
            !std::fs::read_to_string(&victim).unwrap().starts_with("precious")
        };
        assert!(truncated_by("env"), "the control failed");
        assert!(!truncated_by("\"$RUN\" -q"));
    }
}
