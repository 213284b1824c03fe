//! Tried: a user namespace of its own, in which the command has every capability, to undo what hides.
//! Stopped by: the filter and a bound of none on namespaces. Where it was asked for, what was mounted outside of it
//! is locked: neither unmounted nor made writable.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively, own_host};
use crate::env::TestEnv;

const LINE: &str = "mount -o remount,rw,bind $AT && touch $AT/x && echo gained; umount -l $AT 2>/dev/null && echo gained; echo end";

#[test]
fn a_namespace_in_the_namespace_undoes_nothing() {
    let env = TestEnv::with_project();
    // Control: whoever has made a mount read-only may make it writable, and take it away.
    let script = format!(
        "mkdir -p /tmp; mount -t tmpfs t /tmp; mount -o remount,ro,bind /tmp; AT=/tmp; {{ {LINE}; }} 2>/dev/null"
    );
    assert_eq!(own_host(&env, &script, "").text(), "gained\ngained\nend\n");
    let line = format!(
        "unshare -Urm sh -c 'AT=/usr; {LINE}; AT=/etc; {LINE}; umount -l .avfs && echo gained; ls -A .avfs' 2>/dev/null; echo over"
    );
    for options in [&[][..], &["--allow-userns"], &["--allow-userns", "--profile", "host"]] {
        let text = env.shell(options, &line).text();
        // The attempt is one only if the namespace is made, as root too.
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
fn no_namespace_is_made_unless_it_was_asked_for() {
    let env = TestEnv::with_project();
    assert_all_gained(&natively(&env, MAKE), &NAMES);
    assert_all_gained(&inside(&env, &["--allow-userns"], MAKE), &NAMES);
    // By the filter, and where there is none by the kernel's own bound.
    for options in [&[][..], &["--seccomp", "strict"], &["--seccomp", "off"]] {
        assert_nothing_gained(&inside(&env, options, MAKE), &NAMES);
    }
}

#[test]
fn root_of_a_nested_namespace_does_not_lift_its_limits() {
    let env = TestEnv::with_project();
    let line = "unshare -Urm sh -c 'echo made; mount -t tmpfs t /tmp && echo mounted'; \
                unshare -UrmC sh -c 'mount -t cgroup2 c /tmp && ls /tmp/cgroup.procs && echo lifted' 2>/dev/null; echo over";
    let text = env.shell(&["--allow-userns"], line).text();
    assert!(text.starts_with("made\nmounted\n") && text.ends_with("over\n"), "{text}");
    // Its own control groups are root's files; anybody else finds none that are theirs.
    assert!(!text.contains("lifted") || !crate::support::is_root(), "{text}");
}
