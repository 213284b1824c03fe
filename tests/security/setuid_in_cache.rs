//! Tried: leaving a setuid program in a directory of `cache.dirs`, for other users of the host to execute.
//! Stopped by: the cache directories are made with mode 0700, so no other user can reach it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::env::{Running, TestEnv};
use crate::support;

#[test]
fn setuid_program_in_the_cache_cannot_be_reached() {
    let env = TestEnv::with_project();
    env.put(".avfs/avfs.toml", b"[cache]\ndirs = [\"kept\"]\n");
    env.ok(&[], "cp /usr/bin/id kept/id; chmod 777 kept; chmod 6755 kept/id");
    let only_entry = |dir: &Path| -> PathBuf {
        let mut entries = std::fs::read_dir(env.at("cache").join(dir)).unwrap();
        dir.join(entries.next().unwrap().unwrap().file_name())
    };
    let vault_dir = only_entry(Path::new("avfs/dirs"));
    let program = only_entry(&vault_dir).join("id");
    let above = [Path::new("avfs"), Path::new("avfs/dirs"), &vault_dir];
    for dir in above {
        let mode = env.at("cache").join(dir).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", dir.display());
    }
    if !support::is_root() {
        let reason = "only root becomes other users";
        return support::skip("setuid_program_in_the_cache_cannot_be_reached", reason);
    }
    // A relative path, because the directories above the cache may be closed too.
    let executed = || {
        let mut command = env.clean(Path::new("python3"));
        let text = "import os, sys; os.setuid(12345); os.execv(sys.argv[1], ['id', '-u'])";
        command.args(["-c", text]).arg(&program).current_dir(env.at("cache"));
        Running::start(&mut command).answer().text()
    };
    assert_eq!(executed(), "");
    for dir in above {
        std::fs::set_permissions(env.at("cache").join(dir), PermissionsExt::from_mode(0o755)).unwrap();
    }
    assert_eq!(executed(), "0\n", "the control failed");
}
