//! Tried: opening settings of the kernel for writing: sysctls, among them those that make the kernel start a
//! program of the command's choice as root (core_pattern, modprobe, binfmt_misc), and the trigger of sysrq.
//! Stopped by: for whom the kernel takes for root by the number these parts of /proc are mounted read-only; for
//! others they are root's files.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively, own_host};
use crate::env::TestEnv;
use crate::support;

/// Nothing is ever written: being let in is the proof.
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
fn no_setting_of_the_kernel_is_opened_for_writing() {
    let env = TestEnv::with_project();
    // Control: those of a network of its own.
    assert_all_gained(&own_host(&env, "python3 -c \"$P\"", OPEN), &["sys/net/ipv4/ip_forward"]);
    for options in [&[][..], &["--profile", "host"], &["--net", "host"], &["--backend", "copy"]] {
        assert_nothing_gained(&inside(&env, options, OPEN), &NAMES);
    }
    // The trigger of sysrq is not in every kernel: it has no control, and never gets one that is written to.
    if !support::is_root() {
        return support::skip(
            "no_setting_of_the_kernel_is_opened_for_writing",
            "only root may set the kernel",
        );
    }
    assert_all_gained(
        &natively(&env, OPEN),
        &["sys/kernel/core_pattern", "sys/vm/overcommit_memory", "irq/default_smp_affinity"],
    );
}
