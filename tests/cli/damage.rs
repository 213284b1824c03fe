//! Damaged vaults: damage is reported with the affected paths, does not affect other content, and can be repaired.

use serde_json::{Value, json};

use crate::env::TestEnv;
use crate::support;
use crate::support::sql;

#[test]
fn corrupt_vault_is_refused_and_left_unchanged() {
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
fn damaged_content_is_reported_and_never_output() {
    let env = TestEnv::with_project();
    sql(&env.vault_file()).execute("UPDATE blob SET data = zeroblob(length(data))", []).unwrap();
    env.refused(&["cat", "main", "README.md"], 1, "object.damaged");
    env.refused(&["export", "main", env.at("out").to_str().unwrap()], 1, "object.damaged");
    assert!(!env.at("out").exists());
    let report = env.json(&["fsck"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"));
    assert_eq!(report["result"]["findings"][0]["code"], json!("damaged"));
}

/// A long history is printed while it is read, so the versions before the damage are shown.
#[test]
fn log_shows_versions_up_to_a_missing_one() {
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

/// A user who knows the damaged path can continue without it.
#[test]
fn damage_is_reported_with_the_path_of_the_file() {
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

/// An import that reads the content stores it again, and reports that.
#[test]
fn import_repairs_damage_if_it_reads_the_content() {
    let env = TestEnv::with_project();
    let hurt = "UPDATE blob SET data = zeroblob(length(data))";
    let blobs = sql(&env.vault_file()).execute(hurt, []).unwrap();
    // As after a new checkout: without the cache no stamp matches, and every file is read.
    let readme = std::fs::read(env.at("project/README.md")).unwrap();
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let result = env.json(&["import"])["result"].clone();
    assert_eq!(result["mended"], json!(blobs), "{result}");
    assert_eq!(env.ok(&["cat", "main", "README.md"]).as_bytes(), readme);
    sql(&env.vault_file()).execute(hurt, []).unwrap();
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let reported = env.run(&["import"]).stderr;
    assert!(reported.contains(&format!("stored again: {blobs} blobs; check for more damage")), "{reported}");
    env.ok(&["fsck"]);
}

/// A new version is reported even if its parent is damaged.
#[test]
fn import_onto_a_damaged_version_is_reported() {
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

/// Chunk lists are content too, and their repair is in the audit log.
#[test]
fn repairs_are_counted_and_logged() {
    let env = TestEnv::with_project();
    env.put("large", &support::noise(3, 3 << 20));
    env.ok(&["import"]);
    let hurt = "UPDATE blob SET data = zeroblob(10) WHERE codec = 2";
    let lists = sql(&env.vault_file()).execute(hurt, []).unwrap();
    std::fs::remove_dir_all(env.at("home/.cache")).unwrap();
    let imported = env.result(&["import"]);
    assert_eq!((&imported["mended"], &imported["changed"]), (&json!(lists), &json!(false)));
    let audit = env.result(&["audit", "list", "--action", "vault.heal"]);
    assert_eq!(audit["rows"][0]["detail"], json!(format!("blobs={lists} trees=0")));
    env.ok(&["fsck"]);
}

/// If the pages of a table are out of order, reading on from the last row would never end.
#[test]
fn gc_stops_at_a_table_that_is_out_of_order() {
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
    assert_eq!(bytes[root], 5, "the root of the table is not an interior page");
    // The first two cells start with the number of their child page.
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

/// A damaged page of the file affects only the content in it.
#[test]
fn damaged_page_affects_only_its_content() {
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

/// Intact content is exported, and content that a directory still has is restored.
#[test]
fn export_omits_damage_and_fsck_heals_it() {
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
    let reported = env.run(&["export", "--keep-going", "main", "../rest-2"]);
    assert_eq!(reported.code, 1);
    assert!(reported.stdout.contains("left out or inexact: src/deep/hurt: "), "{reported:?}");

    env.refused(&["fsck", "--heal", "nowhere"], 1, "import.no_directory");
    // A directory without the damaged content changes nothing.
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
fn vault_with_a_wrong_format_number_is_refused() {
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
fn missing_table_is_reported_as_damage() {
    let env = TestEnv::with_project();
    sql(&env.vault_file()).execute_batch("DROP TABLE checkpoint").unwrap();
    env.refused(&["checkpoint", "list"], 1, "vault.corrupt");
    let report = env.json(&["fsck"]);
    assert_eq!(report["error"]["code"], json!("fsck.findings"));
    let findings = report["result"]["findings"].to_string();
    assert!(findings.contains("no such table: checkpoint"), "{findings}");
    // The rest is still checked.
    assert!(report["result"]["blobs"].as_u64() > Some(0), "{report}");
}
