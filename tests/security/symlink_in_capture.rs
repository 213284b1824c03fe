//! Tried: having the capture, the export or an apply read or write a file of the host by a link that the command
//! leaves where a file or a directory was.
//! Stopped by: all of them walk by descriptor and follow no link.

use crate::env::TestEnv;

#[test]
fn a_link_that_is_left_behind_is_kept_as_a_link() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/main.rs"), "host's secret").unwrap();
    let target = env.at("victims").display().to_string();
    let line = format!("rm -r src README.md; ln -s {target} src; ln -s {target}/main.rs README.md");
    // Control: whoever follows links finds the secret.
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
fn an_apply_does_not_write_through_a_link_of_the_host() {
    let env = TestEnv::with_project();
    std::fs::create_dir(env.at("victims")).unwrap();
    std::fs::write(env.at("victims/main.rs"), "precious").unwrap();
    let run = env.json(&[], "echo hostile > src/main.rs; echo hostile > src/new");
    // Meanwhile the directory has become a link.
    std::fs::rename(env.project().join("src"), env.at("src-was")).unwrap();
    std::os::unix::fs::symlink(env.at("victims"), env.project().join("src")).unwrap();
    // Control: by its path the victim is what would be written.
    assert_eq!(std::fs::read_to_string(env.project().join("src/main.rs")).unwrap(), "precious");
    let answer = env.avfs(&["apply", &format!("run:{}", run["run_id"].as_str().unwrap())]);
    assert_ne!(answer.code, Some(0), "{answer:?}");
    assert_eq!(std::fs::read_to_string(env.at("victims/main.rs")).unwrap(), "precious");
    assert!(!env.at("victims/new").exists());
}
