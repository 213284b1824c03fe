//! Tried: changing modes, times, owners and attributes of the host's files, which an overlay lies over.
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
fn modes_and_times_of_the_host_stay() {
    // Control: without a sandbox the directory is another afterwards.
    let victim = TestEnv::with_project();
    let before = snapshot::take_without(&victim.project(), &[".avfs"]);
    assert_all_gained(&natively(&victim, CHANGE), &["README.md mode", "src time", "open", "link"]);
    let after = snapshot::take_without(&victim.project(), &[".avfs"]);
    assert!(!snapshot::differences(&before, &after).is_empty());
    // What the harness compares after every run is everything of it, with modes, times and attributes.
    let env = TestEnv::with_project();
    for options in
        [&["--scratch", "memory"][..], &["--scratch", "disk"], &["--backend", "copy"], &["--fork", "f"]]
    {
        let answer = crate::attempt::inside(&env, options, CHANGE);
        assert_all_gained(&answer, &["README.md mode", "src time", "open", "link"]);
    }
}
