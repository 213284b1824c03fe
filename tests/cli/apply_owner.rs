//! Owner, group, ACL and extended attributes of the files that an apply replaces.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::XattrFlags;
use serde_json::json;

use crate::env::{Answer, TestEnv, USER, binary};
use crate::support;

const LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";
/// A group that [`USER`] is not in.
const OTHER_GROUP: u32 = USER + 1;

/// An ACL with these rights of the owner, of a user, of the group, of the mask and of others.
fn list_of(owner: u16, (user, user_rights): (u32, u16), [group, mask, other]: [u16; 3]) -> Vec<u8> {
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let any = u32::MAX;
    let entries = [
        entry(1, owner, any),
        entry(2, user_rights, user),
        entry(4, group, any),
        entry(0x10, mask, any),
        entry(0x20, other, any),
    ];
    [&2_u32.to_le_bytes()[..], &entries.concat()].concat()
}

/// An ACL: user::rw- user:1000:rwx group::r-- mask::rwx other::r--
fn access_list() -> Vec<u8> {
    list_of(6, (1000, 7), [4, 7, 4])
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
            let hint = value["error"]["hint"].as_str().unwrap();
            assert!(hint.contains("--exclude"), "{answer:?}");
            // The owner of a file can give it to a group, but not to an owner.
            let remedy = format!("chgrp GROUP {file}; or leave it out with: --exclude {file}");
            assert_eq!(hint.ends_with(&remedy), what == "group", "{answer:?}");
            assert_eq!(std::fs::read_to_string(at("a")).unwrap(), "old\n");
            assert_eq!(std::fs::read_to_string(at(file)).unwrap(), "old\n");
        }
        as_user(&["apply", fork, "--exclude", file]);
        assert_eq!(std::fs::read_to_string(at("a")).unwrap(), "new\n");
        as_user(&["unapply", fork]);
    }
}

/// Renames files and a directory; `other` is the only one that changes.
const RENAME: &str =
    "mv old moved; mv dir renamed; mkdir fresh; mv renamed/sub/deep fresh/; echo more >> other";

/// Files that a version renames are written again, with what they have under their old names.
#[test]
fn renamed_files_and_directories_keep_owners_acls_and_flags() {
    let test = "cli::apply_owner::renamed_files_and_directories_keep_owners_acls_and_flags";
    let env = TestEnv::new();
    let at = |name: &str| env.project().join(name);
    std::fs::create_dir_all(at("dir/sub/deep")).unwrap();
    for name in ["old", "other", "dir/one", "dir/sub/two", "dir/sub/deep/three"] {
        env.put(name, format!("content of {name}\n").as_bytes());
    }
    let names = ["dir", "dir/one", "dir/sub", "dir/sub/deep", "dir/sub/deep/three", "dir/sub/two", "old"];
    let renamed = [
        "renamed",
        "renamed/one",
        "renamed/sub",
        "fresh/deep",
        "fresh/deep/three",
        "renamed/sub/two",
        "moved",
    ];
    for name in ["old", "dir/one"] {
        if rustix::fs::setxattr(at(name), LIST, &access_list(), XattrFlags::empty()).is_err() {
            return support::skip(test, "no access lists on this file system");
        }
        let file = std::fs::File::open(at(name)).unwrap();
        if let Ok(flags) = rustix::fs::ioctl_getflags(&file) {
            rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::NODUMP).unwrap();
        }
    }
    if support::is_root() {
        for name in names {
            chown(at(name), Some(USER), Some(OTHER_GROUP)).unwrap();
        }
    }
    // Inside, root has no capability to write to directories of others.
    for name in ["dir", "dir/sub", "dir/sub/deep"] {
        std::fs::set_permissions(at(name), PermissionsExt::from_mode(0o777)).unwrap();
    }
    let state = |names: &[&str]| -> Vec<_> {
        let one = |name: &&str| {
            let meta = std::fs::symlink_metadata(at(name)).unwrap();
            let flags = rustix::fs::ioctl_getflags(std::fs::File::open(at(name)).unwrap()).ok();
            let mut list = vec![0; 1024];
            let list =
                rustix::fs::getxattr(at(name), LIST, &mut list[..]).map(|length| list[..length].to_vec());
            (meta.uid(), meta.gid(), meta.mode(), flags, list)
        };
        names.iter().map(one).collect()
    };
    let before = state(&names);
    env.ok(&["init", "--import"]);
    env.ok(&["run", "--apply", "--shell", RENAME]);
    assert_eq!(state(&renamed), before);
    assert!(!at("old").exists() && !at("dir").exists());
    env.ok(&["unapply"]);
    assert_eq!(state(&names), before);
    assert!(!at("moved").exists() && !at("fresh").exists());
}

/// Writing these files under their new names would change their owner or group.
#[test]
fn apply_names_renamed_files_whose_owner_it_cannot_keep() {
    let test = "cli::apply_owner::apply_names_renamed_files_whose_owner_it_cannot_keep";
    if !support::is_root() {
        return support::skip(test, "only root gives files away");
    }
    let env = TestEnv::new();
    for name in ["a", "dir/of-group", "of-root"] {
        env.put(name, format!("content of {name}\n").as_bytes());
    }
    env.give_away();
    let at = |name: &str| env.project().join(name);
    chown(at("of-root"), Some(0), Some(0)).unwrap();
    chown(at("dir/of-group"), Some(USER), Some(OTHER_GROUP)).unwrap();
    assert_eq!(env.run_as_user(&["init", "--import"]).code, 0);
    for (line, what, file) in [
        ("mv a b; mv of-root of-user", "owner", "of-root"),
        ("mv a b; mv dir moved", "group", "dir/of-group"),
    ] {
        let ran = env.run_as_user(&["run", "--base", "cached", "--shell", line]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let answer = env.run_as_user(&["--json", "apply", "last"]);
        let value: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
        assert_eq!(value["error"]["code"], json!("apply.owner"), "{answer:?}");
        let message = format!("cannot preserve the {what} of {file}; nothing was written");
        assert_eq!(value["error"]["message"], json!(message), "{answer:?}");
        assert!(at("a").exists() && at(file).exists() && !at("b").exists());
    }
}

/// Creates entries in the directory `special`, and in one beside it.
const CREATE: &str = "umask 022; echo 1 > special/new; mkdir -p special/sub/deep; echo 2 > special/sub/deep/file; \
    ln -s x special/link; mkfifo special/pipe; echo 3 > plain/new; echo 4 > special/old";

/// The owner, group, mode and ACLs of the entries that [`CREATE`] makes.
fn created(dir: &Path) -> Vec<String> {
    let list = |path: &Path, name| {
        let mut value = vec![0; 1024];
        rustix::fs::lgetxattr(path, name, &mut value[..]).ok().map(|length| value[..length].to_vec())
    };
    let names = ["new", "sub", "sub/deep", "sub/deep/file", "link", "pipe", "old"];
    let names = names.map(|name| format!("special/{name}")).into_iter().chain(["plain/new".to_owned()]);
    let shown = names.map(|name| {
        let path = dir.join(&name);
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let lists = (list(&path, LIST), list(&path, DEFAULT_LIST));
        format!("{name}: {} {} {:o} {lists:?}", meta.uid(), meta.gid(), meta.mode())
    });
    shown.collect()
}

/// A project with the directories `special` and `plain`, and a copy of it for a command outside of a sandbox.
fn with_copy(prepare: impl Fn(&Path)) -> (TestEnv, std::path::PathBuf) {
    let env = TestEnv::new();
    let native = env.at("native");
    for dir in [env.project(), native.clone()] {
        for part in ["special", "plain"] {
            std::fs::create_dir_all(dir.join(part)).unwrap();
            std::fs::write(dir.join(part).join("old"), "old\n").unwrap();
        }
        prepare(&dir.join("special"));
    }
    (env, native)
}

#[test]
fn new_entries_inherit_the_default_acl_of_their_directory() {
    let test = "cli::apply_owner::new_entries_inherit_the_default_acl_of_their_directory";
    let acl = list_of(7, (rustix::process::geteuid().as_raw(), 7), [7, 7, 5]);
    let (env, native) = with_copy(|dir| {
        // Fails if the file system has no ACLs, which is checked below.
        let _ = rustix::fs::setxattr(dir, DEFAULT_LIST, &acl, XattrFlags::empty());
    });
    if rustix::fs::getxattr(native.join("special"), DEFAULT_LIST, &mut vec![0; 1024][..]).is_err() {
        return support::skip(test, "no access lists on this file system");
    }
    let mut shell = env.clean(Path::new("/bin/sh"));
    assert_eq!(Answer::of(shell.args(["-c", CREATE]).current_dir(&native)).code, 0);
    env.ok(&["init", "--import"]);
    env.ok(&["run", "--apply", "--shell", CREATE]);
    assert_eq!(created(&env.project()), created(&native));
    assert_eq!(attribute(&env.project().join("special/sub/deep"), DEFAULT_LIST), acl);
    // A directory that has no default ACL passes on none, even if that of the vault does.
    let vault_dir = env.project().join(".avfs");
    rustix::fs::setxattr(&vault_dir, DEFAULT_LIST, &acl, XattrFlags::empty()).unwrap();
    env.ok(&["run", "--apply", "--shell", "echo 5 > plain/newer; echo 6 > plain/old"]);
    for name in ["plain/newer", "plain/old"] {
        let there = rustix::fs::getxattr(env.project().join(name), LIST, &mut vec![0; 1024][..]);
        assert_eq!(there, Err(rustix::io::Errno::NODATA), "{name}");
    }
}

/// A member of the group applies what root does; for another user, everything is refused before anything is written.
#[test]
fn new_entries_inherit_the_group_of_a_setgid_directory() {
    let test = "cli::apply_owner::new_entries_inherit_the_group_of_a_setgid_directory";
    if !support::is_root() {
        return support::skip(test, "only root can join groups");
    }
    let (user, group) = (USER.to_string(), OTHER_GROUP.to_string());
    let of_user = ["setpriv", "--reuid", &user, "--regid", &user];
    let member = [&of_user[..], &["--groups", &group]].concat();
    let other = [&of_user[..], &["--clear-groups"]].concat();
    for (who, can_apply) in [(&["env"][..], true), (&member, true), (&other, false)] {
        let (env, native) = with_copy(|_| {});
        if who.len() > 1 {
            env.give_away();
        }
        for dir in [env.project(), native.clone()] {
            chown(dir.join("special"), None, Some(OTHER_GROUP)).unwrap();
            std::fs::set_permissions(dir.join("special"), PermissionsExt::from_mode(0o2775)).unwrap();
        }
        let start = |program: &Path, words: &[&str]| {
            let mut command = env.clean(Path::new(who[0]));
            command.args(&who[1..]).arg(program).args(words);
            command
        };
        assert_eq!(Answer::of(start(Path::new("/bin/sh"), &["-c", CREATE]).current_dir(&native)).code, 0);
        let avfs = |words: &[&str]| Answer::of(start(&binary(), words));
        for words in [&["init", "--import"][..], &["run", "--shell", CREATE]] {
            let answer = avfs(words);
            assert_eq!(answer.code, 0, "{who:?} {answer:?}");
        }
        let answer = avfs(&["apply"]);
        if can_apply {
            assert_eq!(answer.code, 0, "{who:?} {answer:?}");
            assert_eq!(created(&env.project()), created(&native), "{who:?}");
            let answer = avfs(&["unapply"]);
            assert_eq!(answer.code, 0, "{who:?} {answer:?}");
            assert!(!env.project().join("special/new").exists());
        } else {
            assert!(answer.stderr.contains("cannot preserve the group of special/"), "{answer:?}");
            assert_eq!(std::fs::read_to_string(env.project().join("special/old")).unwrap(), "old\n");
            assert!(!env.project().join("plain/new").exists());
            let answer = avfs(&["apply", "--exclude", "special"]);
            assert_eq!(answer.code, 0, "{answer:?}");
            assert!(env.project().join("plain/new").exists());
        }
    }
}
