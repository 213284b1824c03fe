//! The policy verbs: what a command may do, why, and errors in a policy file.

use serde_json::{Value, json};

use crate::env::TestEnv;

const USER: &str = "home/.config/avfs/policy.toml";
const PROJECT: &str = "project/.avfs/policy.toml";

fn put(env: &TestEnv, place: &str, text: &str) {
    let path = env.at(place);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn deciding(action: &str) -> String {
    format!(
        "[[rule]]\nname = 'the-{action}'\nprefix = ['touch']\naction = '{action}'\nreason = 'as requested'\n"
    )
}

#[track_caller]
fn decision(env: &TestEnv, words: &[&str]) -> Value {
    let mut all = vec!["policy", "check"];
    all.extend(words);
    env.json(&all)["result"]["decision"].take()
}

#[test]
fn check_reports_the_decision_as_exit_code_and_one_line() {
    let env = TestEnv::with_project();
    for (action, exit) in
        [("allow", 0), ("allow_with_checkpoint", 0), ("require_approval", 120), ("deny", 122)]
    {
        put(&env, USER, &deciding(action));
        let answer = env.run(&["policy", "check", "--", "touch", "x"]);
        assert_eq!(answer.code, exit, "{answer:?}");
        assert_eq!(answer.stdout, format!("{action}  mutating  the-{action}  as requested\n"));
        let value = env.json(&["policy", "check", "--", "touch", "x"]);
        assert_eq!(value["result"]["decision"]["action"], json!(action));
        assert_eq!(value["error"].is_null(), exit == 0, "{value}");
        assert_eq!(decision(&env, &["--shell", "touch x"])["rule"], json!(format!("the-{action}")));
    }
    assert_eq!(env.json(&["policy", "check", "--", "touch", "x"])["error"]["code"], json!("policy.denied"));
    assert_eq!(env.json(&["policy", "check"])["error"]["code"], json!("usage"));
}

#[test]
fn project_policy_can_only_tighten() {
    let env = TestEnv::with_project();
    put(&env, PROJECT, &deciding("allow"));
    assert_eq!(decision(&env, &["--", "touch", "x"])["rule"], json!("builtin.mutating"));
    put(&env, USER, &deciding("allow"));
    assert_eq!(decision(&env, &["--", "touch", "x"])["action"], json!("allow"));
    put(&env, PROJECT, &deciding("deny"));
    assert_eq!(decision(&env, &["--", "touch", "x"])["rule"], json!("the-deny"));
    // Without a vault only the user's policy applies.
    let elsewhere = env.avfs(&["policy", "check", "--", "touch", "x"]).current_dir(env.at("home")).output();
    assert_eq!(elsewhere.unwrap().status.code(), Some(0));
    // A vault elsewhere has its own policy beside it.
    let vault = env.at("other.db");
    env.ok(&["init".as_ref(), "--vault".as_ref(), vault.as_os_str()]);
    put(&env, "other.db.policy.toml", &deciding("deny"));
    let answer = env.run(&["policy", "check", "--vault", vault.to_str().unwrap(), "--", "touch", "x"]);
    assert_eq!(answer.code, 122, "{answer:?}");
}

#[test]
fn caps_and_profiles_check_the_requested_access() {
    let env = TestEnv::with_project();
    put(&env, PROJECT, "[caps]\nnet = 'none'\nrw = ['/srv/**']\nsecrets = ['NPM_*']\ntimeout = '10s'\n");
    let asked = |words: &[&str]| {
        let decision = decision(&env, &[words, &["--", "touch", "x"]].concat());
        (decision["action"].as_str().unwrap().to_owned(), decision["rule"].as_str().unwrap().to_owned())
    };
    let said = |action: &str, rule: &str| (action.to_owned(), rule.to_owned());
    assert_eq!(asked(&[]), said("allow_with_checkpoint", "builtin.mutating"));
    assert_eq!(asked(&["--net", "host"]), said("deny", "caps.net"));
    assert_eq!(asked(&["--secret", "AWS_KEY"]), said("deny", "caps.secrets"));
    assert_eq!(asked(&["--rw", "/etc"]), said("deny", "caps.rw"));
    assert_eq!(decision(&env, &["--", "touch", "x"])["timeout_max_ms"], json!(10_000));
    let given = ["--profile", "agent", "--secret", "NPM_TOKEN"];
    assert_eq!(asked(&given), said("require_approval", "profile.agent.secrets"));
    let nobody = ["--policy", "agent", "--policy", "ci", "--secret", "NPM_TOKEN"];
    assert_eq!(asked(&nobody), said("deny", "profile.ci"));
    // A symlink is resolved before the check.
    std::os::unix::fs::symlink("/etc", env.at("link")).unwrap();
    let link = env.at("link");
    let allowed = format!("[caps]\nrw = ['{}/**']\n", link.parent().unwrap().display());
    put(&env, PROJECT, &allowed);
    assert_eq!(asked(&["--rw", link.to_str().unwrap()]), said("deny", "caps.rw"));
    put(&env, PROJECT, "[caps]\nnet = 'allow=*.a.org'\n");
    assert_eq!(asked(&["--net", "allow=x.a.org"]), said("allow_with_checkpoint", "builtin.mutating"));
    assert_eq!(asked(&["--net", "allow=x.a.org,b.org"]), said("deny", "caps.net"));
    assert_eq!(asked(&["--net", "host"]), said("deny", "caps.net"));
    // Settings contribute to the request too.
    put(&env, PROJECT, "[caps]\nnet = 'none'\n");
    put(&env, "home/.config/avfs/avfs.toml", "run.net = 'host'\n");
    assert_eq!(asked(&[]), said("deny", "caps.net"));
}

#[test]
fn a_cap_on_memory_that_no_program_can_meet_is_invalid() {
    let env = TestEnv::with_project();
    for (value, hint) in [("512", "512MiB"), ("'512K'", "512MiB")] {
        put(&env, USER, &format!("[caps]\nmemory = {value}\n"));
        let answer = env.run(&["policy", "check", "--", "true"]);
        assert!(answer.code != 0 && answer.stderr.contains("expected a size of at least 1MiB"), "{answer:?}");
        assert!(answer.stderr.contains("hint: did you mean ") && answer.stderr.contains(hint), "{answer:?}");
    }
    put(&env, USER, "[caps]\nmemory = '1MiB'\n");
    assert_eq!(env.run(&["policy", "check", "--", "true"]).code, 0);
}

#[test]
fn explain_lists_every_matching_rule() {
    let env = TestEnv::with_project();
    put(&env, USER, &format!("{}\n{}", deciding("allow"), deciding("require_approval")));
    put(&env, PROJECT, &format!("{}\n[caps]\nnet = 'none'\n", deciding("allow")));
    let explained = env.result(&["policy", "explain", "--", "touch", "x"]);
    let said = explained["commands"][0]["said"].as_array().unwrap().clone();
    let brief: Vec<Value> =
        said.iter().map(|said| json!([said["layer"], said["rule"], said["line"], said["effect"]])).collect();
    assert_eq!(
        json!(brief),
        json!([
            ["user", "the-allow", 1, "outweighed"],
            ["user", "the-require_approval", 7, "counts"],
            ["vault", "the-allow", 1, "may_not_loosen"],
        ])
    );
    assert_eq!(explained["commands"][0]["baseline"]["rule"], json!("builtin.mutating"));
    assert_eq!(explained["caps"][0]["cap"], json!("caps.net"));
    assert_eq!(explained["files"].as_array().unwrap().len(), 6);
    let text = env.ok(&["policy", "explain", "--", "touch", "x"]);
    for part in [
        "$ touch x\n",
        "  by default allow_with_checkpoint (builtin.mutating)\n",
        "  vault the-allow: allow, ignored: this layer may only tighten",
        "vault caps.net = none: holds",
        "require_approval by the-require_approval: as requested\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn decision_names_the_rule_of_the_part_that_decided() {
    let env = TestEnv::with_project();
    let rule = |line: &str| decision(&env, &["--shell", line])["rule"].take();
    assert_eq!(rule("ls && mkdir a"), json!("builtin.mutating"));
    assert_eq!(rule("mkdir a && rm -rf b && ls"), json!("builtin.destructive"));
    put(&env, USER, "[[rule]]\nname = 'my-npm'\nprefix = ['npm', 'ci']\naction = 'allow'\n");
    assert_eq!(rule("cd src && npm ci && ls"), json!("my-npm"));
    assert_eq!(rule("npm ci && rm -rf a"), json!("builtin.destructive"));
    let note = env.run(&["policy", "check", "ls && mkdir a"]).stderr;
    assert!(note.contains("one word") && note.contains("--shell 'ls && mkdir a'"), "{note}");
}

#[test]
fn explanation_does_not_refer_to_itself() {
    let env = TestEnv::with_project();
    put(&env, USER, &deciding("deny"));
    let hint = "avfs policy explain";
    assert!(env.run(&["policy", "check", "--", "touch", "x"]).stderr.contains(hint));
    assert!(!env.ok(&["policy", "explain", "--", "touch", "x"]).contains(hint));
    assert_eq!(env.result(&["policy", "explain", "--", "touch", "x"])["decision"]["hint"], json!(null));
}

#[test]
fn policy_errors_name_line_and_key() {
    let env = TestEnv::with_project();
    for (text, code, part) in [
        (
            "[[rule]]\nacton = 'deny'\n",
            "policy.unknown_key",
            "policy.toml:2: unknown key rule.acton; did you mean rule.action?",
        ),
        ("[[rule]]\n\naction = 1\n", "policy.wrong_type", "policy.toml:3: rule.action takes a string"),
        ("[caps]\nnet = 'all'\n", "policy.bad_value", "policy.toml:2: caps.net: invalid value \"all\""),
        ("[[rule]\n", "policy.syntax", "policy.toml:1: "),
        ("[[rule]]\nname = 'x'\n", "policy.missing_key", "policy.toml:1: the rule lacks the key action"),
        (
            "[[rule]]\nprefix = ['touch']\naction = 'deny'\nmatch = ['tuch x']\n",
            "policy.example",
            "policy.toml:4: the rule ",
        ),
    ] {
        put(&env, PROJECT, text);
        // The file is refused as a whole, regardless of the command.
        let refusal = env.refused(&["policy", "check", "--", "ls"], 1, code);
        let message = refusal["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
    }
    std::fs::remove_file(env.at(PROJECT)).unwrap();
    put(&env, "project/.avfs/policy.rego", "no policy");
    let refused = env.json(&["policy", "check", "--", "ls"]);
    let code = refused["error"]["code"].as_str().unwrap();
    assert!(code.starts_with("policy.rego"), "{code}");
}

#[test]
fn policy_test_lists_every_failing_example() {
    let env = TestEnv::with_project();
    let good = "[[rule]]\nprefix = ['touch']\naction = 'deny'\nmatch = ['touch x']\nnot_match = ['ls']\n";
    put(&env, USER, good);
    let tested = env.result(&["policy", "test"]);
    assert_eq!((&tested["files"][0]["examples"], &tested["failures"]), (&json!(2), &json!([])));
    put(&env, "project/mine.toml", &good.replace("'ls'", "\n'ls', 'touch y',\n'touch z'"));
    let answer = env.run(&["policy", "test", "mine.toml"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    let failed = env.json(&["policy", "test", "mine.toml"]);
    let lines: Vec<&Value> =
        failed["result"]["failures"].as_array().unwrap().iter().map(|failure| &failure["line"]).collect();
    assert_eq!(lines, [&json!(6), &json!(7)]);
    assert_eq!(failed["error"]["code"], json!("policy.example"));
    let missing = env.json(&["policy", "test", "nowhere.toml"]);
    assert_eq!(missing["error"]["code"], json!("host.io"));
}

#[test]
fn every_run_option_documents_its_policy_effect() {
    use clap::Args;
    let command = avfs_request::RunSpec::augment_args(clap::Command::new("run"));
    let stated = avfs_request::RunSpec::EFFECTS;
    assert_eq!(command.get_arguments().count(), stated.len(), "each option names its effect after =>");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/POLICY.md")).unwrap();
    for (option, effect) in stated {
        for rule in effect.split(' ').filter(|word| word.contains('.')) {
            assert!(
                page.contains(&format!("`{rule}`")),
                "docs/POLICY.md does not explain {rule} (--{option})"
            );
        }
    }
}
