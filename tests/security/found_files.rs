//! Tried: stopping every command in a workspace: with a fifo, or a symlink to a terminal or an endless device, in place
//! of its settings or its policy.
//! Stopped by: files that are found are opened without waiting, and only if they are regular files or `/dev/null`.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};

use crate::env::{Running, TestEnv, wait_for};

const FILES: [(&str, &str); 3] =
    [("avfs.toml", "config.io"), ("policy.toml", "policy.io"), ("policy.rego", "policy.io")];

/// The control: a program that opens the fifo waits for a writer.
fn assert_waits(env: &TestEnv, fifo: &Path) {
    let waiting = Running::start(env.clean(Path::new("cat")).arg(fifo));
    let as_writer = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // Succeeds once there is a reader, which only then continues.
    let mut writer = None;
    wait_for("the reader", || {
        writer = open(fifo, as_writer, Mode::empty()).ok();
        writer.is_some()
    });
    drop(writer);
    waiting.answer().expect(0);
}

#[test]
fn settings_and_policies_that_never_end_are_refused() {
    let env = TestEnv::with_project();
    for (name, code) in FILES {
        let file = env.project().join(".avfs").join(name);
        for target in [None, Some("/dev/tty"), Some("/dev/zero"), Some("fifo")] {
            let fifo = if target.is_none() { file.clone() } else { file.with_file_name("fifo") };
            mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
            if let Some(target) = target {
                std::os::unix::fs::symlink(target, &file).unwrap();
            }
            assert_waits(&env, &fifo);
            let answer = env.run(&["--json", "--", "true"]).expect(125);
            assert_eq!(answer.envelope()["error"]["code"], code, "{name} {target:?}: {answer:?}");
            assert!(answer.stderr.is_empty(), "{answer:?}");
            let answer = env.avfs(&["policy", "check", "--", "true"]);
            assert!(answer.stderr.contains("it is not a regular file"), "{name} {target:?}: {answer:?}");
            std::fs::remove_file(&file).unwrap();
            if target.is_some() {
                std::fs::remove_file(&fifo).unwrap();
            }
        }
        if name != "policy.rego" {
            std::os::unix::fs::symlink("/dev/null", &file).unwrap();
            env.run(&["--", "true"]).expect(0);
            std::fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn fifo_in_place_of_an_ignore_file_or_a_repository_does_not_hold_a_run() {
    for name in [".avfsignore", "src/.avfsignore", ".git", ".git/config", ".git/HEAD"] {
        let env = TestEnv::new();
        env.put("src/main.rs", b"fn main() {}\n");
        let fifo = env.project().join(name);
        std::fs::create_dir_all(fifo.parent().unwrap()).unwrap();
        mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        assert_waits(&env, &fifo);
        env.run(&["--", "true"]).expect(0);
        env.run(&["--fork", "f", "--", "true"]).expect(0);
    }
}
