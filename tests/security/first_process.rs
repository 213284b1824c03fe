//! Tried: inspecting init, which keeps its capabilities: memory, arguments, environment, root, descriptors.
//! Stopped by: init is not dumpable, so its files in /proc are not accessible, and overwrites its arguments.

use crate::attempt::{assert_all_gained, assert_nothing_gained, own_host};
use crate::env::TestEnv;

const LOOK: &str = "
for name in ('mem', 'environ', 'maps', 'auxv'): tried(name, lambda: open(f'/proc/1/{name}', 'rb').close())
for name in ('root', 'cwd', 'exe'): tried(name, lambda: os.readlink(f'/proc/1/{name}'))
def descriptor():
    # Root may list their numbers; only their targets count.
    for fd in os.listdir('/proc/1/fd'): return os.readlink(f'/proc/1/fd/{fd}')
tried('fd', descriptor)
def arguments():
    # Everyone can read them.
    if not open('/proc/1/cmdline', 'rb').read().strip(b'\\0'): raise OSError(errno.ENODATA, '')
tried('arguments', arguments)
tried('through', lambda: os.listdir('/proc/1/root/'))";
const NAMES: [&str; 10] =
    ["mem", "environ", "maps", "auxv", "root", "cwd", "exe", "fd", "arguments", "through"];

#[test]
fn init_cannot_be_inspected() {
    let env = TestEnv::with_project();
    // On a separate host, so that init of the control is a shell.
    assert_all_gained(&own_host(&env, "python3 -c \"$P\"; :", LOOK), &NAMES);
    assert_nothing_gained(&own_host(&env, "\"$RUN\" -q -- python3 -c \"$P\"; :", LOOK), &NAMES);
}
