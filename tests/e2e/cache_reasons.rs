//! Why a result is not found or not stored: every part of the key, every reason, and `cache explain`.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cache::remembered;
use crate::env::{Running, TestEnv};
use crate::shared::Shared;

fn codes(reasons: &Value) -> Vec<String> {
    let reasons = reasons.as_array().unwrap().iter();
    reasons.map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

/// The reasons why no result was found for a line.
#[track_caller]
fn missed(env: &TestEnv, options: &[&str], line: &str) -> Vec<String> {
    let mut words = vec!["--cache", "read"];
    words.extend(options);
    let envelope = env.json(&words, line);
    assert_eq!(envelope["result"]["cached"], json!(false), "{envelope}");
    codes(&envelope["result"]["cache"]["missed"])
}

#[test]
fn a_miss_names_the_parts_that_differ() {
    let env = TestEnv::with_project();
    env.put("src/deep/x", b"x\n");
    let data = env.at("data.txt");
    std::fs::write(&data, "1").unwrap();
    let input = data.to_str().unwrap();
    remembered(&env, "echo said");
    assert_eq!(missed(&env, &[], "echo other"), ["unknown"]);
    assert_eq!(missed(&env, &["--env", "A=b"], "echo said"), ["differs.environment"]);
    assert_eq!(missed(&env, &["--cwd", "src"], "echo said"), ["differs.places"]);
    assert_eq!(missed(&env, &["--at", "/elsewhere"], "echo said"), ["differs.places"]);
    assert_eq!(missed(&env, &["--timeout", "7m"], "echo said"), ["differs.sandbox"]);
    assert_eq!(missed(&env, &["--hide", "/opt"], "echo said"), ["differs.sandbox"]);
    assert_eq!(missed(&env, &["--backend", "copy"], "echo said"), ["differs.sandbox"]);
    assert_eq!(missed(&env, &["--input", input], "echo said"), ["differs.inputs"]);
    assert_eq!(
        missed(&env, &["--cwd", "src", "--env", "A=b"], "echo said"),
        ["differs.environment", "differs.places"]
    );
    // The base: content, modes and names count.
    let hit = |env: &TestEnv| env.json(&["--cache", "read"], "echo said")["result"]["cached"] == json!(true);
    assert!(hit(&env));
    env.put("src/deep/x", b"y\n");
    assert_eq!(missed(&env, &[], "echo said"), ["differs.base"]);
    env.put("src/deep/x", b"x\n");
    assert!(hit(&env));
    let readme = env.project().join("README.md");
    std::fs::set_permissions(&readme, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(missed(&env, &[], "echo said"), ["differs.base"]);
    std::fs::set_permissions(&readme, PermissionsExt::from_mode(0o644)).unwrap();
    // An input on the host is identified by its content.
    let with_input = |words: &[&str]| env.json(&[words, &["--input", input][..]].concat(), "echo said");
    with_input(&["--cache", "write"]);
    assert_eq!(with_input(&["--cache", "read"])["result"]["cached"], json!(true));
    std::fs::write(&data, "2").unwrap();
    assert_eq!(with_input(&["--cache", "read"])["result"]["cached"], json!(false));
    // The umask determines the modes of new files.
    let masked = Running::start(
        env.clean("/bin/sh".as_ref())
            .args(["-c", "umask 077; exec \"$0\" --json --cache read --shell 'echo said'"])
            .arg(crate::env::runner()),
    )
    .answer()
    .expect(0)
    .envelope();
    assert_eq!(codes(&masked["result"]["cache"]["missed"]), ["differs.sandbox"], "{masked}");
}

#[test]
fn a_changed_program_on_the_path_is_a_miss() {
    let env = TestEnv::with_project();
    let tools = env.at("tools/bin");
    std::fs::create_dir_all(&tools).unwrap();
    let install = |text: &str| {
        std::fs::write(tools.join("tool"), format!("#!/bin/sh\necho {text}\n")).unwrap();
        std::fs::set_permissions(tools.join("tool"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    install("one");
    let path = format!("{}:/usr/bin:/bin", tools.display());
    let run = || {
        let mut command = env.command(&["--json", "--cache", "write", "--", "tool"]);
        Running::start(command.env("PATH", &path)).answer().expect(0).envelope()
    };
    assert_eq!(run()["result"]["stdout"], json!("one\n"));
    assert_eq!(run()["result"]["cached"], json!(true));
    install("three");
    let after = run();
    assert_eq!((&after["result"]["stdout"], &after["result"]["cached"]), (&json!("three\n"), &json!(false)));
    assert_eq!(codes(&after["result"]["cache"]["missed"]), ["differs.programs"], "{after}");
}

#[test]
fn results_that_could_differ_next_time_are_not_cached() {
    let env = TestEnv::with_project();
    env.put(".avfsignore", b"*.tmp\n");
    let shared = Shared::new(&env);
    let outside = shared.text().to_owned();
    let before: [(&[&str], &str, &str); 13] = [
        (&["--net", "host"], "true", "network"),
        (&["--net", "allow=example.org"], "true", "network"),
        (&["--ro", &outside], "true", "host.ro"),
        (&["--rw", &outside], "true", "host.rw"),
        (&["--profile", "host"], "true", "host.profile"),
        (&["--secret", "TOKEN"], "true", "secret"),
        (&["--secret", "TOKEN=file"], "true", "secret"),
        (&["--discard"], "true", "discarded"),
        (&["--timeout", "1ms", "--grace", "1ms"], "sleep infinity", "timed_out"),
        (&[], "kill -9 $$", "killed"),
        (&["--output-max", "10"], "echo 0123456789abc", "output.truncated"),
        (&[], "echo x > x.tmp", "left_out"),
        (
            &["--disk", "1MiB", "--scratch", "memory"],
            "head -c 3000000 /dev/zero > big; true",
            "limit.reached",
        ),
    ];
    for (options, line, code) in before {
        let mut words = vec!["--json", "--cache", "write"];
        words.extend(options);
        words.extend(["--shell", line]);
        let answer = env.answer(env.command(&words).env("TOKEN", "hush-hush")).envelope();
        let result = &answer["result"];
        assert_eq!(result["remembered"], json!(false), "{answer}");
        let reasons = codes(&result["cache"]["not_remembered"]);
        assert!(reasons.iter().any(|reasons| reasons == code), "{code}: {reasons:?}: {answer}");
        // The journal records the reason.
        let id = format!("run:{}", result["run_id"].as_str().unwrap());
        let explained = env.avfs_result(&["cache", "explain", &id]);
        assert_eq!((codes(&explained["not_remembered"]), &explained["outcome"]), (reasons, &json!("miss")));
    }
    assert_eq!(env.avfs_result(&["cache", "list"])["results"], json!([]));
    // Every exit code of a command that exits normally is cached.
    for code in [0, 1, 77, 255] {
        let line = format!("exit {code}");
        remembered(&env, &line);
        assert_eq!(env.json(&["--cache", "read"], &line)["result"]["exit_code"], json!(code));
    }
    env.assert_sound();
}

#[test]
fn commands_with_declared_inputs_are_cached() {
    let env = TestEnv::with_project();
    let dir = env.at("shown");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("a"), "1\n").unwrap();
    let shown = dir.to_str().unwrap();
    let line = format!("cat {shown}/a");
    let run = |options: &[&str]| env.json(&[&["--cache", "write"], options].concat(), &line);
    let first = run(&["--ro", shown, "--input", shown]);
    assert_eq!(first["result"]["remembered"], json!(true), "{first}");
    assert_eq!(run(&["--ro", shown, "--input", shown])["result"]["cached"], json!(true));
    std::fs::write(dir.join("a"), "2\n").unwrap();
    assert_eq!(run(&["--ro", shown, "--input", shown])["result"]["stdout"], json!("2\n"));
    // With --pure the caller vouches for the command and gets the cached result.
    assert_eq!(run(&["--ro", shown, "--pure"])["result"]["remembered"], json!(true));
    std::fs::write(dir.join("a"), "3\n").unwrap();
    let stale = run(&["--ro", shown, "--pure"]);
    assert_eq!(
        (&stale["result"]["cached"], &stale["result"]["stdout"]),
        (&json!(true), &json!("2\n")),
        "{stale}"
    );
    let net = env.json(&["--cache", "write", "--net", "host", "--pure"], "true");
    assert_eq!(net["result"]["remembered"], json!(true), "{net}");
    // Directories that persist between runs cannot be declared as inputs.
    let config = "[cache]\ndirs = ['target']\n";
    std::fs::write(env.at("config/avfs/avfs.toml"), config).unwrap();
    let cached = env.json(&["--cache", "write"], "true");
    assert_eq!(codes(&cached["result"]["cache"]["not_remembered"]), ["host.cache_dir"], "{cached}");
    assert_eq!(env.json(&["--cache", "write", "--pure"], "true")["result"]["remembered"], json!(true));
}

#[test]
fn a_command_that_received_a_signal_is_not_cached() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line = "trap 'exit 0' USR1; : > $S/ready; while :; do sleep 0.02; done";
    let running = shared.start(&env, &["--json", "--cache", "write", "--pure"], line);
    let running = shared.wait_for_word(running, "ready");
    running.signal(Signal::USR1);
    let answer = running.answer().expect(0).envelope();
    assert_eq!(codes(&answer["result"]["cache"]["not_remembered"]), ["signalled"], "{answer}");
}

#[test]
fn a_command_wrongly_classified_read_only_is_not_cached() {
    let env = TestEnv::with_project();
    env.policy("");
    env.put("bin/ls", b"#!/bin/sh\necho gotcha > README.md\n");
    std::fs::set_permissions(env.project().join("bin/ls"), PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = env.command(&["--json", "--cache", "write", "--", "ls"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", env.project().join("bin").display()));
    let found_out = Running::start(&mut command).answer().expect(0).envelope();
    assert_eq!(
        codes(&found_out["result"]["cache"]["not_remembered"]),
        ["classification_violated"],
        "{found_out}"
    );
}

#[test]
fn cache_explain_writes_nothing() {
    let env = TestEnv::with_project();
    let first = remembered(&env, "echo new > made");
    let id = first["result"]["run_id"].as_str().unwrap();
    env.put("later", b"not imported yet\n");
    let rows = |env: &TestEnv| env.avfs_result(&["audit", "verify"])["rows"].clone();
    let before = rows(&env);
    let explain = |words: &[&str]| env.avfs(&[&["cache", "explain"], words].concat()).expect(0);
    let miss = explain(&["--json", "--shell", "echo new > made"]).envelope();
    assert_eq!((&miss["kind"], &miss["result"]["outcome"]), (&json!("cache.explain"), &json!("miss")));
    assert_eq!(codes(&miss["result"]["missed"]), ["differs.base"], "{miss}");
    std::fs::remove_file(env.project().join("later")).unwrap();
    let hit = explain(&["--json", "--shell", "echo new > made"]).envelope();
    assert_eq!(hit["result"]["cached_from"], json!(id), "{hit}");
    let version = env.avfs_result(&["show", &format!("run:{id}")]);
    assert_eq!(hit["result"]["found"]["content"], version["version"]["content"], "{hit}");
    assert_eq!(hit["result"]["found"]["stdout_digest"], first["result"]["stdout_digest"]);
    let text = explain(&["--shell", "echo new > made"]).text();
    assert!(text.starts_with(&format!("hit: the result of run:{id}\n")), "{text}");
    let never = explain(&["--net", "host", "--", "make"]).text();
    assert!(never.contains("--net host") && never.contains("not cached:"), "{never}");
    let on_fork = explain(&[
        "--json",
        "--fork",
        "unmade",
        "--from",
        &format!("run:{id}"),
        "--shell",
        "echo new > made",
    ]);
    assert_eq!(codes(&on_fork.envelope()["result"]["missed"]), ["differs.base"]);
    assert_eq!(rows(&env), before);
    assert!(!env.avfs(&["fork", "list"]).text().contains("unmade"));
    // A run that did not use the cache.
    let plain = env.json(&[], "true");
    let explained = env.avfs_result(&[
        "cache",
        "explain",
        &format!("run:{}", plain["result"]["run_id"].as_str().unwrap()),
    ]);
    assert_eq!((&explained["outcome"], &explained["remembered"]), (&json!("not_asked"), &json!(false)));
}

#[test]
fn invalid_cache_options_are_reported() {
    let env = TestEnv::with_project();
    let code = |words: &[&str], exit: i32| {
        let mut all = vec!["--json"];
        all.extend(words);
        env.run(&all).expect(exit).envelope()["error"]["code"].clone()
    };
    assert_eq!(code(&["--cache", "sometimes", "--", "true"], 125), json!("usage"));
    assert_eq!(code(&["--input", "/not/there", "--", "true"], 125), json!("request.no_path"));
    assert_eq!(
        code(&["--cache", "read", "--input", "/dev/null", "--", "true"], 125),
        json!("cache.input_odd")
    );
    assert_eq!(
        code(&["--cache", "read", "--base", "live", "--", "true"], 125),
        json!("request.no_live_base")
    );
    env.avfs(&["--json", "cache", "explain", "run:ffff"]).expect(1);
    env.avfs(&["cache", "explain"]).expect(2);
    // A request file can set the same options.
    env.put(
        "request.json",
        br#"{"command": "echo said", "cache_mode": "write", "inputs": ["README.md"], "pure": true}"#,
    );
    let asked = env.run(&["--json", "--request", "request.json"]).expect(0).envelope();
    assert_eq!(asked["result"]["remembered"], json!(true), "{asked}");
    assert_eq!((&asked["request"]["cache_mode"], &asked["request"]["pure"]), (&json!("write"), &json!(true)));
    env.put("request.json", br#"{"command": "echo said", "cache_mode": "maybe"}"#);
    assert_eq!(code(&["--request", "request.json"], 125), json!("request.malformed"));
}
