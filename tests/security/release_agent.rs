//! Tried: a cgroup whose release agent, a program of the command's choice, the kernel starts on the host.
//! Stopped by: the view has no cgroups, and the command cannot mount any.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;
use crate::support;

/// Only opened, never written: its content belongs to the host.
const OPEN: &str = "
def agents():
    for line in open('/proc/self/mounts'):
        kind, at = line.split(' ')[2], line.split(' ')[1]
        if kind == 'cgroup':
            yield at + '/release_agent'
def let_in():
    found = [path for path in agents() if os.path.exists(path)]
    if not found: raise OSError(errno.ENOENT, '')
    os.close(os.open(found[0], os.O_WRONLY))
tried('agent', let_in)";

#[test]
fn release_agent_cannot_be_set() {
    let env = TestEnv::with_project();
    for options in [&[][..], &["--profile", "host"]] {
        let answer = inside(&env, options, OPEN);
        assert!(!answer.text().contains("gained"), "{options:?}: {answer:?}");
    }
    for line in ["mount -t cgroup -o memory c /tmp", "mount -t cgroup2 c /tmp", "ls /sys/fs/cgroup/*"] {
        assert_ne!(env.shell(&[], line).code, Some(0), "{line}");
    }
    let control = natively(&env, OPEN).text();
    if control != "agent gained\n" {
        let reason =
            if support::is_root() { "no release agents here" } else { "only root changes kernel settings" };
        support::skip("release_agent_cannot_be_set", reason);
    }
}
