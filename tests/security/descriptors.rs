//! Tried: using up descriptors, and raising the limit that the caller has set on them.
//! Stopped by: the caller's limits apply inside, and raising one needs a capability.

use std::path::Path;

use crate::attempt::program;
use crate::env::{Running, TestEnv, runner};

/// At most six hundred.
const OPEN: &str = "
import resource
def raised():
    try: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    except ValueError: raise OSError(errno.EPERM, '')
tried('raise', raised)
held = []
try:
    for n in range(600): held.append(os.open('/dev/null', os.O_RDONLY))
except OSError: pass
print('held', 'gained' if len(held) == 600 else 'EMFILE')";

#[test]
fn number_of_descriptors_is_limited() {
    let env = TestEnv::with_project();
    let with = |bound: u32, start: &str| {
        let mut command = env.clean(Path::new("/bin/sh"));
        command.args(["-c", &format!("ulimit -n {bound}; exec {start} -- python3 -c \"$P\"")]);
        command.env("RUN", runner()).env("P", program(OPEN));
        Running::start(&mut command).answer().expect(0).text()
    };
    // Control: with a sufficient limit it opens all of them, inside too.
    assert!(with(1024, "env").contains("held gained\n"));
    assert!(with(1024, "\"$RUN\" -q").contains("held gained\n"));
    assert_eq!(with(256, "\"$RUN\" -q"), "raise EPERM\nheld EMFILE\n");
    env.ok(&[], "true");
}
