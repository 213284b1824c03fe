//! Settings: precedence of files, the origin of each value, and errors in a file.

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv};

fn put(env: &TestEnv, place: &str, text: &str) {
    let path = env.at(place);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

const USER: &str = "home/.config/avfs/avfs.toml";
const PROJECT: &str = "project/.avfs/avfs.toml";

fn values(shown: &Value, key: &str) -> Vec<(String, Option<String>)> {
    let settings = shown["settings"].as_array().unwrap();
    let setting = settings.iter().find(|setting| setting["key"] == json!(key)).unwrap();
    let place = |value: &Value| value["file"].as_str().map(|file| format!("{file}:{}", value["line"]));
    let values = setting["values"].as_array().unwrap().iter();
    values.map(|value| (value["value"].as_str().unwrap().to_owned(), place(value))).collect()
}

#[test]
fn misspelt_variable_is_noted() {
    let env = TestEnv::with_project();
    let show = |name: &str| Answer::of(env.avfs(&["config", "show"]).env(name, "5s")).stderr;
    let note = "note: $AVFS_RUN_TIMEOT has no effect: no setting has this variable; did you mean AVFS_RUN_TIMEOUT?\n";
    assert_eq!(show("AVFS_RUN_TIMEOT"), note);
    assert_eq!(show("AVFS_RUN_TIMEOUT"), "");
}

#[test]
fn directory_settings_override_user_settings_and_lists_are_appended() {
    let env = TestEnv::with_project();
    let defaults = env.result(&["config", "show"]);
    assert_eq!(values(&defaults, "run.timeout"), [("300s".to_owned(), None)]);
    assert_eq!(values(&defaults, "fork.expires"), [("7d".to_owned(), None)]);
    assert_eq!(values(&defaults, "cache.dirs"), []);
    put(&env, USER, "[run]\ntimeout = '10m'\nnet = 'host'\nenv = ['A']\n");
    put(&env, PROJECT, "[run]\ntimeout = '5m'\nenv = ['B', 'C']\n");
    let shown = env.result(&["config", "show"]);
    let user = |line: u32| Some(format!("{}:{line}", env.at(USER).display()));
    let project = |line: u32| {
        Some(format!("{}:{line}", env.project().canonicalize().unwrap().join(".avfs/avfs.toml").display()))
    };
    assert_eq!(values(&shown, "run.timeout"), [("300s".to_owned(), project(2))]);
    assert_eq!(values(&shown, "run.net"), [("host".to_owned(), user(3))]);
    let env_values = [("A", user(4)), ("B", project(3)), ("C", project(3))];
    assert_eq!(values(&shown, "run.env"), env_values.map(|(value, place)| (value.to_owned(), place)));
    assert_eq!(shown["not_taken"], json!(["run.env"]));
    let text = env.ok(&["config", "show"]);
    assert!(text.contains("run.grace = \"5s\"\n") && text.contains("run.env += \"B\"\n"), "{text}");
    let text = env.ok(&["config", "show", "--origin"]);
    assert!(text.contains("run.grace = \"5s\"  (default)\n"), "{text}");
    assert!(text.contains("/.avfs/avfs.toml:2)\n"), "{text}");
    // Without a vault only the user's settings apply.
    let elsewhere = env.avfs(&["config", "show", "--json"]).current_dir(env.at("home")).output().unwrap();
    let shown: Value = serde_json::from_slice(&elsewhere.stdout).unwrap();
    assert_eq!(values(&shown["result"], "run.timeout"), [("600s".to_owned(), user(2))]);
    let moved =
        env.avfs(&["config", "show", "--json"]).env("XDG_CONFIG_HOME", env.at("xdg")).output().unwrap();
    let shown: Value = serde_json::from_slice(&moved.stdout).unwrap();
    assert_eq!(values(&shown["result"], "run.net"), [("none".to_owned(), None)]);
}

#[test]
fn config_errors_name_file_line_and_key() {
    let env = TestEnv::with_project();
    for (text, code, part) in [
        (
            "[run]\ntiemout = '5s'\n",
            "config.unknown_key",
            "avfs.toml:2: unknown key run.tiemout; did you mean run.timeout?",
        ),
        ("[run]\ntimeout = 5\n", "config.wrong_type", "avfs.toml:2: run.timeout takes a string"),
        ("\n[run]\nprofile = 'lax'\n", "config.bad_value", "avfs.toml:3: run.profile: invalid value \"lax\""),
        ("[run\n", "config.syntax", "avfs.toml:1: "),
    ] {
        put(&env, PROJECT, text);
        let refusal = env.refused(&["config", "show"], 1, code);
        assert!(refusal["error"]["message"].as_str().unwrap().contains(part), "{refusal}");
    }
}

#[test]
fn environment_variable_overrides_every_file() {
    let env = TestEnv::with_project();
    put(&env, PROJECT, "[run]\ntimeout = '5s'\n");
    let show = |name: &str, value: &str| {
        let output = env.avfs(&["config", "show", "--json"]).env(name, value).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let shown = show("AVFS_RUN_TIMEOUT", "9s");
    let settings = shown["result"]["settings"].as_array().unwrap();
    let timeout = settings.iter().find(|setting| setting["key"] == json!("run.timeout")).unwrap();
    let value = json!({ "value": "9s", "origin": "variable", "variable": "AVFS_RUN_TIMEOUT", "file": null, "line": null });
    assert_eq!(timeout["values"], json!([value]));
    let text = env.avfs(&["config", "show", "--origin"]).env("AVFS_RUN_NET", "host").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("run.net = \"host\"  ($AVFS_RUN_NET)\n"), "{text}");
    let refused = show("AVFS_RUN_PROFILE", "lax");
    assert_eq!(refused["error"]["code"], json!("config.bad_value"));
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("$AVFS_RUN_PROFILE: "), "{refused}");
}

#[test]
fn contract_documents_what_a_directory_may_do_with_each_key() {
    use avfs_request::config::Config;
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CONTRACT.md")).unwrap();
    for key in Config::KEYS {
        let may = if Config::can_only_tighten(key) { "only tighten" } else { "choose" };
        assert!(page.contains(&format!("| `{key}` | {may} |")), "docs/CONTRACT.md lacks {key}");
    }
}
