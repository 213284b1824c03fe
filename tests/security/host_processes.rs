//! Tried: finding processes of the host, and sending them signals.
//! Stopped by: a pid namespace, and a /proc of its own.

use crate::attempt::own_host;
use crate::env::TestEnv;

/// A process of the host, `$VICTIM`, is looked for by its name and by its number.
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
fn processes_of_the_host_are_neither_seen_nor_hit() {
    let env = TestEnv::with_project();
    // Others first, so that the number is none that the sandbox has too.
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
