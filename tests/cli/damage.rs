//! Vaults that are not what they should be: told of what it concerns, kept apart from what is whole, healed.

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::support;
use crate::support::sql;

#[test]
fn a_corrupt_vault() {
    let env = TestEnv::with_project();
    let mut bytes = std::fs::read(env.vault_file()).unwrap();
    bytes.iter_mut().skip(100).for_each(|byte| *byte ^= 0x55);
    std::fs::write(env.vault_file(), &bytes).unwrap();
    for words in [&["log"][..], &["fork", "create", "f"], &["import"], &["fsck"]] {
        let refusal = env.refused(words, 1, "vault.corrupt");
        let leads_to_fsck = refusal["error"]["hint"].as_str().unwrap().contains("avfs fsck");
        assert_eq!(leads_to_fsck, words != ["fsck"], "{refusal}");
    }
    assert_eq!(std::fs::read(env.vault_file()).unwrap(), bytes);
}

#[test]
fn damage_to_content_is_found_and_never_passed_on() {
    let env = TestEnv::with_project();
    sql(&env.vault_file()).execute("UPDATE blob SET data = zeroblob(length(data))", []).unwrap();
    env.refused(&["cat", "main", "README.md"], 1, "object.damaged");
    env.refused(&["export", "main", env.at("out").to_str().unwrap()], 1, "object.damaged");
    assert!(!env.at("out").exists());
    let report = env.json(&["fsck"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"));
    assert_eq!(report["result"]["findings"][0]["code"], json!("damaged"));
}

/// A long history is shown while it is read: what comes before the damage is seen.
#[test]
fn log_shows_versions_up_to_one_that_is_missing() {
    let env = TestEnv::with_project();
    env.ok(&["write", "note", "--text", "one"]);
    let shown = env.run(&["log"]);
    assert_eq!((shown.code, shown.stdout.lines().count()), (0, 3), "{shown:?}");
    sql(&env.vault_file()).execute("DELETE FROM version WHERE parents = x''", []).unwrap();
    let cut = env.run(&["log"]);
    assert_eq!((cut.code, cut.stdout.lines().count()), (1, 2), "{cut:?}");
    assert!(shown.stdout.starts_with(&cut.stdout), "{cut:?}");
    assert_eq!(env.json(&["log"])["error"]["code"], json!("object.missing"));
}

/// Who knows what is damaged can go on without it.
#[test]
fn damage_is_told_of_the_file_it_is_in() {
    let env = TestEnv::new();
    let noise = support::noise(1, 5000);
    env.put("whole", b"whole\n");
    env.put("src/deep/hurt", &noise);
    env.ok(&["init", "--import"]);
    let hurt = "UPDATE blob SET data = zeroblob(length(data)) WHERE size = 5000";
    assert_eq!(sql(&env.vault_file()).execute(hurt, []).unwrap(), 1);
    env.refused(&["export", "main", "../out"], 1, "object.damaged");
    for words in
        [["export", "main", "../out"].as_slice(), &["diff", "main", "--patch"], &["grep", "main", "."]]
    {
        let refusal = env.json(words);
        assert!(refusal["error"]["message"].as_str().unwrap().contains("src/deep/hurt"), "{refusal}");
    }
    let report = env.json(&["fsck"]);
    let found = report["result"]["findings"][0]["message"].as_str().unwrap().to_owned();
    assert!(found.contains("src/deep/hurt in version "), "{found}");
    env.ok(&["rm", "src/deep/hurt"]);
    env.ok(&["export", "main", "../out"]);
    assert_eq!(std::fs::read(env.at("out/whole")).unwrap(), b"whole\n");
}

/// Who has the content at hand puts it right, and is told.
#[test]
fn damage_is_mended_by_an_import_that_reads_the_content() {
    let env = TestEnv::with_project();
    let hurt = "UPDATE blob SET data = zeroblob(length(data))";
    let blobs = sql(&env.vault_file()).execute(hurt, []).unwrap();
    // As if it had been checked out anew: no stamp is what it was.
    let readme = std::fs::read(env.at("project/README.md")).unwrap();
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let result = env.json(&["import"])["result"].clone();
    assert_eq!(result["mended"], json!(blobs), "{result}");
    assert_eq!(env.ok(&["cat", "main", "README.md"]).as_bytes(), readme);
    sql(&env.vault_file()).execute(hurt, []).unwrap();
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let told = env.run(&["import"]).stderr;
    assert!(told.contains(&format!("stored again: {blobs} blobs; check for more damage")), "{told}");
    env.ok(&["fsck"]);
}

/// A version that was made is told, whatever is wrong with the one before it.
#[test]
fn an_import_onto_a_damaged_version_is_told() {
    let env = TestEnv::with_project();
    let gone =
        "DELETE FROM tree WHERE digest = (SELECT root FROM version WHERE digest = (SELECT head FROM fork))";
    assert_eq!(sql(&env.vault_file()).execute(gone, []).unwrap(), 1);
    env.put("second", b"x\n");
    let answer = env.run(&["import", "-m", "second"]);
    assert!(answer.code == 0 && answer.stderr.contains("cannot count the changes: tree"), "{answer:?}");
    assert!(env.ok(&["log", "--limit", "1"]).contains("second"));
    assert_eq!(sql(&env.vault_file()).execute(gone, []).unwrap(), 1);
    env.put("third", b"x\n");
    let imported = env.result(&["import"]);
    assert_eq!((&imported["changed"], &imported["change_counts"]), (&json!(true), &Value::Null));
    assert_eq!(env.ok(&["cat", "main", "second"]), "x\n");
}

/// A list of chunks is content too, and that it is whole again is in the log.
#[test]
fn what_is_mended_is_counted_and_logged() {
    let env = TestEnv::with_project();
    env.put("large", &support::noise(3, 3 << 20));
    env.ok(&["import"]);
    let hurt = "UPDATE blob SET data = zeroblob(10) WHERE codec = 2";
    let lists = sql(&env.vault_file()).execute(hurt, []).unwrap();
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let imported = env.result(&["import"]);
    assert_eq!((&imported["mended"], &imported["changed"]), (&json!(lists), &json!(false)));
    let told = env.result(&["audit", "list", "--action", "vault.heal"]);
    assert_eq!(told["rows"][0]["detail"], json!(format!("blobs={lists} trees=0")));
    env.ok(&["fsck"]);
}

/// In a table whose pages are out of order who reads on from the last row would never come to an end.
#[test]
fn a_table_that_is_out_of_order_ends_a_gc() {
    let env = TestEnv::new();
    support::many_files(&env.project(), 400);
    env.ok(&["init", "--import"]);
    let page: i64 = {
        let sql = sql(&env.vault_file());
        sql.query_row("SELECT rootpage FROM sqlite_master WHERE name = 'tree'", [], |row| row.get(0)).unwrap()
    };
    let size: usize = {
        let sql = sql(&env.vault_file());
        let bytes: i64 = sql.query_row("PRAGMA page_size", [], |row| row.get(0)).unwrap();
        usize::try_from(bytes).unwrap()
    };
    let mut bytes = std::fs::read(env.vault_file()).unwrap();
    let root = (usize::try_from(page).unwrap() - 1) * size;
    assert_eq!(bytes[root], 5, "the root of the table is no inner page");
    // The first two cells begin with the number of the page beneath them.
    let cell = |bytes: &[u8], n: usize| {
        let at = root + 12 + 2 * n;
        root + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
    };
    let (one, other) = (cell(&bytes, 0), cell(&bytes, 1));
    for at in 0..4 {
        bytes.swap(one + at, other + at);
    }
    std::fs::write(env.vault_file(), &bytes).unwrap();
    env.refused(&["gc"], 1, "vault.corrupt");
    assert_eq!(env.json(&["fsck"])["error"]["code"], json!("fsck.findings"));
}

/// A page of the file that is damaged concerns what lies in it, not the rest.
#[test]
fn a_damaged_page_is_told_with_everything_else() {
    let env = TestEnv::new();
    for n in 0..60_u64 {
        env.put(&format!("f{n}"), &support::noise(n, 6000));
    }
    env.ok(&["init", "--import"]);
    support::open_vault(&env.vault_file()).backend().settle().unwrap();
    let mut bytes = std::fs::read(env.vault_file()).unwrap();
    let page = 8192 * (bytes.len() / 8192 * 2 / 3);
    bytes[page..page + 8192].copy_from_slice(&support::noise(100, 8192));
    std::fs::write(env.vault_file(), bytes).unwrap();
    let report = env.json(&["fsck"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"), "{report}");
    assert!(report["result"]["blobs"].as_u64().unwrap() > 50, "{report}");
    let refusal = env.refused(&["fsck", "--heal"], 1, "vault.corrupt");
    assert!(refusal["error"]["hint"].as_str().unwrap().contains("--keep-going"), "{refusal}");
    let saved = env.json(&["export", "main", "../rest", "--keep-going"]);
    let left_out = saved["result"]["left_out"].as_array().unwrap().len();
    assert!((1..10).contains(&left_out), "{saved}");
    assert_eq!(std::fs::read_dir(env.at("rest")).unwrap().count(), 60 - left_out);
}

/// What is whole is saved, and what a directory still has is put back.
#[test]
fn damage_is_left_out_and_healed() {
    let env = TestEnv::new();
    env.put("whole", b"whole\n");
    env.put("src/deep/hurt", &support::noise(1, 5000));
    env.put("large", &support::noise(2, 3 << 20));
    env.ok(&["init", "--import"]);
    let hurt = "UPDATE blob SET data = zeroblob(length(data)) WHERE size = 5000 OR id = (SELECT min(id) FROM blob WHERE size > 100000)";
    assert_eq!(sql(&env.vault_file()).execute(hurt, []).unwrap(), 2);

    let saved = env.json(&["export", "--keep-going", "main", "../rest"]);
    assert_eq!(saved["error"]["code"], json!("export.left_out"));
    let left = saved["result"]["left_out"].as_array().unwrap();
    let paths: Vec<&str> = left.iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["large", "src/deep/hurt"]);
    assert!(left.iter().all(|one| one["code"] == json!("object.damaged")), "{left:?}");
    assert_eq!(std::fs::read(env.at("rest/whole")).unwrap(), b"whole\n");
    assert!(!env.at("rest/large").exists() && env.at("rest/src/deep").is_dir());
    let told = env.run(&["export", "--keep-going", "main", "../rest-2"]);
    assert_eq!(told.code, 1);
    assert!(told.stdout.contains("left out or inexact: src/deep/hurt: "), "{told:?}");

    env.refused(&["fsck", "--heal", "nowhere"], 1, "import.no_directory");
    // A directory that has nothing of it changes nothing.
    env.put("elsewhere/file", b"something else");
    let report = env.json(&["fsck", "--heal", "elsewhere"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"));
    assert_eq!(
        (&report["result"]["healed"]["blobs"], &report["result"]["healed"]["trees"]),
        (&json!(0), &json!(0))
    );
    let report = env.ok(&["fsck", "--heal"]);
    assert!(report.contains("restored 2 blobs and 0 trees from "), "{report}");
    env.ok(&["fsck"]);
    env.ok(&["audit", "verify"]);
    let whole = env.json(&["export", "--keep-going", "main", "../whole"]);
    assert_eq!(whole["result"]["left_out"], json!([]));
    assert_eq!(std::fs::read(env.at("whole/large")).unwrap(), support::noise(2, 3 << 20));
}

#[test]
fn a_vault_that_is_not_of_the_format_it_says() {
    let env = TestEnv::with_project();
    let say = |format: i64| sql(&env.vault_file()).pragma_update(None, "user_version", format).unwrap();
    for format in [-1, 0, 1, 2, 3, 4] {
        say(format);
        let before = std::fs::read(env.vault_file()).unwrap();
        for words in [&["log"][..], &["fork", "create", "f"], &["import"], &["fsck"]] {
            let refusal = env.refused(words, 1, "vault.corrupt");
            let message = refusal["error"]["message"].as_str().unwrap();
            assert!(
                message.contains(&format!("format {format}, ")) && !message.contains("TABLE"),
                "{message}"
            );
        }
        assert_eq!(std::fs::read(env.vault_file()).unwrap(), before);
    }
    say(5);
    env.assert_sound();
}

#[test]
fn a_table_that_is_gone_is_damage() {
    let env = TestEnv::with_project();
    sql(&env.vault_file()).execute_batch("DROP TABLE checkpoint").unwrap();
    env.refused(&["checkpoint", "list"], 1, "vault.corrupt");
    let report = env.json(&["fsck"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"));
    let findings = report["result"]["findings"].to_string();
    assert!(findings.contains("no such table: checkpoint"), "{findings}");
    // The rest is checked all the same.
    assert!(report["result"]["blobs"].as_u64() > Some(0), "{report}");
}
