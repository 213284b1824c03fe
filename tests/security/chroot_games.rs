//! Tried: the old way out of a root: chroot into a directory with one outside of it open, then climb.
//! Stopped by: chroot needs a capability; and the root was pivoted to, so that above it there is nothing.

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
fn a_root_in_the_root_is_no_way_out() {
    let env = TestEnv::with_project();
    // Control: in a root that is only a chroot, it works.
    let script = "mount -t tmpfs t /tmp; python3 -c \"$P\"";
    assert_eq!(own_host(&env, script, CLIMB).text(), "climb gained\n");
    assert_eq!(inside(&env, &[], CLIMB).text(), "climb EPERM\n");
    // Climbing alone ends at the own root.
    let above = "for _ in range(64): os.chdir('..')\nprint(os.path.samefile('.', '/'))";
    assert_eq!(inside(&env, &[], above).text(), "True\n");
}
