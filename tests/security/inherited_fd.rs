//! Tried: reading a host file through a descriptor that the caller left open (9, as a shell opens it).
//! Stopped by: init closes every descriptor above the three streams before the command runs.

use std::path::Path;

use crate::attempt::{GAINED, inside, program};
use crate::env::{Running, TestEnv, runner};

const READ: &str = "tried('read', lambda: os.pread(9, 1, 0))";

#[test]
fn inherited_descriptor_is_closed() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("secret"), "host").unwrap();
    let with = |start: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", &format!("exec {start} -- python3 -c \"$P\" 9<\"$FILE\"")]);
        command.env("RUN", runner()).env("P", program(READ)).env("FILE", env.at("secret"));
        command
    };
    let control = Running::start(&mut with("env")).answer();
    assert_eq!(control.text(), format!("read {GAINED}\n"), "{control:?}");
    assert_eq!(env.answer(&mut with("\"$RUN\" -q")).text(), "read EBADF\n");
}

#[test]
fn only_the_streams_are_open() {
    let env = TestEnv::with_project();
    let list = "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))";
    // Listing the directory takes one descriptor.
    for options in [&[][..], &["--scratch", "disk"], &["--backend", "copy"], &["--fork", "f"]] {
        assert_eq!(inside(&env, options, list).expect(0).text(), "[0, 1, 2, 3]\n");
    }
}
