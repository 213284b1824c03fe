//! Tried: becoming another user through a setuid program, from the host or made inside.
//! Stopped by: no_new_privs, and every mount is nosuid; only one user is mapped.

use std::path::Path;

use crate::env::{Running, TestEnv, runner};

#[test]
fn setuid_program_does_not_change_the_user() {
    let env = TestEnv::with_project();
    let me = rustix::process::geteuid().as_raw();
    assert_eq!(env.ok(&[], "cp /usr/bin/id id; chmod 6755 id; ./id -u"), format!("{me}\n"));
    let mounts = env.ok(&[], "cat /proc/self/mounts");
    for mount in mounts.lines() {
        let options = mount.split(' ').nth(3).unwrap();
        assert!(options.split(',').any(|option| option == "nosuid"), "{mount}");
    }
    if me != 0 {
        return crate::support::skip("setuid_program_does_not_change_the_user", "only root gives files away");
    }
    // Control: a setuid program of another user, started by root, runs as that user; inside it does not.
    let program = env.at("bin/id");
    std::fs::create_dir(env.at("bin")).unwrap();
    // Copied by another process: no fork of this one may have it open for writing.
    assert!(env.clean(Path::new("cp")).arg("/usr/bin/id").arg(&program).status().unwrap().success());
    std::os::unix::fs::chown(&program, Some(12345), None).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let run = |start: &[&Path]| {
        let mut command = env.clean(start[0]);
        Running::start(command.args(&start[1..]).arg("-u")).answer().text()
    };
    assert_eq!(run(&[&program]), "12345\n");
    let (runner, dir) = (runner(), env.at("bin"));
    assert_eq!(run(&[&runner, Path::new("-q"), Path::new("--ro"), &dir, Path::new("--"), &program]), "0\n");
}
