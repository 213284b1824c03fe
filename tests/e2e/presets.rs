//! Presets add what the tools of a language need, and CI jobs see the variables that describe the build.

use serde_json::{Value, json};

use crate::env::TestEnv;

/// The envelope of a dry run.
#[track_caller]
fn planned(env: &TestEnv, options: &[&str]) -> Value {
    env.run(&[&["--json", "--dry-run"], options, &["--", "true"]].concat()).expect(0).envelope()
}

#[test]
fn a_preset_keeps_caches_and_adds_hosts_and_variables() {
    let env = TestEnv::with_project();
    let mut first = env.command(&[
        "--preset",
        "node",
        "-q",
        "--shell",
        "echo kept > ~/.npm/x; echo $NODE_ENV $https_proxy",
    ]);
    let seen = env.answer(first.env("NODE_ENV", "test")).expect(0).text();
    assert_eq!(seen, "test http://127.0.0.1:61080\n");
    assert_eq!(
        env.ok(&["--preset", "node", "--net", "none", "-q"], "cat ~/.npm/x; echo $https_proxy"),
        "kept\n\n"
    );
    env.shell(&["-q"], "cat ~/.npm/x").expect(1);
    let net = |options: &[&str]| planned(&env, options)["request"]["net"].as_str().unwrap().to_owned();
    assert_eq!(net(&["--preset", "rust"]), "allow=index.crates.io,static.crates.io");
    let both = "allow=index.crates.io,proxy.golang.org,static.crates.io,sum.golang.org";
    assert_eq!(net(&["--preset", "rust", "--preset", "go", "--preset", "go"]), both);
    let added = "allow=a.org,proxy.golang.org,sum.golang.org";
    assert_eq!(net(&["--preset", "go", "--net", "allow=a.org"]), added);
    assert_eq!(net(&["--preset", "go", "--net", "host"]), "host");
    assert_eq!(net(&["--preset", "go", "--net", "none"]), "none");
    env.run(&["--preset", "cobol", "--", "true"]).expect(125);
    // The same in a JSON request.
    let asked = planned(&env, &["--preset", "go"])["request"].take();
    assert_eq!(asked["preset"], json!(["go"]));
    std::fs::write(env.at("request.json"), asked.to_string()).unwrap();
    let again = env.run(&["--json", "--dry-run", "--request", env.at("request.json").to_str().unwrap()]);
    assert_eq!(again.expect(0).envelope()["request"]["net"], asked["net"]);
}

#[test]
fn a_program_that_ignores_proxy_variables_is_configured_for_the_proxy() {
    let env = TestEnv::with_project();
    let seen = |options: &[&str]| {
        env.ok(&[&["--preset", "java", "-q"], options].concat(), "echo $JAVA_TOOL_OPTIONS")
    };
    // The proxy listens at the address in `HTTP_PROXY`.
    assert!(seen(&[]).contains("-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=61080 "), "{}", seen(&[]));
    assert_eq!(seen(&["--net", "none"]), "\n");
    assert_eq!(seen(&["--env", "JAVA_TOOL_OPTIONS=mine"]), "mine\n");
}

#[test]
fn the_policy_treats_a_preset_like_the_options_it_adds() {
    let env = TestEnv::with_project();
    env.policy("");
    let rule = |options: &[&str]| planned(&env, options)["decision"]["rule"].as_str().unwrap().to_owned();
    assert_eq!(rule(&["--preset", "rust"]), "builtin.read_only");
    // The variable is set by the preset, and not by the request.
    assert_eq!(rule(&["--preset", "java"]), "builtin.read_only");
    assert_eq!(rule(&["--preset", "java", "--env", "JAVA_TOOL_OPTIONS=-javaagent:x"]), "builtin.mutating");
    assert_eq!(rule(&["--policy", "agent", "--preset", "rust"]), "profile.agent.net");
    let hint = |options: &[&str]| planned(&env, options)["decision"]["hint"].take();
    let drop_it = "add --net none if the network of --preset rust is not needed";
    assert_eq!(hint(&["--policy", "agent", "--preset", "rust"]), json!(drop_it));
    let named = ["--policy", "agent", "--preset", "rust", "--net", "allow=a.org"];
    assert!(hint(&named).as_str().unwrap().starts_with("drop --net allow=a.org"));
    assert_eq!(rule(&["--policy", "agent", "--preset", "rust", "--net", "none"]), "profile.agent.preset");
    env.policy("[caps]\nnet = 'allow=index.crates.io'\n");
    assert_eq!(rule(&["--preset", "rust"]), "caps.net");
    env.policy("[caps]\nsecrets = []\n");
    let mut passing = env.command(&["--json", "--dry-run", "--preset", "node", "--", "true"]);
    let passing = env.answer(passing.env("NODE_ENV", "test")).envelope();
    assert_eq!(passing["decision"]["rule"], json!("caps.secrets"));
    env.policy("[caps]\npreset = false\n");
    assert_eq!(rule(&["--preset", "rust"]), "caps.preset");
}

#[test]
fn the_user_configuration_can_choose_presets_and_that_of_a_directory_cannot() {
    let env = TestEnv::with_project();
    std::fs::write(env.project().join(".avfs/avfs.toml"), "run.preset = ['go']\n").unwrap();
    let run = env.run(&["--json", "--", "true"]).expect(0).envelope();
    assert_eq!(run["request"]["net"], json!("none"));
    assert_eq!(run["result"]["notes"][0]["code"], json!("config.not_trusted"), "{run}");
    std::fs::remove_file(env.project().join(".avfs/avfs.toml")).unwrap();
    std::fs::write(env.at("config/avfs/avfs.toml"), "run.preset = ['go']\n").unwrap();
    assert_eq!(planned(&env, &[])["request"]["net"], json!("allow=proxy.golang.org,sum.golang.org"));
    // `none` in the configuration disables the network; an option overrides both.
    std::fs::write(env.at("config/avfs/avfs.toml"), "run.preset = ['go']\nrun.net = 'none'\n").unwrap();
    assert_eq!(planned(&env, &[])["request"]["net"], json!("none"));
    let named = planned(&env, &["--preset", "rust"]);
    assert_eq!(named["request"]["net"], json!("allow=index.crates.io,static.crates.io"));
    std::fs::remove_file(env.at("config/avfs/avfs.toml")).unwrap();
    let mut by_variable = env.command(&["--json", "--dry-run", "--", "true"]);
    let by_variable = env.answer(by_variable.env("AVFS_RUN_PRESET", "rust:go")).envelope();
    assert!(by_variable["request"]["net"].as_str().unwrap().contains("crates.io"), "{by_variable}");
    std::fs::write(env.at("config/avfs/avfs.toml"), "run.preset = ['cobol']\n").unwrap();
    let refused = env.run(&["--json", "--", "true"]).expect(125).envelope();
    assert_eq!(refused["error"]["code"], json!("config.bad_value"));
}

#[test]
fn a_ci_job_sees_the_variables_that_describe_the_build() {
    let env = TestEnv::with_project();
    let seen = |ci: &str, options: &[&str]| {
        let words = [options, &["-q", "--shell", "printenv | grep -E '^(GITHUB|CI_)' | sort"]].concat();
        let mut command = env.command(&words);
        command.env("CI", ci).env("GITHUB_SHA", "abc").env("CI_COMMIT_SHA", "def");
        command.env("CI_JOB_TOKEN", "hush").env("GITHUB_TOKEN", "hush").env("GITHUB_ENV", "/tmp/env");
        env.answer(&mut command).text()
    };
    assert_eq!(seen("true", &[]), "CI_COMMIT_SHA=def\nGITHUB_SHA=abc\n");
    assert_eq!(seen("false", &[]), "");
    assert_eq!(seen("true", &["--reproducible"]), "");
    // A cached result must not depend on a single job.
    assert_eq!(seen("true", &["--cache", "write"]), "");
    // The variables do not count as part of the request.
    let mut agent = env.command(&["--json", "--dry-run", "--policy", "agent", "--", "true"]);
    let agent = env.answer(agent.env("CI", "true").env("GITHUB_SHA", "abc")).envelope();
    assert!(agent["decision"]["action"].as_str().unwrap().starts_with("allow"), "{agent}");
}
