//! Tried: an agent that requests more with an option: another vault, a host directory, less isolation.
//! Stopped by: the profile `agent` and caps, which cover every option that widens a request.

use serde_json::json;

use crate::env::TestEnv;

/// Removes the user policy.
fn without_policy(env: TestEnv) -> TestEnv {
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    env
}

/// The rule that decides a run of `true` with these options, and its action.
fn decided(env: &TestEnv, options: &[&str]) -> (String, String) {
    let words = [&["--json"], options, &["--", "true"]].concat();
    let answer = env.start(&words).answer();
    let envelope = answer.envelope();
    let decision = &envelope["decision"];
    let word = |key: &str| decision[key].as_str().unwrap_or_default().to_owned();
    (word("rule"), word("action"))
}

#[test]
fn options_that_widen_a_request_of_an_agent_require_approval() {
    let env = without_policy(TestEnv::with_project());
    std::fs::create_dir(env.at("outside")).unwrap();
    std::fs::write(env.at("variables"), "A=b\n").unwrap();
    let (outside, variables) = (env.at("outside"), env.at("variables"));
    let (outside, variables) = (outside.to_str().unwrap(), variables.to_str().unwrap());
    let project = env.project();
    let project = project.to_str().unwrap();
    for (options, rule) in [
        (&["--ro", outside][..], "profile.agent.ro"),
        (&["--env-file", variables], "profile.agent.env_file"),
        (&["--input", outside], "profile.agent.input"),
        (&["--apply"], "profile.agent.apply"),
        (&["--at", "/elsewhere"], "profile.agent.at"),
        (&["--allow-degraded"], "profile.agent.degraded"),
        (&["--preset", "rust", "--net", "none"], "profile.agent.preset"),
        (&["--tmpfs", "/proc"], "profile.agent.cover"),
        (&["--tmpfs", "/dev/shm"], "profile.agent.cover"),
        (&["--hide", project], "profile.agent.cover"),
        (&["--tmpfs", "/"], "profile.agent.cover"),
    ] {
        let agent = decided(&env, &[options, &["--policy", "agent"]].concat());
        assert_eq!(agent, (rule.to_owned(), "require_approval".to_owned()), "{options:?}");
        // Control: without the profile no approval is required.
        let (_, action) = decided(&env, &[options, &["--dry-run"]].concat());
        assert_eq!(action, "allow", "{options:?}");
    }
    // Nor through a path that is a different one inside.
    for path in ["/usr/../proc", "../../../../../../proc"] {
        let refused =
            env.run(&["--json", "--policy", "agent", "--tmpfs", path, "--", "true"]).expect(125).envelope();
        assert_eq!(refused["error"]["code"], json!("request.parent_dir"), "{refused}");
    }
    std::os::unix::fs::symlink("/proc", env.project().join("to-proc")).unwrap();
    let over = format!("{project}/to-proc");
    let refused =
        env.run(&["--json", "--policy", "agent", "--tmpfs", &over, "--", "true"]).expect(121).envelope();
    assert_eq!(refused["state"], json!("failed"), "{refused}");
    std::fs::remove_file(env.project().join("to-proc")).unwrap();
    // Options that widen nothing are allowed.
    for options in [&["--tmpfs", "/mnt"][..], &["--hide", "/etc"], &["--env", "A=b"], &["--at", project]] {
        let (_, action) = decided(&env, &[options, &["--policy", "agent"]].concat());
        assert_eq!(action, "allow", "{options:?}");
    }
}

#[test]
fn approval_counts_only_in_a_trusted_vault() {
    let env = without_policy(TestEnv::with_project());
    let other = env.at("other.db");
    let other = other.to_str().unwrap();
    // A vault of another user.
    let mut attacker = env.clean(&crate::env::avfs());
    attacker.env("XDG_DATA_HOME", env.at("attacker")).args(["init", "--vault", other]);
    assert!(attacker.output().unwrap().status.success());
    let ask =
        |words: &[&str]| env.start(&[&["--json", "--vault", other], words].concat()).answer().envelope();
    let fetch = ["--", "git", "fetch"];
    let refused = ask(&fetch);
    assert_eq!(refused["error"]["code"], json!("policy.denied"), "{refused}");
    assert!(refused["error"]["hint"].as_str().unwrap().contains("vault trust"), "{refused}");
    let refused = ask(&["--policy", "agent", "--", "true"]);
    assert_eq!(refused["decision"]["rule"], json!("profile.agent.vault"), "{refused}");
    assert_eq!(refused["error"]["code"], json!("policy.denied"), "{refused}");
    // Control: in a vault that the user trusts, an approval is requested, and counts.
    env.avfs(&["vault", "trust", other]).expect(0);
    let asked = ask(&fetch);
    let id = asked["decision"]["approval_id"].as_str().unwrap_or_default().to_owned();
    assert_eq!(asked["error"]["code"], json!("approval.required"), "{asked}");
    env.avfs(&["--vault", other, "approvals", "approve", &id]).expect(0);
    assert_eq!(ask(&fetch)["state"], json!("completed"));
}

#[test]
fn agent_cannot_create_a_vault() {
    let env = TestEnv::new();
    let refused = env.start(&["--json", "--policy", "agent", "--", "true"]).answer().expect(122).envelope();
    assert_eq!(refused["error"]["code"], json!("policy.denied"), "{refused}");
    assert!(!env.project().join(".avfs").exists());
    // Control: without the profile a vault is created.
    env.start(&["--", "true"]).answer().expect(0);
    assert!(env.vault_file().exists());
}

#[test]
fn path_set_by_the_request_shows_no_toolchain() {
    let env = without_policy(TestEnv::with_project());
    let tools = env.at("tools/bin");
    std::fs::create_dir_all(&tools).unwrap();
    std::fs::write(env.at("tools/secret"), "secret\n").unwrap();
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let secret = env.at("tools/secret");
    let look = ["--", "cat", secret.to_str().unwrap()];
    let set = format!("PATH={path}");
    let answer = env.start(&[&["--env", &set], &look[..]].concat()).answer();
    assert!(!answer.text().contains("secret"), "{answer:?}");
    // Control: the caller's own PATH shows its toolchains.
    let mut own = env.command(&look);
    own.env("PATH", &path);
    assert_eq!(crate::env::Running::start(&mut own).answer().expect(0).text(), "secret\n");
}
