//! Exports into an existing directory: either the result is exact, or the export is refused before anything changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::XattrFlags;

use crate::env::TestEnv;
use crate::support::snapshot;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn export_overwrites_files_in_read_only_directories() {
    let env = TestEnv::new();
    let write = |text: &str| {
        for dir in ["a", "m", "z"] {
            env.put(&format!("{dir}/f"), text.as_bytes());
        }
    };
    write("first");
    set_mode(&env.project().join("m"), 0o555);
    env.ok(&["init", "--import"]);
    env.ok(&["export", "main", "../out"]);
    set_mode(&env.project().join("m"), 0o755);
    write("second");
    set_mode(&env.project().join("m"), 0o555);
    env.ok(&["import"]);
    env.ok(&["export", "main", "../out", "--overwrite"]);
    for dir in ["a", "m", "z"] {
        assert_eq!(fs::read(env.at(&format!("out/{dir}/f"))).unwrap(), b"second");
    }
    let mode = fs::metadata(env.at("out/m")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o555);
    for dir in [env.at("out/m"), env.project().join("m")] {
        set_mode(&dir, 0o755);
    }
}

#[test]
fn export_overwrites_paths_longer_than_path_max() {
    let env = TestEnv::new();
    let name = "d".repeat(200);
    env.put("top", b"top\n");
    env.ok(&["init", "--import"]);
    let deep = vec![name.as_str(); 25].join("/");
    for text in ["first", "second"] {
        env.ok(&["write", &format!("{deep}/f"), "--text", text]);
        env.ok(&["export", "main", "../out", "--overwrite"]);
        env.ok(&["import", "../out", "--fork", "main"]);
        assert_eq!(env.ok(&["cat", "main", &format!("{deep}/f")]), text);
    }
}

#[test]
fn export_removes_extra_attributes_of_existing_directories() {
    let env = TestEnv::new();
    env.put("d/f", b"f\n");
    let set = |path: &Path, name: &str| {
        rustix::fs::setxattr(path, name, b"1", XattrFlags::empty()).unwrap();
    };
    set(&env.project().join("d"), "user.kept");
    env.ok(&["init", "--import"]);
    env.ok(&["export", "main", "../out"]);
    set(&env.at("out/d"), "user.extra");
    set(&env.at("out"), "user.extra");
    env.ok(&["export", "main", "../out", "--overwrite"]);
    fs::rename(env.project().join(".avfs"), env.at("vault-away")).unwrap();
    rustix::fs::utimensat(
        rustix::fs::CWD,
        env.project(),
        &rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
            last_modification: {
                use std::os::unix::fs::MetadataExt;
                let meta = fs::metadata(env.at("out")).unwrap();
                rustix::fs::Timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() }
            },
        },
        rustix::fs::AtFlags::empty(),
    )
    .unwrap();
    snapshot::assert_same(&env.project(), &env.at("out"));
}

#[test]
fn export_sets_attributes_of_a_read_only_directory() {
    let env = TestEnv::new();
    env.put("d/f", b"f\n");
    env.put("top", b"first\n");
    rustix::fs::setxattr(env.project().join("d"), "user.kept", b"1", XattrFlags::empty()).unwrap();
    env.ok(&["init", "--import"]);
    env.ok(&["rm", "d/f"]);
    fs::create_dir_all(env.at("out/d")).unwrap();
    set_mode(&env.at("out/d"), 0o555);
    env.ok(&["export", "main", "../out", "--overwrite"]);
    let mut value = [0; 8];
    assert_eq!(rustix::fs::getxattr(env.at("out/d"), "user.kept", &mut value).unwrap(), 1);
}
