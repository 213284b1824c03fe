//! Tried: a nested user namespace, in which the command has every capability, to remove mounts that hide files.
//! Stopped by: the filter, and a limit of zero namespaces. If nesting was requested, the mounts made outside it are
//! locked: they can neither be unmounted nor made writable.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively, own_host};
use crate::env::TestEnv;

const LINE: &str = "mount -o remount,rw,bind $AT && touch $AT/x && echo gained; umount -l $AT 2>/dev/null && echo gained; echo end";

#[test]
fn nested_user_namespace_cannot_undo_mounts() {
    let env = TestEnv::with_project();
    // Control: the namespace that made a mount read-only may make it writable, and unmount it.
    let script = format!(
        "mkdir -p /tmp; mount -t tmpfs t /tmp; mount -o remount,ro,bind /tmp; AT=/tmp; {{ {LINE}; }} 2>/dev/null"
    );
    assert_eq!(own_host(&env, &script, "").text(), "gained\ngained\nend\n");
    let line = format!(
        "unshare -Urm sh -c 'AT=/usr; {LINE}; AT=/etc; {LINE}; umount -l .avfs && echo gained; ls -A .avfs' 2>/dev/null; echo over"
    );
    for options in [&[][..], &["--allow-userns"], &["--allow-userns", "--profile", "host"]] {
        let text = env.shell(options, &line).text();
        // The attempt counts only if the namespace is made, also as root.
        assert_eq!(text.contains("end"), options.contains(&"--allow-userns"), "{options:?}: {text}");
        assert!(text.ends_with("over\n") && !text.contains("gained") && !text.contains("vault"), "{text}");
    }
}

const MAKE: &str = "
number = 272 if X86 else 97
clone = 56 if X86 else 220
def unshare(flags):
    child = os.fork()
    if child == 0:
        try: call(number, flags)
        except OSError as error: os._exit(error.errno)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code: raise OSError(code, '')
def cloned(flags):
    child = call(clone, flags | 17, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
tried('unshare', lambda: unshare(0x10000000))
tried('unshare all', lambda: unshare(0x10000000 | 0x20000 | 0x20000000))
tried('clone', lambda: cloned(0x10000000))";
const NAMES: [&str; 3] = ["unshare", "unshare all", "clone"];

#[test]
fn user_namespaces_are_refused_unless_requested() {
    let env = TestEnv::with_project();
    assert_all_gained(&natively(&env, MAKE), &NAMES);
    assert_all_gained(&inside(&env, &["--allow-userns"], MAKE), &NAMES);
    // By the filter, and without the filter by the kernel's own limit.
    for options in [&[][..], &["--seccomp", "strict"], &["--seccomp", "off"]] {
        assert_nothing_gained(&inside(&env, options, MAKE), &NAMES);
    }
}

#[test]
fn root_in_a_nested_namespace_cannot_lift_limits() {
    let env = TestEnv::with_project();
    let line = "unshare -Urm sh -c 'echo made; mount -t tmpfs t /tmp && echo mounted'; \
                unshare -UrmC sh -c 'mount -t cgroup2 c /tmp && ls /tmp/cgroup.procs && echo lifted' 2>/dev/null; echo over";
    let text = env.shell(&["--allow-userns"], line).text();
    assert!(text.starts_with("made\nmounted\n") && text.ends_with("over\n"), "{text}");
    // The cgroup files belong to root; other users find only cgroups that they do not own.
    assert!(!text.contains("lifted") || !crate::support::is_root(), "{text}");
}
