//! Helpers for batches and replays: lists and the results of their items.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv, avfs};
use crate::schema;

/// Writes a list outside of the workspace.
pub fn list(env: &TestEnv, name: &str, text: &str) -> PathBuf {
    let path = env.at(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// `avfs --json VERB LIST` with further words; the results are written to a file.
pub fn start_words<'a>(verb: &'a str, list: &'a Path, results: &'a Path, words: &[&'a str]) -> Vec<&'a str> {
    let (list, results) = (list.to_str().unwrap(), results.to_str().unwrap());
    let mut all = vec!["--json", verb, list, "--results", results];
    all.extend(words);
    all
}

/// The result of a list: the envelope, and one line per item, sorted by number.
pub struct Came {
    pub code: Option<i32>,
    pub envelope: Value,
    pub items: Vec<Value>,
}

impl Came {
    #[track_caller]
    pub fn of(env: &TestEnv, answer: &Answer, kind: &str) -> Self {
        assert!(env.at("results.jsonl").exists(), "{answer:?}");
        let mut items = lines(&env.at("results.jsonl"), kind);
        items.sort_by_key(|item| item["item"].as_u64());
        Self { code: answer.code, envelope: answer.envelope(), items }
    }

    pub fn result(&self) -> &Value {
        &self.envelope["result"]
    }

    pub fn all<'a>(&'a self, key: &'a str) -> Vec<&'a str> {
        self.items.iter().map(|item| item[key].as_str().unwrap_or("-")).collect()
    }

    pub fn item(&self, id: &str) -> &Value {
        self.items.iter().find(|item| item["id"] == id).unwrap_or_else(|| panic!("no {id}: {:?}", self.items))
    }

    pub fn text<'a>(&'a self, id: &str, key: &str) -> &'a str {
        self.item(id)[key].as_str().unwrap_or_else(|| panic!("{key} of {id}: {}", self.item(id)))
    }
}

/// The lines of a results file, each validated against the schema.
pub fn lines(path: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| schema::validate_as(&avfs(), kind, line));
    lines
}

/// Runs a batch until it ends.
#[track_caller]
pub fn batch(env: &TestEnv, list: &Path, words: &[&str]) -> Came {
    let answer = env.avfs(&start_words("batch", list, &env.at("results.jsonl"), words));
    Came::of(env, &answer, "BatchItemResult")
}

/// A batch that must succeed.
#[track_caller]
pub fn good(env: &TestEnv, list: &Path, words: &[&str]) -> Came {
    let came = batch(env, list, words);
    assert_eq!((came.code, &came.envelope["success"]), (Some(0), &json!(true)), "{}", came.envelope);
    assert!(came.all("state").iter().all(|state| *state == "succeeded"), "{:?}", came.items);
    came
}

/// The code and the message of a command that is refused before it starts anything.
#[track_caller]
pub fn refused(env: &TestEnv, words: &[&str]) -> (String, String) {
    let mut all = vec!["--json"];
    all.extend(words);
    let answer = env.avfs(&all);
    assert!(!matches!(answer.code, Some(0) | None), "{answer:?}");
    let envelope = answer.envelope();
    let text = |key: &str| envelope["error"][key].as_str().unwrap_or_else(|| panic!("{envelope}")).to_owned();
    (text("code"), text("message"))
}

pub fn forks(env: &TestEnv) -> Vec<String> {
    let list = env.avfs_result(&["fork", "list"]);
    let names = list["forks"].as_array().unwrap().iter();
    names.map(|fork| fork["name"].as_str().unwrap().to_owned()).collect()
}

/// The digests of a version: with modification times and without.
pub fn digests(env: &TestEnv, reference: &str) -> (String, String) {
    let shown = env.avfs_result(&["show", reference]);
    let text = |key: &str| shown["version"][key].as_str().unwrap().to_owned();
    (text("root"), text("content"))
}

/// The journaled runs of a batch: the item, and whether the run succeeded.
pub fn journal(env: &TestEnv, batch: &str) -> Vec<(u64, bool)> {
    let vault = crate::support::sql(&env.vault_file());
    let sql = "SELECT item, state = 'completed' AND exit_code = 0 FROM batch_run JOIN run ON run.id = run \
               WHERE batch = ?1 ORDER BY item, seq";
    let mut rows = vault.prepare(sql).unwrap();
    let rows = rows.query_map([batch], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)));
    rows.unwrap().map(|row| row.unwrap()).map(|(item, well)| (item.unsigned_abs(), well)).collect()
}

/// Fails unless each item of a batch succeeded exactly once.
#[track_caller]
pub fn assert_once_each(env: &TestEnv, batch: &str, items: u64) {
    let well: Vec<u64> =
        journal(env, batch).into_iter().filter(|(_, well)| *well).map(|(item, _)| item).collect();
    assert_eq!(well, (0..items).collect::<Vec<_>>());
}

/// Fails if anything in the cache is mounted on the host.
#[track_caller]
pub fn assert_nothing_mounted(env: &TestEnv) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(env.at("cache").to_str().unwrap()), "{mounts}");
}
