//! Tried: opening kernel settings for writing: sysctls, among them those that make the kernel start a program of the
//! command's choice as root (core_pattern, modprobe, binfmt_misc), and the sysrq trigger.
//! Stopped by: for a user with uid 0, these parts of /proc are mounted read-only; for others they are owned by root.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively, own_host};
use crate::env::TestEnv;
use crate::support;

/// Nothing is ever written: a successful open is the proof.
const OPEN: &str = "
for path in ('sys/kernel/core_pattern', 'sys/kernel/modprobe', 'sys/kernel/hotplug', 'sys/vm/overcommit_memory',
             'sys/fs/binfmt_misc/register', 'sys/net/ipv4/ip_forward', 'sys/net/ipv4/ping_group_range',
             'sys/kernel/hostname', 'sys/user/max_user_namespaces', 'sysrq-trigger', 'irq/default_smp_affinity'):
    def put():
        fd = os.open('/proc/' + path, os.O_WRONLY)
        os.close(fd)
    tried(path, put)";
const NAMES: [&str; 11] = [
    "sys/kernel/core_pattern",
    "sys/kernel/modprobe",
    "sys/kernel/hotplug",
    "sys/vm/overcommit_memory",
    "sys/fs/binfmt_misc/register",
    "sys/net/ipv4/ip_forward",
    "sys/net/ipv4/ping_group_range",
    "sys/kernel/hostname",
    "sys/user/max_user_namespaces",
    "sysrq-trigger",
    "irq/default_smp_affinity",
];

#[test]
fn kernel_settings_cannot_be_opened_for_writing() {
    let env = TestEnv::with_project();
    // Control: the settings of a separate network namespace.
    assert_all_gained(&own_host(&env, "python3 -c \"$P\"", OPEN), &["sys/net/ipv4/ip_forward"]);
    for options in [&[][..], &["--profile", "host"], &["--net", "host"], &["--backend", "copy"]] {
        assert_nothing_gained(&inside(&env, options, OPEN), &NAMES);
    }
    // The sysrq trigger is not in every kernel: it has no control, and is never written to.
    if !support::is_root() {
        return support::skip(
            "kernel_settings_cannot_be_opened_for_writing",
            "only root changes kernel settings",
        );
    }
    assert_all_gained(
        &natively(&env, OPEN),
        &["sys/kernel/core_pattern", "sys/vm/overcommit_memory", "irq/default_smp_affinity"],
    );
}
