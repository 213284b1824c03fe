//! Everyday commands of people and agents need no approval: loopback connections, offline installs, queries about the
//! host.

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs};
use crate::person::{person, person_command};

/// A project with the built-in policy.
fn plain() -> TestEnv {
    let env = TestEnv::with_project();
    env.policy("");
    env
}

#[track_caller]
fn decision(env: &TestEnv, line: &str) -> Value {
    env.json(&["--dry-run"], line)["decision"].take()
}

#[test]
fn a_server_and_its_client_in_one_run_need_no_network() {
    let env = plain();
    let line = "python3 -m http.server 8000 >/dev/null 2>&1 & \
                until curl -sf http://127.0.0.1:8000/README.md; do :; done; curl -sf 'http://localhost:8000/README.md'";
    assert_eq!(env.ok(&["-q"], line), "hello\nhello\n");
}

#[test]
fn fetching_from_a_repository_in_the_workspace_needs_no_approval() {
    let env = plain();
    let line = "git init -q a && git init -q b && cd b && git -c user.name=x -c user.email=x@x commit -q --allow-empty \
                -m one && cd ../a && git fetch -q ../b && git log --format=%s FETCH_HEAD";
    assert_eq!(env.ok(&["-q"], line), "one\n");
}

#[test]
fn only_commands_that_may_contact_other_hosts_need_approval() {
    let env = plain();
    for line in ["curl localhost", "npm ci --offline", ".venv/bin/pip install --no-index x", "npx --no tsc"] {
        let decided = decision(&env, line);
        assert!(decided["action"].as_str().unwrap().starts_with("allow"), "{line}: {decided}");
    }
    for line in [
        "curl http://localhost.evil.com/",
        "curl -x evil.com http://localhost/",
        "http_proxy=evil.com curl http://localhost/",
        "npm ci --prefer-offline",
        ".venv/bin/pip install x",
    ] {
        assert_eq!(decision(&env, line)["rule"], json!("builtin.networked"), "{line}");
    }
    // A variable in the request can also redirect the connection.
    let words = ["--json", "--dry-run", "--env", "http_proxy=evil.com", "--", "curl", "http://localhost/"];
    assert_eq!(env.run(&words).envelope()["decision"]["rule"], json!("builtin.networked"));
}

#[test]
fn queries_about_the_host_run_and_changes_to_it_are_denied() {
    let env = plain();
    assert!(env.ok(&["-q"], "mount").contains(" on / type "));
    for line in [
        "mount -l",
        "mount -t tmpfs",
        "crontab -l",
        "systemctl status x",
        "service x status",
        "kubectl version --client",
        "kubectl config view",
        "swapon --show",
        "iptables -L",
        "ufw status",
        "fdisk -l",
        "at -l",
        "modprobe -n x",
        "apt install --dry-run x",
        "minikube version",
    ] {
        assert_eq!(decision(&env, line)["action"], json!("allow"), "{line}");
    }
    for line in ["docker compose version", "bundle install --local"] {
        assert_eq!(decision(&env, line)["action"], json!("allow_with_checkpoint"), "{line}");
    }
    for line in
        ["mount /dev/sda1 /mnt", "crontab x", "systemctl stop x", "iptables -L -Z", "apt install -s=no x"]
    {
        assert_eq!(decision(&env, line)["action"], json!("deny"), "{line}");
    }
}

#[test]
fn a_command_may_write_where_the_run_provides_a_directory() {
    let env = plain();
    let action = |options: &[&str], line: &str| {
        let words = [&["--json", "--dry-run"], options, &["--shell", line]].concat();
        // A home beneath /tmp would be writable anyway.
        let decided = env.answer(env.command(&words).env("HOME", "/home/avfs-test")).envelope();
        let checked = [&["policy", "check"], options, &["--shell", line]].concat();
        let checked =
            Running::start(env.clean(&avfs()).env("HOME", "/home/avfs-test").args(checked)).answer();
        let action = decided["decision"]["action"].as_str().unwrap().to_owned();
        assert_eq!(checked.text().split_whitespace().next(), Some(action.as_str()), "{line}: {checked:?}");
        action
    };
    let kept = ["--fork", "task", "--home", "persistent"];
    for line in [
        "echo x > ~/f",
        "echo x > $HOME/f",
        "echo x > \"$HOME/$X\"",
        "cp README.md ${HOME}/b",
        "git config --global user.name x",
        "rm ~/f",
    ] {
        for options in [&kept[..], &[], &["--fork", "task"]] {
            assert_eq!(action(options, line), "allow_with_checkpoint", "{line}");
        }
        // Control: the home of the host.
        assert_eq!(action(&["--profile", "host"], line), "deny", "{line}");
    }
    for line in ["rm -rf ~/.cache", "mkdir -p ~/.local/bin; echo tool > ~/.local/bin/tool"] {
        assert_eq!(action(&[], line), "allow_with_checkpoint", "{line}");
    }
    for line in ["echo x > ~/../f", "echo x > ~other/f", "echo x > $HOMES/f", "git config --system a.b c"] {
        assert_eq!(action(&kept, line), "deny", "{line}");
    }
    assert_eq!(action(&["--tmpfs", "/srv/t"], "echo x > /srv/t/f"), "allow_with_checkpoint");
    assert_eq!(action(&["--tmpfs", "/srv/t"], "echo x > /srv/f"), "deny");
    assert_eq!(action(&["--preset", "rust"], "touch ~/.cargo/registry/f"), "allow_with_checkpoint");
    assert_eq!(action(&["--preset", "rust"], "rm -rf ~/.cargo"), "deny");
    assert_eq!(action(&[], "rm -rf ~/.cargo"), "allow_with_checkpoint");
    std::fs::create_dir_all(env.at("config/avfs")).unwrap();
    std::fs::write(env.at("config/avfs/avfs.toml"), "cache.dirs = ['~/.tool']\n").unwrap();
    assert_eq!(action(&[], "touch ~/.tool/f"), "allow_with_checkpoint");
    assert_eq!(action(&[], "rm -rf ~"), "deny");
    assert_eq!(action(&["--allow-userns"], "unshare -Ur --map-auto id"), "allow_with_checkpoint");
    for line in [
        "unshare -m id",
        "unshare -Ur sudo id",
        "unshare -US 0 sudo id",
        "unshare -Ur $X",
        "unshare -Ur --unknown id id",
    ] {
        assert_ne!(action(&["--allow-userns"], line), "allow_with_checkpoint", "{line}");
    }
    assert_eq!(action(&[], "unshare -Ur id"), "deny");

    // They run, and the approval of another part of the request can be remembered.
    let line = "echo x > ~/f && git config --global user.name me && cat ~/f ~/.gitconfig";
    let words = [&["-q"], &kept[..], &["--shell", line]].concat();
    let ran = env.answer(env.command(&words).env("HOME", "/home/avfs-test")).expect(0);
    assert!(ran.text().starts_with("x\n[user]"), "{ran:?}");
    let fetch = [&["-q"], &kept[..], &["--shell", "curl example.org > ~/f"]].concat();
    let asked = env.answer(env.command(&fetch).env("HOME", "/home/avfs-test")).expect(120);
    let (_, id) = asked.stderr.split_once("avfs approvals approve ").unwrap();
    let id = id.split_whitespace().next().unwrap();
    let approve = ["approvals", "approve", id, "--net", "allow=example.org", "--always"];
    Running::start(env.clean(&avfs()).env("HOME", "/home/avfs-test").args(approve)).answer().expect(0);
}

#[test]
fn a_command_of_several_lines_is_listed_without_an_open_quote() {
    let env = plain();
    env.run(&["-q", "--", "sh", "-c", "echo one\necho 'two three' > f"]).expect(0);
    let cut = "sh -c 'echo one…'";
    let list = env.avfs(&["runs", "list"]).expect(0).text();
    assert!(list.trim_end().ends_with(cut), "{list}");
    let log = env.avfs(&["log", "last"]).expect(0).text();
    assert!(log.lines().next().unwrap().contains(cut), "{log}");
    let shown = env.avfs(&["runs", "show", "last"]).expect(0).text();
    assert!(shown.contains(&format!("command    {cut}\n")), "{shown}");
}

#[test]
fn a_denied_write_names_places_where_writing_works() {
    let env = plain();
    let hint = |line: &str| {
        let words = ["-q", "--profile", "host", "--shell", line];
        env.answer(env.command(&words).env("HOME", "/home/avfs-test")).expect(122).stderr
    };
    let home = "hint: write to the workspace or to /tmp, or keep the files of the home with --fork NAME --home \
                persistent; or allow it with a rule in ";
    assert!(hint("echo x > ~/f").contains(home));
    assert!(hint("echo x > $HOME/$X").contains(home.strip_suffix("; or allow it with a rule in ").unwrap()));
    let elsewhere =
        "hint: write to the workspace or to /tmp, or make a host directory writable with --rw DIR; or ";
    assert!(hint("echo x > /srv/f").contains(elsewhere));
}

#[test]
fn a_denial_that_no_rule_can_change_says_why() {
    let env = plain();
    let hint = |line: &str| env.json(&[], line)["error"]["hint"].as_str().unwrap().to_owned();
    assert_eq!(
        hint("systemctl restart x$Y"),
        "a rule cannot allow it while `x$Y` is known only at run time; write the word out"
    );
    let screen = hint("sudo vim a");
    assert!(
        screen.starts_with("a rule that allows it would not be enough: `vim` is a full-screen program, and"),
        "{screen}"
    );
    assert!(screen.contains("; run it on a terminal"), "{screen}");
    std::fs::write(
        env.project().join(".avfs/policy.toml"),
        "[[rule]]\nprefix = ['mount']\naction = 'deny'\nreason = 'no mounts'\n",
    )
    .unwrap();
    // The rule of the project decides, so its hint is shown.
    assert_eq!(
        hint("sudo mount x /mnt"),
        "a rule that allows it would not be enough: no mounts; list all matching rules with: avfs policy explain"
    );
    assert_eq!(env.json(&[], "sudo mount x /mnt")["decision"]["allow_rule"], Value::Null);
}

#[test]
fn the_rule_suggested_in_a_denial_allows_the_command() {
    let env = plain();
    for words in [
        &["mount", "-t", "tmpfs", "a \"b\" \u{202e}\nc", "/mnt"][..],
        &["sh", "-c", "hostname one; mount x /mnt"],
        &["/usr/bin/mount", "x"],
    ] {
        env.policy("# mine\n");
        let words = [&["-q", "--"], words].concat();
        let denied = env.run(&words).expect(122);
        assert!(denied.stderr.contains("in ~/.config/avfs/policy.toml:\n[[rule]]\nprefix = ["), "{denied:?}");
        let (_, rule) = denied.stderr.split_once("policy.toml:\n").unwrap();
        env.policy(&format!("# mine\n{rule}"));
        let json = env.run(&[&["--json"], &words[1..]].concat()).envelope();
        assert_eq!(json["decision"]["action"], json!("allow_with_checkpoint"), "{rule}{json}");
    }
    let denied = env.run(&["--", "git", "config", "--system", "user.name", "x"]).expect(122).stderr;
    assert!(denied.contains("without it, it writes to the repository"), "{denied}");
    // The rule allows only this command.
    env.run(&["-q", "--", "/usr/bin/mount", "x", "y"]).expect(122);
    env.policy("");
    let envelope = env.json(&[], "mount x /mnt");
    let rule = "[[rule]]\nprefix = [\"mount\", \"x\", \"/mnt\"]\nargs = [\"!*\"]\naction = \"allow_with_checkpoint\"\n";
    assert_eq!(envelope["decision"]["allow_rule"], json!(rule));
    let compact = env.run(&["--json=compact", "--", "mount", "x", "/mnt"]).expect(122).envelope();
    assert_eq!(compact["allow_rule"], json!(rule), "{compact}");
    let shown = env.avfs(&["runs", "show", "last"]).expect(0).text();
    assert!(shown.contains(&format!("hint       if it has to reach beyond the sandbox, allow it with a rule in ~/.config/avfs/policy.toml:\n{rule}")), "{shown}");
    let checked = env.avfs(&["policy", "check", "--", "mount", "x", "/mnt"]).expect(122);
    assert!(checked.stderr.contains(rule), "{checked:?}");
    // A rule would not help a command that the sandbox refuses without an option.
    let decision = env.json(&[], "unshare -Ur id")["decision"].take();
    assert_eq!((&decision["hint"], &decision["allow_rule"]), (&json!("add --allow-userns"), &Value::Null));
    assert!(env.json(&[], "unshare -Ur id; mount x /mnt")["decision"]["allow_rule"].is_string());
    // No rule is suggested if no rule of the user can allow the command.
    assert_eq!(env.json(&[], "mount $X")["decision"]["allow_rule"], Value::Null);
    std::fs::write(
        env.project().join(".avfs/policy.toml"),
        "[[rule]]\nprefix = ['mount']\naction = 'deny'\n",
    )
    .unwrap();
    assert_eq!(env.json(&[], "mount x /mnt")["decision"]["allow_rule"], Value::Null);
}

#[test]
fn a_full_screen_program_without_a_terminal_is_denied_at_once() {
    let env = plain();
    for line in
        ["vim f", "vi", "nano f", "top", "htop", "emacs f", "true; vim f", "watch ls", "timeout 5 vim f"]
    {
        let refused = env.shell(&["--json"], line).expect(122).envelope();
        assert_eq!(refused["error"]["code"], json!("policy.no_terminal"), "{line}");
        assert_eq!(refused["decision"]["rule"], json!("builtin.no_terminal"), "{line}");
        assert!(refused["error"]["hint"].as_str().unwrap().starts_with("run it on a terminal"), "{refused}");
    }
    let printed = env.run(&["--", "vim", "f"]).expect(122).stderr;
    let reason = "avfs-run: denied: `vim` is a full-screen program, and there is no terminal\nhint: ";
    assert!(printed.starts_with(reason), "{printed}");
    for line in [
        "vim -es f",
        "vim -e -s f",
        "vim -c '%s/a/b/' -c wq f",
        "vim +wq f",
        "nvim --headless +q",
        "ex -s f",
        "top -b -n1",
        "top -bn 1",
        "emacs --batch f",
        "echo x | vim -",
        "less README.md",
        "watch -g ls",
        "vim --version",
    ] {
        assert_ne!(decision(&env, line)["rule"], json!("builtin.no_terminal"), "{line}");
    }
    // A program that reads commands from a pipe still runs.
    assert_eq!(env.fed(&["-q", "--", "python3"], b"print(6 * 7)\n").expect(0).text(), "42\n");
    // A rule in the user's policy takes precedence.
    env.policy("[[rule]]\nprefix = ['vim']\naction = 'allow'\n");
    assert_eq!(decision(&env, "vim f")["action"], json!("allow"));
}

#[test]
fn git_without_a_terminal_does_not_open_its_default_editor() {
    let env = plain();
    // The settings of the machine must not count.
    const NO_SYSTEM: [&str; 2] = ["--env", "GIT_CONFIG_NOSYSTEM=1"];
    let with = |options: &[&str], line: &str| {
        let options = [&["--dry-run"], NO_SYSTEM.as_slice(), options].concat();
        env.json(&options, line)["decision"]["rule"].take()
    };
    let rule = |line: &str| with(&[], line);
    for line in [
        "git commit",
        "git commit -a -v",
        "git commit --amend",
        "git commit -c HEAD",
        "git commit --squash HEAD",
        "git commit -t notes",
        "git commit -m x -e",
        "git rebase -i HEAD~2",
        "git tag -a v1",
        "git merge --continue",
        "git branch --edit-description",
        "git -C sub commit",
        "git add -e",
        "git config -e",
        "git notes add HEAD",
        "EDITOR=vim git commit",
        "GIT_EDITOR='/usr/bin/nano -w' git commit",
        "git -c core.editor=vim commit",
        "git config core.editor emacs && git commit --amend",
    ] {
        assert_eq!(rule(line), json!("builtin.no_terminal"), "{line}");
    }
    let refused = env.run(&[&NO_SYSTEM[..], &["--", "git", "commit"]].concat()).expect(122).stderr;
    let expected = "avfs-run: denied: `git commit` opens an editor, and there is no terminal\n\
                hint: run it on a terminal and without --json, or use git commit -m MESSAGE\n";
    assert_eq!(refused, expected);
    let silent = [
        "git commit -m x",
        "git commit -am edit",
        "git commit -F notes",
        "git commit -C HEAD",
        "git commit --amend --no-edit",
        "git commit --fixup HEAD",
        "git commit --fixup=HEAD",
        "git commit --squash HEAD -m x",
        "git commit --dry-run",
        "git commit -p",
        "git commit $ARGS",
        "echo x | git commit",
        "git add -p",
        "git notes add -m x HEAD",
        "git notes edit $ARGS",
        "git add -i",
        "git merge x",
        "git rebase -Xignore-space-change main",
        "git rebase --continue",
        "git tag v1",
        "git tag -a v1 -m x",
        "git tag -s $ARGS",
        "git tag -n5 -a",
    ];
    let chosen = [
        "GIT_EDITOR=./edit git commit",
        "GIT_SEQUENCE_EDITOR=true git rebase -i HEAD~2",
        "export EDITOR=./edit; git commit",
        "env VISUAL=./edit git commit",
        "git -c core.editor=true commit",
        "git config core.editor true && git commit --amend",
        "EDITOR='vim -es' git commit",
        "EDITOR='vim || true' git commit",
    ];
    for line in silent.into_iter().chain(chosen) {
        assert_ne!(rule(line), json!("builtin.no_terminal"), "{line}");
    }
    assert_ne!(with(&["--env", "GIT_EDITOR=true"], "git commit"), json!("builtin.no_terminal"));
    assert_eq!(with(&["--env", "EDITOR=vim"], "git commit"), json!("builtin.no_terminal"));
    for (config, refused) in [
        ("[core]\n\teditor = ./edit\n", false),
        ("[core]\n\teditor = \"nano -w\"\n", true),
        ("[core]\n\teditor = vim\n[include]\n\tpath = other\n", false),
        ("[sequence] editor = vim\n[core] editor = true\n", false),
        ("", true),
    ] {
        env.put(".git/config", config.as_bytes());
        assert_eq!(rule("git commit") == json!("builtin.no_terminal"), refused, "{config}");
    }
    // A repository in the workspace.
    env.put("sub/.git/config", b"[core]\n\teditor = ./edit\n");
    let dry = ["--dry-run", "--json", "--", "git", "commit"];
    let mut within = env.command(&[&NO_SYSTEM[..], &dry].concat());
    let within = env.answer(within.current_dir(env.project().join("sub"))).envelope();
    assert_ne!(within["decision"]["rule"], json!("builtin.no_terminal"), "{within}");
}

#[test]
fn a_full_screen_program_on_a_terminal_runs() {
    let env = plain();
    env.put("nano", b"#!/bin/sh\necho editing $1\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.project().join("nano"), executable).unwrap();
    env.run(&["--", "./nano", "f"]).expect(122);
    let answer = person(&env, "", &["-q", "--", "./nano", "f"]);
    assert!(answer.text().contains("editing f"), "{answer:?}");
    // Output to an envelope is not a terminal, even if the caller has one.
    let answer = person(&env, "", &["--json", "--", "./nano", "f"]);
    assert!(answer.text().contains("policy.no_terminal"), "{answer:?}");
}

#[test]
fn a_command_on_a_terminal_has_no_default_timeout() {
    let env = plain();
    let last = || env.avfs_result(&["runs", "show", "last"])["request"]["timeout_ms"].take();
    env.run(&["--", "true"]).expect(0);
    assert_eq!(last(), json!(300_000));
    person(&env, "", &["--", "true"]);
    assert_eq!(last(), Value::Null);
    person(&env, "", &["--timeout", "9s", "--", "true"]);
    assert_eq!(last(), json!(9_000));
    env.answer(person_command(&env, "", &["--", "true"]).env("AVFS_RUN_TIMEOUT", "8s")).expect(0);
    assert_eq!(last(), json!(8_000));
    env.policy("[caps]\ntimeout = '7s'\n");
    person(&env, "", &["--", "true"]);
    assert_eq!(last(), json!(7_000));
}
