//! Tried: leaving the root through a host directory that the caller left open.
//! Stopped by: the descriptor is closed; after pivot_root there is no other way out.

use std::path::Path;

use crate::attempt::{GAINED, program};
use crate::env::{Running, TestEnv, runner};

const OPEN: &str = "tried('file', lambda: os.open('secret', os.O_RDONLY, dir_fd=9))
tried('above', lambda: os.open('..', os.O_RDONLY, dir_fd=9))
tried('enter', lambda: os.fchdir(9))";

#[test]
fn inherited_directory_descriptor_is_closed() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("secret"), "host").unwrap();
    let with = |start: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", &format!("exec {start} -- python3 -c \"$P\" 9<\"$DIR\"")]);
        command.env("RUN", runner()).env("P", program(OPEN)).env("DIR", env.at(""));
        command
    };
    let lines = |outcome: &str| ["file", "above", "enter"].map(|name| format!("{name} {outcome}\n")).concat();
    let control = Running::start(&mut with("env")).answer();
    assert_eq!(control.text(), lines(GAINED), "{control:?}");
    assert_eq!(env.answer(&mut with("\"$RUN\" -q")).text(), lines("EBADF"));
}
