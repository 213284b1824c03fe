//! Restricted hosts: read-only, full, without attributes or locks, or with a lease on a file.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::env::{Answer, TestEnv, binary};
use crate::support;
use crate::support::pause::Pauses;
use crate::support::skip;

/// Runs a shell script in its own mount namespace. `None` if the kernel does not allow it.
pub fn with_mounts(env: &TestEnv, test: &str, script: &str) -> Option<Answer> {
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urm", "sh", "-ec", "exit 0"]);
    if !command.output().is_ok_and(|output| output.status.success()) {
        skip(test, "unshare -Urm is not permitted here");
        return None;
    }
    let mut command = env.clean(Path::new("unshare"));
    command.args(["-Urm", "sh", "-c", script]).env("AVFS", binary()).env("SCRATCH", env.at(""));
    Some(Answer::of(command))
}

fn answers(answer: &Answer) -> Vec<Value> {
    let lines = answer.stdout.lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{answer:?}"))).collect()
}

#[test]
fn read_only_vault_can_only_be_read() {
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
    let Some(answer) = with_mounts(&env, "cli::read_only_vault_can_only_be_read", script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers = answers(&answer);
    assert_eq!(answers.len(), 5, "{answer:?}");
    assert_eq!(answers[0]["success"], json!(true), "reading still works: {}", answers[0]);
    assert_eq!(answers[1]["result"]["files"][0]["content"], json!("hello\n"));
    for refused in &answers[2..] {
        assert_eq!(refused["error"]["code"], json!("vault.read_only"), "{refused}");
        assert!(refused["error"]["hint"].is_string());
    }
    assert_eq!(env.state(), before);
}

#[test]
fn full_disk_leaves_nothing_behind() {
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
    let Some(answer) = with_mounts(&env, "cli::full_disk_leaves_nothing_behind", script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers = answers(&answer);
    assert_eq!(answers.len(), 7, "something was left behind: {answer:?}");
    let [_, before, import, after, fsck, roomy, export] = &answers[..] else { unreachable!() };
    assert_eq!(import["error"]["code"], json!("vault.disk_full"), "{import}");
    assert!(import["error"]["hint"].is_string());
    assert_eq!(before["result"], after["result"], "the vault is unchanged");
    assert_eq!(fsck["success"], json!(true), "{fsck}");
    assert_eq!(roomy["success"], json!(true), "{roomy}");
    assert_eq!(export["error"]["code"], json!("export.disk_full"), "{export}");
}

/// Existing content can be read and exported to another disk.
#[test]
fn full_disk_vault_can_be_exported() {
    let env = TestEnv::new();
    let script = format!("mount -t tmpfs -o size=4m none $SCRATCH/small || exit 9\n{FILL}\n{ON_A_FULL_DISK}");
    make_ready_for_a_full_disk(&env);
    let Some(answer) = with_mounts(&env, "cli::full_disk_vault_can_be_exported", &script) else { return };
    check_a_full_disk(&env, &answer);
}

/// If a page of memory spans several blocks, the kernel reports a full disk with a signal.
#[test]
fn vault_on_a_full_disk_with_small_blocks_can_be_exported() {
    const NAME: &str = "cli::vault_on_a_full_disk_with_small_blocks_can_be_exported";
    if !support::is_root() {
        return skip(NAME, "only root mounts disks");
    }
    let env = TestEnv::new();
    make_ready_for_a_full_disk(&env);
    let on_disk = |script: &str| {
        let mut command = env.clean(Path::new("unshare"));
        let disk = "truncate -s 24M $SCRATCH/disk && mkfs.ext4 -q -F -b 1024 -m 0 $SCRATCH/disk && \
                    mount -o loop $SCRATCH/disk $SCRATCH/small || exit 9";
        command.args(["-m", "sh", "-c", &format!("{disk}\n{script}")]);
        Answer::of(command.env("AVFS", binary()).env("SCRATCH", env.at("")))
    };
    if on_disk("exit 0").code != 0 {
        return skip(NAME, "no image of a disk can be mounted here");
    }
    let leave_some = "sync; truncate -s -8k $SCRATCH/small/fill; sync";
    check_a_full_disk(&env, &on_disk(&format!("{FILL}\n{leave_some}\n{ON_A_FULL_DISK}")));
}

const FILL: &str = "
    V=\"--vault $SCRATCH/small/v.db --json\"
    $AVFS init --import $V > $SCRATCH/made || exit 8
    dd if=/dev/zero of=$SCRATCH/small/fill bs=1k 2> $SCRATCH/filled";
const ON_A_FULL_DISK: &str = "
    for words in 'log' 'cat main a' 'ls main' 'status' 'audit verify' 'fsck' \"export main $SCRATCH/out\"; do
        $AVFS $words $V
    done
    echo more > b
    for words in 'write x --text y' 'import' 'gc'; do
        $AVFS $words $V
    done
    $AVFS init $SCRATCH/small/new --json
    test ! -e $SCRATCH/small/new || exit 7
    rm $SCRATCH/small/fill
    $AVFS write x --text y $V
    exit 0";

fn make_ready_for_a_full_disk(env: &TestEnv) {
    env.put("a", b"precious\n");
    std::fs::create_dir(env.at("small")).unwrap();
}

fn check_a_full_disk(env: &TestEnv, answer: &Answer) {
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers = answers(answer);
    assert_eq!(answers.len(), 12, "{answer:?}");
    for read in &answers[..7] {
        assert_eq!(read["success"], json!(true), "{read}");
    }
    assert_eq!(std::fs::read(env.at("out/a")).unwrap(), b"precious\n");
    // A gc that removes nothing needs no space.
    for refused in [&answers[7], &answers[8], &answers[10]] {
        assert_eq!(refused["error"]["code"], json!("vault.disk_full"), "{refused}");
    }
    assert_eq!(answers[11]["success"], json!(true), "{}", answers[11]);
}

/// Attributes that the destination cannot store are found before anything there is replaced.
#[test]
fn export_requires_xattr_support() {
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
    let Some(answer) = with_mounts(&env, "cli::export_requires_xattr_support", script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let [refused] = &answers(&answer)[..] else { panic!("{answer:?}") };
    assert_eq!(refused["error"]["code"], json!("export.io"), "{refused}");
}

#[test]
fn file_system_without_locks_is_refused() {
    let env = TestEnv::with_project();
    let before = env.state();
    let refused = |calls: &str, error: &str, words: &[&str]| {
        // strace makes the kernel answer like a file system without locks.
        let mut traced = env.clean(Path::new("strace"));
        let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:error={error}"));
        traced.args(["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
        traced.arg(binary()).arg("--json").args(words);
        let answer = Answer::of(traced);
        assert_eq!(answer.code, 1, "{answer:?}");
        let value: Value = serde_json::from_str(&answer.stdout).unwrap();
        assert_eq!(value["error"]["code"], json!("vault.locks_unsupported"), "{value}");
        assert!(value["error"]["hint"].is_string());
    };
    for words in [&["fork", "create", "f"][..], &["init", "--vault", "./other.db"]] {
        refused("flock", "ENOLCK", words);
    }
    for error in ["ENOLCK", "EOPNOTSUPP", "ENOSYS"] {
        for calls in ["fcntl", "flock,fcntl"] {
            refused(calls, error, &["log"]);
            refused(calls, error, &["write", "x", "--text", "x"]);
        }
    }
    assert_eq!(env.state(), before);
    let left: Vec<_> = std::fs::read_dir(env.project()).unwrap().flatten().map(|it| it.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("other.db")), "{left:?}");
}

/// Opening the lock file does not block, regardless of its type.
#[test]
fn fifo_at_the_lock_path_does_not_block() {
    let env = TestEnv::with_project();
    let lock = env.project().join(".avfs/vault.db-lock");
    std::fs::remove_file(&lock).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // Far more than the command needs: only a command that blocks on the FIFO is killed.
    let mut patient = env.clean(Path::new("timeout"));
    let answer = Answer::of(patient.arg("300").arg(binary()).arg("log"));
    assert_eq!(answer.code, 0, "{answer:?}");
}

/// A file server may hold a lease on a file. The kernel asks it to release the lease; an import waits for that, a
/// bounded number of times.
#[test]
fn import_waits_for_a_lease_to_be_released() {
    const HOLD: &str = "\
import fcntl, os, signal, sys
gives_back = sys.argv[2] == 'polite'
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
held = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
signal.sigwait([signal.SIGIO])
print('asked', flush=True)
if gives_back and sys.stdin.readline():
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    print('given back', flush=True)
sys.stdin.read()
";
    let env = TestEnv::with_project();
    env.put("leased", b"x\n");
    for (manner, code) in [("rude", 1), ("polite", 0)] {
        let mut holder = env.clean(Path::new("python3"));
        holder.args(["-c", HOLD, "leased", manner]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "held");
        let pauses = Pauses::new(&env.at(""));
        pauses.hold("leased");
        let mut import = env.avfs(&["import"]);
        let mut import =
            pauses.set(&mut import).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        pauses.wait("leased", &mut import);
        assert_eq!(said.next().unwrap().unwrap(), "asked");
        if manner == "polite" {
            holder.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            assert_eq!(said.next().unwrap().unwrap(), "given back");
        }
        pauses.release("leased");
        let answer = Answer::from(import.wait_with_output().unwrap());
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(answer.code, code, "{manner}: {answer:?}");
        assert!(code == 0 || answer.stderr.contains("cannot read leased"), "{answer:?}");
        let waits = pauses.reached().iter().filter(|point| *point == "leased").count();
        assert!(if code == 0 { waits == 1 } else { (2..1000).contains(&waits) }, "{manner}: {waits} waits");
    }
    assert_eq!(env.ok(&["cat", "main", "leased"]), "x\n");
}

/// Simulates a bad sector: reading the memory of a process at address 0 fails with EIO.
#[test]
fn unreadable_file_is_reported_and_its_old_content_is_kept() {
    let env = TestEnv::with_project();
    env.put("old", b"as it was\n");
    env.ok(&["import"]);
    env.put("new", b"");
    let before = env.state();
    env.put("late", b"x\n");
    let script = "
        mount --bind /proc/$$/mem old && mount --bind /proc/$$/mem new || exit 9
        $AVFS import --json
        $AVFS status --json
        $AVFS import --keep-going --json
        : > .avfsignore && touch -d 1999-01-01 .avfsignore && mount --bind /proc/$$/mem .avfsignore || exit 9
        $AVFS import --keep-going --json
        exit 0";
    let test = "cli::unreadable_file_is_reported_and_its_old_content_is_kept";
    let Some(answer) = with_mounts(&env, test, script) else { return };
    assert_eq!(answer.code, 0, "{answer:?}");
    let answers = answers(&answer);
    assert_eq!(answers.len(), 4, "{answer:?}");
    let refused = &answers[0]["error"];
    assert_eq!(refused["code"], json!("import.io"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("--keep-going"), "{refused}");
    let troubles = answers[2]["result"]["troubles"].as_array().unwrap();
    let mut troubles: Vec<_> =
        troubles.iter().map(|trouble| (&trouble["path"], &trouble["reason"])).collect();
    troubles.sort_by_key(|(path, _)| path.to_string());
    let unreadable = json!("unreadable");
    assert_eq!(troubles, [(&json!("new"), &unreadable), (&json!("old"), &unreadable)], "{}", answers[2]);
    assert_eq!(
        env.ok(&["cat", "main", "old", "late"]),
        "as it was\nx\n",
        "an unreadable file is not removed"
    );
    env.refused(&["cat", "main", "new"], 1, "path.not_found");
    // An unreadable ignore file is an error: without its rules, ignored files would be imported.
    assert_eq!(answers[3]["error"]["code"], json!("import.io"), "{}", answers[3]);
    assert_ne!(env.state(), before);
}
