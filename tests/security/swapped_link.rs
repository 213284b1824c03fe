//! Tried: swapping the link that `--rw` names, or a directory on the way, between the judgement and the mount.
//! Stopped by: a path is resolved once, judged, digested and mounted without links.

use crate::env::{Running, TestEnv};
use crate::shared::start_held;

const WRITE: &str = "echo x > \"$LINK/made\"";

#[test]
fn swapped_links_do_not_move_what_is_shown() {
    let env = TestEnv::with_project();
    let (allowed, forbidden, link) = (env.at("allowed"), env.at("forbidden"), env.at("link"));
    for dir in [&allowed, &forbidden] {
        std::fs::create_dir(dir).unwrap();
    }
    let point_to = |dir: &std::path::Path| {
        if link.symlink_metadata().is_ok() {
            std::fs::remove_file(&link).unwrap();
        }
        std::os::unix::fs::symlink(dir, &link).unwrap();
    };
    let made = |dir: &std::path::Path| {
        let made = dir.join("made");
        made.exists() && std::fs::remove_file(made).is_ok()
    };
    let caps = format!("[caps]\nrw = ['{}']\n", allowed.display());
    env.policy(&caps);
    let text = link.to_str().unwrap();
    let set = format!("LINK={text}");
    let run = || env.command(&["-q", "--rw", text, "--env", &set, "--shell", WRITE]);
    // Control: by name it is where the link leads, and the policy tells the two apart.
    point_to(&forbidden);
    let mut shell = env.clean(std::path::Path::new("/bin/sh"));
    Running::start(shell.args(["-c", WRITE]).env("LINK", &link)).answer().expect(0);
    assert!(made(&forbidden));
    env.answer(&mut run()).expect(122);
    point_to(&allowed);
    let (running, pauses) = start_held(&env, &mut run(), "launching");
    point_to(&forbidden);
    pauses.release("launching");
    running.answer().expect(0);
    assert!(made(&allowed) && !made(&forbidden));
    // The directory itself gives way to a link.
    point_to(&allowed);
    let (running, pauses) = start_held(&env, &mut run(), "launching");
    std::fs::rename(&allowed, env.at("moved")).unwrap();
    std::os::unix::fs::symlink(&forbidden, &allowed).unwrap();
    pauses.release("launching");
    assert_ne!(running.answer().code, Some(0));
    assert!(!made(&forbidden));
}
