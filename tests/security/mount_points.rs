//! Tried: making avfs create mount points on the host: through a symlink in the workspace, and with `..`.
//! Stopped by: while the root is built, its paths are resolved inside it, not on the host (openat2).

use std::path::Path;

use crate::env::{Running, TestEnv};

#[test]
fn mount_points_through_a_symlink_are_not_created_on_the_host() {
    let env = TestEnv::with_project();
    let victim = env.at("victim");
    std::fs::create_dir(&victim).unwrap();
    std::os::unix::fs::symlink(&victim, env.project().join("out")).unwrap();
    let made = || victim.join("made").exists();
    // Control: by its name the symlink leads there.
    let mut mkdir = env.clean(Path::new("mkdir"));
    Running::start(mkdir.arg("out/made")).answer().expect(0);
    assert!(made());
    std::fs::remove_dir(victim.join("made")).unwrap();
    let link = env.project().join("out/made");
    let inside = link.to_str().unwrap();
    env.run(&["--tmpfs", inside, "--", "true"]);
    assert!(!made());
    env.put(".avfs/avfs.toml", b"[cache]\ndirs = [\"out/made\"]\n");
    for options in [&[][..], &["--fork", "f"], &["--backend", "copy"], &["--readonly"]] {
        env.run(&[options, &["--", "true"]].concat());
        assert!(!made(), "{options:?}");
    }
}

#[test]
fn mount_points_above_the_root_are_refused() {
    let env = TestEnv::with_project();
    let entries = || {
        let names = std::fs::read_dir(env.at("cache/avfs")).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    env.ok(&[], "true");
    let before = entries();
    // Control: below the directory that the root is mounted on, `..` is the cache.
    let mut mkdir = env.clean(Path::new("mkdir"));
    Running::start(mkdir.arg("../made").current_dir(env.at("cache/avfs/mnt"))).answer().expect(0);
    assert_ne!(entries(), before);
    std::fs::remove_dir(env.at("cache/avfs/made")).unwrap();
    let refused = env.shell(&["--json", "--tmpfs", "/../made"], "touch /made/file").expect(125).envelope();
    assert_eq!(refused["error"]["code"], "request.parent_dir", "{refused}");
    assert_eq!(entries(), before);
}
