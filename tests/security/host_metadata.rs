//! Tried: changing modes, times, owners and attributes of host files that are the lower layer of an overlay.
//! Stopped by: such a change copies the file up first; elsewhere the mounts are read-only.

use crate::attempt::{assert_all_gained, natively};
use crate::env::TestEnv;
use crate::support::snapshot;

const CHANGE: &str = "
for path in ('README.md', 'src', '.'):
    tried(path + ' mode', lambda: os.chmod(path, 0o700))
    tried(path + ' time', lambda: os.utime(path, (1, 1)))
    tried(path + ' attribute', lambda: os.setxattr(path, 'user.hostile', b'x'))
tried('open', lambda: os.close(os.open('README.md', os.O_RDWR | os.O_TRUNC)))
tried('link', lambda: os.link('src/main.rs', 'src/second'))
tried('exchange', lambda: os.rename('src/main.rs', 'src/data.bin'))";

#[test]
fn metadata_of_host_files_is_unchanged() {
    // Control: without a sandbox the directory has changed afterwards.
    let victim = TestEnv::with_project();
    let before = snapshot::take_without(&victim.project(), &[".avfs"]);
    assert_all_gained(&natively(&victim, CHANGE), &["README.md mode", "src time", "open", "link"]);
    let after = snapshot::take_without(&victim.project(), &[".avfs"]);
    assert!(!snapshot::differences(&before, &after).is_empty());
    // After every run the harness compares the whole directory, including modes, times and attributes.
    let env = TestEnv::with_project();
    for options in
        [&["--scratch", "memory"][..], &["--scratch", "disk"], &["--backend", "copy"], &["--fork", "f"]]
    {
        let answer = crate::attempt::inside(&env, options, CHANGE);
        assert_all_gained(&answer, &["README.md mode", "src time", "open", "link"]);
    }
}
