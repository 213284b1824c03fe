//! Changes to files have the same result as outside of the sandbox, and side effects of a run alone make no version.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, runner};
use crate::support;

fn notes(answer: &Value) -> Vec<&str> {
    answer["result"]["notes"].as_array().unwrap().iter().map(|note| note["code"].as_str().unwrap()).collect()
}

#[test]
fn a_file_that_is_created_and_removed_again_is_not_a_change() {
    let env = TestEnv::with_project();
    for options in [&[][..], &["--scratch", "disk"], &["--backend", "copy"], &["--reproducible"]] {
        let line = "echo x > new; mkdir -p src/d; touch src/d/f; rm -r new src/d; : > /tmp/done";
        let answer = env.json(options, line);
        assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
        assert_eq!(answer["result"]["fork"], json!(null), "{options:?}: {answer}");
        assert_eq!(answer["result"]["version_after"], json!(null), "{options:?}: {answer}");
    }
    // Controls: a mode, an explicitly set time and a new directory are changes.
    for line in ["chmod 700 src", "touch -d 2001-01-01 src", "mkdir made"] {
        let answer = env.json(&[], line);
        assert_ne!(answer["result"]["version_after"], json!(null), "{line}: {answer}");
    }
}

#[test]
fn mount_points_inside_the_workspace_leave_no_directories_in_the_version() {
    let env = TestEnv::with_project();
    let at = |path: &str| env.project().join(path).to_str().unwrap().to_owned();
    let (tmpfs, hide, deep) = (at("a/b/cover"), at("c/d/secret"), at("src/x/y"));
    let covers = ["--tmpfs", &tmpfs, "--hide", &hide, "--tmpfs", &deep];
    for more in [&[][..], &["--scratch", "disk"], &["--backend", "copy"]] {
        let answer = env.json(&[&covers[..], more].concat(), "echo x > a/b/cover/in; : > /tmp/done");
        assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
        assert_eq!(answer["result"]["version_after"], json!(null), "{more:?}: {answer}");
    }
    // Files that the command creates next to a mount point are kept, with their directories.
    for (more, fork) in [
        (&["--scratch", "memory"][..], "one"),
        (&["--scratch", "disk"], "two"),
        (&["--backend", "copy"], "three"),
    ] {
        let options = [&covers[..], more, &["--fork", fork]].concat();
        env.json(&options, "echo 1 > a/beside; echo x > a/b/cover/in; echo 2 > src/new");
        let found = "find . -mindepth 1 | sort | tr '\\n' ' '";
        let seen = env.ok(&["--fork", fork], found);
        assert_eq!(
            seen, "./README.md ./a ./a/beside ./link ./src ./src/data.bin ./src/main.rs ./src/new ",
            "{more:?}"
        );
        let listed = env.avfs_result(&["ls", "-R", fork])["entries"].to_string();
        assert!(
            listed.contains("a/beside") && !listed.contains("a/b\"") && !listed.contains("src/x"),
            "{listed}"
        );
    }
    env.assert_sound();
}

#[test]
fn a_hidden_path_of_the_workspace_is_not_reported_as_left_out() {
    let env = TestEnv::with_project();
    let src = env.project().join("src");
    for backend in ["overlay", "copy"] {
        let options = ["--backend", backend, "--hide", src.to_str().unwrap()];
        let answer = env.json(&options, "echo x > made; ls src");
        assert_eq!(answer["result"]["changes"].as_array().unwrap().len(), 1, "{answer}");
        assert_eq!(answer["result"]["left_out"], json!([]), "{answer}");
    }
    env.assert_sound();
}

/// As in a container whose root works on the checkout of a user.
#[test]
fn root_can_write_files_of_another_user() {
    const NAME: &str = "root_can_write_files_of_another_user";
    if !support::is_root() {
        return support::skip(NAME, "only root gives files away");
    }
    let give = |path: &std::path::Path| std::os::unix::fs::chown(path, Some(1234), Some(1234)).unwrap();
    let owner = |path: &std::path::Path| std::os::unix::fs::MetadataExt::uid(&path.metadata().unwrap());
    let line = "echo x >> README.md && echo y > src/new";
    let env = TestEnv::with_project();
    let readme = env.project().join("README.md");
    for path in [&env.project(), &env.project().join("src"), &readme] {
        give(path);
    }
    // The first run scans the directory; the second one knows it from the last import.
    for options in [&["--json"][..], &["--json", "--apply"]] {
        let mut command = env.command(&[options, &["--shell", line]].concat());
        let answer = Running::start(&mut command).answer().expect(0).envelope();
        assert_ne!(answer["enforcement"]["base"], json!("live"), "{answer}");
    }
    assert_eq!(std::fs::read_to_string(&readme).unwrap(), "hello\nx\n");
    assert_eq!(owner(&readme), 1234);
    // Control: the directory itself, whose files the command cannot write.
    let answer = env.json(&["--base", "live"], "echo x >> README.md");
    assert_ne!(answer["result"]["exit_code"], json!(0), "{answer}");
    assert!(answer["result"]["notes"].to_string().contains("base.foreign"), "{answer}");
    env.assert_sound();
    // A run that keeps nothing can write them too, without an import before.
    let env = TestEnv::with_project();
    give(&env.project().join("README.md"));
    let answer = env.json(&["--base", "live", "--discard"], "echo x >> README.md");
    assert_ne!(answer["result"]["exit_code"], json!(0), "{answer}");
    assert!(answer["result"]["notes"].to_string().contains("base.foreign"), "{answer}");
    assert_eq!(env.ok(&["--discard"], "echo x >> README.md; cat README.md"), "hello\nx\n");
}

/// `avfs-run` as an unprivileged user who is a member of the group 1234; the project is given to that user.
fn as_user(env: &TestEnv, words: &[&str]) -> Value {
    const USER: u32 = 65534;
    let mut waiting = vec![env.at("")];
    while let Some(path) = waiting.pop() {
        let meta = path.symlink_metadata().unwrap();
        std::os::unix::fs::lchown(&path, Some(USER), Some(USER).filter(|_| meta.gid() != 1234)).unwrap();
        if meta.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let mut command = env.clean("setpriv".as_ref());
    command.args(["--reuid", "65534", "--regid", "65534", "--groups", "1234"]).arg(runner()).args(words);
    Running::start(&mut command).answer().envelope()
}

/// An access control list that allows another user to write.
const LIST_FOR_ANOTHER: &str = "import os, struct, sys
rows = [(1, 6, -1), (2, 6, 1234), (4, 4, -1), (16, 6, -1), (32, 4, -1)]
packed = b''.join(struct.pack('<HHi', *row) for row in rows)
os.setxattr(sys.argv[1], 'system.posix_acl_' + sys.argv[2], struct.pack('<I', 2) + packed)";

fn give_list(env: &TestEnv, path: &str, kind: &str) -> bool {
    let mut python = env.clean("python3".as_ref());
    let answer = Running::start(python.args(["-c", LIST_FOR_ANOTHER, path, kind])).answer();
    answer.code == Some(0)
}

#[test]
fn files_of_another_group_can_be_written() {
    const NAME: &str = "files_of_another_group_can_be_written";
    if !support::is_root() {
        // Only root can give a file to a group that the user is not a member of.
        return support::skip(NAME, "only root gives files away");
    }
    let shared = || {
        let env = TestEnv::new();
        env.put("f", b"1\n");
        env.put("shared/in", b"2\n");
        for (path, mode) in [("f", 0o664), ("shared", 0o2775), ("shared/in", 0o664)] {
            let path = env.project().join(path);
            std::os::unix::fs::chown(&path, None, Some(1234)).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        env
    };
    let line = "echo x >> f && echo y >> shared/in && echo z > shared/new && chmod 600 f";
    let answer = shared().json(&[], line);
    assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
    assert_eq!(answer["enforcement"]["base"], json!("live"), "{answer}");
    // The same for a member of the group, whose sandbox can map only the user's own ids.
    let env = shared();
    let user = as_user(&env, &["--json", "--shell", line]);
    assert_eq!(user["result"]["exit_code"], json!(0), "{user}");
    assert_eq!(user["enforcement"]["base"], json!("materialized"), "{user}");
    let again = as_user(&env, &["--json", "--shell", "echo more >> shared/in"]);
    assert_eq!(again["result"]["exit_code"], json!(0), "{again}");
    // Control: with the directory itself as the lower layer the kernel refuses the writes.
    let live = as_user(&env, &["--json", "--base", "live", "--shell", line]);
    assert_ne!(live["result"]["exit_code"], json!(0), "{live}");
    let notes = live["result"]["notes"].to_string();
    assert!(notes.contains("base.foreign") && notes.contains("use: --base cached"), "{notes}");
}

#[test]
fn files_with_access_lists_can_be_written() {
    const NAME: &str = "files_with_access_lists_can_be_written";
    let env = TestEnv::new();
    env.put("listed", b"1\n");
    env.put("dir/in", b"2\n");
    if !give_list(&env, "listed", "access") || !give_list(&env, "dir", "default") {
        return support::skip(NAME, "no access lists on this file system");
    }
    for _ in 0..2 {
        let answer =
            env.json(&[], "echo x >> listed && echo y > dir/new && echo z >> dir/in && mkdir dir/more");
        assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
        let is_cached = answer["enforcement"]["base"] != json!("live");
        assert_eq!(is_cached, !support::is_root(), "{answer}");
    }
}

#[test]
fn files_that_get_an_access_list_are_handled_from_the_next_run_on() {
    const NAME: &str = "files_that_get_an_access_list_are_handled_from_the_next_run_on";
    if support::is_root() {
        return support::skip(NAME, "root ignores modes");
    }
    let env = TestEnv::with_project();
    env.ok(&[], "true");
    if !give_list(&env, "README.md", "access") {
        return support::skip(NAME, "no access lists on this file system");
    }
    let answer = env.json(&[], "echo x >> README.md");
    assert!(notes(&answer).contains(&"base.foreign"), "{answer}");
    let answer = env.json(&[], "echo x >> README.md");
    assert_eq!(answer["result"]["exit_code"], json!(0), "{answer}");
    assert_eq!(answer["enforcement"]["base"], json!("materialized"), "{answer}");
}

/// Calls whose result depends on the file system of the upper layer, and one that depends on overlayfs.
const RARE_CALLS: &str = "import mmap, os, sys
def tried(name, call):
    try: call(); print(name, 'done')
    except OSError as error: print(name, error.strerror)
old, new = os.open('src/main.rs', os.O_RDONLY), os.open('new', os.O_RDWR | os.O_CREAT)
tried('copy', lambda: os.copy_file_range(old, new, 5))
mapped = mmap.mmap(old, 0, prot=mmap.PROT_READ)
with open('src/main.rs', 'r+') as file: file.write('F')
print('mapped', mapped[:1].decode())";

#[test]
fn local_git_clones_need_a_documented_option() {
    let env = TestEnv::with_project();
    let commit = "git init -q repo && cd repo && echo text > file && git add file && \
        git -c user.name=a -c user.email=a@b.c commit -q -m first";
    let mut shell = env.clean(std::path::Path::new("sh"));
    assert!(shell.args(["-c", commit]).status().unwrap().success());
    let cloned = |options: &[&str], source: &str| {
        let line = format!("git clone -q {source} clone && cat clone/file");
        env.shell(&[options, &["--discard"]].concat(), &line)
    };
    for (options, source) in
        [(&[][..], "--no-hardlinks repo"), (&[], "file://$PWD/repo"), (&["--backend", "copy"], "repo")]
    {
        assert_eq!(cloned(options, source).expect(0).text(), "text\n", "{options:?} {source}");
    }
    // Control. Newer versions of git may not compare inode numbers.
    let refused = cloned(&[], "repo");
    assert!(refused.code == Some(0) || refused.stderr.contains("hardlink different"), "{refused:?}");
}

#[test]
fn the_documented_workarounds_for_overlayfs_work() {
    let env = TestEnv::with_project();
    let called = |options: &[&str]| {
        let words = [options, &["--discard", "--", "python3", "-c", RARE_CALLS]].concat();
        env.run(&words).expect(0).text()
    };
    // A scratch on disk is on the same file system as the project.
    assert_eq!(called(&["--scratch", "disk"]), "copy done\nmapped f\n");
    assert_eq!(called(&["--backend", "copy"]), "copy done\nmapped F\n");
    // Control, also documented.
    assert_eq!(called(&["--scratch", "memory"]), "copy Invalid cross-device link\nmapped f\n");
}
