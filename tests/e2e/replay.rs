//! `avfs replay`: recorded runs are run again, here or elsewhere, and compared in every bit.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{Running, TestEnv, avfs};
use crate::lists::{Came, forks, list, refused, start_words};
use crate::shared::{Shared, ask};
use crate::support::pause::Pauses;

/// Exports the given runs as a list to a file.
#[track_caller]
fn export(env: &TestEnv, what: &str) -> PathBuf {
    let file = env.at("recorded.jsonl");
    env.avfs(&["record", "export", "--output", file.to_str().unwrap(), what]).expect(0);
    file
}

#[track_caller]
fn replay(env: &TestEnv, what: &Path, words: &[&str]) -> Came {
    let answer = env.avfs(&start_words("replay", what, &env.at("results.jsonl"), words));
    Came::of(env, &answer, "ReplayItemResult")
}

/// Replays the only run of a fork.
#[track_caller]
fn verdict(env: &TestEnv, what: &str, words: &[&str]) -> (Value, Option<i32>) {
    let came = replay(env, Path::new(what), words);
    (came.result().clone(), came.code)
}

fn runs(env: &TestEnv) -> usize {
    env.avfs_result(&["runs", "list", "--limit", "1000"])["runs"].as_array().unwrap().len()
}

fn paths(replay: &Value) -> Vec<&str> {
    replay["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect()
}

/// A day of work. The git index contains inodes, so it is stored outside of the workspace.
const SESSION: [&str; 9] = [
    "git init -q -b main . && git add -A && git commit -qm first && git log --format=%H",
    "git read-tree HEAD && git checkout -q -b feature && printf 'int twice(int n) { return 2 * n; }\\n' > twice.c && git add -A && git commit -qm twice",
    "printf '#include <stdio.h>\\nint twice(int);\\nint main(void) { printf(\"%%d\\\\n\", twice(21)); return 0; }\\n' > main.c; printf 'all: answer\\nanswer: main.c twice.c\\n\\tcc -o answer main.c twice.c\\n' > Makefile",
    "cc -c twice.c -o twice.o && cc -c main.c -o main.o && cc -o answer main.o twice.o && ./answer",
    "test \"$(./answer)\" = 42 && echo passed | tee report",
    "python3 -c \"import json; json.dump({'answer': 42, 'files': sorted(__import__('os').listdir('.'))}, open('facts.json', 'w'))\"; cat facts.json",
    "sed -i 's/2 \\* n/3 * n/' twice.c; cc -o answer main.c twice.c; ./answer; test \"$(./answer)\" = 42",
    "git read-tree HEAD; git checkout -q -- twice.c; rm -f answer *.o; git add -A && git commit -qm 'build and test'",
    "git read-tree HEAD; git checkout -q main && git merge -q --no-ff -m merged feature && git log --oneline --graph && ls -R src && rm -r src && mkdir -p empty/dir",
];

/// A vault with the recorded session on a fork.
fn recorded_session() -> (TestEnv, PathBuf) {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.avfs(&["record", "start", "day", "--fork", "work"]).expect(0);
    let git = [
        "GIT_AUTHOR_NAME=A",
        "GIT_AUTHOR_EMAIL=a@b",
        "GIT_COMMITTER_NAME=A",
        "GIT_COMMITTER_EMAIL=a@b",
        "GIT_AUTHOR_DATE=2024-01-02T03:04:05Z",
        "GIT_COMMITTER_DATE=2024-01-02T03:04:05Z",
        "GIT_INDEX_FILE=/tmp/index",
    ];
    for line in SESSION {
        let mut words = vec!["--quiet", "--reproducible", "--fork", "work"];
        git.iter().for_each(|set| words.extend(["--env", set]));
        let answer = env.shell(&words, line);
        assert!(matches!(answer.code, Some(0 | 1)), "{line}: {answer:?}");
    }
    env.avfs(&["record", "stop"]).expect(0);
    let list = export(&env, "day");
    (env, list)
}

#[test]
fn a_real_session_replays_identically_on_a_fresh_machine() {
    let (env, list) = recorded_session();
    let fresh = TestEnv::new();
    let (vault, list_there) = (fresh.at("copy.db"), fresh.at("list.jsonl"));
    env.avfs(&[OsStr::new("vault"), OsStr::new("copy"), vault.as_os_str()]).expect(0);
    std::fs::copy(list, &list_there).unwrap();
    // Nothing of the recording machine is left.
    drop(env);
    let mut trees = Vec::new();
    for jobs in ["1", "3"] {
        let vault = vault.to_str().unwrap();
        let came = replay(&fresh, &list_there, &["--vault", vault, "--verify", "--exact", "--jobs", jobs]);
        assert_eq!(came.code, Some(0), "{:#?}", came.items);
        assert_eq!(
            came.result()["counts"],
            json!({ "items": 9, "identical": 9, "equivalent": 0, "diverged": 0, "unrecorded": 0, "error": 0, "not_run": 0, "cached": 0 })
        );
        assert_eq!(
            (&came.result()["verdict"], &came.result()["first_diverged"]),
            (&json!("identical"), &Value::Null)
        );
        trees.push(came.all("id").join(" "));
        let names = fresh.avfs_result(&["--vault", vault, "fork", "list"]);
        assert_eq!(names["forks"].as_array().unwrap().len(), 2, "{names}");
    }
    assert_eq!(trees[0], trees[1]);
    assert_eq!(fresh.scratches(), [""; 0]);
}

/// The base exists, but not the later versions: each run starts from the version that the replay of the previous run
/// made.
#[test]
fn missing_versions_are_recreated_during_a_replay() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let before = TestEnv::new();
    let (vault, list) = (before.at("copy.db"), before.at("list.jsonl"));
    env.avfs(&[OsStr::new("vault"), OsStr::new("copy"), vault.as_os_str()]).expect(0);
    for line in ["echo 1 > n; echo out", "cat n; echo 2 >> n", "cat n; rm README.md; exit 3"] {
        env.json(&["--reproducible", "--fork", "work"], line);
    }
    std::fs::copy(export(&env, "work"), &list).unwrap();
    drop(env);
    let vault = vault.to_str().unwrap();
    let words = ["--vault", vault, "--exact", "--jobs", "3"];
    let came = replay(&before, &list, &words);
    assert_eq!((came.code, came.all("verdict")), (Some(0), vec!["identical"; 3]), "{:#?}", came.items);
    // A cached result also provides a version to start from.
    let mut batch = vec!["--vault", vault];
    batch.extend(["--cache", "write", "--keep-going", "--from", "main"]);
    crate::lists::batch(&before, &list, &batch);
    let known = before.avfs_result(&["--vault", vault, "runs", "list"])["runs"].as_array().unwrap().len();
    let came = replay(&before, &list, &["--vault", vault, "--exact", "--cache", "read"]);
    assert_eq!((came.code, came.all("verdict")), (Some(0), vec!["identical"; 3]), "{:#?}", came.items);
    assert_eq!(came.result()["counts"]["cached"], 3, "{:#?}", came.items);
    let runs = before.avfs_result(&["--vault", vault, "runs", "list"])["runs"].as_array().unwrap().len();
    assert_eq!(runs, known, "no command ran");
    let names = before.avfs_result(&["--vault", vault, "fork", "list"])["forks"].as_array().unwrap().len();
    assert!(names <= 2 + 3, "{names} forks");
    // Without its base a replay cannot start, and the error names the vault of the base.
    let other = TestEnv::with_project();
    let (code, message) = refused(&other, &["replay", list.to_str().unwrap()]);
    assert_eq!(code, "replay.unknown_base");
    let text = std::fs::read_to_string(&list).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (header, first) = (lines.next().unwrap(), lines.next().unwrap());
    for named in [&first["id"], &first["start"]["version"], &header["vault_id"]] {
        assert!(message.contains(named.as_str().unwrap()), "{named}: {message}");
    }
}

#[test]
fn differences_are_reported_and_the_remaining_items_are_still_compared() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let work = ["--fork", "work"];
    env.json(&work, "echo same > same; mkdir -p out; date +%N > out/stamp; echo fixed > out/fixed");
    env.json(&work, "cat same; echo later > later");
    env.json(&work, "date +%N; echo quiet >&2");
    env.json(&work, "test $(($(date +%N | sed 's/^0*//') % 2)) = 2; cat later");
    let list = export(&env, "work");
    let mut seen = Vec::new();
    for jobs in ["1", "3"] {
        let came = replay(&env, &list, &["--jobs", jobs]);
        // A divergence is reported; it is a failure only with --verify.
        assert_eq!((came.code, &came.result()["verdict"]), (Some(0), &json!("diverged")));
        assert_eq!(
            came.all("verdict"),
            ["diverged", "equivalent", "diverged", "identical"],
            "{:#?}",
            came.items
        );
        assert_eq!(paths(came.result()), ["out/stamp"], "{}", came.envelope);
        let first = &came.result()["first_diverged"];
        assert_eq!(
            (&first["item"], &first["differences"]),
            (&json!(1), &json!([{ "what": "tree", "text": "1 path differs", "noise": false }]))
        );
        assert_eq!(
            came.items[2]["differences"],
            json!([{ "what": "stdout", "text": "differs", "noise": false }])
        );
        // Both trees of a diverged item exist for inspection; nothing is left of the others.
        let (old, new) = (first["expected_version"].as_str().unwrap(), first["version"].as_str().unwrap());
        let differ = env.avfs(&["diff", "--name-status", old, new]).expect(0).text();
        assert!(differ.contains("out/stamp") && !differ.contains("out/fixed"), "{differ}");
        seen.push(
            came.items
                .iter()
                .map(|item| json!([item["id"], item["verdict"], item["differences"]]))
                .collect::<Vec<_>>(),
        );
        assert_eq!(forks(&env).len(), 2 + seen.len(), "{:?}", forks(&env));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(replay(&env, &list, &["--verify"]).code, Some(1));
    let human = env.avfs(&["replay", list.to_str().unwrap()]).expect(0).text();
    assert!(human.contains("out/stamp") && human.contains("2 diverged"), "{human}");
    let first = replay(&env, &list, &["--fail-fast", "--jobs", "1", "--verify"]);
    assert_eq!(
        (first.code, &first.result()["counts"]["not_run"]),
        (Some(1), &json!(3)),
        "{}",
        first.envelope
    );
    assert_eq!(first.items.len(), 1);
    env.assert_sound();
}

#[test]
fn declared_noise_makes_runs_equivalent() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let line = "mkdir -p out/deep; date +%N | tee out/stamp out/deep/log; echo took $(date +%N) ns >&2";
    env.json(&["--fork", "work", "--cache", "write"], line);
    let (replayed, code) = verdict(&env, "work", &["--verify"]);
    assert_eq!((code, &replayed["verdict"]), (Some(1), &json!("diverged")));
    let noise = ["--verify", "--ignore", "out/**", "--normalise", r"\d+=>N"];
    let (replayed, code) = verdict(&env, "work", &noise);
    assert_eq!(
        (code, &replayed["verdict"], paths(&replayed).len()),
        (Some(0), &json!("equivalent"), 0),
        "{replayed}"
    );
    let exact = [&noise[..], &["--exact"]].concat();
    let (replayed, code) = verdict(&env, "work", &exact);
    assert_eq!((code, &replayed["others"][0]["verdict"]), (Some(1), &json!("equivalent")), "{replayed}");
    let said = env.avfs(&[&["replay", "work"], &exact[..]].concat()).expect(1).text();
    assert!(said.contains("  equivalent: ") && said.contains("tree: "), "{said}");
    // Partially declared noise is not enough.
    let (replayed, _) = verdict(&env, "work", &["--ignore", "out/stamp", "--normalise", r"\d+=>N"]);
    assert_eq!(
        (&replayed["verdict"], paths(&replayed)),
        (&json!("diverged"), vec!["out/deep/log"]),
        "{replayed}"
    );
    let (replayed, _) = verdict(&env, "work", &["--ignore", "out/**", "--normalise", "took"]);
    let what = replayed["first_diverged"]["differences"].as_array().unwrap();
    assert_eq!(
        what.iter()
            .filter(|it| it["noise"] == false)
            .map(|it| it["what"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["stdout", "stderr"]
    );
    // Declared in the list: times are noise only if the list says so.
    let text = std::fs::read_to_string(export(&env, "work")).unwrap();
    for (mtimes, verdict) in [(true, "equivalent"), (false, "diverged")] {
        let declared = json!({ "mtimes": mtimes, "paths": ["out/**"], "output": [{ "pattern": "[0-9]+", "replace": "N" }] });
        let noisy = text.replace("\"expected\":", &format!("\"noise\":{declared},\"expected\":"));
        let came = replay(&env, &list(&env, "noisy.jsonl", &noisy), &[]);
        assert_eq!(came.all("verdict"), [verdict], "{:#?}", came.items);
    }
    assert_eq!(refused(&env, &["replay", "work", "--ignore", "["]).0, "replay.bad_noise");
    assert_eq!(refused(&env, &["replay", "work", "--normalise", "("]).0, "replay.bad_noise");
    env.assert_sound();
}

#[test]
fn exit_codes_and_signals_are_compared() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    env.avfs(&["import"]).expect(0);
    let set = format!("S={}", shared.text());
    let words = ["--fork", "work", "--rw", shared.text(), "--env", &set];
    env.json(&words, "[ -e $S/flag ] && exit 4; exit 3");
    env.json(&words, "[ -e $S/flag ] && kill -9 $$; kill -15 $$");
    env.json(&words, "exit 5");
    assert_eq!(replay(&env, Path::new("work"), &["--exact"]).code, Some(0));
    shared.put("flag");
    let came = replay(&env, Path::new("work"), &[]);
    assert_eq!(came.all("verdict"), ["diverged", "diverged", "identical"]);
    assert_eq!(came.items[0]["differences"][0]["text"], "exit code 4, not exit code 3");
    assert_eq!(came.items[1]["differences"][0]["text"], "signal 9, not signal 15");
    // A denied command has no verdict.
    env.policy("[[rule]]\naction = 'deny'\nreason = 'not any more'\n");
    let came = replay(&env, Path::new("work"), &[]);
    assert_eq!((came.code, came.all("verdict")), (Some(1), vec!["error"; 3]));
    assert_eq!(
        (came.text(came.all("id")[0], "reason"), &came.result()["stopped"]),
        ("denied: not any more", &Value::Null)
    );
}

#[test]
fn runs_forks_recordings_and_ranges_are_replayed() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.avfs(&["record", "start", "all"]).expect(0);
    let ids: Vec<String> = ["work", "work", "other"]
        .into_iter()
        .enumerate()
        .map(|(n, fork)| {
            let envelope = env.json(&["--reproducible", "--fork", fork], &format!("echo {n} >> n; cat n"));
            envelope["result"]["run_id"].as_str().unwrap().to_owned()
        })
        .collect();
    env.avfs(&["record", "stop"]).expect(0);
    let range = format!("{}..{}", ids[1], ids[2]);
    let one = format!("run:{}", ids[1]);
    for (what, expected) in [
        (one.as_str(), &ids[1..2]),
        ("work", &ids[..2]),
        ("fork:other", &ids[2..]),
        ("all", &ids[..]),
        (&range, &ids[1..]),
    ] {
        let came = replay(&env, Path::new(what), &["--exact"]);
        assert_eq!(
            (came.code, came.all("id")),
            (Some(0), expected.iter().map(String::as_str).collect()),
            "{what}"
        );
        assert_eq!(came.result()["source"], json!(what));
    }
    assert_eq!(forks(&env), ["main", "work", "other"]);
    for (words, code) in [
        (&["replay", "no-such-thing"][..], "record.unknown"),
        (&["replay", "run:ffffffffff"], "run.not_found"),
        (&["replay", "main"], "list.empty"),
        (&["replay", "work", "--cache", "write"], "usage"),
    ] {
        assert_eq!(refused(&env, words).0, code, "{words:?}");
    }
    env.assert_sound();
}

#[test]
fn cached_results_are_compared_without_running() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    for n in 0..4 {
        env.json(&["--cache", "write", "--fork", "work"], &format!("echo {n} >> n; cat n"));
    }
    let known = runs(&env);
    let came = replay(&env, Path::new("work"), &["--cache", "read", "--exact"]);
    assert_eq!((came.code, &came.result()["counts"]["cached"]), (Some(0), &json!(4)), "{:#?}", came.items);
    assert_eq!(runs(&env), known, "no command ran");
    // Items without a cached result are run.
    env.json(&["--fork", "work"], "echo more >> n");
    let came = replay(&env, Path::new("work"), &["--cache", "read", "--verify"]);
    assert_eq!((came.code, &came.result()["counts"]["cached"]), (Some(0), &json!(4)), "{:#?}", came.items);
    assert_eq!(runs(&env), known + 2);
    // A cached result that differs is examined like any other.
    let text = std::fs::read_to_string(export(&env, "work")).unwrap();
    let lines: Vec<&str> = text.lines().take(2).collect();
    let mut item: Value = serde_json::from_str(lines[1]).unwrap();
    item["expected"]["version"] = item["start"]["version"].clone();
    for key in ["tree", "content"] {
        item["expected"][key] = item["start"][key].clone();
    }
    let path = list(&env, "other.jsonl", &format!("{}\n{item}\n", lines[0]));
    let came = replay(&env, &path, &["--cache", "read"]);
    assert_eq!(
        (came.all("verdict"), paths(came.result())),
        (vec!["diverged"], vec!["n"]),
        "{:#?}",
        came.items
    );
    assert_eq!(came.result()["counts"]["cached"], 1);
    let came = replay(&env, &path, &["--cache", "read", "--ignore", "n"]);
    assert_eq!(came.all("verdict"), ["equivalent"], "{:#?}", came.items);
}

#[test]
fn handwritten_lists_are_replayed_in_the_order_of_their_needs() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let digest = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
    let text = format!(
        "{{\"id\":\"a\",\"command\":\"echo a > a\"}}\n{{\"id\":\"b\",\"command\":\"echo b > b\"}}\n\
         {{\"id\":\"c\",\"needs\":[\"a\",\"b\"],\"command\":\"cat a b\",\"expected\":{{\"exit_code\":0,\"stdout\":\"{}\"}}}}\n\
         {{\"id\":\"d\",\"needs\":[\"c\"],\"command\":[\"./no-such\"]}}\n{{\"id\":\"e\",\"needs\":[\"d\"],\"command\":\"true\"}}\n",
        digest("a\nb\n")
    );
    let path = list(&env, "list.jsonl", &text);
    let came = replay(&env, &path, &["--jobs", "2"]);
    let ids = |verdict: &str| -> Vec<&str> {
        came.items
            .iter()
            .filter(|item| item["verdict"] == verdict)
            .map(|item| item["id"].as_str().unwrap())
            .collect()
    };
    assert_eq!(
        // The item with an expectation does not specify everything, so it is only equivalent.
        (ids("unrecorded"), ids("equivalent"), ids("error")),
        (vec!["a", "b"], vec!["c"], vec!["d"]),
        "{:#?}",
        came.items
    );
    let counts = &came.result()["counts"];
    assert_eq!(
        (came.code, &counts["items"], &counts["not_run"]),
        (Some(1), &json!(5), &json!(1)),
        "{counts}"
    );
    assert_eq!(forks(&env), ["main"], "the replay leaves nothing behind");
    for (text, code, place) in [
        ("{\"avfs_list\": 2, \"something\": 1}\n", "list.newer", "line 1"),
        ("{\"command\": \"true\"}\n{\"command\": }\n", "list.malformed", "line 2"),
        ("{\"command\": \"true\", \"expected\": {\"tree\": \"12\"}}\n", "list.malformed", "line 1"),
        (
            "{\"id\": 1, \"needs\": [2], \"command\": \"a\"}\n{\"id\": 2, \"needs\": [1], \"command\": \"b\"}\n",
            "list.cycle",
            "1 → 2 → 1",
        ),
        ("# nothing\n", "list.empty", "list.jsonl"),
    ] {
        let path = list(&env, "list.jsonl", text);
        let (actual, message) = refused(&env, &["replay", path.to_str().unwrap()]);
        assert_eq!(actual, code, "{message}");
        assert!(message.contains(place), "{message}");
    }
    env.assert_sound();
}

/// A run whose base was deleted cannot be replayed from another version, such as main.
#[test]
fn a_deleted_base_is_not_replaced_by_another_version() {
    let env = TestEnv::with_project();
    env.json(&["--fork", "work"], "echo 1 > n");
    let envelope = env.json(&["--from", "work"], "cat n; echo 2 >> n");
    let run = envelope["result"]["run_id"].as_str().unwrap().to_owned();
    let list = export(&env, &run);
    env.avfs(&["discard", &format!("run:{run}")]).expect(0);
    env.avfs(&["fork", "delete", "--force", "work"]).expect(0);
    env.avfs(&["gc"]).expect(0);
    let (code, message) = refused(&env, &["replay", list.to_str().unwrap()]);
    assert_eq!(code, "replay.unknown_base", "{message}");
    // It was recorded in this vault, so the error does not refer to another one.
    assert!(message.contains("this vault no longer has"), "{message}");
    let (code, message) = refused(&env, &["replay", &format!("run:{run}")]);
    assert_eq!(code, "replay.unknown_base", "{message}");
    assert!(message.contains("this vault no longer has"), "{message}");
}

#[test]
fn an_interrupted_replay_reports_the_items_it_did_not_run() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let path = list(&env, "list.txt", ": > $S/begun; sleep infinity\ntrue\n");
    let (results, set) = (env.at("results.jsonl"), format!("S={}", shared.text()));
    let words =
        start_words("replay", &path, &results, &["--jobs", "1", "--rw", shared.text(), "--env", &set]);
    let pauses = Pauses::new(&env.at(""));
    let running = Running::start(pauses.set(env.clean(&avfs()).args(words)));
    let running = shared.wait_for_word(running, "begun");
    ask(&running, &pauses, Signal::INT);
    running.signal(Signal::INT);
    let came = Came::of(&env, &running.answer(), "ReplayItemResult");
    assert_eq!((came.code, &came.result()["counts"]["not_run"]), (Some(130), &json!(2)), "{}", came.envelope);
    assert_eq!((&came.result()["stopped"], env.scratches().len()), (&json!("interrupted"), 0));
    assert_eq!(forks(&env), ["main"]);
}

#[test]
fn run_that_needs_an_approval_names_it() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    env.policy("[[rule]]\nprefix = ['touch']\naction = 'require_approval'\n");
    let networked = list(&env, "networked.txt", "curl example.org\n");
    let list = list(&env, "list.txt", "touch a\n");
    let came = replay(&env, &list, &[]);
    assert_eq!(came.code, Some(1));
    let id = came.text("1", "approval_id").to_owned();
    let text = env.avfs(&["replay", list.to_str().unwrap()]).expect(1).text();
    assert!(
        text.contains(&format!("approve with: avfs approvals approve {id}, then replay again\n")),
        "{text}"
    );
    env.policy("");
    let answer = env.avfs(&["replay", networked.to_str().unwrap()]).expect(1);
    assert!(answer.text().contains(" --net allow=DOMAIN,…, then replay again\n"), "{answer:?}");
}

#[test]
fn list_without_recorded_results_verifies_nothing() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let list = list(&env, "list.txt", "true\ntrue\n");
    let came = replay(&env, &list, &["--verify"]);
    assert_eq!((came.code, &came.result()["verdict"]), (Some(1), &json!("unrecorded")));
    let words = ["replay", list.to_str().unwrap(), "--verify"];
    let answer = env.avfs(&words).expect(1);
    assert!(answer.text().contains("unrecorded: 2 unrecorded"), "{}", answer.text());
    assert!(answer.stderr.contains("nothing was verified") && answer.stderr.contains("record start"));
    let answer = env.avfs(&[&words[..], &["--json"]].concat()).expect(1).envelope();
    assert_eq!(answer["error"]["code"], json!("replay.unrecorded"));
    env.avfs(&["replay", list.to_str().unwrap()]).expect(0);
}
