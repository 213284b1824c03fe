//! Known ways around the policy, which must stay closed.

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv};
use crate::person::{person, person_command};
use crate::shared::{Shared, start_held};
use crate::support::pause::Pauses;

/// A project with the default policy.
fn fresh() -> TestEnv {
    let env = TestEnv::with_project();
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    env
}

fn with_token(env: &TestEnv, words: &[&str]) -> Answer {
    env.answer(env.command(words).env("TOKEN", "hush-hush"))
}

fn rule(envelope: &Value) -> &str {
    envelope["decision"]["rule"].as_str().unwrap_or_default()
}

#[test]
fn a_symlink_does_not_lead_out_of_the_writable_paths() {
    let env = fresh();
    for dir in ["open", "closed"] {
        std::fs::create_dir(env.at(dir)).unwrap();
    }
    std::os::unix::fs::symlink(env.at("closed"), env.at("open/link")).unwrap();
    let open = env.at("open").canonicalize().unwrap();
    env.policy(&format!("[caps]\nrw = ['{}/**']\n", open.display()));
    let rw = |name: &str| {
        let path = env.at(name);
        env.run(&["--json", "--rw", path.to_str().unwrap(), "--", "true"])
    };
    rw("open").expect(0);
    assert_eq!(rule(&rw("closed").expect(122).envelope()), "caps.rw");
    assert_eq!(rule(&rw("open/link").expect(122).envelope()), "caps.rw");
}

#[test]
fn a_variable_passed_with_env_counts_as_a_secret() {
    let env = fresh();
    env.policy("[caps]\nsecrets = ['NPM_*']\n");
    for option in ["--secret", "--env"] {
        let envelope = with_token(&env, &["--json", option, "TOKEN", "--", "true"]).expect(122).envelope();
        assert_eq!(rule(&envelope), "caps.secrets", "{option}");
    }
    // A value in the request itself is not a secret, and the owner of the configuration approves the variables in it.
    with_token(&env, &["--env", "TOKEN=mine", "--", "true"]).expect(0);
    std::fs::write(env.at("config/avfs/avfs.toml"), "run.env = ['TOKEN']\n").unwrap();
    with_token(&env, &["--", "true"]).expect(0);
    std::fs::remove_file(env.at("config/avfs/avfs.toml")).unwrap();
    env.policy("profile = 'agent'\n");
    let envelope = with_token(&env, &["--json", "--env", "TOKEN", "--", "true"]).expect(120).envelope();
    assert_eq!(rule(&envelope), "profile.agent.secrets");
}

#[test]
fn an_approval_without_a_secret_does_not_cover_the_same_request_with_it() {
    let env = fresh();
    let line = ["--shell", "curl http://0.0.0.0:9/ || true"];
    let asked =
        with_token(&env, &[&["--json", "--env", "TOKEN="][..], &line].concat()).expect(120).envelope();
    let id = asked["decision"]["approval_id"].as_str().unwrap();
    env.avfs(&["approvals", "approve", id]).expect(0);
    let shown = [&["--json", "--approved", id, "--secret", "TOKEN"][..], &line].concat();
    let refused = with_token(&env, &shown).expect(122).envelope();
    assert_eq!(refused["error"]["code"], json!("approval.mismatched"));
}

#[test]
fn the_timeout_cap_also_limits_the_grace_period() {
    let env = fresh();
    env.policy("doubt = 'allow_with_checkpoint'\n[caps]\ntimeout = '100ms'\n");
    let shared = Shared::new(&env);
    let line = "trap '' TERM; : > $S/ready; while :; do sleep 1; done";
    let mut command = shared.command(&env, &["--json", "--grace", "1h"], line);
    let (running, pauses) = start_held(&env, &mut command, "timed-out");
    let running = shared.wait_for_word(running, "ready");
    pauses.release("timed-out");
    let envelope = running.answer().expect(124).envelope();
    assert!(pauses.reached().contains(&"grace-over".to_owned()), "{:?}", pauses.reached());
    let notes = envelope["result"]["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["code"] == json!("grace.capped")), "{envelope}");
}

#[test]
fn a_permanent_approval_for_the_network_does_not_cover_the_host() {
    let env = fresh();
    let asked = env.shell(&["--json"], "curl http://0.0.0.0:9/").expect(120).envelope();
    let id = asked["decision"]["approval_id"].as_str().unwrap();
    env.avfs(&["approvals", "approve", id, "--always"]).expect(0);
    let allowed = env.shell(&["--json"], "curl http://0.0.0.0:9/other").expect(7).envelope();
    assert!(rule(&allowed).starts_with("approved-"), "{allowed}");
    let denied = env.shell(&["--json"], "curl -o /etc/motd http://0.0.0.0:9/").expect(122).envelope();
    assert_eq!(rule(&denied), "builtin.host_escape_risk");
}

#[test]
fn the_approval_question_shows_the_whole_command() {
    let env = fresh();
    let tail = format!("echo {} the-end", "x".repeat(100));
    let line = format!("curl http://0.0.0.0:9/ || {tail}");
    let seen =
        person(&env, "wait_for(b'no: '); send(b'n\\n')", &["-q", "--net", "none", "--shell", &line]).text();
    assert!(seen.contains(&tail), "{seen}");
    // Input typed before the question is not an answer to it.
    let pauses = Pauses::new(&env.at(""));
    pauses.hold("deciding");
    let script = "send(b'y\\n'); wait_for(b'y\\r\\n'); os.remove(os.environ['AVFS_TEST_PAUSE'] + '/hold-deciding'); \
                  wait_for(b'no: '); send(b'n\\n')";
    let early =
        env.answer(pauses.set(&mut person_command(&env, script, &["-q", "--shell", &line]))).expect(0).text();
    assert!(early.contains("code 122"), "{early}");
    assert!(pauses.reached().contains(&"deciding".to_owned()));
}

#[test]
fn every_request_that_waits_for_approval_is_journaled() {
    let env = fresh();
    let line = "curl http://0.0.0.0:9/";
    let asked = env.shell(&["--json"], line).expect(120).envelope();
    let id = asked["decision"]["approval_id"].as_str().unwrap();
    let shown = env.shell(&["--json", "--approved", id], line).expect(120).envelope();
    let run = env.avfs_result(&["runs", "show", shown["run_id"].as_str().unwrap()]);
    assert_eq!(run["state"], json!("approval_required"));
    env.assert_sound();
}

#[test]
fn a_vault_opened_through_a_symlink_keeps_its_policy() {
    let env = fresh();
    let deny = "[[rule]]\nprefix = ['touch']\naction = 'deny'\n";
    std::fs::write(env.project().join(".avfs/policy.toml"), deny).unwrap();
    std::os::unix::fs::symlink(env.vault_file(), env.at("link.db")).unwrap();
    let link = env.at("link.db");
    let run = |line: &str| env.shell(&["--json", "--vault", link.to_str().unwrap()], line);
    run("touch x").expect(122);
    // Its log and locks too: a run through the symlink is captured like any other.
    assert_eq!(run("echo x > new").expect(0).envelope()["result"]["landing"], json!("advanced"));
    env.assert_sound();
}

#[test]
fn an_unreadable_scratch_with_changes_is_not_deleted() {
    let env = fresh();
    env.ok(&[], "true");
    let put = |run: &str, files: &[(&str, &str)]| {
        let dir = env.at("cache/avfs/run").join(run);
        std::fs::create_dir_all(dir.join("upper")).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).unwrap());
    };
    put("aaaaaaaaaa", &[("record", "{\"from\": \"another time\"}"), ("outcome", "{}")]);
    put("bbbbbbbbbb", &[("record", "{\"half")]);
    let envelope = env.json(&[], "true");
    assert_eq!(env.scratches(), ["aaaaaaaaaa"], "one run had ended, one had not started");
    let note = &envelope["result"]["notes"][0];
    assert_eq!(note["code"], json!("scratch.unreadable"), "{envelope}");
}
