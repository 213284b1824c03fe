//! Tried: reading memory, semaphores and message queues that host processes share (System V and POSIX).
//! Stopped by: an IPC namespace, and a private /dev/shm.

use crate::attempt::own_host;
use crate::env::TestEnv;

const LOOK: &str = "
key = 0x61766673
if len(sys.argv) > 1:
    if libc.shmget(key, 4096, 0o1600) < 0 or libc.msgget(key, 0o1600) < 0 or libc.semget(key, 1, 0o1600) < 0: sys.exit(3)
    open('/dev/shm/avfs-test', 'w').write('host')
    sys.exit(0)
def found(result):
    if result < 0: raise OSError(ctypes.get_errno(), '')
tried('memory', lambda: found(libc.shmget(key, 4096, 0)))
tried('messages', lambda: found(libc.msgget(key, 0)))
tried('semaphores', lambda: found(libc.semget(key, 1, 0)))
tried('posix', lambda: open('/dev/shm/avfs-test').close())";
const NAMES: [&str; 4] = ["memory", "messages", "semaphores", "posix"];

#[test]
fn shared_memory_of_the_host_is_not_accessible() {
    let env = TestEnv::with_project();
    let with = |start: &str| {
        let script =
            format!("mount -t tmpfs t /dev/shm; python3 -c \"$P\" make && {start} -- python3 -c \"$P\"");
        own_host(&env, &script, LOOK)
    };
    crate::attempt::assert_all_gained(&with("env"), &NAMES);
    crate::attempt::assert_nothing_gained(&with("\"$RUN\" -q"), &NAMES);
    crate::attempt::assert_nothing_gained(&with("\"$RUN\" -q --profile host"), &NAMES);
}
