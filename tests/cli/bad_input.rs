//! What is wrong is refused: one sentence, a hint, a stable code, a non-zero exit, and the vault as it was.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv, binary};
use crate::support::{self, skip, sql};

#[test]
fn a_missing_vault() {
    let env = TestEnv::new();
    env.refused(&["log"], 1, "vault.not_found");
    env.refused(&["log", "--vault", "nowhere"], 1, "vault.not_found");
    env.refused(&["log", "--vault", "./nowhere.db"], 1, "vault.not_found");
    assert!(!env.project().join("nowhere.db").exists(), "looking for a vault does not make one");
    assert!(!env.project().join(".avfs").exists());
}

#[test]
fn a_foreign_file() {
    let env = TestEnv::new();
    env.put("notes.txt", b"these are notes, not a vault\n");
    env.put("empty.db", b"");
    sql(&env.project().join("other.db"))
        .execute_batch("CREATE TABLE t (x); PRAGMA user_version = 7")
        .unwrap();
    for file in ["notes.txt", "./notes.txt", "empty.db", "other.db"] {
        let before = std::fs::read(env.project().join(file)).unwrap();
        env.refused(&["log", "--vault", file], 1, "vault.foreign");
        env.refused(&["vault", "delete", file, "--yes"], 1, "vault.foreign");
        assert_eq!(std::fs::read(env.project().join(file)).unwrap(), before, "{file} was changed");
    }
    std::fs::create_dir(env.project().join("dir.db")).unwrap();
    env.refused(&["log", "--vault", "./dir.db"], 1, "vault.not_found");
}

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

/// A page of the file that is damaged concerns what lies in it, not the rest.
#[test]
fn a_damaged_page_is_told_with_everything_else() {
    let env = TestEnv::new();
    for n in 0..60_u64 {
        env.put(&format!("f{n}"), &support::noise(n, 6000));
    }
    env.ok(&["init", "--import"]);
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
    assert!(told.stdout.contains("left out or not exact: src/deep/hurt: "), "{told:?}");

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
    assert!(report.contains("put back 2 blobs and 0 trees from "), "{report}");
    env.ok(&["fsck"]);
    env.ok(&["audit", "verify"]);
    let whole = env.json(&["export", "--keep-going", "main", "../whole"]);
    assert_eq!(whole["result"]["left_out"], json!([]));
    assert_eq!(std::fs::read(env.at("whole/large")).unwrap(), support::noise(2, 3 << 20));
}

#[test]
fn a_newer_vault() {
    let env = TestEnv::with_project();
    sql(&env.vault_file()).pragma_update(None, "user_version", 999).unwrap();
    let refusal = env.refused(&["import"], 1, "vault.newer");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("999"));
    let version: i64 =
        sql(&env.vault_file()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 999);
}

#[test]
fn a_vault_that_is_there_already() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["init"], 1, "vault.exists");
    assert_eq!(env.state(), before);
}

#[test]
fn names_that_are_none() {
    let env = TestEnv::with_project();
    let before = env.state();
    let long = "x".repeat(300);
    for name in ["a/b", "..", "", "a b", "-x=", &long] {
        env.refused(&["fork", "create", "--", name], 2, "name.invalid");
        env.refused(&["checkpoint", "save", "--", name], 2, "name.invalid");
    }
    env.refused(&["log", "--vault", &long], 2, "name.invalid");
    for path in ["../x", "a/../b", &long] {
        env.refused(&["write", path, "--text", "x"], 2, "path.invalid");
        env.refused(&["cat", "main", path], 2, "path.invalid");
    }
    assert_eq!(env.state(), before);
}

#[test]
fn references_that_lead_nowhere() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["ls", "nope"], 1, "ref.unknown");
    env.refused(&["ls", "0000"], 1, "ref.unknown");
    env.refused(&["ls", "run:7"], 1, "ref.unknown");
    env.refused(&["ls", "main~99"], 1, "ref.before_first");
    env.refused(&["ls", "main@nope"], 1, "checkpoint.not_found");
    env.refused(&["ls", "nope@x"], 1, "fork.not_found");
    env.refused(&["ls", "a b"], 2, "ref.invalid");
    env.refused(&["ls", "main~x"], 2, "ref.invalid");
    env.refused(&["import", "--fork", "nope"], 1, "fork.not_found");
    let refusal = env.refused(&["fork", "create", "main"], 1, "fork.exists");
    assert!(!refusal["error"]["hint"].as_str().unwrap().contains("fork delete"), "{refusal}");
    env.refused(&["fork", "delete", "main"], 1, "fork.main");
    env.refused(&["diff", "main~1"], 1, "diff.no_parent");
    assert_eq!(env.state(), before);
}

#[test]
fn an_ambiguous_reference() {
    use avfs::vault::version::Draft;
    let env = TestEnv::with_project();
    let vault = support::open_vault(&env.vault_file());
    // Among so many digests some two begin with the same four digits.
    let root = support::root(&vault, "main");
    vault
        .transact(|transaction| {
            for n in 0..1500 {
                let draft = Draft { message: &n.to_string(), run: None, parents: Vec::new() };
                transaction.put_version(&root, draft)?;
            }
            Ok(())
        })
        .unwrap();
    let mut ids: Vec<String> =
        vault.read().unwrap().version_ids().unwrap().iter().map(|id| id.to_hex()).collect();
    drop(vault);
    ids.sort();
    let twin = ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4]).unwrap();
    let refusal = env.refused(&["show", &twin[0][..4]], 1, "ref.ambiguous");
    assert!(refusal["error"]["message"].as_str().unwrap().contains(&twin[0][..12]), "{refusal}");
    env.ok(&["show", &twin[0][..20]]);
}

#[test]
fn paths_that_do_not_fit() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["mv", "src", "src/deeper"], 1, "path.cycle");
    env.refused(&["mv", "src", "src"], 1, "path.cycle");
    env.refused(&["cp", "-r", "src", "src/copy"], 1, "path.cycle");
    env.refused(&["mv", "nope", "x"], 1, "path.not_found");
    env.refused(&["rm", "src"], 1, "path.is_a_directory");
    env.refused(&["cp", "src", "copy"], 1, "path.is_a_directory");
    env.refused(&["mkdir", "src"], 1, "path.exists");
    env.refused(&["mkdir", "no/parent"], 1, "path.not_found");
    env.refused(&["write", "README.md/x", "--text", "x"], 1, "path.not_a_directory");
    env.refused(&["cat", "main", "src"], 1, "path.not_a_file");
    env.refused(&["cat", "main", "nope"], 1, "path.not_found");
    assert_eq!(env.state(), before);
}

/// What a hint says to call next is a command that does something.
#[test]
fn hints_for_paths_lead_on() {
    let env = TestEnv::with_project();
    let hint = |words: &[&str], code: &str| {
        let mut refusal = env.refused(words, 1, code);
        let told = refusal["error"]["message"].take();
        (told.as_str().unwrap().to_owned(), refusal["error"]["hint"].as_str().unwrap().to_owned())
    };
    for (words, code) in [
        (&["cat", "main", "nope"][..], "path.not_found"),
        (&["cat", "main", "src"], "path.not_a_file"),
        (&["rm", "-r", "."], "path.is_a_directory"),
    ] {
        let (_, hint) = hint(words, code);
        let (_, command) = hint.split_once(": avfs ").unwrap();
        let command = command.replace("REF", "main");
        env.ok(&command.split(' ').collect::<Vec<_>>());
        assert!(!hint.contains("-r "), "{hint}");
    }
    for words in [
        &["mv", "README.md", "README.md"][..],
        &["cp", "README.md", "./README.md"],
        &["mv", "README.md", "."],
        &["cp", "src/main.rs", "src"],
    ] {
        let (told, _) = hint(words, "path.cycle");
        assert!(told.starts_with("source and target are the same: "), "{told}");
    }
    let (told, _) = hint(&["mv", "README.md", "README.md/x"], "path.cycle");
    assert!(!told.contains("directory"), "{told}");
    assert!(hint(&["cp", "-r", ".", "x"], "path.cycle").1.contains("name what is in it"));
}

#[test]
fn directories_that_cannot_be_imported_or_exported_to() {
    let env = TestEnv::with_project();
    let before = env.state();
    env.refused(&["import", "nope"], 1, "import.no_directory");
    env.refused(&["import", "README.md"], 1, "import.not_a_directory");
    env.refused(&["export", "main", "."], 1, "export.exists");
    env.refused(&["export", "main", "README.md"], 1, "export.not_a_directory");
    env.refused(&["export", "main", "README.md/x"], 1, "export.not_a_directory");
    std::fs::create_dir_all(env.at("way/README.md")).unwrap();
    let way = env.at("way");
    env.refused(&["export", "main", way.to_str().unwrap(), "--overwrite"], 1, "export.in_the_way");
    assert_eq!(std::fs::read_dir(&way).unwrap().count(), 1, "nothing was written");
    assert_eq!(env.state(), before);
}

#[test]
fn words_that_are_no_command() {
    let env = TestEnv::with_project();
    for words in [&["nonsense"][..], &["fork"], &["fork", "create"], &["log", "--nonsense"], &["prune"]] {
        let human = env.run(words);
        assert_eq!((human.code, human.stdout.as_str()), (2, ""), "{words:?}");
        let value = env.json(words);
        assert_eq!(value["error"]["code"], json!("usage"), "{value}");
    }
    env.refused(&["fork", "create", "x", "--expires", "soon"], 2, "value.invalid");
    env.refused(&["quota", "set", "--bytes", "much"], 2, "value.invalid");
    let kind = env.json(&["fork", "create"])["kind"].clone();
    assert_eq!(kind, json!("fork.create"));
}

#[test]
fn an_unbound_vault_asks_for_a_directory() {
    let env = TestEnv::new();
    drop(support::create_real_vault(&env.project().join("v.db")));
    env.refused(&["import", "--vault", "v.db"], 1, "vault.unbound");
    env.refused(&["status", "--vault", "v.db"], 1, "vault.unbound");
    env.put("d/a.txt", b"a");
    env.ok(&["import", "d", "--vault", "v.db"]);
}

#[test]
fn a_file_that_vanishes_during_an_import() {
    let env = TestEnv::with_project();
    support::many_files(&env.project(), 800);
    let done = AtomicBool::new(false);
    let flicker = env.project().join("flicker");
    /// Ends the other thread also when an assertion fails: the scope waits for it.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = std::fs::create_dir(&flicker);
                for n in 0..50 {
                    let _ = std::fs::write(flicker.join(n.to_string()), "here and gone");
                }
                let _ = std::fs::remove_dir_all(&flicker);
            }
        });
        for _ in 0..5 {
            let value = env.json(&["import"]);
            let code = &value["error"]["code"];
            let expected = [Value::Null, json!("import.vanished"), json!("import.torn_read")];
            assert!(expected.contains(code), "{value}");
            let value = env.json(&["import", "--keep-going"]);
            assert_eq!(value["success"], json!(true), "{value}");
        }
    });
    env.assert_sound();
}

#[test]
fn a_file_without_permission() {
    if support::is_root() {
        return skip("cli::a_file_without_permission", "root ignores modes");
    }
    let env = TestEnv::with_project();
    let before = env.state();
    env.put("closed.txt", b"closed");
    let closed = env.project().join("closed.txt");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    env.refused(&["import"], 1, "import.no_permission");
    assert_eq!(env.state(), before);
    let went_on = env.result(&["import", "--keep-going"]);
    assert_eq!(went_on["troubles"][0]["reason"], json!("no_permission"));
    std::fs::set_permissions(env.vault_file(), std::fs::Permissions::from_mode(0o000)).unwrap();
    env.refused(&["log"], 1, "vault.no_permission");
    std::fs::set_permissions(env.vault_file(), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(env.project(), std::fs::Permissions::from_mode(0o500)).unwrap();
    env.refused(&["export", "main", "sub/dir"], 1, "export.no_permission");
    env.refused(&["init", "--vault", "./new.db"], 1, "vault.no_permission");
    let home = env.project().join(".avfs");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o000)).unwrap();
    env.refused(&["log"], 1, "vault.no_permission");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(env.project(), std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// Runs a shell script with mounts of its own; nothing where the kernel does not allow that.
pub fn with_mounts(env: &TestEnv, test: &str, script: &str) -> Option<Answer> {
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urm", "sh", "-ec", "exit 0"]);
    if !command.output().is_ok_and(|output| output.status.success()) {
        skip(test, "unshare -Urm is not permitted here");
        return None;
    }
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urm", "sh", "-c", script]).env("AVFS", binary()).env("SCRATCH", env.at(""));
    Some(Answer::from(command.output().unwrap()))
}

fn answers(answer: &Answer) -> Vec<Value> {
    let lines = answer.stdout.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{answer:?}"))).collect()
}

#[test]
fn a_read_only_vault() {
    let env = TestEnv::with_project();
    let before = env.state();
    let script = "
        mount --bind .avfs .avfs && mount -o remount,bind,ro .avfs || exit 9
        $AVFS log --json
        $AVFS cat main README.md --json
        $AVFS write x --text x --json
        $AVFS import --json
        $AVFS gc --json
        exit 0";
    let Some(answer) = with_mounts(&env, "cli::a_read_only_vault", script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers = answers(&answer);
    assert_eq!(answers.len(), 5, "{answer:?}");
    assert_eq!(answers[0]["success"], json!(true), "reading goes on: {}", answers[0]);
    assert_eq!(answers[1]["result"]["files"][0]["content"], json!("hello\n"));
    for refused in &answers[2..] {
        assert_eq!(refused["error"]["code"], json!("vault.read_only"), "{refused}");
        assert!(refused["error"]["hint"].is_string());
    }
    assert_eq!(env.state(), before);
}

#[test]
fn a_full_disk() {
    let env = TestEnv::new();
    env.put("large.bin", &support::noise(7, 12 << 20));
    std::fs::create_dir(env.at("small")).unwrap();
    let script = "
        mount -t tmpfs -o size=4m none $SCRATCH/small || exit 9
        V=\"--vault $SCRATCH/small/v.db --json\"
        $AVFS init $V || exit 8
        $AVFS log $V
        $AVFS import $V
        $AVFS log $V
        $AVFS fsck $V
        $AVFS init --vault $SCRATCH/home/roomy.db --import --json
        $AVFS export main $SCRATCH/small/out --vault $SCRATCH/home/roomy.db --json
        ls -A $SCRATCH/small | grep -v '^v.db' | sed 's/.*/\"&\"/'
        exit 0";
    let Some(answer) = with_mounts(&env, "cli::a_full_disk", script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers = answers(&answer);
    assert_eq!(answers.len(), 7, "something was left behind: {answer:?}");
    let [_, before, import, after, fsck, roomy, export] = &answers[..] else { unreachable!() };
    assert_eq!(import["error"]["code"], json!("vault.disk_full"), "{import}");
    assert!(import["error"]["hint"].is_string());
    assert_eq!(before["result"], after["result"], "the vault is as it was");
    assert_eq!(fsck["success"], json!(true), "{fsck}");
    assert_eq!(roomy["success"], json!(true), "{roomy}");
    assert_eq!(export["error"]["code"], json!("export.disk_full"), "{export}");
}

/// What the destination cannot hold is found before anything there is replaced.
#[test]
fn a_destination_without_attributes() {
    let env = TestEnv::new();
    env.put("t", b"theirs\n");
    env.put("d/e/f", b"x");
    let e = std::fs::File::open(env.project().join("d/e")).unwrap();
    rustix::fs::fsetxattr(&e, "user.x", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    env.ok(&["init", "--import"]);
    std::fs::create_dir(env.at("plain")).unwrap();
    let script = "
        mount -t ramfs none $SCRATCH/plain || exit 9
        mkdir $SCRATCH/plain/out; echo mine > $SCRATCH/plain/out/t
        $AVFS export main $SCRATCH/plain/out --overwrite --json
        test \"$(cat $SCRATCH/plain/out/t)\" = mine || exit 8
        test \"$(ls -A $SCRATCH/plain/out)\" = t || exit 7
        exit 0";
    let Some(answer) = with_mounts(&env, "cli::a_destination_without_attributes", script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let [refused] = &answers(&answer)[..] else { panic!("{answer:?}") };
    assert_eq!(refused["error"]["code"], json!("export.io"), "{refused}");
}

#[test]
fn a_file_system_without_locks() {
    let env = TestEnv::with_project();
    let before = env.state();
    // The kernel is made to answer as a file system without locks does.
    let mut traced = env.clean(Path::new("strace"));
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK"]);
    traced.arg(binary()).args(["--json", "fork", "create", "f"]);
    let answer = Answer::from(traced.output().unwrap());
    assert_eq!(answer.code, 1, "{answer:?}");
    let value: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(value["error"]["code"], json!("vault.locks_unsupported"), "{value}");
    assert!(value["error"]["hint"].is_string());
    assert_eq!(env.state(), before);
}

#[test]
fn an_ignore_file_of_any_length_is_refused() {
    let env = TestEnv::with_project();
    std::fs::File::create(env.project().join("src/.avfsignore")).unwrap().set_len(3 << 30).unwrap();
    let refusal = env.refused(&["import"], 1, "import.bad_ignore_file");
    assert!(refusal["error"]["message"].as_str().unwrap().contains("src/.avfsignore"), "{refusal}");
}

/// A file server may hold a lease on a file: it is asked to give it back, and waited for, but not for long.
#[test]
fn a_file_that_somebody_has_a_lease_on() {
    const HOLD: &str = "\
import fcntl, os, signal, sys, time
gives_back = sys.argv[2] == 'polite'
held = os.open(sys.argv[1], os.O_RDWR)
def give_back(*_):
    time.sleep(0.2)
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
signal.signal(signal.SIGIO, give_back if gives_back else signal.SIG_IGN)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()
";
    let env = TestEnv::with_project();
    env.put("leased", b"x\n");
    for (manner, code) in [("rude", 1), ("polite", 0)] {
        let mut holder = env.clean(Path::new("python3"));
        holder.args(["-c", HOLD, "leased", manner]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut told = [0; 5];
        holder.stdout.take().unwrap().read_exact(&mut told).unwrap();
        let begun = Instant::now();
        let answer = env.run(&["import"]);
        let took = begun.elapsed();
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(answer.code, code, "{manner}: {answer:?}");
        assert!(code == 0 || answer.stderr.contains("cannot read leased"), "{answer:?}");
        assert!(took < Duration::from_secs(20), "{manner}: {took:?}");
    }
    assert_eq!(env.ok(&["cat", "main", "leased"]), "x\n");
}

#[test]
fn hints_fit_what_was_asked() {
    let env = TestEnv::with_project();
    let hint = |refusal: Value| refusal["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint(env.refused(&["fork", "delete", "nope"], 1, "fork.not_found")).contains("avfs fork list"));
    env.put("file", b"x\n");
    for place in ["file", "file/beneath"] {
        assert!(hint(env.refused(&["init", place], 1, "host.io")).contains("another place"));
    }
    let homeless = |words: &[&str]| Answer::from(env.avfs(words).env_remove("HOME").output().unwrap());
    let answer = homeless(&["materialize", "main"]);
    assert!(answer.stderr.contains("hint: set HOME or XDG_CACHE_HOME\n"), "{answer:?}");
    let answer = homeless(&["log", "--vault", "work"]);
    assert!(answer.stderr.contains("or name the vault by its path"), "{answer:?}");
}

#[test]
fn a_vault_that_is_not_of_the_format_it_says() {
    let env = TestEnv::with_project();
    let say = |format: i64| sql(&env.vault_file()).pragma_update(None, "user_version", format).unwrap();
    for format in [-1, 0, 1, 2, 3] {
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
    say(4);
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
