//! Tried: using a permanent approval for a program that the agent has written or chosen.
//! Stopped by: `--always` writes rules only for listed commands, and a rule gives no network beside other commands.

use serde_json::{Value, json};

use crate::approved_network::{server, without_policy};
use crate::env::{PATH, Running, TestEnv, avfs};

/// A program of the workspace that reaches the server.
fn put_program(env: &TestEnv, path: &str, url: &str) {
    env.put(path, format!("#!/bin/sh\nexec /usr/bin/curl -s {url}\n").as_bytes());
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(env.project().join(path), executable).unwrap();
}

fn is_reached(envelope: &Value) -> bool {
    envelope["result"]["stdout"].as_str().is_some_and(|text| text.contains("reached"))
}

/// The answer to a permanent approval of this request, with these arguments.
fn always(env: &TestEnv, id: &str, arguments: &[&str]) -> Value {
    let words = [&["--json", "approvals", "approve", id, "--always"], arguments].concat();
    env.avfs(&words).envelope()
}

#[test]
fn no_rule_is_written_for_what_a_command_can_rewrite() {
    let url = format!("http://0.0.0.0:{}/", server());
    let env = without_policy();
    let config = env.at("config/avfs/policy.toml");
    put_program(&env, "script", &url);
    // Control: by a rule written by hand, the program gets the network with any content.
    env.policy("[[rule]]\nprefix = ['./script']\nnet = 'host'\naction = 'allow'\n");
    assert!(is_reached(&env.json(&[], "./script")));
    std::fs::remove_file(&config).unwrap();
    let agent = ["--json", "--policy", "agent", "--net", "host"];
    for line in [
        "./script",
        "node_modules/.bin/x",
        ".venv/bin/pip install x",
        "npm run build",
        "npm exec x",
        "npx x",
        "cargo run",
        "cargo test",
        "julia x.jl",
        "java X",
        "cmake .",
        "make install",
        "python3 x.py",
        "python3 -c \"$X\"",
        "make -f \"$X\"",
        "sh x.sh",
        "env \"$X\" curl example.org",
        "wget --use-askpass=./script http://example.org",
        "curl -sK x.cfg",
        "git fetch --upload-pack ./script",
        "git -c core.sshCommand=./script fetch",
    ] {
        let asked = env.shell(&agent, line).expect(120).envelope();
        let id = asked["decision"]["approval_id"].as_str().unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (first, two) = (words[0], words[..words.len().min(2)].join(" "));
        for arguments in [&[][..], &["--prefix", first], &["--prefix", &two], &["--prefix", line]] {
            let refused = always(&env, id, arguments);
            let code = refused["error"]["code"].as_str().unwrap_or_default();
            // Words after a variable are no prefix at all.
            let unknown = line.contains('$') && code == "approval.other_prefix";
            assert!(code == "approval.no_prefix" || unknown, "{line} {arguments:?}: {refused}");
        }
        assert!(!config.exists(), "a rule was written for {line}");
        assert_eq!(env.avfs_result(&["approvals", "show", id])["state"], json!("pending"), "{line}");
    }
    // Control: a listed command becomes a rule.
    let asked = env.shell(&agent, "curl http://0.0.0.0:9/").expect(120).envelope();
    let allowed = always(&env, asked["decision"]["approval_id"].as_str().unwrap(), &[]);
    assert_eq!(allowed["result"]["rules"], json!(["curl"]), "{allowed}");
}

#[test]
fn options_before_a_subcommand_do_not_become_a_rule_for_the_program() {
    let env = without_policy();
    let asked = env.shell(&["--json"], "git -C src fetch").expect(120).envelope();
    let id = asked["decision"]["approval_id"].as_str().unwrap();
    let refused = always(&env, id, &[]);
    assert_eq!(refused["error"]["code"], json!("approval.no_prefix"), "{refused}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    let expected = "run it with --cwd src instead of -C, add --prefix 'git -C src fetch', or approve it once";
    assert!(hint.starts_with(expected), "{hint}");
    for short in ["git", "git -C", "git -C src"] {
        let refused = always(&env, id, &["--prefix", short]);
        assert_eq!(refused["error"]["code"], json!("approval.no_prefix"), "{short}: {refused}");
    }
    // Control: the words of the hint are accepted, and the rule allows nothing else.
    let allowed = always(&env, id, &["--prefix", "git -C src fetch"]);
    assert_eq!(allowed["result"]["rules"], json!(["git -C src fetch"]), "{allowed}");
    let decided = |line: &str| env.json(&["--dry-run"], line)["decision"]["action"].clone();
    assert_eq!(decided("git -C src fetch"), json!("allow_with_checkpoint"));
    for other in ["git push", "git -C src push", "git -C . fetch"] {
        assert_eq!(decided(other), json!("require_approval"), "{other}");
    }
}

#[test]
fn rule_gives_no_network_to_a_program_found_by_another_path() {
    let url = format!("http://0.0.0.0:{}/", server());
    let env = without_policy();
    env.policy(
        "[[rule]]\nprefix = ['curl']\nnet = 'host'\naction = 'allow'\n\
         [[rule]]\nprefix = ['pip', 'install']\nnet = 'host'\naction = 'allow'\n",
    );
    put_program(&env, "bin/curl", &url);
    let code = format!("import os\nos.execv('/usr/bin/curl', ['curl', '-s', '{url}'])\n");
    env.put("pip.py", code.as_bytes());
    let path = format!("PATH={}:/usr/bin:/bin", env.project().join("bin").display());
    // Controls: the rule gives its network to the real program, and the other ones can be run.
    assert!(is_reached(&env.json(&[], &format!("curl -s {url}"))));
    assert!(is_reached(&env.json(&["--net", "host"], &format!("{path} curl x"))));
    assert!(is_reached(&env.json(&["--net", "host"], "python3 -m pip install x")));
    for line in [
        format!("{path} curl x"),
        format!("export {path}; curl x"),
        format!("env {path} curl x"),
        "python3 -m pip install x".to_owned(),
    ] {
        let ran = env.json(&[], &line);
        assert!(!is_reached(&ran) && ran["enforcement"]["net"] != json!("host"), "{line}: {ran}");
    }
    let ran = env.json(&["--env", &path], "curl x");
    assert!(!is_reached(&ran) && ran["enforcement"]["net"] != json!("host"), "{ran}");
}

/// The same name is another program if a directory of the workspace is first on PATH.
#[test]
fn no_rule_is_written_for_a_program_of_the_workspace_that_path_finds() {
    let env = without_policy();
    put_program(&env, "bin/curl", "x");
    put_program(&env, "tools/wget", "x");
    let (config, shown) = (env.at("config/avfs/policy.toml"), env.at("shown"));
    std::fs::create_dir(&shown).unwrap();
    std::os::unix::fs::symlink(env.project().join("bin/curl"), shown.join("curl")).unwrap();
    let line = "curl http://0.0.0.0:9/";
    let ask = |path: &str| {
        let own = format!("PATH={path}");
        let asked = env.run(&["--json", "--env", &own, "--shell", line]).expect(120).envelope();
        asked["decision"]["approval_id"].as_str().unwrap().to_owned()
    };
    let project = env.project().display().to_string();
    for first in [format!("{project}/bin"), "bin".to_owned(), shown.display().to_string()] {
        let path = format!("{first}:{PATH}");
        let refused = always(&env, &ask(&path), &[]);
        assert_eq!(refused["error"]["code"], json!("approval.no_prefix"), "{first}: {refused}");
        assert!(refused["error"].to_string().contains("bin/curl"), "{refused}");
        // By the PATH of the caller.
        let asked = env.shell(&["--json", "--policy", "agent", "--net", "host"], line).expect(120).envelope();
        let id = asked["decision"]["approval_id"].as_str().unwrap();
        let mut approve = env.clean(&avfs());
        approve.env("PATH", &path).args(["--json", "approvals", "approve", id, "--always"]);
        let refused = Running::start(&mut approve).answer().envelope();
        assert_eq!(refused["error"]["code"], json!("approval.no_prefix"), "{first}: {refused}");
    }
    assert!(!config.exists());
    // Control: the program of the system, although the directory has other ones.
    let asked = env.shell(&["--json", "--policy", "agent", "--net", "host"], line);
    let id = asked.expect(120).envelope()["decision"]["approval_id"].as_str().unwrap().to_owned();
    let mut approve = env.clean(&avfs());
    approve.env("PATH", format!("{project}/tools:{PATH}"));
    approve.args(["--json", "approvals", "approve", &id, "--always"]);
    let allowed = Running::start(&mut approve).answer().envelope();
    assert_eq!(allowed["result"]["rules"], json!(["curl"]), "{allowed}");
}

#[test]
fn rule_does_not_allow_the_network_that_a_replaced_program_asks_for() {
    let url = format!("http://0.0.0.0:{}/", server());
    let env = without_policy();
    put_program(&env, "bin/curl", &url);
    let path = format!("PATH={}:{PATH}", env.project().join("bin").display());
    env.policy("[[rule]]\nprefix = ['curl']\nnet = 'host'\naction = 'allow'\n");
    // Without the profile, a caller who asks for a network is trusted.
    for options in [&[][..], &["--policy", "agent", "--net", "host"]] {
        // Control: the rule allows the real program.
        assert!(is_reached(&env.json(options, &format!("curl -s {url}"))));
        for line in [
            format!("{path} curl x"),
            format!("export {path}; curl x"),
            format!("env {path} curl x"),
            "LD_PRELOAD=./x.so curl x".to_owned(),
            "LD_LIBRARY_PATH=. curl x".to_owned(),
        ] {
            let ran = env.json(options, &line);
            assert_eq!(ran["decision"]["action"], json!("require_approval"), "{line}: {ran}");
        }
        let ran = env.json(&[options, &["--env", &path]].concat(), "curl x");
        assert_eq!(ran["decision"]["action"], json!("require_approval"), "{ran}");
    }
    // Control: allowed by a rule for every command, the other program reaches the server.
    env.policy("[[rule]]\naction = 'allow'\n");
    assert!(is_reached(&env.json(&["--net", "host"], &format!("{path} curl x"))));
}
