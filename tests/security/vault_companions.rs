//! Tried: creating or replacing the files of a vault (its log, its journal, its locks, its policy) from a command.
//! Stopped by: the names are taken and covered by mounts, the directory of the vault cannot be renamed, and none of
//! them is captured, applied or exported.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::attempt::{assert_all_gained, assert_nothing_gained, gained, inside, natively};
use crate::env::{Running, TestEnv};
use crate::shared::Shared;

/// Every name that belongs to the vault `v.db`.
const NAMES: [&str; 10] = [
    "v.db",
    "v.db-wal",
    "v.db-shm",
    "v.db-journal",
    "v.db-head",
    "v.db-lock",
    "v.db-use",
    "v.db-gate",
    "v.db.policy.toml",
    "v.db.policy.rego",
];

/// A vault with its own name in a directory that holds other files too.
fn vault_in(env: &TestEnv, dir: &str) -> PathBuf {
    std::fs::create_dir_all(env.at(dir)).unwrap();
    let vault = env.at(dir).join("v.db");
    env.avfs(&["init", "--vault", vault.to_str().unwrap(), "."]).expect(0);
    env.avfs(&["--vault", vault.to_str().unwrap(), "import"]).expect(0);
    vault
}

/// Plants each name in several ways.
fn plant(dir: &Path) -> String {
    format!(
        "D = '{}'
names = {NAMES:?}
def write(path, flags):
    # Not in one word: the vault records the program.
    os.write(os.open(path, os.O_WRONLY | flags, 0o666), b'pl' + b'anted')
write(D + '/other', os.O_CREAT)
for name in names:
    at = D + '/' + name
    tried('remove ' + name, lambda: os.unlink(at))
    tried('create ' + name, lambda: write(at, os.O_CREAT | os.O_EXCL))
    tried('link ' + name, lambda: os.link(D + '/other', at))
    tried('symlink ' + name, lambda: os.symlink('other', at))
    tried('mkdir ' + name, lambda: os.mkdir(at))
    def move():
        write(D + '/moved', os.O_CREAT)
        os.rename(D + '/moved', at)
    tried('rename ' + name, move)
    tried('away ' + name, lambda: os.rename(at, D + '/away'))
    def read():
        if not open(at, 'rb').read(1): raise OSError(errno.ENOENT, '')
    tried('read ' + name, read)",
        dir.display()
    )
}

/// The contents of a directory by name.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn files_of_a_vault_beneath_rw_are_covered() {
    for above in ["beside", "beside/inner"] {
        let env = TestEnv::with_project();
        let vault = vault_in(&env, above);
        let (dir, name) = (env.at(above), vault.to_str().unwrap());
        let rw = env.at("beside");
        let program = plant(&dir);
        for options in [&[][..], &["--profile", "host"], &["--fork", "f"], &["--readonly"]] {
            let mut words = vec!["--vault", name, "--rw", rw.to_str().unwrap()];
            words.extend(options);
            let answer = inside(&env, &words, &program);
            assert_eq!(gained(&answer), [""; 0], "{options:?}: {answer:?}");
            assert_eq!(std::fs::read(dir.join("other")).unwrap(), b"planted", "--rw works: {answer:?}");
            for (file, content) in contents(&dir) {
                let is_planted = content.windows(7).any(|bytes| bytes == b"planted");
                assert_eq!(is_planted, ["moved", "other"].contains(&&*file), "{file}");
                // What exists only to take the name is gone.
                assert!(!file.contains("policy") && !file.ends_with("-journal"), "{file}");
            }
            env.avfs(&["--vault", name, "log"]).expect(0);
        }
        env.avfs(&["--vault", name, "fsck"]).expect(0);
        // Control: without a sandbox.
        let answer = natively(&env, &program);
        assert!(NAMES.iter().all(|name| gained(&answer).contains(&format!("create {name}"))), "{answer:?}");
    }
}

/// A new directory at the path of the vault's would hold a vault that a command has written.
#[test]
fn directory_of_a_vault_cannot_be_renamed() {
    let env = TestEnv::with_project();
    let vault = vault_in(&env, "above/dir/inner");
    let program = format!(
        "P = '{}'
tried('inner', lambda: os.rename(P + '/dir/inner', P + '/dir/moved'))
tried('dir', lambda: os.rename(P + '/dir', P + '/moved'))
tried('exchange', lambda: call(316 if X86 else 276, -100, (P + '/dir').encode(), -100, (P + '/new').encode(), 2))",
        env.at("above").display()
    );
    std::fs::create_dir(env.at("above/new")).unwrap();
    let words = ["--vault", vault.to_str().unwrap(), "--rw", &env.at("above").display().to_string()];
    assert_nothing_gained(&inside(&env, &words, &program), &["inner", "dir", "exchange"]);
    assert!(vault.exists());
    // Control: without a sandbox.
    assert_all_gained(&natively(&env, &program), &["inner", "dir"]);
}

/// The directories of a vault are mounted over themselves, which must not uncover what an option has mounted there.
#[test]
fn vault_beneath_rw_uncovers_no_directory_of_the_host() {
    for vault in ["v.db", ".avfs/vault.db"] {
        let env = TestEnv::with_project();
        let (home, ws, inner) = (env.at("top/home"), env.at("top/ws"), env.at("top/b/c"));
        for dir in [&home, &ws, &inner] {
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(dir.join("key"), "orig").unwrap();
        }
        let top = env.at("top").display().to_string();
        let shown = env.at("top/b").display().to_string();
        for (dir, cwd, options) in [
            (&ws, &ws, &[][..]),
            (&ws, &ws, &["--readonly"]),
            (&home, &ws, &[]),
            (&inner, &ws, &["--ro", &shown]),
            (&inner, &ws, &["--ro", &shown, "--profile", "host"]),
            (&inner, &ws, &["--hide", &shown]),
            (&inner, &ws, &["--tmpfs", &shown]),
        ] {
            let vault = dir.join(vault);
            if !vault.exists() {
                env.avfs(&["init", "--vault", vault.to_str().unwrap(), cwd.to_str().unwrap()]).expect(0);
            }
            let line = format!(
                "cat {0}/key; mkdir -p {0}; for f in key new; do echo pwn > {0}/$f; done",
                dir.display()
            );
            let start = |mut command: std::process::Command, words: &[&str]| {
                Running::start(command.env("HOME", &home).current_dir(cwd).args(words)).answer()
            };
            let words = [&["--vault", vault.to_str().unwrap(), "--rw", &top], options, &["--shell", &line]];
            let answer = start(env.command::<&str>(&[]), &words.concat());
            let found = ["key", "new"].map(|name| std::fs::read(dir.join(name)).ok());
            assert_eq!(found, [Some(b"orig".to_vec()), None], "{answer:?}");
            let is_read = dir == &ws || options.contains(&"--ro");
            assert_eq!(answer.text().contains("orig"), is_read, "{answer:?}");
        }
        // Control: --rw itself, without an option or a workspace beneath it.
        let line = format!("echo pwn > {}/key; echo pwn > {}/new", inner.display(), inner.display());
        let vault = inner.join(vault);
        let words = ["--vault", vault.to_str().unwrap(), "--rw", &top, "--shell", &line];
        Running::start(env.command(&words).current_dir(&ws)).answer().expect(0);
        assert_eq!(["key", "new"].map(|name| std::fs::read(inner.join(name)).unwrap()), [b"pwn\n", b"pwn\n"]);
    }
}

#[test]
fn vaults_of_other_projects_and_the_trust_list_are_hidden() {
    let env = TestEnv::with_project();
    let other = env.at("work/other");
    std::fs::create_dir_all(&other).unwrap();
    env.avfs(&["init", other.to_str().unwrap()]).expect(0);
    env.avfs(&["init", "--vault", env.at("work/named.db").to_str().unwrap(), other.to_str().unwrap()])
        .expect(0);
    env.avfs(&["init", env.project().join("src").to_str().unwrap()]).expect(0);
    let program = format!(
        "def write(path): os.write(os.open(path, os.O_WRONLY | os.O_CREAT), b'x')
def read(path):
    if not open(path, 'rb').read(1): raise OSError(errno.ENOENT, '')
W, D, S = '{}', '{}', '{}'
tried('vault', lambda: read(W + '/other/.avfs/vault.db'))
tried('file', lambda: write(W + '/other/.avfs/vault.db-journal'))
tried('policy', lambda: write(W + '/other/.avfs/policy.toml'))
tried('named', lambda: read(W + '/named.db'))
tried('list', lambda: write(D + '/avfs/trusted-vaults'))
tried('inner', lambda: read(S + '/.avfs/vault.db'))",
        env.at("work").display(),
        env.at("data").display(),
        env.project().join("src").display()
    );
    let names = ["vault", "file", "policy", "named", "list", "inner"];
    let (work, data) = (env.at("work"), env.at("data"));
    let shown = |option| {
        let words = [option, work.to_str().unwrap(), option, data.to_str().unwrap(), "--allow-degraded"];
        inside(&env, &words, &program)
    };
    assert_nothing_gained(&shown("--rw"), &names);
    assert_nothing_gained(&shown("--ro"), &names);
    let host = ["--profile", "host", "--rw", work.to_str().unwrap()];
    assert_nothing_gained(&inside(&env, &host, &program), &names);
    assert_eq!(contents(&other.join(".avfs")).iter().filter(|(name, _)| name.contains("journal")).count(), 0);
    // Control: without a sandbox.
    assert_all_gained(&natively(&env, &program), &names);
}

/// A vault in the workspace, bound to it.
fn planted_in_workspace(env: &TestEnv, vault: &Path) -> serde_json::Value {
    let words = NAMES.iter().skip(1).fold(String::from("mkdir -p sub"), |line, name| {
        format!("{line}; echo planted > {name}; echo planted > sub/{name}")
    });
    let line =
        format!("{words}; mkdir V.db-Journal; echo x > V.db-Journal/x; mkdir v.db.new-0123456789abcdef");
    // Not with the check that the project is unchanged: the vault is in it.
    let words = ["--json", "--vault", vault.to_str().unwrap(), "--fork", "f", "--shell", &line];
    env.start(&words).answer().expect(0).envelope()
}

#[test]
fn files_of_a_vault_are_never_captured() {
    let env = TestEnv::with_project();
    let vault = vault_in(&env, "project");
    let envelope = planted_in_workspace(&env, &vault);
    let changes: Vec<&str> = envelope["result"]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    // A file of that name elsewhere is not the vault's.
    assert!(changes.iter().all(|path| path.starts_with("sub")), "{envelope}");
    assert!(changes.contains(&"sub/v.db-journal"), "{envelope}");
    let left: Vec<&str> = envelope["result"]["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|left| left["path"].as_str().unwrap())
        .collect();
    assert!(left.contains(&"v.db-journal") && left.contains(&"v.db.policy.toml"), "{envelope}");
}

/// A version can have such names from before the vault was moved to its directory, or because it was handcrafted.
#[test]
fn files_of_a_vault_are_never_applied_or_exported() {
    for moved in [false, true] {
        let env = TestEnv::with_project();
        let elsewhere = vault_in(&env, "elsewhere");
        let envelope = planted_in_workspace(&env, &elsewhere);
        assert_eq!(envelope["result"]["exit_code"], json!(0), "{envelope}");
        let vault = if moved { env.project().join("v.db") } else { elsewhere };
        if moved {
            for entry in std::fs::read_dir(env.at("elsewhere")).unwrap().map(|entry| entry.unwrap()) {
                std::fs::rename(entry.path(), env.project().join(entry.file_name())).unwrap();
            }
        }
        let name = vault.to_str().unwrap();
        let dir = env.project();
        for words in [&["apply", "f"][..], &["export", "--overwrite", "f", dir.to_str().unwrap()]] {
            env.avfs(&[&["--vault", name], words].concat()).expect(0);
            let planted = |name: &&str| std::fs::read(dir.join(name)).is_ok_and(|text| text == b"planted\n");
            let found = NAMES.iter().filter(|name| planted(name)).count();
            // Control: with the vault elsewhere these are ordinary names.
            assert_eq!(found, if moved { 0 } else { NAMES.len() - 1 }, "{words:?}");
            assert_eq!(dir.join("V.db-Journal").exists(), !moved);
            assert!(planted(&"sub/v.db-journal"));
        }
        env.avfs(&["--vault", name, "log"]).expect(0);
    }
}

/// Other commands use the vault while its names are taken, and after the runner was killed.
#[test]
fn taken_names_do_not_lock_out_other_commands() {
    let env = TestEnv::with_project();
    let vault = vault_in(&env, "beside");
    let (name, journal) = (vault.to_str().unwrap(), env.at("beside/v.db-journal"));
    let beside = env.at("beside");
    let shared = Shared::new(&env);
    let options = ["--vault", name, "--rw", beside.to_str().unwrap()];
    let start = |word: &str| {
        let line = format!(": > $S/{word}; while [ ! -e $S/go-{word} ]; do sleep 0.01; done");
        shared.wait_for_word(shared.start(&env, &options, &line), word)
    };
    let (one, two) = (start("one"), start("two"));
    assert!(journal.exists());
    env.avfs(&["--vault", name, "log"]).expect(0);
    env.command(&["--vault", name, "--", "true"]).output().unwrap();
    assert!(journal.exists());
    shared.put("go-one");
    one.answer().expect(0);
    // The other run still covers the name.
    assert!(journal.exists());
    two.signal(rustix::process::Signal::KILL);
    assert_eq!(two.answer().signal, Some(9));
    env.avfs(&["--vault", name, "log"]).expect(0);
    assert!(!journal.exists());
    let again = Running::start(&mut env.command(&[&options[..], &["--", "true"]].concat()));
    again.answer().expect(0);
    assert!(!beside.join("v.db.policy.toml").exists());
}

/// The suffixes of [`NAMES`] for another vault.
fn names_of(vault: &str) -> Vec<String> {
    NAMES.iter().map(|name| name.replace("v.db", vault)).collect()
}

/// Vaults that the run does not use: one that the user has created, and one of which avfs does not know.
#[test]
fn files_and_directories_of_other_vaults_beneath_rw_are_covered() {
    let env = TestEnv::with_project();
    let used = vault_in(&env, "top/two");
    let other = env.at("top/dir/sub/w.db");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    for vault in [&other, &env.at("top/two/x.db")] {
        env.avfs(&["init", "--vault", vault.to_str().unwrap(), "."]).expect(0);
    }
    let unknown = env.at("top/dir/sub/u.db");
    let mut init = env.clean(&crate::env::avfs());
    init.env("XDG_DATA_HOME", env.at("data-of-nobody")).args([
        "init",
        "--vault",
        unknown.to_str().unwrap(),
        ".",
    ]);
    Running::start(&mut init).answer().expect(0);
    let top = env.at("top");
    let program = format!(
        "T = '{}'
def write(path): os.write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), b'pl' + b'anted')
for name in {:?}: tried(name, lambda: write(T + '/dir/sub/' + name))
for name in {:?}: tried(name, lambda: write(T + '/two/' + name))
tried('u.db-journal', lambda: write(T + '/dir/sub/u.db-journal'))
tried('sub', lambda: os.rename(T + '/dir/sub', T + '/dir/moved'))
tried('dir', lambda: os.rename(T + '/dir', T + '/moved'))",
        top.display(),
        names_of("w.db"),
        names_of("x.db"),
    );
    let rw = top.to_str().unwrap();
    for options in [&[][..], &["--vault", used.to_str().unwrap()], &["--profile", "host"]] {
        let answer = inside(&env, &[&["--rw", rw], options].concat(), &program);
        // Control: the vault that is not known.
        assert_eq!(gained(&answer), ["u.db-journal"], "{options:?}: {answer:?}");
        std::fs::remove_file(env.at("top/dir/sub/u.db-journal")).unwrap();
        for vault in [&other, &env.at("top/two/x.db")] {
            env.avfs(&["--vault", vault.to_str().unwrap(), "log"]).expect(0);
        }
    }
    // Control: without a sandbox.
    let gained = ["u.db-journal", "w.db-journal", "w.db.policy.toml", "x.db-journal", "sub", "dir"];
    assert_all_gained(&natively(&env, &program), &gained);
}

#[test]
fn another_vault_at_the_path_of_a_listed_one_is_refused() {
    let env = TestEnv::with_project();
    let listed = env.at("top/sub/w.db");
    std::fs::create_dir_all(listed.parent().unwrap()).unwrap();
    let (name, forged) = (listed.to_str().unwrap(), env.at("forged/w.db"));
    env.avfs(&["init", "--vault", name, "."]).expect(0);
    std::fs::create_dir(env.at("forged")).unwrap();
    let victim = env.at("victim");
    std::fs::create_dir(&victim).unwrap();
    let made = env.at("forged/made.db").to_str().unwrap().to_owned();
    env.avfs(&["init", "--vault", &made, victim.to_str().unwrap()]).expect(0);
    env.avfs(&["--vault", &made, "vault", "copy", forged.to_str().unwrap()]).expect(0);
    let code = |answer: crate::env::Answer| answer.envelope()["error"]["code"].clone();
    let refused = || {
        for words in [&["apply"][..], &["log"], &["init", "."]] {
            let words = [&["--json", "--vault", name], words].concat();
            assert_eq!(code(env.avfs(&words).expect(1)), "vault.untrusted", "{words:?}");
        }
        assert_eq!(code(env.run(&["--json", "--vault", name, "--", "true"]).expect(125)), "vault.untrusted");
        let mut run = env.command(&["--json", "--", "true"]);
        assert_eq!(code(env.answer(run.env("AVFS_VAULT", name)).expect(125)), "vault.untrusted");
    };
    env.run(&["--vault", name, "--", "true"]).expect(0);
    // Another file.
    std::fs::rename(env.at("top/sub"), env.at("top/sub2")).unwrap();
    std::fs::create_dir(env.at("top/sub")).unwrap();
    std::fs::copy(&forged, &listed).unwrap();
    refused();
    // Another vault in the same file.
    std::fs::remove_dir_all(env.at("top/sub")).unwrap();
    std::fs::rename(env.at("top/sub2"), env.at("top/sub")).unwrap();
    env.run(&["--vault", name, "--", "true"]).expect(0);
    std::fs::write(&listed, std::fs::read(&forged).unwrap()).unwrap();
    for suffix in ["-wal", "-shm", "-head"] {
        let _ = std::fs::remove_file(format!("{name}{suffix}"));
    }
    refused();
    // Control: if it is trusted, it is used.
    env.avfs(&["vault", "trust", name]).expect(0);
    env.avfs(&["--vault", name, "log"]).expect(0);
    env.run(&["--vault", name, "--", "true"]).expect(0);
}

/// Vaults in the workspace of another vault.
#[test]
fn files_of_other_vaults_in_the_workspace_are_never_captured_or_applied() {
    let env = TestEnv::with_project();
    let (other, inner) = (env.project().join("w.db"), env.project().join("src/x.db"));
    for vault in [&other, &inner] {
        env.avfs(&["init", "--vault", vault.to_str().unwrap(), "."]).expect(0);
    }
    let words = |vault: &str| names_of(vault).into_iter().skip(1).collect::<Vec<_>>().join(" ");
    let line = format!(
        "for f in {}; do echo planted > $f; done; cd src; for f in {}; do echo planted > $f; done; cd ../
        for f in {}; do echo planted > src/$f; done; echo planted > u.db-journal",
        words("w.db"),
        words("x.db"),
        words("w.db")
    );
    let elsewhere = vault_in(&env, "elsewhere");
    for vault in [&[][..], &["--vault", elsewhere.to_str().unwrap()]] {
        let words = [vault, &["--json", "--apply", "--shell", &line]].concat();
        let envelope = env.start(&words).answer().envelope();
        let planted =
            |name: &str| std::fs::read(env.project().join(name)).is_ok_and(|text| text == b"planted\n");
        for name in names_of("w.db") {
            assert!(!planted(&name), "{name}: {envelope}");
            // Control: elsewhere the name is not the vault's.
            assert!(planted(&format!("src/{name}")) || name == "w.db", "{name}: {envelope}");
        }
        assert!(names_of("x.db").iter().all(|name| !planted(&format!("src/{name}"))), "{envelope}");
        // Control: the name of no vault.
        assert!(planted("u.db-journal"), "{envelope}");
        let left = envelope["result"]["left_out"].to_string();
        assert!(left.contains("w.db-journal") && left.contains("src/x.db-journal"), "{envelope}");
        for planted in std::fs::read_dir(env.project().join("src")).unwrap().map(|entry| entry.unwrap()) {
            if planted.file_name().to_str().unwrap().starts_with("w.db") {
                std::fs::remove_file(planted.path()).unwrap();
            }
        }
        std::fs::remove_file(env.project().join("u.db-journal")).unwrap();
        for vault in [&other, &inner] {
            env.avfs(&["--vault", vault.to_str().unwrap(), "log"]).expect(0);
        }
    }
}
