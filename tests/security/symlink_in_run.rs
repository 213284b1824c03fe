//! Tried: writing to the host through symlinks in the workspace, made before the run or during it.
//! Stopped by: a symlink is resolved in the command's root, which does not contain the host's files.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;

#[test]
fn symlink_out_of_the_workspace_does_not_reach_the_host() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    let victim = env.at("victims/victim");
    std::os::unix::fs::symlink(&victim, env.project().join("planted")).unwrap();
    std::os::unix::fs::symlink("../victims", env.project().join("above")).unwrap();
    let write = format!(
        "for name in ('planted', 'above/victim', '../victims/victim'):
    tried(name, lambda: open(name, 'r+').write('escaped'))
os.symlink('{0}', '/tmp/avfs-link-' + str(os.getpid()))
tried('made', lambda: open('/tmp/avfs-link-' + str(os.getpid()), 'r+').write('escaped'))
os.unlink('/tmp/avfs-link-' + str(os.getpid()))",
        victim.display()
    );
    std::fs::write(&victim, "precious").unwrap();
    let names = ["planted", "above/victim", "../victims/victim", "made"];
    crate::attempt::assert_all_gained(&natively(&env, &write), &names);
    std::fs::write(&victim, "precious").unwrap();
    for options in [&[][..], &["--backend", "copy"], &["--profile", "host"], &["--fork", "f"]] {
        crate::attempt::assert_nothing_gained(&inside(&env, options, &write), &names);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }
}
