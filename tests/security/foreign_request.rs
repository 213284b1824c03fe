//! Tried: an agent that reads a file of the host with `--request`, whose errors show its content.
//! Stopped by: the profile `agent`: the file is opened only in the workspace, and never through a symlink.

use serde_json::{Value, json};

use crate::env::TestEnv;

/// A project, and a file of the host that is no request.
fn with_secret() -> TestEnv {
    let env = TestEnv::with_project();
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    std::fs::write(env.at("keys.json"), r#"{"hush-hush": 1}"#).unwrap();
    env.put("request.json", br#"{"command": ["echo", "ran"]}"#);
    std::os::unix::fs::symlink(env.at("keys.json"), env.project().join("to-keys")).unwrap();
    std::os::unix::fs::symlink("request.json", env.project().join("to-request")).unwrap();
    env
}

fn requested(env: &TestEnv, file: &str, options: &[&str]) -> Value {
    env.run(&[&["--json", "--request", file], options].concat()).envelope()
}

#[test]
fn file_of_the_host_is_not_read_as_a_request() {
    let env = with_secret();
    let keys = env.at("keys.json");
    // Opening a named pipe without a writer would wait.
    let pipe = env.at("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let (keys, pipe) = (keys.to_str().unwrap(), pipe.to_str().unwrap());
    // Control: without the profile the content is shown.
    for file in [keys, "../keys.json", "to-keys"] {
        let shown = requested(&env, file, &[]);
        assert!(shown["error"]["message"].as_str().unwrap().contains("hush-hush"), "{file}: {shown}");
    }
    let outside =
        [keys, "../keys.json", "src/../../keys.json", "to-keys", "to-request", pipe, "../none", "/dev/null"];
    let refused = |options: &[&str]| {
        for file in outside {
            let answer = env.run(&[&["--json", "--request", file], options].concat()).expect(122);
            let envelope = answer.envelope();
            assert_eq!(envelope["decision"]["rule"], json!("profile.agent.request"), "{file}: {envelope}");
            assert_eq!((&envelope["state"], &envelope["request"]), (&json!("denied"), &Value::Null));
            assert!(!answer.text().contains("hush-hush"), "{file}: {answer:?}");
        }
    };
    refused(&["--policy", "agent"]);
    refused(&["--policy", "agent", "--dry-run"]);
    for policy in [env.at("config/avfs/policy.toml"), env.project().join(".avfs/policy.toml")] {
        std::fs::write(&policy, "profile = 'agent'\n").unwrap();
        refused(&[]);
        std::fs::remove_file(&policy).unwrap();
    }
    // Controls: a file of the workspace and standard input are read.
    let project = env.project().join("request.json");
    for file in ["request.json", "src/../request.json", project.to_str().unwrap()] {
        let ran = requested(&env, file, &["--policy", "agent"]);
        assert_eq!(ran["result"]["stdout"], json!("ran\n"), "{file}: {ran}");
    }
    let request = br#"{"command": ["echo", "ran"]}"#;
    let ran = env.fed(&["--json", "--policy", "agent", "--request", "-"], request).expect(0).envelope();
    assert_eq!(ran["result"]["stdout"], json!("ran\n"), "{ran}");
    let missing = env.run(&["--json", "--policy", "agent", "--request", "none"]).expect(125).envelope();
    assert_eq!(missing["error"]["code"], json!("request.unreadable"), "{missing}");
}

#[test]
fn approval_of_an_input_is_for_that_file() {
    let env = with_secret();
    std::fs::write(env.at("other.json"), "x").unwrap();
    std::os::unix::fs::symlink(env.at("other.json"), env.project().join("to-other")).unwrap();
    let ask = |input: &str| {
        let path = env.at(input);
        env.run(&["--json", "--policy", "agent", "--input", path.to_str().unwrap(), "--", "true"]).envelope()
    };
    let asked = ask("keys.json");
    assert_eq!(asked["decision"]["rule"], json!("profile.agent.input"), "{asked}");
    let id = asked["decision"]["approval_id"].as_str().unwrap();
    env.avfs(&["approvals", "approve", id]).expect(0);
    assert_eq!(ask("other.json")["state"], json!("approval_required"));
    assert_eq!(ask("keys.json")["state"], json!("completed"));
    // A cap judges the file, not a symlink to it.
    env.policy(&format!("[caps]\ninput = ['{}/**']\n", env.project().display()));
    let capped = env.run(&["--json", "--input", "to-other", "--", "true"]).expect(122).envelope();
    assert_eq!(capped["decision"]["rule"], json!("caps.input"), "{capped}");
    env.run(&["--json", "--input", "request.json", "--", "true"]).expect(0);
}
