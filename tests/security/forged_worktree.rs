//! Tried: reading a directory of the host by making the workspace look like a linked worktree of it.
//! Stopped by: a repository is shown only if it lies outside, lists the worktree and is named `.git` or bare; and only
//! git's own entries of it are shown, never through a symlink.

use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::attempt::{assert_all_gained, assert_nothing_gained, program};
use crate::env::{Answer, Running, TestEnv, avfs, runner};
use crate::shared::start_held;

/// A directory with a secret, and a workspace that claims to be a worktree of it.
struct Forged {
    env: TestEnv,
    dir: PathBuf,
    workspace: PathBuf,
}

impl Forged {
    /// `workspace` and `entry` are relative to the directory with the secret.
    fn new(workspace: &str, entry: &str) -> Self {
        let env = TestEnv::new();
        let dir = env.at("secret");
        let (workspace, entry) = (dir.join(workspace), dir.join(entry));
        create_dir_all(&workspace).unwrap();
        create_dir_all(&entry).unwrap();
        create_dir_all(dir.join("keys")).unwrap();
        for key in ["key", "keys/key"] {
            write(dir.join(key), "precious").unwrap();
        }
        write(workspace.join(".git"), format!("gitdir: {}\n", entry.display())).unwrap();
        write(entry.join("gitdir"), format!("{}\n", workspace.join(".git").display())).unwrap();
        write(entry.join("commondir"), "../..\n").unwrap();
        let mut init = env.clean(&avfs());
        Running::start(init.current_dir(&workspace).arg("init")).answer().expect(0);
        Self { env, dir, workspace }
    }

    fn start(&self, program: &Path, words: &[&str]) -> Answer {
        let mut command = self.env.clean(program);
        Running::start(command.current_dir(&self.workspace).args(words)).answer()
    }

    fn attempt(&self, names: &[&str]) -> String {
        let dir = self.dir.to_str().unwrap();
        program(&format!("for name in {names:?}: tried(name, lambda: open({dir:?} + '/' + name).close())"))
    }

    /// Fails unless these files can be read outside of the sandbox, and inside only if the directory is shown.
    #[track_caller]
    fn assert_not_shown(&self, names: &[&str]) {
        let attempt = self.attempt(names);
        let inside = |options: &[&str]| {
            self.start(&runner(), &[options, &["--", "python3", "-c", &attempt]].concat()).expect(0)
        };
        // Controls: without a sandbox, and if the directory is shown on purpose.
        assert_all_gained(&self.start(Path::new("python3"), &["-c", &attempt]).expect(0), names);
        assert_all_gained(&inside(&["--ro", self.dir.to_str().unwrap()]), names);
        for options in [&[][..], &["--fork", "f"], &["--backend", "copy"], &["--readonly"]] {
            assert_nothing_gained(&inside(options), names);
        }
        for name in names {
            let path = self.dir.join(name);
            let seen = self.start(&runner(), &["--policy", "agent", "--", "cat", path.to_str().unwrap()]);
            assert!(!seen.text().contains("precious"), "{seen:?}");
        }
    }
}

const KEYS: [&str; 2] = ["key", "keys/key"];

#[test]
fn workspace_that_is_its_own_entry_shows_nothing() {
    for gitdir in ["gitdir: .\n", "gitdir: ../x\n", "gitdir: link\n"] {
        let forged = Forged::new("worktrees/x", "worktrees/x");
        symlink("../x", forged.workspace.join("link")).unwrap();
        write(forged.workspace.join(".git"), gitdir).unwrap();
        forged.assert_not_shown(&KEYS);
    }
}

#[test]
fn entry_in_the_workspace_shows_nothing() {
    let forged = Forged::new("tree", "tree/.entries/worktrees/x");
    for common in ["../../../..", forged.dir.to_str().unwrap()] {
        write(forged.workspace.join(".entries/worktrees/x/commondir"), common).unwrap();
        forged.assert_not_shown(&KEYS);
    }
}

#[test]
fn directory_that_is_no_repository_is_not_shown() {
    // A command with another workspace may have written the entry.
    let forged = Forged::new("tree", "worktrees/x");
    forged.assert_not_shown(&KEYS);
    write(forged.dir.join("config"), "[core]\n\tbare = false\n").unwrap();
    forged.assert_not_shown(&KEYS);
    // Nor is another directory than the one with the entry.
    let other = Forged::new("tree", "other/.git/worktrees/x");
    write(other.dir.join("other/.git/worktrees/x/commondir"), "../../../..").unwrap();
    other.assert_not_shown(&KEYS);
}

#[test]
fn repository_around_other_files_shows_only_entries_of_git() {
    let forged = Forged::new("tree", "worktrees/x");
    write(forged.dir.join("config"), "[core]\n\tbare = true\n").unwrap();
    write(forged.dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    symlink("keys", forged.dir.join("objects")).unwrap();
    symlink("key", forged.dir.join("packed-refs")).unwrap();
    forged.assert_not_shown(&["key", "keys/key", "objects/key", "packed-refs"]);
    // Control: an entry of git is shown.
    let head = forged.dir.join("HEAD");
    let seen = forged.start(&runner(), &["--", "cat", head.to_str().unwrap()]).expect(0);
    assert!(seen.text().starts_with("ref: "), "{seen:?}");
    // A command cannot add entries either, on the host or for itself.
    let write = format!("tried('write', lambda: open({:?} + '/new', 'w'))", forged.dir.to_str().unwrap());
    let write = program(&write);
    assert_nothing_gained(&forged.start(&runner(), &["--", "python3", "-c", &write]), &["write"]);
    assert_all_gained(&forged.start(Path::new("python3"), &["-c", &write]), &["write"]);
    // A socket in its place would lead to a process of the host.
    std::fs::remove_file(&head).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&head).unwrap();
    let connect = format!(
        "import socket; tried('HEAD', lambda: socket.socket(socket.AF_UNIX).connect({:?}))",
        head.to_str().unwrap()
    );
    let connect = program(&connect);
    assert_all_gained(&forged.start(Path::new("python3"), &["-c", &connect]), &["HEAD"]);
    assert_nothing_gained(&forged.start(&runner(), &["--", "python3", "-c", &connect]), &["HEAD"]);
}

#[test]
fn entry_that_is_replaced_after_the_check_is_not_shown() {
    let swaps: [fn(&Path, &Path); 2] =
        [|from, to| symlink(from, to).unwrap(), |from, to| std::fs::rename(from, to).unwrap()];
    for swap in swaps {
        let forged = Forged::new("tree", "repo/.git/worktrees/x");
        let objects = forged.dir.join("repo/.git/objects");
        create_dir_all(&objects).unwrap();
        let key = objects.join("key");
        let mut command = forged.env.command(&["--json", "--", "cat", key.to_str().unwrap()]);
        command.current_dir(&forged.workspace);
        let (running, pauses) = start_held(&forged.env, &mut command, "launching");
        std::fs::rename(&objects, forged.dir.join("moved")).unwrap();
        swap(&forged.dir.join("keys"), &objects);
        pauses.release("launching");
        let refused = running.answer().expect(121).envelope();
        assert_eq!(refused["error"]["code"], json!("sandbox.replaced"), "{refused}");
        // Control: by its path the file can be read now.
        assert_eq!(std::fs::read_to_string(&key).unwrap(), "precious");
    }
}
