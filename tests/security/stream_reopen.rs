//! Tried: reopening a file that was given as a stream through /proc/self/fd, for writing; truncating it; changing its
//! mode, times or attributes through the descriptor.
//! Stopped by: a file as stdin is reopened through a read-only mount; for other streams the command gets a pipe.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::attempt::{outside, program};
use crate::env::{Running, TestEnv, runner};

#[test]
fn file_given_as_a_stream_cannot_be_reopened_for_writing() {
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

/// Also with a file that the caller may write, and without Landlock.
#[test]
fn file_given_as_input_cannot_be_modified() {
    let env = TestEnv::with_project();
    let victim = env.at("victim");
    std::fs::write(&victim, "precious").unwrap();
    let held = || File::options().read(true).write(true).open(&victim).unwrap();
    let facts = || {
        let meta = std::fs::metadata(&victim).unwrap();
        let content = std::fs::read_to_string(&victim).unwrap();
        (content, meta.mode(), meta.mtime(), xattr_of(&victim))
    };
    let before = facts();
    for change in [
        "os.pwrite(os.open('/proc/self/fd/0', os.O_RDWR), b'x', 0)",
        "os.truncate('/proc/self/fd/0', 3)",
        "os.fchmod(0, 0o777)",
        "os.utime(0, (1, 1))",
        "os.setxattr(0, 'user.x', b'y')",
    ] {
        let program = program(change);
        for landlock in ["auto", "off"] {
            let mut command = env.command(&["--landlock", landlock, "--", "python3", "-c", &program]);
            let refused = env.answer(command.stdin(held())).expect(1).stderr;
            assert!(refused.contains("Read-only file system") || landlock == "auto", "{change}: {refused}");
            assert_eq!(facts(), before, "{change}");
        }
        Running::start(outside(&env, change).stdin(held())).answer().expect(0);
        assert_ne!(facts(), before, "the control failed: {change}");
        std::fs::remove_file(&victim).unwrap();
        std::fs::write(&victim, "precious").unwrap();
        let times = std::fs::FileTimes::new()
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(before.2.unsigned_abs()));
        held().set_times(times).unwrap();
        assert_eq!(facts(), before);
    }
}

fn xattr_of(path: &Path) -> bool {
    rustix::fs::getxattr(path, "user.x", &mut [0_u8; 8]).is_ok()
}

#[test]
fn file_given_for_output_cannot_be_truncated() {
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
