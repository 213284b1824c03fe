//! Tried: holding up programs of the host with a lease on a file of a shown directory, and watching that directory
//! with dnotify.
//! Stopped by: the filter refuses these operations of fcntl(2).

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, outcomes};
use crate::env::TestEnv;

/// The signal of a notification is ignored.
const LEASE: &str = "
import signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
F_SETLEASE, F_NOTIFY, F_SETDELEG, DN_CREATE = 1024, 1026, 1040, 4
def fcntl(path, operation, argument):
    fd = os.open(path, os.O_RDONLY)
    if libc.fcntl(fd, operation, ctypes.c_long(argument)) < 0: raise OSError(ctypes.get_errno(), '')
    os.close(fd)
at = os.environ['AT']
READ, WRITE = 0, 1
tried('read lease', lambda: fcntl(at + '/file', F_SETLEASE, READ))
tried('write lease', lambda: fcntl(at + '/file', F_SETLEASE, WRITE))
tried('notification', lambda: fcntl(at, F_NOTIFY, DN_CREATE))
";
const NAMES: [&str; 3] = ["read lease", "write lease", "notification"];

fn with_shown() -> (TestEnv, String, String) {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("shown")).unwrap();
    std::fs::write(env.at("shown/file"), "").unwrap();
    let shown = env.at("shown").into_os_string().into_string().unwrap();
    let variable = format!("AT={shown}");
    (env, shown, variable)
}

#[test]
fn files_of_the_host_cannot_be_leased() {
    let (env, shown, variable) = with_shown();
    let options = ["--rw", &shown, "--env", &variable];
    let with = |more: &[&'static str]| [&options[..], more].concat();
    assert_all_gained(&inside(&env, &with(&["--seccomp", "off"]), LEASE), &NAMES);
    for more in [&[][..], &["--seccomp", "strict"], &["--allow-userns"]] {
        let answer = inside(&env, &with(more), LEASE);
        assert_nothing_gained(&answer, &NAMES);
        assert!(outcomes(&answer).values().all(|outcome| outcome == "EPERM"), "{answer:?}");
    }
}

#[test]
fn delegations_are_refused_and_other_operations_are_not() {
    let (env, shown, variable) = with_shown();
    // A kernel without delegations answers EINVAL.
    let text = format!(
        "{LEASE}
class Delegation(ctypes.Structure): _fields_ = [('flags', ctypes.c_uint32), ('kind', ctypes.c_uint16), ('pad', ctypes.c_uint16)]
tried('delegation', lambda: fcntl(at + '/file', F_SETDELEG, ctypes.addressof(Delegation(0, WRITE, 0))))
import fcntl as usual
file = open(at + '/file', 'r+')
usual.lockf(file, usual.LOCK_EX); usual.flock(file, usual.LOCK_EX)
usual.fcntl(file, usual.F_SETFL, usual.fcntl(file, usual.F_GETFL))
print('usual', usual.fcntl(file, 1025))"
    );
    for more in [&[][..], &["--seccomp", "strict"]] {
        let options = [&["--rw", &shown, "--env", &variable][..], more].concat();
        let found = outcomes(&inside(&env, &options, &text));
        let unlocked = 2.to_string();
        assert_eq!((&*found["delegation"], &found["usual"]), ("EPERM", &unlocked), "{more:?}");
    }
}
