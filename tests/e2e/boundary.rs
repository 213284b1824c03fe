//! The policy boundary: allowed, denied and approved requests, and their records.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::env::{Running, TestEnv, wait_for};
use crate::lists::refused;
use crate::person::person;
use crate::shared::start_held;
use crate::support;

/// A project with the default policy.
fn fresh() -> TestEnv {
    let env = TestEnv::with_project();
    std::fs::remove_file(env.at("config/avfs/policy.toml")).unwrap();
    env
}

fn decision(envelope: &Value) -> (&str, Vec<&str>) {
    let decision = &envelope["decision"];
    let categories = decision["categories"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    (decision["action"].as_str().unwrap(), categories.collect())
}

fn actions(env: &TestEnv, run: &str) -> Vec<String> {
    let rows = env.avfs_result(&["audit", "list", "--run", run]);
    let rows = rows["rows"].as_array().unwrap().clone();
    rows.iter().map(|row| row["action"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn read_only_commands_are_allowed_and_writes_get_a_checkpoint() {
    let env = fresh();
    let looked = env.json(&[], "ls -l && grep -r hello . | sort | uniq -c");
    assert_eq!(decision(&looked), ("allow", vec!["read_only"]));
    let wrote = env.json(&["--fork", "f"], "echo x > new && rm README.md");
    assert_eq!(decision(&wrote), ("allow_with_checkpoint", vec!["mutating", "destructive"]));
    let id = wrote["run_id"].as_str().unwrap();
    assert_eq!(wrote["result"]["checkpoint_before"], json!(format!("before-{id}")));
    assert_eq!(wrote["result"]["checkpoint_after"], json!(format!("run-{id}")));
    assert_eq!(env.cat(&format!("f@before-{id}"), "README.md"), "hello\n");
    assert_eq!(actions(&env, id), ["run.request", "run.decision", "run.start", "run.end", "run.capture"]);
    env.assert_sound();
}

#[test]
fn commands_that_affect_the_host_are_denied_and_recorded() {
    let env = fresh();
    for line in
        ["sudo ls", "mount -t tmpfs x /mnt", "echo x > /etc/motd", "docker ps", "true; systemctl stop x"]
    {
        let answer = env.shell(&["--json"], line).expect(122);
        let envelope = answer.envelope();
        assert_eq!((&envelope["state"], &envelope["success"]), (&json!("denied"), &json!(false)), "{line}");
        let (action, categories) = decision(&envelope);
        assert!(action == "deny" && categories.contains(&"host_escape_risk"), "{line}: {envelope}");
        assert_eq!(envelope["error"]["code"], json!("policy.denied"));
        assert_eq!(envelope["result"], Value::Null);
        let id = envelope["run_id"].as_str().unwrap();
        assert_eq!(env.avfs_result(&["runs", "show", id])["state"], json!("denied"));
        assert_eq!(actions(&env, id), ["run.request", "run.decision"]);
        let human = env.shell(&[], line).expect(122);
        assert!(human.stderr.contains("denied: ") && human.stderr.contains("hint: "), "{human:?}");
    }
    assert_eq!(env.scratches(), [""; 0]);
    // Reading system files is not a risk.
    env.shell(&[], "cat /etc/passwd > /dev/null").expect(0);
    env.assert_sound();
}

#[test]
fn network_access_needs_an_option_or_an_approval() {
    let env = fresh();
    let answer = env.shell(&["--json"], "curl https://example.org").expect(120);
    let envelope = answer.envelope();
    assert_eq!(envelope["state"], json!("approval_required"));
    assert!(envelope["error"]["hint"].as_str().unwrap().contains("--net host"), "{envelope}");
    assert!(envelope["decision"]["approval_id"].is_string());
    let asked = env.json(&["--net", "host"], "curl --version");
    assert_eq!(asked["state"], json!("completed"), "{asked}");
    // The profile `agent` asks even if the option is given; the profile `ci` never asks.
    let agent = env.shell(&["--json", "--net", "host", "--policy", "agent"], "curl https://example.org");
    assert_eq!(agent.expect(120).envelope()["decision"]["rule"], json!("profile.agent.net"));
    let ci = env.shell(&["--json", "--policy", "ci"], "curl https://example.org").expect(122).envelope();
    assert_eq!(ci["state"], json!("denied"), "{ci}");
}

/// The command in a hint can be run verbatim, also if `--vault` was given.
#[test]
fn hints_repeat_the_vault_option() {
    let env = fresh();
    env.avfs(&["init", "--vault", "../a vault.db"]).expect(0);
    let named = "avfs --vault '../a vault.db' approvals approve ";
    let envelope = env.shell(&["--json", "--vault", "../a vault.db"], ASKED).expect(120).envelope();
    assert!(envelope["error"]["hint"].as_str().unwrap().contains(named), "{envelope}");
    let human = env.shell(&["--vault", "../a vault.db"], ASKED).expect(120);
    assert!(human.stderr.contains(named), "{human:?}");
    let ran = env.shell(&["--vault", "../a vault.db"], "touch new").expect(0);
    assert!(ran.stderr.contains("avfs --vault '../a vault.db' apply run:"), "{ran:?}");
}

fn approval_id(envelope: &Value) -> String {
    envelope["decision"]["approval_id"].as_str().unwrap_or_else(|| panic!("{envelope}")).to_owned()
}

const ASKED: &str = "curl -f --max-time 1 http://0.0.0.0:9/ || echo ran";

#[test]
fn an_approval_allows_exactly_the_same_request_once() {
    let env = fresh();
    let first = env.shell(&["--json"], ASKED).expect(120).envelope();
    let id = approval_id(&first);
    // Asking again returns the same pending approval.
    assert_eq!(approval_id(&env.shell(&["--json"], ASKED).expect(120).envelope()), id);
    let listed = env.avfs_result(&["approvals", "list"]);
    assert_eq!(listed["approvals"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(env.avfs_result(&["approvals", "show", &id[..4]])["state"], json!("pending"));
    env.avfs(&["approvals", "approve", &id]).expect(0);
    // A different request needs a different approval: other arguments, another fork, another environment.
    for (options, line) in [
        (&[][..], "curl -f --max-time 1 http://0.0.0.0:9/ || echo run"),
        (&["--fork", "f"], ASKED),
        (&["--env", "A=b"], ASKED),
    ] {
        let mut words = vec!["--json"];
        words.extend(options);
        assert_ne!(approval_id(&env.shell(&words, line).expect(120).envelope()), id);
    }
    let ran = env.shell(&["--json"], ASKED).expect(0).envelope();
    assert_eq!((ran["result"]["stdout"].as_str(), approval_id(&ran)), (Some("ran\n"), id.clone()));
    let run = ran["run_id"].as_str().unwrap();
    assert_eq!(actions(&env, run)[0], "approval.use");
    let used = env.avfs_result(&["approvals", "show", &id]);
    assert_eq!((&used["state"], &used["used_by"]), (&json!("used"), &json!(run)));
    let again = env.shell(&["--json"], ASKED).expect(120).envelope();
    assert_ne!(approval_id(&again), id);
    env.assert_sound();
}

#[test]
fn an_approval_given_by_id_must_be_valid() {
    let env = fresh();
    let refused = |id: &str, line: &str, code: i32| {
        let envelope = env.shell(&["--json", "--approved", id], line).expect(code).envelope();
        envelope["error"]["code"].as_str().unwrap().to_owned()
    };
    let id = approval_id(&env.shell(&["--json"], ASKED).expect(120).envelope());
    assert_eq!(refused("ffffffffff", ASKED, 122), "approval.unknown");
    assert_eq!(refused(&id, ASKED, 120), "approval.required");
    env.avfs(&["approvals", "approve", &id]).expect(0);
    assert_eq!(refused(&id, "curl http://other", 122), "approval.mismatched");
    env.shell(&["--approved", &id], ASKED).expect(0);
    assert_eq!(refused(&id, ASKED, 122), "approval.used");
    let other = approval_id(&env.shell(&["--json"], ASKED).expect(120).envelope());
    env.avfs(&["approvals", "deny", &other]).expect(0);
    assert_eq!(refused(&other, ASKED, 122), "approval.denied");
    let denied = env.shell(&["--json"], ASKED).expect(122).envelope();
    assert_eq!((&denied["error"]["code"], &denied["state"]), (&json!("approval.denied"), &json!("denied")));
    let hint = denied["error"]["hint"].as_str().unwrap();
    assert!(hint.starts_with("show the decision with: avfs approvals show "), "{hint}");
    let reversal = hint.split_once("reverse it with: avfs ").unwrap().1.replace("DOMAIN,…", "example.org");
    env.avfs(&reversal.split(' ').collect::<Vec<_>>()).expect(0);
    // An answer with another network needs a denial first, as the hint says.
    let settled = env.avfs(&["approvals", "approve", &other, "--net", "none"]).expect(1).stderr;
    assert!(
        settled.contains(&format!("hint: to change its network, first: avfs approvals deny {other}")),
        "{settled}"
    );
    let ran = env.shell(&["--json"], ASKED).expect(0).envelope();
    assert_eq!(ran["enforcement"]["net"], json!("allow=example.org"), "{ran}");
    // An expired approval.
    let late = approval_id(&env.shell(&["--json"], "curl http://late").expect(120).envelope());
    env.avfs(&["approvals", "approve", &late]).expect(0);
    let vault = support::sql(&env.vault_file());
    assert_eq!(
        vault.execute("UPDATE approval SET expires_at = created_at WHERE id = ?1", [&late]).unwrap(),
        1
    );
    drop(vault);
    assert_eq!(refused(&late, "curl http://late", 122), "approval.expired");
    let rows = env.avfs_result(&["audit", "list", "--action", "approval.refuse"]);
    assert_eq!(rows["rows"].as_array().unwrap().len(), 6, "{rows}");
    env.assert_sound();
}

#[test]
fn a_request_can_wait_for_its_approval() {
    let env = fresh();
    let running = env.start(&["--json", "--approval", "wait", "--shell", ASKED]);
    let pending =
        || env.avfs_result(&["approvals", "list"])["approvals"][0]["id"].as_str().map(str::to_owned);
    wait_for("the approval request", || pending().is_some());
    let approved = env.avfs(&["approvals", "approve", &pending().unwrap()]).expect(0);
    assert!(approved.text().contains("it will run without a network"), "{approved:?}");
    assert!(approved.text().contains("to give it one: avfs approvals deny "), "{approved:?}");
    let envelope = running.answer().expect(0).envelope();
    assert_eq!(envelope["result"]["stdout"], json!("ran\n"));
    // The wait and the run are one row of the journal.
    let runs = env.avfs_result(&["runs", "list"]);
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    assert_eq!(runs["runs"][0]["state"], json!("completed"));
    let denied = env.start(&["--approval", "wait", "--shell", ASKED]);
    wait_for("another approval request", || pending().is_some());
    let id = pending().unwrap();
    env.avfs(&["approvals", "deny", &id]).expect(0);
    let denied = denied.answer().expect(122);
    let answer = format!("answer with: avfs approvals approve {id} --net allow=DOMAIN,…, or deny {id}\n");
    assert!(denied.stderr.contains(&format!("waiting for an approval; {answer}")), "{denied:?}");
    assert!(denied.stderr.contains("denied: "), "{denied:?}");
    env.assert_sound();
}

#[test]
fn the_user_at_the_terminal_is_asked_for_approval() {
    let env = fresh();
    let said = |word: &str| {
        let script = format!("wait_for(b'no: '); send(b'{word}\\n')");
        person(&env, &script, &["-q", "--shell", ASKED]).text()
    };
    let once = said("y");
    assert!(
        once.contains("needs your approval") && once.contains("ran\r\n") && once.contains("code 0"),
        "{once}"
    );
    assert!(said("n").contains("code 122"));
    assert!(said("what?").contains("code 120"));
    // "always" adds a rule to the user's policy, and the command is not asked about again.
    let always = said("a");
    assert!(always.contains("code 0"), "{always}");
    let policy = std::fs::read_to_string(env.at("config/avfs/policy.toml")).unwrap();
    assert!(policy.contains("prefix = [\"curl\"]"), "{policy}");
    let after = env.json(&[], "curl -f --max-time 1 http://0.0.0.0:9/other || echo ran");
    assert_eq!((&after["state"], &after["result"]["stdout"]), (&json!("completed"), &json!("ran\n")));
    assert!(after["decision"]["rule"].as_str().unwrap().starts_with("approved-"), "{after}");
}

#[test]
fn always_adds_a_rule_to_the_users_policy() {
    let env = fresh();
    let ask = |line: &str| approval_id(&env.shell(&["--json"], line).expect(120).envelope());
    env.policy("# mine\nprofile = 'agent'\n");
    let id = ask("curl http://0.0.0.0:9/");
    let result = env.avfs_result(&["approvals", "approve", &id, "--always"]);
    assert_eq!(result["rules"], json!(["curl"]));
    let text = std::fs::read_to_string(env.at("config/avfs/policy.toml")).unwrap();
    assert!(text.starts_with("# mine\n") && text.contains("[[rule]]"), "{text}");
    env.shell(&[], "curl http://0.0.0.0:9/ -o /dev/null").expect(7);
    // The printed way to give it a network replaces the rule.
    let id = ask("wget -qO- http://example.org/");
    let told = env.avfs(&["approvals", "approve", &id, "--always"]).expect(0).text();
    let line =
        format!("avfs approvals deny {id}, then avfs approvals approve {id} --net allow=DOMAIN,… --always\n");
    assert!(told.contains(&line), "{told}");
    env.avfs(&["approvals", "deny", &id]).expect(0);
    env.avfs(&["approvals", "approve", &id, "--net", "allow=example.org", "--always"]).expect(0);
    let text = std::fs::read_to_string(env.at("config/avfs/policy.toml")).unwrap();
    assert_eq!(text.matches(&format!("approved-{id}")).count(), 1, "{text}");
    let ran = env.shell(&["--json"], "wget -qO- http://example.org/").envelope();
    assert_eq!(ran["decision"]["rule"], json!(format!("approved-{id}")));
    assert_eq!(ran["result"]["connections"][0]["host"], json!("example.org"), "{ran}");
    // A command that cannot be identified by its first words cannot be allowed permanently.
    let doubtful = ask("git fetch; $(cat README.md) x");
    let answer = env.avfs(&["--json", "approvals", "approve", &doubtful, "--always"]).expect(1).envelope();
    assert_eq!(answer["error"]["code"], json!("approval.no_prefix"));
    assert_eq!(env.avfs_result(&["approvals", "show", &doubtful])["state"], json!("pending"));
    // Neither can a command for which another policy file requires approval.
    let rule = "[[rule]]\nprefix = ['wget']\naction = 'require_approval'\n";
    std::fs::write(env.project().join(".avfs/policy.toml"), rule).unwrap();
    let theirs = ask("wget http://0.0.0.0:9/");
    let answer = env.avfs(&["--json", "approvals", "approve", &theirs, "--always"]).expect(1).envelope();
    assert_eq!(answer["error"]["code"], json!("approval.still_asked"));
}

/// A rule is about commands: an option that needs approval is asked about again, regardless of the command.
#[test]
fn always_is_refused_for_options_that_no_rule_covers() {
    let env = fresh();
    let (outside, variables) = (env.at("outside"), env.at("variables"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(&variables, "A=b\n").unwrap();
    let (outside, variables) = (outside.to_str().unwrap(), variables.to_str().unwrap());
    let config = env.at("config/avfs/policy.toml");
    let always = |id: &str| env.avfs(&["--json", "approvals", "approve", id, "--always"]);
    for (options, dropped) in [
        (&["--ro", outside][..], format!("drop --ro {outside}")),
        (&["--env-file", variables], format!("drop --env-file {variables}")),
        (&["--tmpfs", "/proc"], "drop --tmpfs /proc".to_owned()),
        (&["--allow-degraded"], "drop --allow-degraded".to_owned()),
    ] {
        for command in [&["curl", "http://0.0.0.0:9/"][..], &["true"]] {
            let words = [&["--json", "--policy", "agent"], options, &["--"], command].concat();
            let asked = env.run(&words).expect(120).envelope();
            let id = approval_id(&asked);
            let refused = always(&id).expect(1).envelope();
            assert_eq!(refused["error"]["code"], json!("approval.still_asked"), "{options:?}: {refused}");
            let hint = refused["error"]["hint"].as_str().unwrap();
            assert!(hint.starts_with(&dropped) && hint.contains("approvals approve"), "{options:?}: {hint}");
            assert!(!config.exists(), "a rule was written for {options:?}");
            assert_eq!(env.avfs_result(&["approvals", "show", &id])["state"], json!("pending"));
        }
    }
    // The user who approves sees the files that variables come from.
    let asked = env.run(&["--json", "--env-file", variables, "--", "curl", "http://0.0.0.0:9/"]).expect(120);
    let asked = asked.envelope();
    assert_eq!(asked["request"]["env_files"], json!([variables]));
    let id = approval_id(&asked);
    let shown = env.avfs(&["approvals", "show", &id]).expect(0).text();
    assert!(shown.contains("env-files") && shown.contains(variables), "{shown}");
    // Control: if no policy asks about the option, the rule allows the same request.
    always(&id).expect(0);
    let ran = || env.run(&["--env-file", variables, "--", "curl", "-s", "http://0.0.0.0:9/"]);
    assert_eq!((ran().code, ran().code), (Some(7), Some(7)));
    // Paths that come from the configuration do not count as options of the request.
    std::fs::write(env.at("config/avfs/avfs.toml"), format!("[run]\nro = ['{outside}']\n")).unwrap();
    let asked =
        env.run(&["--json", "--policy", "agent", "--net", "host", "--", "wget", "x.example"]).expect(120);
    let asked = asked.envelope();
    assert_eq!((&asked["request"]["ro"], &asked["request"]["ro_named"]), (&json!([outside]), &json!(null)));
    always(&approval_id(&asked)).expect(0);
}

#[test]
fn a_command_classified_read_only_that_writes_is_detected() {
    let env = fresh();
    // A program in the workspace with the name of a well-known one.
    env.put("bin/ls", b"#!/bin/sh\necho gotcha > README.md\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.project().join("bin/ls"), executable).unwrap();
    let path = format!("{}:/usr/bin:/bin", env.project().join("bin").display());
    let look = || {
        let mut command = env.command(&["--json", "--", "ls"]);
        Running::start(command.env("PATH", &path)).answer().expect(0).envelope()
    };
    let kept = look();
    assert_eq!(decision(&kept), ("allow", vec!["read_only"]));
    assert_eq!(kept["result"]["classification_violated"], json!(true), "{kept}");
    let codes: Vec<&str> = kept["result"]["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| note["code"].as_str().unwrap())
        .collect();
    assert!(codes.contains(&"classification_violated"), "{kept}");
    assert_eq!(kept["result"]["landing"], json!("advanced"));
    let id = kept["run_id"].as_str().unwrap();
    assert!(actions(&env, id).contains(&"run.violation".to_owned()));
    env.policy("[truth]\nviolated = 'discard'\n");
    let dropped = look();
    assert_eq!(dropped["result"]["classification_violated"], json!(true));
    assert_eq!(dropped["result"]["landing"], json!("nothing"), "{dropped}");
    let run = env.avfs_result(&["runs", "show", dropped["run_id"].as_str().unwrap()]);
    assert!(run["discarded_at"].is_string() && run["version_after"].is_null(), "{run}");
    assert_kept_no_changes(&env, &run);
    let honest = env.json(&[], "ls");
    assert_eq!(honest["result"]["classification_violated"], json!(false));
    env.assert_sound();
}

/// A run whose changes the policy dropped did change something.
#[track_caller]
fn assert_kept_no_changes(env: &TestEnv, run: &Value) {
    assert_eq!(run["result"]["classification_violated"], json!(true), "{run}");
    let (code, message) = refused(env, &["undo", run["id"].as_str().unwrap()]);
    assert!(code == "run.no_version" && message.contains("kept no changes"), "{message}");
}

#[test]
fn a_recovery_discards_changes_that_the_run_would_have_discarded() {
    let env = fresh();
    env.policy("[truth]\nviolated = 'discard'\n");
    env.put("bin/ls", b"#!/bin/sh\necho gotcha > README.md\n");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.project().join("bin/ls"), executable).unwrap();
    let mut command = env.command(&["--json", "--scratch", "disk", "--", "ls"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", env.project().join("bin").display()));
    let (running, pauses) = start_held(&env, &mut command, "session-Released");
    // The capture fails because the vault was moved.
    let (there, away) = (env.project().join(".avfs"), env.at("away"));
    std::fs::rename(&there, &away).unwrap();
    pauses.release("session-Released");
    let envelope = running.answer().expect(123).envelope();
    let _ = std::fs::remove_dir_all(&there);
    std::fs::rename(&away, &there).unwrap();
    let id = envelope["run_id"].as_str().unwrap();
    let recovered = env.avfs_result(&["recover", id]);
    assert_eq!(recovered["runs"][0]["version_after"], Value::Null, "{recovered}");
    assert!(actions(&env, id).contains(&"run.violation".to_owned()));
    let run = env.avfs_result(&["runs", "show", id]);
    assert!(run["discarded_at"].is_string());
    assert_kept_no_changes(&env, &run);
    env.assert_sound();
}

#[test]
fn the_at_option_does_not_change_which_project_a_rule_matches() {
    let env = fresh();
    let project = env.project();
    env.policy(&format!(
        "[[rule]]\nprefix = ['curl']\nworkspace = '{}'\naction = 'allow_with_checkpoint'\n",
        project.display()
    ));
    env.shell(&[], "curl --version").expect(0);
    let elsewhere = env.at("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let at = project.to_str().unwrap();
    let mut command = env.command(&["--json", "--at", at, "--shell", "curl http://x"]);
    env.answer(command.current_dir(&elsewhere)).expect(120);
}

#[test]
fn a_project_policy_can_only_tighten() {
    let env = fresh();
    let place = env.project().join(".avfs/policy.toml");
    std::fs::write(&place, "[[rule]]\naction = 'allow'\n").unwrap();
    env.shell(&[], "sudo ls").expect(122);
    env.shell(&[], "curl http://x").expect(120);
    std::fs::write(&place, "[[rule]]\nprefix = ['ls']\naction = 'deny'\nreason = 'no looking'\n").unwrap();
    let denied = env.shell(&["--json"], "ls").expect(122).envelope();
    assert_eq!(denied["decision"]["reason"], json!("no looking"));
    env.shell(&[], "cat README.md").expect(0);
    std::fs::write(&place, "[caps]\nnet = 'none'\nsecrets = ['NPM_*']\ntimeout = '100ms'\n").unwrap();
    let capped = env.shell(&["--json", "--net", "host"], "true").expect(122).envelope();
    assert_eq!(capped["decision"]["rule"], json!("caps.net"));
    let mut given = env.command(&["--json", "--secret", "TOKEN", "--shell", "true"]);
    let capped = env.answer(given.env("TOKEN", "hush-hush")).expect(122).envelope();
    assert_eq!(capped["decision"]["rule"], json!("caps.secrets"));
    let lowered = env.json(&[], "true");
    assert_eq!(lowered["result"]["notes"][0]["code"], json!("timeout.capped"), "{lowered}");
    env.shell(&[], "sleep infinity").expect(124);
}

#[test]
fn an_invalid_policy_prevents_every_run() {
    let env = fresh();
    for (text, expected) in [
        ("[[rule]]\nacton = 'deny'\n", ":2: unknown key rule.acton; did you mean rule.action?"),
        ("[[rule]]\naction = 'no'\n", ":2: rule.action: invalid value \"no\""),
        ("[[rule]\n", ":1: "),
        ("[[rule]]\nprefix = ['rm']\naction = 'deny'\nmatch = ['ls']\n", ":4: "),
    ] {
        env.policy(text);
        let answer = env.run(&["--", "true"]).expect(125);
        let file = env.at("config/avfs/policy.toml");
        assert!(answer.stderr.contains(&format!("{}{expected}", file.display())), "{answer:?}");
        let envelope = env.run(&["--json", "--", "true"]).expect(125).envelope();
        assert_eq!((&envelope["state"], &envelope["result"]), (&json!("failed"), &Value::Null));
    }
    assert_eq!(env.avfs_result(&["runs", "list"])["runs"], json!([]));
}

#[test]
fn a_request_can_be_given_as_json() {
    let env = fresh();
    let request = |text: &str| env.fed(&["--json", "--request", "-"], text.as_bytes());
    let envelope = request(r#"{"command": ["sh", "-c", "echo $A; pwd"], "env": {"A": "b c"}, "cwd": "src"}"#)
        .expect(0)
        .envelope();
    let project = env.project();
    assert_eq!(envelope["result"]["stdout"], json!(format!("b c\n{}/src\n", project.display())));
    // The request in an envelope can be submitted again.
    let again = request(&envelope["request"].to_string()).expect(0).envelope();
    assert_eq!(again["request"]["command"], envelope["request"]["command"]);
    let line =
        request(r#"{"command": "echo one; exit 3", "fork": "f", "timeout_ms": null}"#).expect(3).envelope();
    assert_eq!((&line["request"]["fork"], &line["request"]["timeout_ms"]), (&json!("f"), &Value::Null));
    for (text, message) in [
        ("{\"comand\": []}", "invalid request -: line 1, column 9: unknown field `comand`"),
        ("{\"command\": [\"ls\"], \"net\": \"x\"}", "line 1, column 31: net: invalid network \"x\""),
        ("{\"command\": [\"ls\"], \"fork\": \"a b\"}", "fork: "),
        ("{\"command\": [\"ls\"], \"retention\": \"apply\", \"readonly\": true}", "retention: "),
        ("", "line 1, column 0"),
    ] {
        let answer = request(text).expect(125);
        let envelope = answer.envelope();
        assert_eq!(envelope["error"]["code"], json!("request.malformed"), "{text}");
        let human = env.fed(&["--request", "-"], text.as_bytes()).expect(125);
        assert!(human.stderr.contains(message), "{text}: {human:?}");
    }
    std::fs::write(env.at("request.json"), r#"{"command": ["true"]}"#).unwrap();
    env.run(&["--request", env.at("request.json").to_str().unwrap()]).expect(0);
    let missing = env.run(&["--json", "--request", "/no/such/file"]).expect(125).envelope();
    assert_eq!(missing["error"]["code"], json!("request.unreadable"));
}

#[test]
fn commands_that_cannot_be_executed_are_refused_before_a_vault_is_created() {
    let env = TestEnv::new();
    let nul = env.fed(&["--json", "--request", "-"], br#"{"command": ["echo", "a\u0000b"]}"#).expect(125);
    assert_eq!(nul.envelope()["error"]["code"], json!("request.nul"));
    let long = format!(r#"{{"command": ["echo", "{}"]}}"#, "x".repeat(200_000));
    let long = env.fed(&["--json", "--request", "-"], long.as_bytes()).expect(125);
    assert_eq!(long.envelope()["error"]["code"], json!("request.too_long"));
    let many: Vec<String> = (0..20_000).map(|n| format!("\"{n:0>500}\"")).collect();
    let many = format!(r#"{{"command": ["true", {}]}}"#, many.join(","));
    let many = env.fed(&["--json", "--request", "-"], many.as_bytes()).expect(125);
    assert_eq!(many.envelope()["error"]["code"], json!("request.too_long"));
    let none = env.fed(&["--json", "--request", "-"], br#"{"command": []}"#).expect(125);
    assert_eq!(none.envelope()["error"]["code"], json!("request.empty"));
    assert!(!env.project().join(".avfs").exists(), "a vault was created");
    // A million bytes of arguments are fine.
    let words: Vec<String> = (0..10_000).map(|n| format!("{n:0>100}")).collect();
    let mut all = vec!["--quiet", "--", "echo"];
    all.extend(words.iter().map(String::as_str));
    assert_eq!(env.run(&all).expect(0).stdout.len(), 10_000 * 101);
}

#[test]
fn run_and_proxy_exec_are_aliases_of_the_runner() {
    let env = fresh();
    for verb in [&["run"][..], &["proxy", "exec"]] {
        let run = |before: &[&str], words: &[&str]| env.avfs(&[before, verb, words].concat());
        assert_eq!(run(&[], &["--", "echo", "--json"]).expect(0).text(), "--json\n");
        let envelope = run(&[], &["--json", "--fork", "f", "--", "true"]).expect(0).envelope();
        assert_eq!(envelope["request"]["fork"], json!("f"));
        let envelope = run(&["--json"], &["--shell", "exit 4"]).expect(4).envelope();
        assert_eq!(envelope["kind"], json!("execution"));
        run(&[], &["--", "sudo", "ls"]).expect(122);
    }
}

#[test]
fn a_run_that_died_is_listed_with_its_last_state() {
    let env = TestEnv::with_project();
    let running = env.start(&["--shell", "touch started; sleep 1000"]);
    wait_for("the command is executing", || {
        let runs = env.avfs_result(&["runs", "list"]);
        runs["unsettled"][0]["stands"] == json!("executing")
    });
    let living = env.avfs_result(&["runs", "list"])["unsettled"][0].clone();
    assert_eq!(living["life"], json!("running"));
    // It is the newest run, also if no other one has ended.
    assert_eq!(env.avfs_result(&["runs", "show", "last"])["id"], living["id"]);
    let none = env.avfs(&["runs", "show", "last~1"]).expect(1).stderr;
    assert!(none.starts_with("error: there is no run last"), "{none}");
    env.ok(&["--discard"], "true");
    let newest = env.avfs_result(&["runs", "list"])["runs"][0]["id"].clone();
    assert_eq!(env.avfs_result(&["runs", "show", "last"])["id"], newest);
    let listed = env.avfs(&["runs", "list", "--limit", "1"]).expect(0).text();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (4, "unfinished:", "finished:"), "{listed}");
    assert!(lines[1].starts_with(living["id"].as_str().unwrap()), "{listed}");
    let id = living["id"].as_str().unwrap().to_owned();
    running.signal(rustix::process::Signal::KILL);
    assert_eq!(running.answer().signal, Some(9));
    let dead = env.avfs_result(&["runs", "show", &id]);
    assert_eq!((&dead["life"], &dead["stands"]), (&json!("dead"), &json!("executing")));
    let human = env.avfs(&["runs", "show", &id[..4]]).expect(0).text();
    assert!(human.contains("state      died executing"), "{human}");
    // The next run cleans it up and records it in the journal.
    env.ok(&[], "true");
    let run = env.avfs_result(&["runs", "show", &id]);
    assert_eq!((&run["state"], &run["result"]["stood"]), (&json!("interrupted"), &json!("executing")));
    assert_eq!(actions(&env, &id), ["run.request", "run.decision", "run.start", "run.interrupt"]);
    assert_eq!(env.avfs_result(&["runs", "list"])["unsettled"], json!([]));
    env.assert_sound();
}

#[test]
fn a_run_that_could_not_start_is_journaled() {
    let env = TestEnv::with_project();
    let envelope = env.run(&["--json", "--", "no-such-command"]).expect(127).envelope();
    assert_eq!(decision(&envelope).0, "allow_with_checkpoint");
    let id = envelope["run_id"].as_str().unwrap();
    let run = env.avfs_result(&["runs", "show", id]);
    assert_eq!((&run["state"], &run["result"]["stood"]), (&json!("failed"), &json!("mounting")));
    assert_eq!(run["result"]["error"]["code"], json!("command.not_found"));
    assert_eq!(actions(&env, id), ["run.request", "run.decision", "run.fail"]);
    env.assert_sound();
}

#[test]
fn a_dry_run_prints_the_decision() {
    let env = fresh();
    let planned = env.run(&["--dry-run", "--", "sudo", "ls"]).expect(0);
    assert!(planned.stderr.contains("decision: deny"), "{planned:?}");
    let envelope = env.run(&["--dry-run", "--json", "--", "ls"]).expect(0).envelope();
    assert_eq!((&envelope["state"], decision(&envelope).0), (&json!("planned"), "allow"));
}

#[test]
fn changes_are_reported_in_the_requested_form() {
    let env = TestEnv::with_project();
    let line = "printf 'hello\\nworld\\n' > README.md; mkdir -p a/b; echo x > a/b/c; rm src/data.bin";
    let report_text = |form: &str| {
        let envelope = env.json(&["--show", form], line);
        let report = envelope["result"]["change_report"].clone();
        assert_eq!((&report["form"], &report["left_off"]), (&json!(form), &json!(0)), "{envelope}");
        report["text"].as_str().unwrap().to_owned()
    };
    let tree = report_text("tree");
    assert!(tree.contains("M README.md  (12 B)\n") && tree.contains("A     c  (2 B)\n"), "{tree}");
    let stat = report_text("stat");
    assert!(
        stat.contains("+1     -0     README.md\n") && stat.contains("binary        src/data.bin"),
        "{stat}"
    );
    let patch = report_text("patch");
    assert!(patch.contains("+++ b/README.md\n") && patch.contains("\n+world\n"), "{patch}");
    let plain = env.json(&[], line);
    assert_eq!(plain["result"]["change_report"], Value::Null);
    let human = env.shell(&["--show", "patch"], line).expect(0);
    assert!(human.stderr.contains("avfs-run:   +world\n"), "{human:?}");
    // The number of omitted lines is reported.
    let many = env.json(&["--show", "tree"], "for n in $(seq 300); do touch f$n; done");
    assert_eq!(many["result"]["change_report"]["left_off"], json!(100), "{many}");
}

/// A copied workspace never contains the hidden paths; their absence is not a change.
#[test]
fn hidden_paths_stay_unchanged_with_every_backend() {
    for backend in [&[][..], &["--backend", "copy"]] {
        let env = TestEnv::with_project();
        for path in ["secrets/key", "build/x", "in/f", "deep/er/hidden"] {
            env.put(path, b"as it was\n");
        }
        let hides =
            ["--hide", "./secrets", "--hide", "./deep/er/hidden", "--tmpfs", "./build", "--ro", "./in"];
        let line = "echo more >> README.md; echo y > deep/er/new; echo z > build/y";
        let words = [backend, &hides, &["--json", "--apply", "--", "sh", "-c", line]].concat();
        let envelope = crate::env::Running::start(&mut env.command(&words)).answer().expect(0).envelope();
        let changes = envelope["result"]["changes"].as_array().unwrap();
        let paths: Vec<&str> = changes.iter().map(|change| change["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["README.md", "deep/er/new"], "{envelope}");
        for path in ["secrets/key", "build/x", "in/f", "deep/er/hidden"] {
            assert_eq!(std::fs::read(env.project().join(path)).unwrap(), b"as it was\n", "{path}");
        }
        assert!(env.project().join("deep/er/new").exists() && !env.project().join("build/y").exists());
        env.assert_sound();
    }
}

/// Everything that a command writes to a vault shared by a group stays usable by the group after the command ends.
#[test]
fn a_vault_shared_by_a_group_can_be_used_by_every_member() {
    const GROUP: u32 = 54320;
    if !support::is_root() {
        return support::skip(
            "a_vault_shared_by_a_group_can_be_used_by_every_member",
            "only root gives files away",
        );
    }
    let env = TestEnv::with_project();
    let open_to_group = |path: &std::path::Path| {
        for entry in walkdir::WalkDir::new(path).into_iter().flatten() {
            let mode = if entry.file_type().is_dir() { 0o770 } else { 0o660 };
            std::os::unix::fs::chown(entry.path(), None, Some(GROUP)).unwrap();
            std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(mode)).unwrap();
        }
    };
    open_to_group(&env.at(""));
    for user in ["54321", "54322", "54321"] {
        let home = env.at(user);
        std::fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(user.parse().unwrap()), None).unwrap();
        let mut command = env.clean(std::path::Path::new("setpriv"));
        command.args(["--reuid", user, "--regid", user, &format!("--groups={GROUP}"), "sh", "-c"]);
        command
            .arg("umask 007; exec \"$0\" -q --fork shared -- sh -c 'date >> log'")
            .arg(crate::env::runner());
        command.env("HOME", &home).env("XDG_CACHE_HOME", home.join("cache"));
        crate::env::Running::start(&mut command).answer().expect(0);
    }
}
