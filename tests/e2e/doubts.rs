//! Commands that are in doubt: they run with a checkpoint, unless the request itself asks for more than the default.

use serde_json::{Value, json};

use crate::env::TestEnv;

/// What runs is known only at run time.
const DOUBT: &str = "eval \"$LINE\"";

/// A project with the default policy.
fn fresh() -> TestEnv {
    let env = TestEnv::with_project();
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    env
}

fn decided(envelope: &Value) -> (&str, &str) {
    let decision = &envelope["decision"];
    (decision["action"].as_str().unwrap(), decision["rule"].as_str().unwrap())
}

#[test]
fn a_doubt_alone_runs_with_a_checkpoint_and_asks_nobody() {
    let env = fresh();
    env.put("i.sh", b"cat README.md\n");
    for (line, code) in [
        ("CMD=ls; $CMD", 0),
        ("$(which cat) README.md", 0),
        ("cat i.sh | sh", 0),
        ("eval \"$(cat i.sh)\"", 0),
        ("echo 'unbalanced", 2),
    ] {
        for options in [&["--json"][..], &["--json", "--policy", "agent"], &["--json", "--net", "none"]] {
            let ran = env.shell(options, line).expect(code).envelope();
            assert_eq!(decided(&ran), ("allow_with_checkpoint", "builtin.doubt"), "{line}: {ran}");
            assert_eq!(ran["decision"]["categories"], json!(["mutating"]), "{line}: {ran}");
        }
    }
    assert_eq!(env.avfs_result(&["approvals", "list", "--all"])["approvals"], json!([]));
    let wrote = env.json(&["--fork", "f"], "X='rm README.md'; $X");
    let id = wrote["run_id"].as_str().unwrap();
    assert_eq!(env.cat(&format!("f@before-{id}"), "README.md"), "hello\n");
    // The known commands beside it are judged, and an owner of deny rules can deny doubts.
    assert_eq!(decided(&env.json(&[], "sudo ls; $CMD")), ("deny", "builtin.host_escape_risk"));
    assert_eq!(decided(&env.json(&[], "curl x; $CMD")), ("require_approval", "builtin.networked"));
    env.policy("doubt = 'deny'\n");
    assert_eq!(decided(&env.json(&[], "CMD=ls; $CMD")).0, "deny");
}

#[test]
fn a_doubt_asks_if_the_request_itself_asks_for_more() {
    let env = fresh();
    std::fs::create_dir(env.at("outside")).unwrap();
    std::fs::write(env.at("variables"), "A=b\n").unwrap();
    let (outside, variables) = (env.at("outside"), env.at("variables"));
    let (outside, variables) = (outside.to_str().unwrap(), variables.to_str().unwrap());
    let asked = |words: &[&str]| {
        let words = [&["--json"], words].concat();
        env.answer(env.command(&words).env("TOKEN", "hush-hush")).envelope()
    };
    for (options, drop) in [
        (&["--net", "host"][..], "drop --net host"),
        (&["--net", "allow=localhost:1"], "drop --net allow=localhost:1"),
        (&["--secret", "TOKEN"], "drop --secret TOKEN or --env TOKEN"),
        (&["--env", "TOKEN"], "drop --secret TOKEN or --env TOKEN"),
        (&["--env", "UNSET"], "drop --env NAME"),
        (&["--ro", outside], "drop --ro"),
        (&["--rw", outside], "drop --rw"),
        (&["--profile", "host"], "drop --profile host"),
        (&["--seccomp", "off"], "drop --seccomp off"),
        (&["--env-file", variables], "drop --env-file"),
        (&["--input", variables], "drop --input"),
        (&["--apply"], "drop --apply"),
        (&["--preset", "rust", "--net", "none"], "drop --preset rust"),
        (&["--preset", "rust"], "drop --preset rust"),
        (&["--fork", "f", "--keep-tmp"], "drop --keep-tmp"),
    ] {
        let envelope = asked(&[options, &["--shell", DOUBT]].concat());
        assert_eq!(decided(&envelope), ("require_approval", "builtin.doubt"), "{options:?}: {envelope}");
        let hint = envelope["decision"]["hint"].as_str().unwrap();
        assert!(hint.starts_with(drop), "{options:?}: {hint}");
        // Control: without the doubt nobody is asked.
        assert_ne!(decided(&asked(&[options, &["--", "true"]].concat())).0, "require_approval");
    }
    for key in [r#""net": "host""#, r#""secrets": ["TOKEN"]"#, r#""environment": ["TOKEN"]"#] {
        let request = format!(r#"{{"command": "eval \"$LINE\"", {key}}}"#);
        env.put("request.json", request.as_bytes());
        assert_eq!(decided(&asked(&["--request", "request.json"])).0, "require_approval", "{key}");
    }
    // The author of the settings trusts every command with them.
    let settings = "run.net = 'host'\nrun.profile = 'host'\nrun.env = ['TOKEN']\nrun.seccomp = 'off'\n";
    std::fs::write(env.at("config/avfs/avfs.toml"), settings).unwrap();
    let ran = asked(&["--shell", DOUBT]);
    assert_eq!(decided(&ran), ("allow_with_checkpoint", "builtin.doubt"), "{ran}");
    assert_eq!(ran["enforcement"]["net"], json!("host"), "{ran}");
}
