//! Every JSON answer matches `avfs schema` (the harness validates each one).

use std::collections::BTreeSet;

use serde_json::json;

use crate::env::TestEnv;
use crate::runs;
use crate::support::landing::Changes;

#[test]
fn every_kind_of_answer_matches_the_schema() {
    let env = TestEnv::new();
    env.put("a.txt", b"one\ntwo\n");
    env.put("b.bin", &[0, 1, 2, 255]);
    let (out, man) = (env.at("out"), env.at("man"));
    let (out, man) = (out.to_str().unwrap(), man.to_str().unwrap());
    let calls: &[&[&str]] = &[
        &["init", "--import"],
        &["vault", "list"],
        &["vault", "info"],
        &["vault", "copy", "../copy.db"],
        &["import"],
        &["status"],
        &["export", "main", out],
        &["materialize", "main"],
        &["fork", "create", "f", "--expires", "1d"],
        &["fork", "list"],
        &["fork", "tree", "--size"],
        &["write", "c.txt", "--text", "three", "--fork", "f"],
        &["mkdir", "d", "--fork", "f"],
        &["mv", "c.txt", "d", "--fork", "f"],
        &["cp", "d/c.txt", "e.txt", "--fork", "f"],
        &["rm", "a.txt", "--fork", "f"],
        &["checkpoint", "save", "cp", "--fork", "f"],
        &["checkpoint", "list"],
        &["checkpoint", "info", "cp", "--fork", "f"],
        &["checkpoint", "restore", "cp", "--fork", "f"],
        &["checkpoint", "delete", "cp", "--fork", "f"],
        &["restore", "main", "--fork", "f"],
        &["log", "f"],
        &["show", "f~1"],
        &["ls", "f", "-R"],
        &["cat", "f", "a.txt", "b.bin"],
        &["tree", "f"],
        &["find", "f", "--name", "*.txt"],
        &["grep", "main", "t.o"],
        &["diff", "main~1", "f~1", "--patch"],
        &["diff", "main~1", "f~1", "--stat"],
        &["diff", "main~1", "f~1", "--tree"],
        &["runs", "list"],
        &["runs", "show", "0100"],
        &["cache", "explain", "run:0100"],
        &["cache", "list"],
        &["cache", "forget", "--all"],
        &["apply", "run:0100"],
        &["discard", "run:0200"],
        &["recover"],
        &["unapply"],
        &["sync", "f"],
        &["undo", "main"],
        &["redo"],
        &["record", "start", "r"],
        &["record", "list"],
        &["record", "stop"],
        &["record", "export", "r"],
        &["record", "delete", "r"],
        &["batch", "--list"],
        &["audit", "list"],
        &["audit", "verify"],
        &["audit", "export"],
        &["quota", "show"],
        &["quota", "set", "--bytes", "1GiB"],
        &["prune", "--keep-last", "1", "--dry-run"],
        &["fork", "delete", "f"],
        &["gc"],
        &["compact"],
        &["fsck"],
        &["stats"],
        &["du"],
        &["clean", "--dry-run"],
        &["config", "show"],
        &["approvals", "list"],
        &["approvals", "show", "0303"],
        &["approvals", "approve", "0303"],
        &["approvals", "deny", "0303"],
        &["policy", "check", "--", "ls"],
        &["policy", "explain", "--", "ls"],
        &["policy", "test"],
        &["schema"],
        &["completions", "bash"],
        &["man", "--dir", man],
        &["vault", "trust"],
        &["vault", "delete", "--yes"],
    ];
    let mut kinds = BTreeSet::new();
    for call in calls {
        if *call == ["runs", "list"] {
            let (first, second) = (Changes::default().put("r", "r"), Changes::default().put("s", "s"));
            runs::land(&env, 1, &first);
            runs::land(&env, 2, &second);
        }
        if *call == ["approvals", "list"] {
            runs::ask(&env, 3);
        }
        let value = env.json(call);
        assert_eq!(value["success"], json!(true), "{call:?}: {value}");
        kinds.insert(value["kind"].as_str().unwrap().to_owned());
    }
    assert_eq!(env.json(&["nonsense"])["kind"], json!("usage"));
    kinds.insert("usage".to_owned());
    // The others need the runner: tests/e2e covers them, and `avfs batch` with a list.
    let schema: serde_json::Value = serde_json::from_str(avfs_wire::SCHEMA).unwrap();
    let known: BTreeSet<String> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["$ref"].as_str().unwrap().trim_start_matches("#/$defs/").to_owned())
        .filter(|name| !["ExecutionEnvelope", "CompactEnvelope"].contains(&name.as_str()))
        .filter(|name| !["bisect", "doctor", "race", "replay"].contains(&name.as_str()))
        .collect();
    assert_eq!(kinds, known);
}

#[test]
fn changes_have_the_fields_of_the_contract() {
    let env = TestEnv::with_project();
    env.ok(&["mv", "README.md", "READ.md"]);
    env.ok(&["write", "src/main.rs", "--text", "fn main() { }\n", "--mode", "755"]);
    let diff = env.result(&["diff", "main~2", "main"]);
    let changes = diff["changes"].as_array().unwrap();
    let renamed = &changes[0];
    assert_eq!(
        (&renamed["kind"], &renamed["path"], &renamed["from"]),
        (&json!("renamed"), &json!("READ.md"), &json!("README.md"))
    );
    let modified = &changes[1];
    assert_eq!(modified["kind"], json!("modified"));
    assert_eq!((&modified["size_before"], &modified["size_after"]), (&json!(13), &json!(14)));
    assert_eq!((&modified["mode_before"], &modified["mode_after"]), (&json!("0644"), &json!("0755")));
    let digest = blake3::hash(b"fn main() { }\n").to_hex().to_string();
    assert_eq!(modified["digest_after"], json!(digest));
    assert_eq!(diff["change_counts"]["total"], json!(2));
}

#[test]
fn diff_reports_times_only_on_request() {
    let env = TestEnv::with_project();
    let touched = std::fs::File::options().write(true).open(env.project().join("README.md")).unwrap();
    touched.set_modified(std::time::UNIX_EPOCH).unwrap();
    env.ok(&["import"]);
    assert_eq!(env.result(&["diff", "main~1", "main"])["changes"], json!([]));
    let with_times = env.result(&["diff", "main~1", "main", "--times"]);
    assert_eq!(with_times["changes"][0]["kind"], json!("time"));
    let entry = env.result(&["ls", "main", "README.md"])["entries"][0].clone();
    assert_eq!((&entry["mtime"], &entry["mtime_ns"]), (&json!("1970-01-01T00:00:00Z"), &json!(0)));
}

#[test]
fn non_utf8_names_round_trip() {
    use std::os::unix::ffi::OsStrExt;
    let env = TestEnv::new();
    let name = std::ffi::OsStr::from_bytes(b"bad\xff\nname");
    std::fs::write(env.project().join(name), "x").unwrap();
    env.put("back\\slash", b"y");
    env.ok(&["init", "--import"]);
    let entries = env.result(&["ls", "main"])["entries"].clone();
    assert_eq!(entries[0]["path"], json!("back\\slash"));
    assert!(entries[0].get("path_base64").is_none());
    assert_eq!(entries[1]["path"], json!("bad\\xff\\nname"));
    assert_eq!(entries[1]["path_base64"], json!("YmFk/wpuYW1l"));
    let content = env.ok(&["cat".as_ref(), "main".as_ref(), name]);
    assert_eq!(content, "x");
    assert!(env.ok(&["ls", "main"]).contains("bad\\xff\\nname"), "the text output has it on one line");
}

#[test]
fn negative_answers_have_a_result_and_an_error() {
    let env = TestEnv::with_project();
    let grep = env.json(&["grep", "main", "no such text"]);
    assert_eq!((&grep["error"]["code"], &grep["result"]["matches"]), (&json!("grep.no_match"), &json!([])));
    let diff = env.json(&["diff", "main~1", "main", "--exit-code"]);
    assert_eq!(diff["error"]["code"], json!("diff.differs"));
    assert!(diff["result"]["changes"].is_array());
    let audit = env.json(&["audit", "verify", "--expect", &"0".repeat(64)]);
    assert_eq!(audit["error"]["code"], json!("audit.broken"));
}
