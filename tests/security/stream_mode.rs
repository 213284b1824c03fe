//! Tried: changing the mode of a host FIFO or terminal that was given as a stream, with fchmod(2).
//! Stopped by: instead of a FIFO the command gets a pipe that the supervisor serves, instead of a terminal a pty.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::env::{Running, TestEnv, runner};

#[test]
fn mode_of_a_fifo_is_unchanged() {
    let env = TestEnv::with_project();
    let fifo = env.at("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mode = || fifo.metadata().unwrap().permissions().mode() & 0o777;
    for stream in ["0", "1", "2"] {
        let mode_after = |start: &str| {
            std::fs::set_permissions(&fifo, PermissionsExt::from_mode(0o600)).unwrap();
            let mut command = env.clean(Path::new("/bin/sh"));
            command.args(["-c", &format!("exec {start} -- python3 -c \"$P\" {stream}<>\"$F\"")]);
            command.env("P", format!("import os; os.fchmod({stream}, 0o777)"));
            command.env("RUN", runner()).env("F", &fifo);
            Running::start(&mut command).answer().expect(0);
            mode()
        };
        assert_eq!(mode_after("env"), 0o777, "the control failed");
        assert_eq!(mode_after("\"$RUN\" -q"), 0o600);
    }
}

#[test]
fn fifo_given_as_input_cannot_be_written() {
    let env = TestEnv::with_project();
    let fifo = env.at("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let held = File::options().read(true).write(true).open(&fifo).unwrap();
    rustix::io::ioctl_fionbio(&held, true).unwrap();
    let was_written = |start: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", &format!("exec {start} -- sh -c 'echo x > /proc/self/fd/0' < \"$F\"")]);
        command.env("RUN", runner()).env("F", &fifo);
        Running::start(&mut command).answer();
        rustix::io::read(&held, &mut [0_u8; 8]).is_ok()
    };
    assert!(was_written("env"), "the control failed");
    assert!(!was_written("\"$RUN\" -q"));
}

#[test]
fn mode_of_the_terminal_is_unchanged() {
    const WITH_TERMINAL: &str = "
import os, pty, subprocess, sys
main, side = pty.openpty()
os.fchmod(side, 0o600)
subprocess.run(sys.argv[1:], stdin=side, stdout=side, stderr=side, check=True)
print(oct(os.fstat(side).st_mode & 0o777))";
    const CHANGE: [&str; 3] = ["python3", "-c", "import os; os.fchmod(0, 0o777)"];
    let env = TestEnv::with_project();
    let mode_after = |start: &[&Path]| {
        let mut command = env.clean(Path::new("python3"));
        command.args(["-c", WITH_TERMINAL]).args(start).args(CHANGE);
        Running::start(&mut command).answer().expect(0).text()
    };
    assert_eq!(mode_after(&[]), "0o777\n", "the control failed");
    assert_eq!(mode_after(&[&runner(), Path::new("-q"), Path::new("--")]), "0o600\n");
}
