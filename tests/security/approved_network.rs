//! Tried: using an approval for more than was shown: another network, other commands, options that nobody saw.
//! Stopped by: the question shows every option, and an approval grants one network, once or permanently.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;

use crate::env::TestEnv;

/// A server on the host that answers every connection; ends with the test.
pub fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"HTTP/1.0 200 OK\r\n\r\nreached\n");
        }
    });
    port
}

pub fn without_policy() -> TestEnv {
    let env = TestEnv::with_project();
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    env
}

/// Requests to fetch from the server, and approves with these arguments.
fn approve(env: &TestEnv, fetch: &[&str], words: &[&str]) {
    let asked = env.run(&[&["--json", "--"], fetch].concat()).expect(120).envelope();
    let id = asked["decision"]["approval_id"].as_str().unwrap().to_owned();
    env.avfs(&[&["approvals", "approve", &id], words].concat()).expect(0);
}

#[test]
fn approval_grants_only_the_named_network() {
    let url = format!("http://0.0.0.0:{}/", server());
    let fetch = ["curl", "-s", "--max-time", "60", &url];
    let env = without_policy();
    approve(&env, &fetch, &["--net", "none"]);
    let words = [&["--json", "--"], &fetch[..]].concat();
    let refused = env.run(&words).envelope();
    assert_eq!(refused["result"]["stdout"], json!(""), "{refused}");
    assert_ne!(refused["result"]["exit_code"], json!(0), "{refused}");
    // Control: with the host's network it reaches the server, once.
    approve(&env, &fetch, &["--net", "host"]);
    let reached = env.run(&words).expect(0).envelope();
    assert_eq!(reached["result"]["stdout"], json!("reached\n"), "{reached}");
    assert_eq!(reached["enforcement"]["net"], json!("host"), "{reached}");
    env.run(&words).expect(120);
}

#[test]
fn caps_apply_to_approved_requests() {
    let url = format!("http://0.0.0.0:{}/", server());
    let fetch = ["curl", "-s", &url];
    let env = without_policy();
    env.policy("[caps]\nnet = 'none'\n");
    approve(&env, &fetch, &["--net", "host"]);
    let denied = env.run(&[&["--json", "--"], &fetch[..]].concat()).expect(122).envelope();
    assert_eq!(denied["decision"]["rule"], json!("caps.net"), "{denied}");
}

#[test]
fn permanent_rule_includes_the_network() {
    let url = format!("http://0.0.0.0:{}/", server());
    let fetch = ["curl", "-s", &url];
    let env = without_policy();
    approve(&env, &fetch, &["--net", "host", "--always"]);
    let run = |options: &[&str], words: &[&str]| env.run(&[options, &["--json", "--"], words].concat());
    // The first run uses up the approval; the second matches the rule.
    for _ in 0..2 {
        let reached = run(&[], &fetch).expect(0).envelope();
        assert_eq!(reached["result"]["stdout"], json!("reached\n"), "{reached}");
    }
    let narrow = without_policy();
    approve(&narrow, &fetch, &["--net", "none", "--always"]);
    narrow.run(&[&["--json", "--"], &fetch[..]].concat());
    let quiet = narrow.run(&[&["--json", "--"], &fetch[..]].concat()).envelope();
    assert_eq!(quiet["result"]["stdout"], json!(""), "the rule allows it without network: {quiet}");
    // The rule does not allow a second command beside it.
    let both = env.run(&["--json", "--shell", &format!("curl -s {url}; touch x")]).envelope();
    assert_eq!(both["enforcement"]["net"], json!("none"), "{both}");
}

#[test]
fn rule_gives_no_network_to_a_request_with_a_doubt() {
    let url = format!("http://0.0.0.0:{}/", server());
    let env = without_policy();
    for doubt in ["", "doubt = 'allow'\n", "doubt = 'allow_with_checkpoint'\n"] {
        env.policy(&format!(
            "{doubt}[[rule]]\nprefix = ['curl']\nnet = 'host'\naction = 'allow_with_checkpoint'\n"
        ));
        // Control: without the doubt, the rule gives its network.
        let fetch = format!("curl -s {url}");
        assert_eq!(env.json(&[], &fetch)["result"]["stdout"], json!("reached\n"));
        let later = format!("F='{fetch}'");
        for line in [
            format!("{fetch}; {later}; eval \"$F\""),
            format!("{fetch}; ((ls)); $F"),
            format!("{later}; $F"),
            format!("curl --version; {later}; eval \"$F\""),
        ] {
            let refused = env.json(&[], &line);
            assert!(!refused.to_string().contains("reached"), "{line}: {refused}");
            assert_ne!(refused["enforcement"]["net"], json!("host"), "{line}: {refused}");
            let networked = line.starts_with(&fetch);
            let asks = refused["decision"]["rule"] == json!("builtin.networked");
            assert_eq!(asks, networked, "{line}: {refused}");
        }
    }
}

#[test]
fn approval_question_shows_the_whole_request() {
    let env = without_policy();
    let options = [
        "--apply",
        "--tmpfs",
        "/mnt",
        "--env",
        "GIT_SSH_COMMAND=evil\u{1b}[2K\u{202e}",
        "--memory",
        "1GiB",
        "--allow-degraded",
    ];
    let asked =
        env.run(&[&["--json"], &options[..], &["--", "git", "fetch"]].concat()).expect(120).envelope();
    let id = asked["decision"]["approval_id"].as_str().unwrap().to_owned();
    // Every line of the command, too.
    let lines = env.shell(&["--json"], "git fetch; :\nrm -rf src\necho done").expect(120).envelope();
    let lines = lines["decision"]["approval_id"].as_str().unwrap();
    let listed = ["approvals", "list"];
    for words in [&listed[..], &["approvals", "show", lines], &["approvals", "approve", lines]] {
        let shown = env.avfs(words).expect(0).text();
        let line = shown.lines().find(|line| line.contains("git fetch; :")).unwrap();
        assert!(line.contains("rm -rf src") && line.contains("echo done"), "{words:?}: {shown}");
    }
    for words in [&listed[..], &["approvals", "show", &id]] {
        let shown = env.avfs(words).expect(0).text();
        for part in ["fetch", "retention", "apply", "/mnt", "GIT_SSH_COMMAND", "memory", "allow-degraded"] {
            assert!(shown.contains(part), "{part} is missing in: {shown}");
        }
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
    }
}
