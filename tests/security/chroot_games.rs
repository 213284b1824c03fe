//! Tried: the classic chroot escape: chroot into a directory while a directory outside it is open, then go up.
//! Stopped by: chroot needs a capability; and the root was entered with pivot_root, so nothing is above it.

use crate::attempt::{inside, own_host};
use crate::env::TestEnv;

const CLIMB: &str = "
os.makedirs('/tmp/jail/in', exist_ok=True)
def climb():
    os.chdir('/tmp/jail')
    os.chroot('/tmp/jail/in')
    for _ in range(64): os.chdir('..')
    os.chroot('.')
    os.stat('usr')
tried('climb', climb)";

#[test]
fn nested_chroot_does_not_escape() {
    let env = TestEnv::with_project();
    // Control: it works in a root that is only a chroot.
    let script = "mount -t tmpfs t /tmp; python3 -c \"$P\"";
    assert_eq!(own_host(&env, script, CLIMB).text(), "climb gained\n");
    assert_eq!(inside(&env, &[], CLIMB).text(), "climb EPERM\n");
    // Going up ends at the root of the sandbox.
    let above = "for _ in range(64): os.chdir('..')\nprint(os.path.samefile('.', '/'))";
    assert_eq!(inside(&env, &[], above).text(), "True\n");
}
