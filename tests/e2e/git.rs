//! Repositories as workspaces: identity, the root that a first run binds, submodules, linked worktrees.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::env::{Answer, PATH, Running, TestEnv, avfs};

/// Runs git on the host, outside the sandbox.
pub fn git(env: &TestEnv, words: &[&str]) {
    let settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
    let mut git: Command = env.clean(Path::new("/usr/bin/git"));
    let done = git.current_dir(env.project()).args(settings).args(words).output().unwrap();
    assert!(done.status.success(), "git {words:?}: {done:?}");
}

pub fn with_repository() -> TestEnv {
    let env = TestEnv::with_project();
    git(&env, &["init", "-q"]);
    git(&env, &["add", "README.md", "src"]);
    git(&env, &["commit", "-qm", "first"]);
    env
}

/// Runs git on the host in a directory other than the project.
fn git_in(env: &TestEnv, dir: &Path, words: &[&str]) {
    git(env, &[&["-C", dir.to_str().unwrap()], words].concat());
}

/// A repository on a host with a global identity.
fn with_identity() -> TestEnv {
    let env = with_repository();
    let config =
        "[user]\n\tname = Ada \\\"L\\\" Lovelace\n\temail = ada@example.org\n[alias]\n\tevil = !true\n";
    std::fs::write(env.at("home/.gitconfig"), config).unwrap();
    env
}

/// `avfs-run` in a directory below the project.
fn run_in(env: &TestEnv, dir: &Path, words: &[&str]) -> Answer {
    Running::start(env.command(words).current_dir(dir)).answer()
}

const COMMIT: &str = "echo more >> README.md && git commit -qam more && git log -1 --format='%an <%ae>'";

#[test]
fn commits_use_the_identity_of_the_host_and_nothing_else_of_its_configuration() {
    let env = with_identity();
    assert_eq!(env.ok(&[], COMMIT), "Ada \"L\" Lovelace <ada@example.org>\n");
    let expected = "[user]\n\tname = \"Ada \\\"L\\\" Lovelace\"\n\temail = \"ada@example.org\"\n";
    assert_eq!(env.ok(&[], "cat ~/.gitconfig"), expected);
    // The setting of the repository takes precedence.
    git(&env, &["config", "user.name", "Project"]);
    assert_eq!(env.ok(&[], COMMIT), "Project <ada@example.org>\n");
}

#[test]
fn the_identity_is_hidden_if_disabled_or_if_results_must_not_depend_on_it() {
    let env = with_identity();
    let absent = "test ! -e ~/.gitconfig";
    for options in [&["--git-identity", "none"][..], &["--reproducible"], &["--cache", "write"]] {
        env.ok(options, absent);
    }
    let refused = env.shell(&["--git-identity", "none"], COMMIT);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    // The user's setting disables it; a setting in the directory cannot enable it again.
    std::fs::write(env.at("config/avfs/avfs.toml"), "[run]\ngit_identity = \"none\"\n").unwrap();
    std::fs::write(env.project().join(".avfs/avfs.toml"), "[run]\ngit_identity = \"host\"\n").unwrap();
    env.ok(&[], absent);
    env.ok(&["--git-identity", "host"], "test -e ~/.gitconfig");
}

/// Runs the commands of a hint, which follow this text.
fn paste(env: &TestEnv, stderr: &str, before: &str) {
    let (_, line) = stderr.split_once(before).unwrap_or_else(|| panic!("{stderr}"));
    let path = format!("{}:{PATH}", avfs().parent().unwrap().display());
    let mut shell = env.clean(Path::new("/bin/sh"));
    let done = shell.env("PATH", path).args(["-ec", line.lines().next().unwrap()]).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

/// A repository in a subdirectory, whose name must be quoted.
const INNER: &str = "r [2]";

fn with_inner_repository() -> TestEnv {
    let env = with_identity();
    std::fs::remove_dir_all(env.project().join(".git")).unwrap();
    let inner = env.project().join(INNER);
    env.put("r [2]/a", b"a\n");
    git_in(&env, &inner, &["init", "-q"]);
    git_in(&env, &inner, &["add", "a"]);
    git_in(&env, &inner, &["commit", "-qm", "first"]);
    env
}

fn commit_inner(env: &TestEnv, name: &str) {
    env.put(&format!("{INNER}/{name}"), b"outside\n");
    git_in(env, &env.project().join(INNER), &["add", name]);
    git_in(env, &env.project().join(INNER), &["commit", "-qm", name]);
}

#[test]
fn sync_never_mixes_the_sides_of_a_repository() {
    let env = with_inner_repository();
    env.ok(&["-q", "--fork", "task"], "cd 'r [2]'; echo d > d && git add d && git commit -qm inside");
    commit_inner(&env, "z");
    for options in [&[][..], &["--prefer", "fork"], &["--prefer", "directory"]] {
        let refused = env.avfs(&[&["sync", "task"], options].concat()).expect(1).stderr;
        assert!(refused.contains("r [2]/.git/index") && !refused.contains("--prefer"), "{refused}");
    }
    let refused = env.avfs(&["sync", "task"]).expect(1).stderr;
    paste(&env, &refused, "merge the commits instead: ");
    let inner = env.project().join(INNER);
    assert!(inner.join("d").exists() && inner.join("z").exists());
    git_in(&env, &inner, &["diff", "--exit-code", "HEAD"]);
    // Control: a side can be chosen for a file that git reads on its own.
    env.ok(&["-q", "--fork", "other"], "git -C 'r [2]' config user.name inside");
    git_in(&env, &inner, &["config", "user.name", "outside"]);
    env.avfs(&["sync", "other"]).expect(1);
    env.avfs(&["sync", "other", "--prefer", "directory"]).expect(0);
    assert_eq!(env.ok(&["--fork", "other"], "git -C 'r [2]' config user.name"), "outside\n");
}

#[test]
fn staged_changes_are_synced_or_applied_with_the_commands_of_the_hints() {
    let env = with_inner_repository();
    env.ok(&["-q", "--fork", "task"], "cd 'r [2]'; echo d > d && git add d");
    env.ok(&["-q", "--fork", "other"], "cd 'r [2]'; echo e > e && git add e");
    commit_inner(&env, "z");
    let refused = env.avfs(&["sync", "task"]).expect(1).stderr;
    paste(&env, &refused, "sync again: ");
    env.avfs(&["apply", "task"]).expect(0);
    let refused = env.avfs(&["apply", "other"]).expect(1).stderr;
    let (_, pattern) = refused.split_once("with: --exclude '").unwrap();
    let (pattern, _) = pattern.split_once('\'').unwrap();
    env.avfs(&["apply", "other", "--exclude", pattern]).expect(0);
    let inner = env.project().join(INNER);
    assert!(inner.join("d").exists() && inner.join("e").exists());
    git_in(&env, &inner, &["diff", "--exit-code", "HEAD"]);
    git_in(&env, &inner, &["diff", "--exit-code", "--cached"]);
}

/// With `--exclude` of the file, the next commit in the directory would revert the commit.
#[test]
fn a_committed_file_that_was_edited_is_merged_with_git() {
    let env = with_inner_repository();
    env.ok(&["-q", "--fork", "task"], "cd 'r [2]'; echo inside > a && git commit -qam inside");
    env.put("r [2]/a", b"outside\n");
    for verb in ["sync", "apply"] {
        let refused = env.avfs(&[verb, "task"]).expect(1).stderr;
        assert!(!refused.contains("--exclude") && !refused.contains("--prefer"), "{refused}");
    }
    let refused = env.avfs(&["apply", "task"]).expect(1).stderr;
    let inner = env.project().join(INNER);
    git_in(&env, &inner, &["stash", "-q"]);
    paste(&env, &refused, "merge the commits instead: ");
    assert_eq!(std::fs::read(inner.join("a")).unwrap(), b"inside\n");
    // Control: without commits, the file can be left out.
    env.ok(&["-q", "--fork", "other"], "cd 'r [2]'; echo again > a");
    env.put("r [2]/a", b"outside\n");
    let refused = env.avfs(&["apply", "other"]).expect(1).stderr;
    assert!(refused.contains("--exclude PATH"), "{refused}");
}

#[test]
fn a_kept_home_does_not_keep_the_identity() {
    let env = with_identity();
    let kept = ["--fork", "h", "--home", "persistent"];
    let run = |options: &[&str], line: &str| env.shell(&[&kept[..], options].concat(), line).expect(0);
    for options in [&["--git-identity", "none"][..], &["--reproducible"], &["--cache", "write"]] {
        assert_eq!(run(&[], "git config user.email").text(), "ada@example.org\n");
        run(options, "test ! -e ~/.gitconfig");
    }
    // The identity of the host may change; what the command writes is kept.
    std::fs::write(env.at("home/.gitconfig"), "[user]\n\temail = other@example.org\n").unwrap();
    let set = "git config user.email; git config --global core.editor true";
    assert_eq!(run(&[], set).text(), "other@example.org\n");
    run(&["--reproducible"], "test $(git config core.editor) = true");
}

#[test]
fn commits_on_both_sides_are_merged_with_the_commands_of_the_hint() {
    let env = with_identity();
    env.ok(&["-q"], "echo inside > one && git add one && git commit -qm inside");
    env.put("two", b"outside\n");
    git(&env, &["add", "two"]);
    git(&env, &["commit", "-qm", "outside"]);
    let refused = env.avfs(&["apply", "last"]).expect(1).stderr;
    paste(&env, &refused, "merge the commits instead: ");
    assert!(env.project().join("one").exists() && env.project().join("two").exists());
}

#[test]
fn the_first_run_in_a_subdirectory_binds_the_repository() {
    let env = TestEnv::new();
    env.put("README.md", b"hello\n");
    env.put("deep/er/file", b"1\n");
    git(&env, &["init", "-q"]);
    let dir = env.project().join("deep/er");
    let answer = run_in(&env, &dir, &["--shell", "pwd; git status --short; echo 2 > file"]).expect(0);
    assert!(answer.text().starts_with(dir.to_str().unwrap()), "{answer:?}");
    assert!(answer.text().contains("?? ../../README.md"), "{answer:?}");
    let said = format!("for the repository {}", env.project().display());
    assert!(answer.stderr.contains(&said), "{answer:?}");
    assert!(env.vault_file().exists() && !dir.join(".avfs").exists());
    env.avfs(&["apply"]).expect(0);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"2\n");
}

#[test]
fn a_repository_that_contains_the_home_is_not_bound() {
    let env = TestEnv::new();
    git_in(&env, env.project().parent().unwrap(), &["init", "-q"]);
    env.run(&["true"]).expect(0);
    assert!(env.vault_file().exists());
}

#[test]
fn submodules_work() {
    let env = with_identity();
    let library = env.at("library");
    std::fs::create_dir(&library).unwrap();
    git_in(&env, &library, &["init", "-q"]);
    std::fs::write(library.join("lib.c"), "int x;\n").unwrap();
    git_in(&env, &library, &["add", "."]);
    git_in(&env, &library, &["commit", "-qm", "library"]);
    std::fs::remove_dir_all(env.project().join(".avfs")).unwrap();
    let add =
        ["-c", "protocol.file.allow=always", "submodule", "add", "-q", library.to_str().unwrap(), "sub"];
    git(&env, &add);
    git(&env, &["commit", "-qm", "submodule"]);
    // The first run, in the submodule, binds the outer repository, which contains the objects of the submodule.
    let line = "echo 'int y;' >> lib.c && git commit -qam y && git log --oneline | wc -l";
    let answer = run_in(&env, &env.project().join("sub"), &["--shell", line]).expect(0);
    assert_eq!(answer.text().trim(), "2", "{answer:?}");
    assert!(env.vault_file().exists());
    env.avfs(&["apply"]).expect(0);
    git_in(&env, &env.project().join("sub"), &["diff", "--exit-code", "HEAD"]);
    git(&env, &["fsck", "--strict"]);
}

#[test]
fn a_linked_worktree_is_read_only_and_a_note_explains_how_to_commit() {
    let env = with_identity();
    let tree = env.at("tree");
    git(&env, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    for options in [&[][..], &["--profile", "host"]] {
        let words = [options, &["--shell", "git log --oneline && git status --short"]].concat();
        let looked = run_in(&env, &tree, &words).expect(0);
        assert_eq!(looked.text().lines().count(), 1, "{looked:?}");
    }
    assert!(tree.join(".avfs/vault.db").exists());
    let line = "echo more >> README.md && git commit -qam more";
    let refused = run_in(&env, &tree, &["--json", "--shell", line]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let notes = refused.envelope()["result"]["notes"].clone();
    let codes: Vec<_> = notes.as_array().unwrap().iter().map(|note| note["code"].clone()).collect();
    assert!(codes.contains(&json!("git.linked_worktree")), "{notes}");
    // The status of a line may be that of another command; a command that only reads gives no note.
    for (line, is_noted) in [
        ("git commit -qam more || true", true),
        ("echo more >> README.md; sh -c \"git add -A\"; false", true),
        ("git log --oneline; git status --short", false),
        ("git log --oneline && false", false),
        ("echo add >> README.md; git log --oneline", false),
    ] {
        let answer = run_in(&env, &tree, &["--json", "--shell", line]);
        let notes = answer.envelope()["result"]["notes"].to_string();
        assert_eq!(notes.contains("git.linked_worktree"), is_noted, "{line}: {notes}");
    }
    // The repository cannot be written, and a forged pointer does not open another directory.
    let common = env.project().join(".git");
    let touch = format!("touch {}/planted", common.display());
    assert_ne!(run_in(&env, &tree, &["--shell", &touch]).code, Some(0));
    let secret = env.at("secret");
    std::fs::create_dir_all(secret.join("worktrees/tree")).unwrap();
    std::fs::write(secret.join("key"), "k").unwrap();
    let pointer = format!("gitdir: {}/worktrees/tree\n", secret.display());
    std::fs::write(tree.join(".git"), pointer).unwrap();
    let look = format!("cat {}/key", secret.display());
    assert_ne!(run_in(&env, &tree, &["--shell", &look]).code, Some(0));
    // Control: the file can be read if its directory is shown.
    run_in(&env, &tree, &["--ro", secret.to_str().unwrap(), "--shell", &look]).expect(0);
}

/// The settings that the note `git.settings` of a run names.
fn missing_settings(env: &TestEnv, options: &[&str], line: &str) -> String {
    let envelope = env.json(options, line);
    assert_eq!(envelope["result"]["exit_code"], json!(0), "{envelope}");
    let notes = envelope["result"]["notes"].as_array().unwrap();
    let found: Vec<&str> = notes
        .iter()
        .filter(|note| note["code"] == "git.settings")
        .map(|note| note["text"].as_str().unwrap())
        .collect();
    let named = found.iter().map(|text| text.split_once("results: ").unwrap().1.split_once(';').unwrap().0);
    named.collect::<Vec<_>>().join(" / ")
}

/// A repository whose files a filter of the caller changes, and other global settings.
fn with_filter() -> TestEnv {
    let env = with_repository();
    let config = "[filter \"upper\"]\n\tclean = tr a-z A-Z\n[core]\n\tautocrlf = input\n[alias]\n\tx = y\n";
    std::fs::write(env.at("home/.gitconfig"), config).unwrap();
    env.put(".gitattributes", b"*.txt filter=upper\n");
    env
}

const ADD: &str = "echo text > a.txt && git add a.txt && git show :a.txt";

#[test]
fn settings_that_git_does_not_have_are_named_once_for_each_fork() {
    let env = with_filter();
    // Control: outside, the filter is in effect.
    let mut outside = env.clean(Path::new("/bin/sh"));
    let outside = Running::start(outside.args(["-c", ADD])).answer().expect(0);
    assert_eq!(outside.text(), "TEXT\n");
    git(&env, &["reset", "-q", "--hard"]);
    env.put(".gitattributes", b"*.txt filter=upper\n");
    assert_eq!(missing_settings(&env, &[], ADD), "core.autocrlf, filter.upper");
    assert_eq!(env.ok(&[], ADD), "text\n");
    let on = |fork: &str, line: &str| missing_settings(&env, &["--fork", fork], line);
    assert_eq!(on("f", ADD), "core.autocrlf, filter.upper");
    assert_eq!(on("f", "git rm -qf a.txt"), "");
    assert_eq!(on("g", "git rm -q README.md"), "core.autocrlf, filter.upper");
    // Runs without --fork share the notes of main.
    assert_eq!(missing_settings(&env, &[], ADD), "");
    // Files that git ignores by default, without a setting.
    std::fs::create_dir_all(env.at("config/git")).unwrap();
    std::fs::write(env.at("config/git/ignore"), "*.o\n").unwrap();
    assert_eq!(on("f", "git rm -qf src/main.rs"), "core.excludesFile");
}

/// Outside, the ignored file stays.
#[test]
fn a_clean_that_deletes_what_the_caller_ignores_names_the_setting() {
    let env = with_repository();
    std::fs::create_dir_all(env.at("config/git")).unwrap();
    std::fs::write(env.at("config/git/ignore"), "*.o\n").unwrap();
    env.put("kept.o", b"");
    assert_eq!(
        missing_settings(&env, &["--fork", "clean"], "git clean -fdq; test ! -e kept.o"),
        "core.excludesFile"
    );
    assert_eq!(missing_settings(&env, &["--fork", "dry"], "git clean -nd"), "");
}

#[test]
fn the_variable_for_the_global_settings_replaces_those_in_the_home() {
    let env = with_filter();
    let named = env.at("named");
    std::fs::write(&named, "[user]\n\tname = Named\n[init]\n\tdefaultBranch = trunk\n").unwrap();
    let mut command = env.command(&["--json", "--shell", &format!("{ADD}; git config user.name")]);
    let envelope = env.answer(command.env("GIT_CONFIG_GLOBAL", &named)).expect(0).envelope();
    assert_eq!(envelope["result"]["stdout"], "text\nNamed\n");
    let notes = envelope["result"]["notes"].to_string();
    assert!(notes.contains("results: init.defaultBranch;"), "{notes}");
}

#[test]
fn settings_are_named_only_if_git_writes_and_does_not_have_them() {
    let env = with_filter();
    for line in ["git log --oneline", "git status --short; echo x > other", "rm -r .git"] {
        assert_eq!(missing_settings(&env, &[], line), "", "{line}");
    }
    // A script is not read; the repository shows that git wrote.
    env.put("build", b"echo x > b.txt; git add b.txt\n");
    assert_eq!(missing_settings(&env, &["--fork", "script"], "sh build"), "core.autocrlf, filter.upper");
    git(&env, &["config", "core.autocrlf", "false"]);
    assert_eq!(missing_settings(&env, &["--fork", "set"], ADD), "filter.upper");
    let config = env.at("home/.gitconfig");
    assert_eq!(missing_settings(&env, &["--ro", config.to_str().unwrap()], ADD), "");
    // A home that a fork keeps can have them.
    let kept = ["--fork", "kept", "--home", "persistent"];
    let set = "git config --global filter.upper.clean 'tr a-z A-Z'";
    assert_eq!(missing_settings(&env, &kept, &format!("{set}; {ADD}")), "");
    // The values of settings are not printed.
    let notes = env.json(&["--fork", "new"], ADD)["result"]["notes"].to_string();
    assert!(notes.contains("filter.upper") && !notes.contains("tr a-z"), "{notes}");
}

/// Git refreshes its index whenever someone looks, and editors and builds touch files: none of it is in the way of a
/// commit in a fork, nor of an edit in the directory.
#[test]
fn sync_merges_a_commit_with_a_refreshed_index_and_touched_files() {
    let env = with_identity();
    let touch = |name: &str| {
        let file = std::fs::File::options().write(true).open(env.project().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).unwrap();
    };
    env.ok(&["--fork", "task"], COMMIT);
    let index = || std::fs::read(env.project().join(".git/index")).unwrap();
    let before = index();
    touch("README.md");
    touch("src/main.rs");
    git(&env, &["status"]);
    assert_ne!(before, index());
    let synced = env.avfs(&["--json", "sync", "task"]).expect(0).envelope();
    assert_eq!(synced["result"]["merged"], true, "{synced}");
    let state = "git log --format=%s && git status --porcelain -- README.md src && tail -n1 README.md";
    assert_eq!(env.ok(&["--fork", "task"], state), "more\nfirst\nmore\n");
    // The other way round: the fork only looks, and the directory commits.
    env.avfs(&["apply", "task"]).expect(0);
    env.json(
        &["--fork", "other"],
        "touch -d @1000000001 src/main.rs; git update-index --refresh; echo x > own",
    );
    env.put("src/main.rs", b"by hand\n");
    git(&env, &["commit", "-qam", "by hand"]);
    env.avfs(&["sync", "other"]).expect(0);
    let state = "git log -1 --format=%s && git status --porcelain -- README.md src && cat src/main.rs own";
    assert_eq!(env.ok(&["--fork", "other"], state), "by hand\nby hand\nx\n");
    env.assert_sound();
}

/// The index in the directory has the staged change; the index of the fork has only other times.
#[test]
fn an_index_that_only_the_fork_refreshed_is_not_applied() {
    let env = with_identity();
    for name in ["README.md", "src/main.rs"] {
        let file = std::fs::File::options().write(true).open(env.project().join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)).unwrap();
    }
    env.ok(&["-q", "--fork", "task"], "echo inside >> src/main.rs; git status -s > /dev/null");
    let diff = env.avfs(&["diff", "task"]).expect(0).text();
    assert!(diff.contains(".git/index"), "{diff}");
    env.put("README.md", b"staged\n");
    git(&env, &["add", "README.md"]);
    let index = || std::fs::read(env.project().join(".git/index")).unwrap();
    let staged = index();
    env.avfs(&["apply", "task"]).expect(0);
    assert_eq!(index(), staged);
    assert!(std::fs::read(env.project().join("src/main.rs")).unwrap().ends_with(b"inside\n"));
    env.avfs(&["unapply"]).expect(0);
    assert_eq!(index(), staged);
}
