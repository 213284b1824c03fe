//! Tried: writing to the host through symbolic links in the workspace, made before the run or in it.
//! Stopped by: a link is followed in the command's root, where the host's files are not.

use crate::attempt::{inside, natively};
use crate::env::TestEnv;

#[test]
fn a_link_out_of_the_workspace_leads_nowhere() {
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
