//! Tried: a rollback journal next to a vault, which SQLite plays back into the vault when it is opened.
//! Stopped by: avfs opens no vault that has a journal, and a killed creation leaves one only under another name.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::env::{Running, TestEnv, avfs};
use crate::support;
use crate::support::sql;

const SECTOR_BYTES: usize = 512;

/// A journal that replaces the whole content of a database.
fn journal_to(forged: &Path) -> Vec<u8> {
    let pages = std::fs::read(forged).unwrap();
    let page_bytes = usize::from(u16::from_be_bytes([pages[16], pages[17]]));
    let count = u32::try_from(pages.len() / page_bytes).unwrap();
    let (nonce, size) = (7_u32, u32::try_from(page_bytes).unwrap());
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    for number in [count, nonce, count, u32::try_from(SECTOR_BYTES).unwrap(), size] {
        journal.extend(number.to_be_bytes());
    }
    journal.resize(SECTOR_BYTES, 0);
    for (number, page) in (1_u32..).zip(pages.chunks_exact(page_bytes)) {
        let sampled = (1..).map_while(|step| page_bytes.checked_sub(200 * step).filter(|at| *at > 0));
        let sum = sampled.fold(nonce, |sum, at| sum.wrapping_add(u32::from(page[at])));
        journal.extend(number.to_be_bytes());
        journal.extend(page);
        journal.extend(sum.to_be_bytes());
    }
    journal
}

/// The directory that a vault says it is bound to.
fn bound(vault: &Path) -> Vec<u8> {
    let query = "SELECT value FROM meta WHERE key = 'bound'";
    sql(vault).query_row(query, [], |row| row.get(0)).unwrap()
}

fn settled(vault: &Path) {
    sql(vault).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// A vault with a name, and a journal that binds it to `/forged`.
fn with_journal(env: &TestEnv) -> (PathBuf, Vec<u8>) {
    let vault = env.at("v.db");
    env.avfs(&["init", "--vault", vault.to_str().unwrap(), "."]).expect(0);
    settled(&vault);
    let forged = env.at("forged.db");
    std::fs::copy(&vault, &forged).unwrap();
    sql(&forged).execute("UPDATE meta SET value = CAST('/forged' AS BLOB) WHERE key = 'bound'", []).unwrap();
    settled(&forged);
    (vault, journal_to(&forged))
}

#[test]
fn vault_with_a_journal_is_refused_and_unchanged() {
    let env = TestEnv::with_project();
    let (vault, journal) = with_journal(&env);
    let planted = env.at("v.db-journal");
    let name = vault.to_str().unwrap();
    let (before, own) = (std::fs::read(&vault).unwrap(), bound(&vault));
    assert_eq!(own, env.project().as_os_str().as_encoded_bytes());
    settled(&vault);
    std::fs::write(&planted, &journal).unwrap();
    let link = env.at("link.db");
    std::os::unix::fs::symlink(&vault, &link).unwrap();
    for (words, code) in [
        (&["--vault", name, "--json", "log"][..], 1),
        (&["--vault", link.to_str().unwrap(), "--json", "log"], 1),
        (&["--vault", name, "--json", "gc"], 1),
        (&["--json", "init", "--vault", name, "."], 1),
        (&["--json", "vault", "trust", name], 1),
        (&["run", "--vault", name, "--json", "--", "true"], 125),
    ] {
        let refused = env.avfs(words).expect(code).envelope();
        assert_eq!(refused["error"]["code"], json!("vault.unsafe"), "{words:?}: {refused}");
        assert!(refused["error"]["hint"].as_str().unwrap().contains("v.db-journal"), "{refused}");
    }
    assert_eq!(std::fs::read(&vault).unwrap(), before);
    // Other kinds of files at that name are refused too.
    std::fs::rename(&planted, env.at("kept")).unwrap();
    std::os::unix::fs::symlink("kept", &planted).unwrap();
    env.avfs(&["--vault", name, "log"]).expect(1);
    std::fs::remove_file(&planted).unwrap();
    env.avfs(&["--vault", name, "log"]).expect(0);
    assert_eq!(bound(&vault), own);
    // Control: any other program that opens the file plays back the journal.
    settled(&vault);
    std::fs::rename(env.at("kept"), &planted).unwrap();
    assert_eq!(bound(&vault), b"/forged");
    assert!(!planted.exists());
}

/// The calls by which SQLite and avfs create, fill and name the files of a new vault.
const CALLS: &str = "openat,pwrite64,fdatasync,fsync,ftruncate,fchmod,?unlink,unlinkat,renameat2,flock";

/// SQLite has a journal until the new vault is in WAL mode.
#[test]
fn creation_killed_at_any_call_leaves_no_vault_with_a_journal() {
    let env = TestEnv::new();
    let init = |options: &[&str], trace: &Path| {
        let mut traced = env.clean(Path::new("strace"));
        traced.args(["-f", "-qq", "-e", &format!("trace={CALLS}"), "-o"]).arg(trace).args(options);
        Running::start(traced.arg(avfs()).args(["init", "."])).answer()
    };
    let trace = env.at("trace");
    init(&[], &trace).expect(0);
    let text = std::fs::read_to_string(&trace).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(' ').map(|(_, call)| call.trim_start()));
    let mut calls: Vec<(&str, usize)> = Vec::new();
    let (mut begun, mut journal, mut chosen) = (0, 0, Vec::new());
    for (name, line) in lines.filter_map(|line| Some((line.split_once('(')?.0, line))) {
        let number = calls.iter().filter(|(other, _)| *other == name).count() + 1;
        calls.push((name, number));
        if begun > 0 || line.contains("vault.db.new-") {
            begun += 1;
            // Those around the journal, and some of the others.
            journal = if line.contains("-journal") { 4 } else { journal.max(1) - 1 };
            if journal > 0 || begun % support::usual_or_long(8, 1) == 0 {
                chosen.push((name, number));
            }
        }
    }
    let (mut journals, mut kills) = (0, 0);
    for (name, number) in &chosen {
        std::fs::remove_dir_all(env.project().join(".avfs")).unwrap();
        let inject = format!("inject={name}:signal=KILL:when={number}");
        let killed = init(&["-e", &inject], &env.at("killed"));
        kills += usize::from(killed.signal == Some(9) || killed.code == Some(137));
        let names = || -> Vec<String> {
            let listed = std::fs::read_dir(env.project().join(".avfs")).into_iter().flatten().flatten();
            listed.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        let has_journal = names().iter().any(|name| name.contains(".new-") && name.ends_with("-journal"));
        journals += usize::from(has_journal);
        assert!(!names().contains(&"vault.db-journal".to_owned()), "{name} {number}: {:?}", names());
        // The next creation removes what the killed one left, unless the vault was already complete.
        if env.project().join(".avfs/vault.db").exists() {
            env.avfs(&["vault", "trust", "."]).expect(0);
        }
        env.avfs(&["init", "."]).expect(0);
        env.avfs(&["log"]).expect(0);
        let left: Vec<String> = names().into_iter().filter(|name| name.contains("journal")).collect();
        assert_eq!(left, [""; 0], "{name} {number}");
    }
    assert!(kills == chosen.len() && journals > 0, "{kills} kills, {journals} with a journal: {text}");
}

/// An empty file is what SQLite ignores; avfs leaves one there while a command can write to the directory.
#[test]
fn empty_journal_of_a_killed_process_is_removed() {
    let env = TestEnv::with_project();
    let (vault, journal) = with_journal(&env);
    let planted = env.at("v.db-journal");
    std::fs::write(&planted, "").unwrap();
    std::fs::set_permissions(&planted, PermissionsExt::from_mode(0o600)).unwrap();
    env.avfs(&["--vault", vault.to_str().unwrap(), "log"]).expect(0);
    assert!(!planted.exists());
    // A journal whose header is cleared is not played back by SQLite either, but avfs did not write it.
    std::fs::write(&planted, vec![0; journal.len()]).unwrap();
    env.avfs(&["--vault", vault.to_str().unwrap(), "log"]).expect(1);
}
