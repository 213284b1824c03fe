//! Tried: reading the home directory of the caller: keys, tokens, histories.
//! Stopped by: the home directory inside is an empty tmpfs.

use crate::attempt::{assert_all_gained, assert_nothing_gained, inside, natively};
use crate::env::TestEnv;

const NAMES: [&str; 4] = [".ssh/id_ed25519", ".netrc", ".config/gh/hosts.yml", ".bash_history"];

#[test]
fn home_directory_is_empty() {
    let env = TestEnv::with_project();
    for name in NAMES {
        let path = env.at("home").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "precious").unwrap();
    }
    let look =
        format!("for name in {NAMES:?}: tried(name, lambda: open(os.path.expanduser('~/' + name)).close())");
    assert_all_gained(&natively(&env, &look), &NAMES);
    for options in [&[][..], &["--backend", "copy"], &["--fork", "f"]] {
        assert_nothing_gained(&inside(&env, options, &look), &NAMES);
    }
    assert_eq!(env.ok(&[], "ls -A ~"), "");
    env.ok(&[], "echo hostile > ~/.bashrc; mkdir ~/.ssh; echo hostile > ~/.ssh/authorized_keys");
    assert!(!env.at("home/.bashrc").exists() && !env.at("home/.ssh/authorized_keys").exists());
}
