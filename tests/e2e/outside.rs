//! Files that a command writes outside of the workspace are reported before they are dropped.

use serde_json::{Value, json};

use crate::env::TestEnv;

fn outside(env: &TestEnv, line: &str) -> Value {
    env.json(&[], line)["result"]["outside_writes"].take()
}

fn paths(writes: &Value) -> Vec<String> {
    let listed = writes["paths"].as_array().unwrap_or_else(|| panic!("{writes}"));
    listed.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_that_an_installer_puts_into_the_home_are_reported() {
    let env = TestEnv::with_project();
    let line = "echo 'export PATH' > ~/.profile; mkdir -p ~/.local/bin ~/empty; echo tool > ~/.local/bin/tool; \
        echo scratch > /tmp/scratch; echo in > inside";
    let writes = outside(&env, line);
    let home = env.at("home").display().to_string();
    let wanted = [format!("{home}/.profile"), format!("{home}/.local/bin/tool"), "/tmp/scratch".to_owned()];
    assert_eq!(paths(&writes), wanted, "{writes}");
    let counts = ["files", "dirs", "bytes", "left_off"].map(|key| writes[key].as_u64().unwrap());
    assert_eq!((counts, &writes["complete"]), ([3, 3, 25, 0], &json!(true)), "{writes}");
    assert_eq!(writes["paths"][2]["size"], 8);
    // The summary reports them, whether or not the workspace changed, and so does `runs show` later.
    let summary = env.shell(&[], "echo x > ~/.bashrc").expect(0).stderr;
    let wanted = format!(
        "avfs-run: dropped, outside of the workspace: 1 file (2 B)\navfs-run:   {home}/.bashrc (2 B)\n"
    );
    assert_eq!(summary, wanted);
    // A setting of git has no effect after the run.
    let summary = env.shell(&[], "git config --global user.name x").expect(0).stderr;
    assert!(
        summary.ends_with("git config without --global keeps a setting in the repository\n"),
        "{summary}"
    );
    env.shell(&["-q"], "echo x > ~/.bashrc").expect(0);
    let shown = env.avfs(&["runs", "show"]).expect(0).text();
    assert!(shown.contains("dropped    1 file (2 B) outside of the workspace\n"), "{shown}");
    assert!(shown.contains(&format!("           {home}/.bashrc\n")), "{shown}");
    let compact = env.shell(&["--json=compact"], "echo x > ~/.bashrc").expect(0).envelope();
    assert_eq!(compact["outside_writes"], json!(["1 files, 2 B", format!("{home}/.bashrc")]));
    // The files do not exist in the next run.
    assert_eq!(env.shell(&["-q"], "ls -A ~ /tmp/scratch").code, Some(2));
    env.assert_sound();
}

#[test]
fn nothing_is_reported_if_nothing_is_left() {
    let env = TestEnv::with_project();
    assert_eq!(outside(&env, "true"), Value::Null);
    assert_eq!(outside(&env, "echo x > /tmp/x; mkdir ~/d; rm /tmp/x; rmdir ~/d"), Value::Null);
    assert_eq!(outside(&env, "echo x > inside"), Value::Null);
    assert_eq!(env.shell(&[], "true").expect(0).stderr, "");
    // Files of a killed command are reported too.
    let killed = env.json(&[], "echo x > /tmp/x; kill -KILL $$");
    assert_eq!(paths(&killed["result"]["outside_writes"]), ["/tmp/x"], "{killed}");
}

#[test]
fn hostile_trees_are_reported_within_bounds() {
    let env = TestEnv::with_project();
    let line = r#"cd ~; ln -s / root; mkfifo pipe; printf x > "$(printf 'a\033[31m\nb\377')"; mkdir closed; echo x > closed/in; chmod 0 closed
        i=0; while [ $i -lt 300 ]; do mkdir -p d && cd d; i=$((i+1)); done; cd /tmp; seq 1 12000 | xargs touch"#;
    let home = env.at("home").display().to_string();
    let writes = outside(&env, line);
    assert_eq!((&writes["complete"], paths(&writes).len()), (&json!(false), 20), "{writes}");
    assert!(
        writes["files"].as_u64().unwrap() < 11_000 && writes["left_off"].as_u64().unwrap() > 0,
        "{writes}"
    );
    let odd = writes["paths"].as_array().unwrap().iter().find(|one| one["path_base64"].is_string()).unwrap();
    assert_eq!(odd["path"], format!("{home}/a\u{1b}[31m\nb\\xff"));
    assert!(paths(&writes).contains(&format!("{home}/root")), "{writes}");
    let summary = env.shell(&[], r#"printf x > "/tmp/$(printf 'a\033[31m\nb')""#).expect(0).stderr;
    assert!(summary.contains("avfs-run:   /tmp/a\\u{1b}[31m\\nb (1 B)\n"), "{summary}");
    let mut secret = env.command(&["--json", "--secret", "TOKEN", "--shell", "echo x > /tmp/$TOKEN"]);
    let envelope = env.answer(secret.env("TOKEN", "a-token-of-some-length")).expect(0).envelope();
    assert_eq!(paths(&envelope["result"]["outside_writes"]), ["/tmp/[secret]"]);
}

#[test]
fn a_fork_keeps_its_home_and_tmp_on_request() {
    let env = TestEnv::with_project();
    let kept = ["-q", "--fork", "one", "--home", "persistent", "--keep-tmp"];
    env.shell(&kept, "mkdir -p ~/.local/bin; echo hi > ~/.local/bin/tool; echo t > /tmp/t").expect(0);
    assert_eq!(env.ok(&kept, "cat ~/.local/bin/tool /tmp/t"), "hi\nt\n");
    // Kept files are not reported as dropped.
    let mut words = vec!["--json"];
    words.extend(&kept[1..]);
    let envelope = env.shell(&words, "echo x > ~/x; echo y > /var/tmp/y").expect(0).envelope();
    assert_eq!(paths(&envelope["result"]["outside_writes"]), ["/var/tmp/y"], "{envelope}");
    assert_eq!(
        (&envelope["request"]["home"], &envelope["request"]["keep_tmp"]),
        (&json!("persistent"), &json!(true))
    );
    // Each option works alone and only on request; other forks and the host do not have the files.
    assert_eq!(env.ok(&["-q", "--fork", "one", "--keep-tmp"], "cat /tmp/t; ls -A ~"), "t\n");
    assert_eq!(env.ok(&["-q", "--fork", "one"], "ls -A ~; ls -A /tmp | grep -v avfs-test || true"), "");
    assert_eq!(env.ok(&["-q", "--fork", "two", "--home", "persistent"], "ls -A ~"), "");
    assert_eq!(std::fs::read_dir(env.at("home")).unwrap().count(), 0);
    let closed = env.at("cache/avfs/forks").metadata().unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&closed) & 0o777, 0o700);
    // They are removed with the fork, and a new fork with the same name starts without them.
    let count = || {
        let vaults = std::fs::read_dir(env.at("cache/avfs/forks")).unwrap();
        vaults.map(|vault| std::fs::read_dir(vault.unwrap().path()).unwrap().count()).sum::<usize>()
    };
    assert_eq!(count(), 2);
    env.avfs(&["fork", "delete", "one"]).expect(0);
    assert_eq!(count(), 1);
    assert_eq!(env.ok(&kept, "ls -A ~"), "");
    // Without a fork there is no place to keep them.
    let refused = env.json(&["--home", "persistent"], "true");
    assert_eq!(refused["error"]["code"], "request.no_fork");
    let refused = env.json(&["--keep-tmp"], "true");
    assert_eq!(refused["error"]["code"], "request.no_fork");
    env.assert_sound();
}

#[test]
fn an_agent_needs_approval_for_a_persistent_home() {
    let env = TestEnv::with_project();
    for option in [&["--home", "persistent"][..], &["--keep-tmp"]] {
        let options = [&["--policy", "agent", "--fork", "one"], option].concat();
        let asked = env.json(&options, "true");
        assert_eq!(
            (&asked["state"], &asked["decision"]["rule"]),
            (&json!("approval_required"), &json!("profile.agent.persist")),
            "{asked}"
        );
    }
    env.policy("doubt = 'allow'\n[caps]\npersist = false\n");
    let denied = env.json(&["--fork", "one", "--keep-tmp"], "true");
    assert_eq!(
        (&denied["state"], &denied["decision"]["rule"]),
        (&json!("denied"), &json!("caps.persist")),
        "{denied}"
    );
}

/// The path that a file is shown at is not one that the command wrote, however it is named.
#[test]
fn a_shown_file_is_not_reported_as_dropped() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("b.patch"), "patch\n").unwrap();
    std::fs::create_dir(env.at("elsewhere")).unwrap();
    std::os::unix::fs::symlink(env.at("elsewhere"), env.project().join("away")).unwrap();
    for named in ["../b.patch", "src/../../b.patch", "away/../b.patch", "../elsewhere/./../b.patch"] {
        let path = env.at("b.patch");
        let answer =
            env.run(&["--json", "--ro", named, "--", "cat", path.to_str().unwrap()]).expect(0).envelope();
        assert_eq!(answer["result"]["stdout"], json!("patch\n"), "{named}: {answer}");
        assert_eq!(answer["result"]["outside_writes"], Value::Null, "{named}: {answer}");
    }
    assert_eq!(env.run(&["--ro", "../b.patch", "--", "cat", "../b.patch"]).expect(0).stderr, "");
}
