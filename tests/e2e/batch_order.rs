//! A batch makes the same trees as its commands run one after the other, in any order and with any number of jobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::lists::{digests, good, list};
use crate::support::{Dice, is_long};

/// The number of items in a list.
const ITEMS: usize = 8;

struct Item {
    needs: Vec<usize>,
    line: String,
}

/// A file and the last item that changed it; the next item that changes it must need that item.
struct Made {
    path: String,
    by: usize,
}

/// Items whose changes never conflict: each creates its own files next to those of others, and changes or deletes a
/// file only if it needs every item that touched the file before.
fn items(dice: &mut Dice) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut made: Vec<Made> = Vec::new();
    for n in 0..ITEMS {
        let needs: Vec<usize> = (0..n).filter(|_| dice.below(3) == 0).collect();
        let before = ancestors(&items, &needs);
        let dir = ["shared", "shared/deep", "src"][usize::try_from(dice.below(3)).unwrap()];
        let mut line = format!("mkdir -p {dir}; echo {n} > {dir}/of-{n}; seq {n} 50 > data-{n}");
        let mut kept = Vec::new();
        for file in made.drain(..) {
            let mine = before.contains(&file.by) && dice.below(2) == 0;
            match (mine, dice.below(4)) {
                (false, _) => kept.push(file),
                (true, 0) => line += &format!("; rm {}", file.path),
                (true, 1) => {
                    line += &format!("; mv {0} {0}+", file.path);
                    kept.push(Made { path: file.path + "+", by: n });
                }
                (true, _) => {
                    line += &format!("; echo {n} >> {}", file.path);
                    kept.push(Made { by: n, ..file });
                }
            }
        }
        kept.push(Made { path: format!("{dir}/of-{n}"), by: n });
        kept.push(Made { path: format!("data-{n}"), by: n });
        made = kept;
        items.push(Item { needs, line: format!("set -e; {line}") });
    }
    items
}

/// The transitive needs of these items, including the items themselves.
fn ancestors(items: &[Item], needs: &[usize]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut left = needs.to_vec();
    while let Some(item) = left.pop() {
        if found.insert(item) {
            left.extend(&items[item].needs);
        }
    }
    found
}

#[test]
fn any_order_makes_the_same_trees_as_sequential_execution() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let mut joins = 0;
    let seeds = if is_long() { 8 } else { 2 };
    for seed in 0..seeds {
        let mut dice = Dice::seeded(seed);
        let items = items(&mut dice);
        joins += items.iter().filter(|item| item.needs.len() > 1).count();
        // The expected tree of an item: one run from the same base that executes the item and everything it needs.
        let expected: Vec<(String, String)> = (0..ITEMS)
            .map(|n| {
                let all: Vec<String> =
                    ancestors(&items, &[n]).iter().map(|item| format!("( {} )", items[*item].line)).collect();
                let ran =
                    env.json(&["--reproducible", "--from", "main"], &format!("set -e; {}", all.join("; ")));
                assert_eq!(ran["success"], json!(true), "{ran}");
                digests(&env, ran["result"]["version_after"].as_str().unwrap())
            })
            .collect();
        for (jobs, reproducible) in [("1", true), ("3", true), ("3", false)] {
            let mut lines: Vec<String> = items
                .iter()
                .enumerate()
                .map(|(n, item)| {
                    let needs: Vec<String> = item.needs.iter().map(|need| format!("i{need}")).collect();
                    let line = &item.line;
                    json!({ "id": format!("i{n}"), "needs": needs, "command": line, "reproducible": reproducible })
                        .to_string()
                })
                .collect();
            for place in (1..lines.len()).rev() {
                lines.swap(place, usize::try_from(dice.below(place as u64 + 1)).unwrap());
            }
            let list = list(&env, "list.jsonl", &lines.join("\n"));
            let came = good(&env, &list, &["--mode", "needs", "--jobs", jobs, "--from", "main"]);
            for (n, (full, content)) in expected.iter().enumerate() {
                let seen = digests(&env, came.text(&format!("i{n}"), "version"));
                assert_eq!(seen.1, *content, "seed {seed}, jobs {jobs}, i{n} of {lines:#?}");
                if reproducible {
                    assert_eq!(seen.0, *full, "seed {seed}, jobs {jobs}, i{n} of {lines:#?}");
                }
            }
        }
    }
    assert!(joins > 3, "{joins} joins");
    env.assert_sound();
}

/// Runs the items; the content of a file after the last one.
fn file_of_last(env: &TestEnv, items: &[Value], file: &str) -> String {
    let lines: Vec<String> = items.iter().map(Value::to_string).collect();
    let list = list(env, "list.jsonl", &lines.join("\n"));
    let came = good(env, &list, &["--mode", "needs", "--from", "main"]);
    let last = items.last().and_then(|item| item["id"].as_str()).unwrap();
    env.avfs(&["cat", came.text(last, "version"), file]).expect(0).text()
}

#[test]
fn a_join_keeps_the_times_that_one_item_set_back() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let lines = [
        json!({ "id": "back", "command": "touch -d @1000 README.md src" }),
        json!({ "id": "other", "command": "echo new > other" }),
        json!({ "id": "both", "needs": ["back", "other"], "command": "cat other && stat -c %Y README.md src > times" }),
    ];
    assert_eq!(file_of_last(&env, &lines, "times"), "1000\n1000\n");
}

/// `four` and `five` have two common ancestors, and only one of them has the file that `five` deletes.
#[test]
fn a_deletion_is_joined_although_one_common_ancestor_lacks_the_file() {
    let env = TestEnv::with_project();
    env.avfs(&["import"]).expect(0);
    let lines = [
        json!({ "id": "zero", "command": "echo 0 > zero" }),
        json!({ "id": "two", "command": "echo 2 > two" }),
        json!({ "id": "three", "needs": ["two"], "command": "echo 3 > three" }),
        json!({ "id": "four", "needs": ["zero", "two"], "command": "echo 4 > four" }),
        json!({ "id": "five", "needs": ["zero", "three"], "command": "rm two" }),
        json!({ "id": "all", "needs": ["four", "five"], "command": "ls > names" }),
    ];
    let names = file_of_last(&env, &lines, "names");
    assert!(["zero", "three", "four"].iter().all(|name| names.lines().any(|line| line == *name)), "{names}");
    assert!(names.lines().all(|line| line != "two"), "{names}");
}
