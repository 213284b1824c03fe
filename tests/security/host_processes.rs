//! Tried: finding host processes and sending them signals.
//! Stopped by: a pid namespace with its own /proc.

use crate::attempt::own_host;
use crate::env::TestEnv;

/// Looks for a host process, the victim, by its name and by its pid.
const SEEK: &str = "
def find():
    for name in os.listdir('/proc'):
        if name.isdigit() and int(name) != os.getpid():
            try: line = open(f'/proc/{name}/cmdline').read()
            except OSError: continue
            if line.startswith('sleep\\0' + '7777'): return
    raise OSError(errno.ESRCH, '')
tried('find', find)
tried('signal', lambda: os.kill(int(sys.argv[1]), 0))";

#[test]
fn host_processes_are_neither_visible_nor_signalled() {
    let env = TestEnv::with_project();
    // Start others first, so that the pid of the victim does not also exist in the sandbox.
    let script = |start: &str| {
        format!(
            "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do /bin/true; done; sleep 7777 & victim=$!; \
             until grep -qsz '^sleep$' /proc/$victim/cmdline; do sleep 0.01; done; \
             {start} -- python3 -c \"$P\" $victim; kill $victim"
        )
    };
    assert_eq!(own_host(&env, &script("env"), SEEK).text(), "find gained\nsignal gained\n");
    assert_eq!(own_host(&env, &script("\"$RUN\" -q"), SEEK).text(), "find ESRCH\nsignal ESRCH\n");
}
