//! Tried: looking into the first process, which keeps its capabilities: memory, environment, root, descriptors.
//! Stopped by: init is not dumpable, so that its files in /proc are nobody's.

use crate::attempt::{assert_all_gained, assert_nothing_gained, own_host};
use crate::env::TestEnv;

const LOOK: &str = "
for name in ('mem', 'environ', 'maps', 'auxv'): tried(name, lambda: open(f'/proc/1/{name}', 'rb').close())
for name in ('root', 'cwd', 'exe'): tried(name, lambda: os.readlink(f'/proc/1/{name}'))
def descriptor():
    # Their numbers root may list; what they are is what counts.
    for fd in os.listdir('/proc/1/fd'): return os.readlink(f'/proc/1/fd/{fd}')
tried('fd', descriptor)
tried('through', lambda: os.listdir('/proc/1/root/'))";
const NAMES: [&str; 9] = ["mem", "environ", "maps", "auxv", "root", "cwd", "exe", "fd", "through"];

#[test]
fn the_first_process_cannot_be_looked_into() {
    let env = TestEnv::with_project();
    // On a host of the test's own, so that the first process of the control is a shell.
    assert_all_gained(&own_host(&env, "python3 -c \"$P\"; :", LOOK), &NAMES);
    assert_nothing_gained(&own_host(&env, "\"$RUN\" -q -- python3 -c \"$P\"; :", LOOK), &NAMES);
}
