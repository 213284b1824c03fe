//! Tried: parts of the kernel that ordinary programs do not need and exploits use: bpf, userfaultfd, perf events, file
//! handles, comparing and reading other processes, keys.
//! Stopped by: the seccomp filter.

use crate::attempt::{GAINED, assert_nothing_gained, gained, inside, natively, outcomes};
use crate::env::TestEnv;
use crate::support;

/// Each with arguments that do nothing if the call is allowed.
const CALLS: &str = "
# Before the fork, so that it is at the same address in both.
buffer = ctypes.create_string_buffer(256)
child = os.fork()
if child == 0:
    import time; time.sleep(1000)
number = lambda x86, other: x86 if X86 else other
tried('userfaultfd', lambda: os.close(call(number(323, 282), 1)))
tried('kcmp', lambda: call(number(312, 272), os.getpid(), child, 1, 0, 0))
class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
own = Vector(ctypes.addressof(buffer), 8)
tried('read memory', lambda: call(number(310, 270), child, ctypes.byref(own), 1, ctypes.byref(own), 1, 0))
tried('write memory', lambda: call(number(311, 271), child, ctypes.byref(own), 1, ctypes.byref(own), 1, 0))
def trace():
    if libc.ptrace(0x4206, child, 0, 0) < 0: raise OSError(ctypes.get_errno(), '')
tried('trace', trace)
handle = ctypes.create_string_buffer(b'\\x80\\x00\\x00\\x00' + bytes(132))
tried('file handle', lambda: call(number(303, 264), -100, b'.', handle, ctypes.byref(ctypes.c_int()), 0))
tried('keyring', lambda: call(number(250, 219), 0, -3, 0))
tried('bpf', lambda: call(number(321, 280), 0, buffer, 0))
tried('perf', lambda: call(number(298, 241), buffer, 0, -1, -1, 0))
tried('fanotify', lambda: os.close(call(number(300, 262), 0x200, 0)))
os.kill(child, 9)";
const NAMES: [&str; 10] = [
    "userfaultfd",
    "kcmp",
    "read memory",
    "write memory",
    "trace",
    "file handle",
    "keyring",
    "bpf",
    "perf",
    "fanotify",
];

#[test]
fn system_calls_used_by_exploits_are_refused() {
    let env = TestEnv::with_project();
    // Control: the kernel accepts each call, or rejects its arguments.
    let control = outcomes(&natively(&env, CALLS));
    let lacking = |name: &&str| matches!(control[*name].as_str(), "EPERM" | "ENOSYS");
    let lacking: Vec<&str> = NAMES.into_iter().filter(lacking).collect();
    if !lacking.is_empty() {
        support::skip(
            "system_calls_used_by_exploits_are_refused",
            &format!("this kernel does not allow {}", lacking.join(", ")),
        );
    }
    for name in ["read memory", "write memory", "trace"] {
        assert_eq!(control[name], GAINED);
    }
    let relaxed = gained(&inside(&env, &["--seccomp", "off"], CALLS));
    assert!(relaxed.iter().any(|gained| gained == "read memory"), "{relaxed:?}");
    for options in [&[][..], &["--seccomp", "strict"], &["--allow-userns"]] {
        let answer = inside(&env, options, CALLS).expect(0);
        assert_nothing_gained(&answer, &NAMES);
        // By the filter, not for another reason.
        let text = answer.text();
        assert!(text.lines().all(|line| line.ends_with(" EPERM") || line.ends_with(" ENOSYS")), "{text}");
    }
}
