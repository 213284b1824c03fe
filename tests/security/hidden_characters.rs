//! Tried: controlling the terminal, reversing text or forging a line through names, contents, settings, lists, actors,
//! bound paths and command words that avfs prints.
//! Stopped by: all output goes through one line writer, which escapes control and invisible characters.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use avfs_types::clock::SystemClock;
use avfs_types::printable::is_hidden;
use avfs_vault::backend::Life;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::{Context, Vault};

use crate::env::{Answer, Running, TestEnv, avfs, runner};
use crate::person::PERSON;
use crate::support::{fork, reference};

/// A name, and any other text: it clears the screen, reverses text, has invisible characters, and starts a line.
const HOSTILE: &str =
    "a\u{1b}[2J\u{9b}31m\u{202e}b\u{2066}\u{200b}\u{ad}\u{3164}\u{e0041}\u{feff}\u{2028}\r\u{7f}\nFORGED";

struct Place {
    env: TestEnv,
    dir: PathBuf,
}

impl Place {
    /// A bound directory with a hostile name, file, content, link and message.
    fn new() -> Self {
        let env = TestEnv::new();
        let dir = env.at(HOSTILE);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(HOSTILE), format!("before\n{HOSTILE}\n")).unwrap();
        std::os::unix::fs::symlink(HOSTILE, dir.join("link")).unwrap();
        let place = Self { env, dir };
        assert_eq!(place.avfs(&["init"]).code, Some(0));
        assert_eq!(place.avfs(&["import", "-m", HOSTILE]).code, Some(0));
        place
    }

    fn started(&self, program: &Path, words: &[&str]) -> Answer {
        let mut command = self.env.clean(program);
        let summary = self.env.at("step-summary");
        command
            .current_dir(&self.dir)
            .args(words)
            .env("GITHUB_STEP_SUMMARY", summary)
            .env("AVFS_LOG", "trace");
        Running::start(&mut command).answer()
    }

    fn avfs(&self, words: &[&str]) -> Answer {
        self.started(&avfs(), words)
    }

    fn run(&self, words: &[&str]) -> Answer {
        self.started(&runner(), words)
    }

    /// The output of a command on a terminal without colours.
    fn seen(&self, words: &[&str]) -> String {
        let mut command = self.env.clean(Path::new("python3"));
        command.current_dir(&self.dir).args(["-c", PERSON, ""]).arg(avfs()).args(words);
        let answer = Running::start(command.env("TERM", "xterm").env("NO_COLOR", "1")).answer().expect(0);
        answer.text().replace("\r\n", "\n")
    }

    fn id_of_last_run(&self) -> String {
        let answer = self.avfs(&["--json", "runs", "list"]).expect(0);
        answer.envelope()["result"]["runs"][0]["id"].as_str().unwrap().to_owned()
    }
}

#[track_caller]
fn assert_harmless(what: &str, text: &str) {
    let hidden = text.chars().find(|c| is_hidden(*c) && !matches!(c, '\n' | '\t'));
    assert_eq!(hidden, None, "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{what}: {text:?}");
}

#[track_caller]
fn assert_all_harmless(answer: &Answer) {
    assert_harmless(&answer.command, &String::from_utf8(answer.stdout.clone()).unwrap());
    assert_harmless(&answer.command, &answer.stderr);
}

/// Harmless, and printed at all: a test of something that is not shown would prove nothing.
#[track_caller]
fn assert_escaped(answer: &Answer) {
    assert_all_harmless(answer);
    let output = answer.text() + &answer.stderr;
    assert!(output.contains("\\u{202e}") || output.contains("\\u202e"), "{answer:?}");
}

#[test]
fn content_of_a_version_is_escaped() {
    let place = Place::new();
    std::fs::write(place.dir.join(HOSTILE), format!("after\n{HOSTILE}\n")).unwrap();
    for words in [
        &["status"][..],
        &["import", "-m", HOSTILE],
        &["ls", "main"],
        &["ls", "-l", "main"],
        &["tree", "main"],
        &["find", "main"],
        &["grep", "-F", "main", "\u{202e}"],
        &["log"],
        &["show", "main"],
        &["diff", "main~1", "main"],
        &["diff", "--name-status", "main~1", "main"],
        &["diff", "--tree", "main~1", "main"],
        &["diff", "--stat", "main~1", "main"],
        &["checkpoint", "save", "-m", HOSTILE],
        &["checkpoint", "list"],
        &["vault", "info"],
        &["stats"],
        &["config", "show", "--origin"],
    ] {
        let human = place.avfs(words);
        assert_eq!(human.code, Some(0), "{human:?}");
        assert_all_harmless(&human);
        let json = place.avfs(&[&["--json"], words].concat());
        assert_all_harmless(&json);
    }
    for words in [
        &["ls", "main"][..],
        &["grep", "-F", "main", "\u{202e}"],
        &["log"],
        &["diff", "--stat", "main~2", "main"],
        &["vault", "info"],
        &["checkpoint", "list"],
        &["--json", "log"],
        &["ls", HOSTILE],
        &["cat", "main", "\u{202e}"],
        &["fork", "create", HOSTILE],
        &[HOSTILE],
        &["log", "--\u{1b}[2J\nFORGED\u{202e}"],
    ] {
        assert_escaped(&place.avfs(words));
    }
    // Control: if stdout is not a terminal, contents are verbatim.
    let content = format!("after\n{HOSTILE}\n");
    assert_eq!(place.avfs(&["cat", "main", HOSTILE]).expect(0).text(), content);
    let patch = place.avfs(&["diff", "--patch", "main~2", "main"]).expect(0).text();
    assert!(patch.contains(&format!("+after\n+{}", HOSTILE.split('\n').next().unwrap())), "{patch:?}");
    // On a terminal they are escaped.
    for words in [&["cat", "main", HOSTILE][..], &["diff", "--patch", "main~2", "main"], &["log"]] {
        let seen = place.seen(words);
        assert!(seen.contains("\\u{202e}"), "{seen:?}");
        let hidden = seen.chars().find(|c| is_hidden(*c) && !matches!(c, '\n' | '\t'));
        assert_eq!(hidden, None, "{words:?}: {seen:?}");
    }
}

#[test]
fn command_words_and_changed_paths_are_escaped() {
    let place = Place::new();
    let line =
        format!("printf '%s' \"$0\" > out; printf '%s' \"$0\" > \"x$0\"; printf '%s' \"$0\"; : '{HOSTILE}'");
    let words = ["--", "sh", "-c", &line, HOSTILE];
    let ran = place.run(&words);
    // Control: the command's own output is unchanged.
    assert_eq!(ran.text(), HOSTILE);
    assert_harmless("the summary", &ran.stderr);
    assert!(ran.stderr.contains("\\u{202e}"), "{ran:?}");
    for options in [&["--json"][..], &["--dry-run"], &["--show", "patch"], &["--cache", "write", "--json"]] {
        let ran = place.run(&[options, &words].concat());
        assert_harmless(&format!("{options:?}"), &ran.stderr);
        if options.contains(&"--json") {
            assert_escaped(&ran);
        } else {
            assert!(ran.stderr.contains("\\u{202e}"), "{ran:?}");
        }
    }
    assert_escaped(&place.run(&["--", HOSTILE]));
    assert_escaped(&place.run(&["--net", HOSTILE, "--", "true"]));
    assert_escaped(&place.run(&["--vault", HOSTILE, "--", "true"]));
    let id = place.id_of_last_run();
    let run = format!("run:{id}");
    for words in [
        &["runs", "list"][..],
        &["runs", "show", &id],
        &["fork", "list"],
        &["fork", "tree"],
        &["diff", &run],
        &["apply", "--dry-run", &run],
        &["audit", "list"],
        &["audit", "export"],
        &["cache", "list"],
        &["cache", "explain", "--", "sh", "-c", &line, HOSTILE],
        &["policy", "check", "--", "sh", "-c", &line, HOSTILE],
        &["policy", "explain", "--", "sh", "-c", &line, HOSTILE],
        &["record", "export", &run],
        &["bisect", "main", "--", "sh", "-c", &line, HOSTILE],
        &["race", "-n", "2", "--", "sh", "-c", &line, HOSTILE],
    ] {
        let human = place.avfs(words);
        assert_ne!(human.code, Some(2), "{human:?}");
        assert_all_harmless(&human);
        assert_all_harmless(&place.avfs(&[&["--json"], words].concat()));
    }
    for words in [&["runs", "list"][..], &["runs", "show", &id], &["policy", "explain", "--", "rm", HOSTILE]]
    {
        assert_escaped(&place.avfs(words));
    }
}

#[test]
fn approval_questions_are_escaped() {
    let place = Place::new();
    place.env.policy("[[rule]]\nname = 'x'\naction = 'require_approval'\nreason = \"r\\u202E\"\n");
    let asked = place.run(&["--", "touch", HOSTILE]);
    assert_eq!(asked.code, Some(120), "{asked:?}");
    assert_all_harmless(&asked);
    for words in [&["approvals", "list"][..], &["approvals", "list", "--json"]] {
        assert_escaped(&place.avfs(words));
    }
    let mut command = place.env.clean(Path::new("python3"));
    command.current_dir(&place.dir).args(["-c", PERSON, "wait_for(b'Run it'); send(b'n\\n')"]).arg(runner());
    command.args(["--approval", "ask", "--", "touch", HOSTILE]).env("TERM", "xterm").env("NO_COLOR", "1");
    let seen = Running::start(&mut command).answer().expect(0).text().replace("\r\n", "\n");
    assert!(seen.contains("Run it") && seen.contains("\\u{202e}"), "{seen:?}");
    assert_harmless("the question", &seen);
}

#[test]
fn settings_of_a_directory_are_escaped() {
    let place = Place::new();
    let toml = "\"a\\u001B[2J\\u202E\\nFORGED\"";
    let put = |name: &str, text: &str| std::fs::write(place.dir.join(name), text).unwrap();
    for text in [
        format!("cache.dirs = [{toml}]\n"),
        format!("run.ro = [\"/\" , {toml}]\n"),
        format!("run.net = {toml}\n"),
        format!("{toml} = 1\n"),
        format!("run.timeout = {toml}\n"),
        format!("run = {HOSTILE}\n"),
    ] {
        put(".avfs/avfs.toml", &text);
        for answer in [
            place.avfs(&["config", "show", "--origin"]),
            place.avfs(&["--json", "config", "show"]),
            place.run(&["--discard", "--", "true"]),
        ] {
            assert_all_harmless(&answer);
        }
    }
    put(".avfs/avfs.toml", &format!("{toml} = 1\n"));
    assert_escaped(&place.avfs(&["config", "show"]));
    put(".avfs/avfs.toml", "");
    for text in [
        format!("[[rule]]\nname = {toml}\naction = 'deny'\nreason = {toml}\n"),
        format!("[[rule]]\naction = {toml}\n"),
        format!("{toml} = 1\n"),
        "[[rule]]\nname = 'x'\naction = 'deny'\nreason = \"\\u202E\"\n".to_owned(),
    ] {
        put(".avfs/policy.toml", &text);
        assert_all_harmless(&place.avfs(&["policy", "explain", "--", "touch", "x"]));
        assert_all_harmless(&place.run(&["--", "touch", "x"]));
    }
    assert_escaped(&place.run(&["--", "touch", "x"]));
    put(".avfs/policy.toml", "");
    put(".avfsignore", &format!("[{HOSTILE}\n{{{HOSTILE}\n\u{202e}[\n"));
    for answer in [place.avfs(&["import"]), place.avfs(&["status"]), place.run(&["--discard", "--", "true"])]
    {
        assert_all_harmless(&answer);
    }
}

#[test]
fn lists_and_their_reports_are_escaped() {
    let place = Place::new();
    let item = |command: &str| {
        let command =
            format!("{command}; printf '%s\\n' '{HOSTILE}'; printf '%s\\n' '{HOSTILE}' >&2; exit 3");
        serde_json::json!({ "id": format!("{command}-{HOSTILE}"), "command": command }).to_string()
    };
    let list = [item("true"), item("echo x > y")].join("\n");
    std::fs::write(place.dir.join("list.jsonl"), list).unwrap();
    let at = |name: &str| place.env.at(name).to_str().unwrap().to_owned();
    let (junit, summary, results) = (at("junit.xml"), at("summary.md"), at("results.jsonl"));
    let reports = ["--junit", &junit, "--summary", &summary, "--results", &results];
    let batch = place.avfs(&[&["batch", "list.jsonl", "-k"], &reports[..]].concat());
    assert_escaped(&batch);
    for report in [&junit, &summary, &results, &at("step-summary")] {
        let text = std::fs::read_to_string(report).unwrap();
        assert_harmless(report, &text.replace("&#10;FORGED", "").replace("\nFORGED\n", "\n"));
        assert!(text.contains("\\u{202e}") || text.contains("\\u202e"), "{report}: {text:?}");
    }
    for words in [&["batch", "list"][..], &["batch", HOSTILE], &["replay", "list.jsonl"], &["runs", "list"]] {
        assert_all_harmless(&place.avfs(words));
    }
    let odd = format!("{{\"command\": \"x\", \"{}\": 1}}\n", "\\u001b\\u202e\\nFORGED");
    std::fs::write(place.dir.join("odd.jsonl"), odd).unwrap();
    assert_escaped(&place.avfs(&["batch", "odd.jsonl"]));
}

#[test]
fn actors_are_escaped() {
    let place = Place::new();
    let context = Context { clock: Arc::new(SystemClock), actor: HOSTILE.to_owned() };
    let vault = Vault::open(&place.dir.join(".avfs/vault.db"), OpenOptions::default(), context).unwrap();
    vault.create_fork(&fork("other"), &reference("main"), Life::Persistent).unwrap();
    drop(vault);
    for words in [&["audit", "list"][..], &["audit", "export"], &["--json", "audit", "list"]] {
        assert_escaped(&place.avfs(words));
    }
}
