//! Owner, group, ACL and extended attributes of the files that an apply replaces.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use rustix::fs::XattrFlags;
use serde_json::json;

use crate::env::{TestEnv, USER};
use crate::support;

const LIST: &str = "system.posix_acl_access";
/// A group that [`USER`] is not in.
const OTHER_GROUP: u32 = USER + 1;

/// An ACL: user::rw- user:1000:rwx group::r-- mask::rwx other::r--
fn access_list() -> Vec<u8> {
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let any = u32::MAX;
    let entries =
        [entry(1, 6, any), entry(2, 7, 1000), entry(4, 4, any), entry(0x10, 7, any), entry(0x20, 4, any)];
    [&2_u32.to_le_bytes()[..], &entries.concat()].concat()
}

fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 1024];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

fn identity(path: &Path) -> (u32, u32, u32, String) {
    let meta = std::fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o7777, std::fs::read_to_string(path).unwrap())
}

#[test]
fn apply_keeps_acls_and_flags() {
    let test = "cli::apply_owner::apply_keeps_acls_and_flags";
    let env = TestEnv::with_project();
    let file = env.project().join("README.md");
    if rustix::fs::setxattr(&file, LIST, &access_list(), XattrFlags::empty()).is_err() {
        return support::skip(test, "no access lists on this file system");
    }
    let open = || std::fs::File::open(&file).unwrap();
    let flags = || rustix::fs::ioctl_getflags(open()).ok();
    let nodump = rustix::fs::IFlags::NODUMP;
    if let Some(now) = flags() {
        rustix::fs::ioctl_setflags(open(), now | nodump).unwrap();
    }
    let before = flags();
    env.run(&["import"]);
    env.ok(&["fork", "create", "fix"]);
    env.ok(&["write", "README.md", "--text", "new\n", "--fork", "fix"]);
    env.ok(&["apply", "fix"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new\n");
    assert_eq!(attribute(&file, LIST), access_list());
    assert_eq!(flags(), before, "including the file system's own flags (extents)");
    env.ok(&["unapply", "fix"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello\n");
    assert_eq!(attribute(&file, LIST), access_list());
    assert_eq!(flags(), before);
}

#[test]
fn apply_by_root_keeps_the_owners_of_files() {
    let test = "cli::apply_owner::apply_by_root_keeps_the_owners_of_files";
    if !support::is_root() {
        return support::skip(test, "only root gives files away");
    }
    let env = TestEnv::with_project();
    let at = |name: &str| env.project().join(name);
    for (name, user, group) in [("README.md", USER, OTHER_GROUP), ("src/main.rs", 0, OTHER_GROUP)] {
        chown(at(name), Some(user), Some(group)).unwrap();
    }
    std::os::unix::fs::lchown(at("link"), Some(USER), Some(USER)).unwrap();
    rustix::fs::setxattr(at("README.md"), "trusted.test", b"1", XattrFlags::empty()).unwrap();
    env.run(&["import"]);
    env.ok(&["fork", "create", "fix"]);
    for name in ["README.md", "src/main.rs", "src/new"] {
        env.ok(&["write", name, "--text", "new\n", "--fork", "fix"]);
    }
    env.ok(&["apply", "fix"]);
    assert_eq!(identity(&at("README.md")), (USER, OTHER_GROUP, 0o644, "new\n".to_owned()));
    assert_eq!(identity(&at("src/main.rs")), (0, OTHER_GROUP, 0o644, "new\n".to_owned()));
    assert_eq!(identity(&at("src/new")), (0, 0, 0o644, "new\n".to_owned()));
    assert_eq!(attribute(&at("README.md"), "trusted.test"), b"1");
    env.ok(&["unapply", "fix"]);
    assert_eq!(identity(&at("README.md")), (USER, OTHER_GROUP, 0o644, "hello\n".to_owned()));
    assert!(!at("src/new").exists());
}

/// Replacing these files would change their owner or group: they are named, and nothing is written.
#[test]
fn apply_names_files_whose_owner_it_cannot_keep() {
    let test = "cli::apply_owner::apply_names_files_whose_owner_it_cannot_keep";
    if !support::is_root() {
        return support::skip(test, "only root gives files away");
    }
    let env = TestEnv::new();
    for name in ["a", "of-root", "of-group"] {
        env.put(name, b"old\n");
    }
    env.give_away();
    let at = |name: &str| env.project().join(name);
    chown(at("of-root"), Some(0), Some(0)).unwrap();
    chown(at("of-group"), Some(USER), Some(OTHER_GROUP)).unwrap();
    let as_user = |words: &[&str]| {
        let answer = env.run_as_user(words);
        assert_eq!(answer.code, 0, "{answer:?}");
    };
    as_user(&["init", "--import"]);
    for (fork, file, what) in [("one", "of-root", "owner"), ("two", "of-group", "group")] {
        as_user(&["fork", "create", fork]);
        for name in ["a", file] {
            as_user(&["write", name, "--text", "new\n", "--fork", fork]);
        }
        for trial in [&["--dry-run"][..], &[]] {
            let answer = env.run_as_user(&[&["--json", "apply", fork], trial].concat());
            let value: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
            assert_eq!(value["error"]["code"], json!("apply.owner"), "{answer:?}");
            let message = format!("cannot preserve the {what} of {file}; nothing was written");
            assert_eq!(value["error"]["message"], json!(message), "{answer:?}");
            assert!(value["error"]["hint"].as_str().unwrap().contains("--exclude"), "{answer:?}");
            assert_eq!(std::fs::read_to_string(at("a")).unwrap(), "old\n");
            assert_eq!(std::fs::read_to_string(at(file)).unwrap(), "old\n");
        }
        as_user(&["apply", fork, "--exclude", file]);
        assert_eq!(std::fs::read_to_string(at("a")).unwrap(), "new\n");
        as_user(&["unapply", fork]);
    }
}
