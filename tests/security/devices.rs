//! Tried: using host devices: an existing one, a new one, the kernel log, physical memory; changing the mode of one.
//! Stopped by: /dev has only a few harmless devices, mounted read-only; mknod needs a capability, and mounts are nodev.

use crate::attempt::{assert_nothing_gained, inside, natively};
use crate::env::TestEnv;
use crate::support;

#[test]
fn only_harmless_devices_exist() {
    let env = TestEnv::with_project();
    let list = env.ok(&[], "ls /dev");
    let names: Vec<&str> = list.split_whitespace().collect();
    let expected = [
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom",
        "zero",
    ];
    assert_eq!(names, expected);
    env.ok(&[], "echo x > /dev/null; head -c 8 /dev/urandom | wc -c; head -c 1 /dev/zero > /dev/null");
    assert_eq!(env.shell(&[], "cat /etc/passwd > /dev/full").code, Some(1));
}

/// The device number of /dev/null, so that a successful control has made nothing dangerous.
const MAKE: &str = "import stat
at = sys.argv[1] if len(sys.argv) > 1 else '.'
tried('make', lambda: os.mknod(at + '/device', 0o600 | stat.S_IFCHR, os.makedev(1, 3)))
tried('open', lambda: os.open(at + '/device', os.O_RDWR))
tried('log', lambda: os.close(os.open('/dev/kmsg', os.O_RDONLY)))
tried('memory', lambda: os.close(os.open('/dev/mem', os.O_RDONLY)))
tried('port', lambda: os.close(os.open('/dev/port', os.O_RDONLY)))";

#[test]
fn device_nodes_do_not_work() {
    let env = TestEnv::with_project();
    for options in [&[][..], &["--backend", "copy"], &["--profile", "host"]] {
        assert_nothing_gained(&inside(&env, options, MAKE), &["make", "open", "log", "memory", "port"]);
    }
    if !support::is_root() {
        return support::skip("device_nodes_do_not_work", "only root makes devices");
    }
    let mut control = crate::attempt::outside(&env, MAKE);
    let control = crate::env::Running::start(control.arg(env.at(""))).answer();
    crate::attempt::assert_all_gained(&control, &["make", "open"]);
    // A device node in the workspace works outside, but not inside.
    let read = "tried('read', lambda: os.open('device', os.O_RDWR))";
    std::fs::rename(env.at("device"), env.project().join("device")).unwrap();
    assert_eq!(natively(&env, read).text(), "read gained\n");
    assert_nothing_gained(&inside(&env, &[], read), &["read"]);
}

/// To the current mode: a successful control has changed nothing.
const CHANGE_MODE: &str = "import stat
for name in ('null', 'zero', 'full', 'random', 'urandom', 'tty'):
    path = '/dev/' + name
    tried(name, lambda: os.chmod(path, stat.S_IMODE(os.stat(path).st_mode)))
tried('stream', lambda: os.fchmod(0, stat.S_IMODE(os.fstat(0).st_mode)))";

#[test]
fn modes_of_devices_are_unchanged() {
    let names = ["null", "zero", "full", "random", "urandom", "tty", "stream"];
    let env = TestEnv::with_project();
    for options in [&[][..], &["--profile", "host"], &["--backend", "copy"]] {
        assert_nothing_gained(&inside(&env, options, CHANGE_MODE), &names);
    }
    if !support::is_root() {
        return support::skip("modes_of_devices_are_unchanged", "only root owns devices");
    }
    crate::attempt::assert_all_gained(&natively(&env, CHANGE_MODE), &names);
}
