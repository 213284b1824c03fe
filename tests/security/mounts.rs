//! Tried: mounting over existing directories, making the system writable, removing mounts that hide files.
//! Stopped by: the command has no capabilities.

use crate::attempt::own_host;
use crate::env::TestEnv;

const LINES: [&str; 6] = [
    "mount -t tmpfs t /tmp",
    "mount --bind /usr /opt",
    "mount -o remount,bind,ro /usr",
    "umount -l /proc",
    "unshare -m true",
    "unshare -u hostname other",
];

#[test]
fn mounts_cannot_be_changed() {
    let env = TestEnv::with_project();
    for line in LINES {
        // Control: root of a separate host may.
        own_host(&env, &format!("set -e; mount --rbind /usr /usr; {line}"), "").expect(0);
        let answer = env.shell(&[], line);
        assert!(answer.code.is_some_and(|code| code != 0), "{line}: {answer:?}");
    }
    for line in ["mount -o remount,rw /usr", "umount -l .", "hostname other"] {
        assert_ne!(env.shell(&[], line).code, Some(0), "{line}");
    }
}
