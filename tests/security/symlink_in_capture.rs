//! Tried: making a capture, an export or an apply read or write a host file, through a symlink that the command leaves
//! in place of a file or a directory.
//! Stopped by: all of them walk by descriptor and follow no symlink.

use crate::env::TestEnv;

#[test]
fn symlink_left_by_a_command_is_captured_as_a_symlink() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/main.rs"), "host's secret").unwrap();
    let target = env.at("victims").display().to_string();
    let line = format!("rm -r src README.md; ln -s {target} src; ln -s {target}/main.rs README.md");
    // Control: following symlinks finds the secret.
    std::os::unix::fs::symlink(&target, env.at("control")).unwrap();
    assert_eq!(std::fs::read_to_string(env.at("control/main.rs")).unwrap(), "host's secret");
    for options in [&["--scratch", "memory"][..], &["--scratch", "disk"], &["--backend", "copy"]] {
        let envelope = env.json(options, &line);
        let run = format!("run:{}", envelope["run_id"].as_str().unwrap());
        let out = env.export(&run, &format!("out-{}", options[1]));
        assert_eq!(std::fs::read_link(out.join("src")).unwrap().to_str(), Some(&*target));
        assert!(out.join("README.md").symlink_metadata().unwrap().is_symlink());
        let stored = std::fs::read(env.vault_file()).unwrap();
        assert!(!stored.windows(13).any(|part| part == b"host's secret"), "the target was captured");
    }
    env.assert_sound();
}

#[test]
fn apply_does_not_write_through_a_symlink_of_the_host() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/main.rs"), "precious").unwrap();
    let run = env.json(&[], "echo hostile > src/main.rs; echo hostile > src/new");
    // Meanwhile the directory has become a symlink.
    std::fs::rename(env.project().join("src"), env.at("src-was")).unwrap();
    std::os::unix::fs::symlink(env.at("victims"), env.project().join("src")).unwrap();
    // Control: by its path the victim would be written.
    assert_eq!(std::fs::read_to_string(env.project().join("src/main.rs")).unwrap(), "precious");
    let answer = env.avfs(&["apply", &format!("run:{}", run["run_id"].as_str().unwrap())]);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    assert_eq!(std::fs::read_to_string(env.at("victims/main.rs")).unwrap(), "precious");
    assert!(!env.at("victims/new").exists());
}
