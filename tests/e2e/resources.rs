//! Commands that exceed their limits: the mechanism that enforces a limit, the report, and the remaining state.
//!
//! Each test has a control: without the limit the same command succeeds.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{Running, TestEnv, wait_for};
use crate::limits::{envelope, notes, on_a_host};
use crate::shared::{Shared, alive, marker};
use crate::support::pause::Pauses;

/// A host without access to cgroups.
const NO_GROUPS: &str = "mount -t tmpfs t /sys/fs/cgroup; ";

/// Allocates this many MiB.
fn fill(mib: u32) -> String {
    format!("x = [bytearray(b'x' * (1 << 20)) for _ in range({mib})]; print('had it')")
}

/// Allocates this many MiB and holds them until it is killed.
fn fill_and_hold(mib: u32) -> String {
    format!("{}; import signal; signal.pause()", fill(mib))
}

#[track_caller]
fn python(env: &TestEnv, options: &[&str], script: &str) -> Value {
    let mut words = vec!["--json"];
    words.extend(options);
    words.extend(["--", "python3", "-c", script]);
    env.run(&words).envelope()
}

/// The mechanism that enforced a limit.
#[track_caller]
fn mechanism<'e>(envelope: &'e Value, limit: &str) -> &'e str {
    let limits = envelope["enforcement"]["limits"].as_array().unwrap_or_else(|| panic!("{envelope}"));
    let kept = limits.iter().find(|kept| kept["limit"] == limit).unwrap_or_else(|| panic!("{envelope}"));
    kept["mechanism"].as_str().unwrap()
}

#[track_caller]
fn assert_stopped_by(envelope: &Value, limit: &str) {
    let result = &envelope["result"];
    assert_eq!(result["stopped_by"], json!(limit), "{envelope}");
    assert_eq!((&envelope["success"], &result["timed_out"]), (&json!(false), &json!(false)), "{envelope}");
}

/// The cgroups of runners that are alive or were killed.
fn groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().as_encoded_bytes().starts_with(b"avfs-") {
                found.push(entry.path());
            }
            dirs.push(entry.path());
        }
    }
    found
}

/// The cgroups of a runner. Those in `before` belong to an earlier process with the same PID.
fn groups_of(runner: u32, before: &[PathBuf]) -> Vec<PathBuf> {
    let name = format!("avfs-{runner}-");
    let is_its = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&name);
    groups().into_iter().filter(|path| is_its(path) && !before.contains(path)).collect()
}

#[test]
fn without_limits_nothing_is_set() {
    let env = TestEnv::with_project();
    let plain = env.json(&[], "ulimit -u; ulimit -f; ulimit -d");
    let set = env.json(&["--file-size", "4096", "--timeout", "1h"], "ulimit -f");
    assert_eq!(plain["enforcement"]["limits"], json!([]), "{plain}");
    assert_eq!(plain["result"]["stopped_by"], json!(null));
    assert!(plain["result"]["stdout"].as_str().unwrap().contains("unlimited"), "{plain}");
    assert_eq!(set["result"]["stdout"], json!("8\n"), "{set}");
    let expected = json!([{ "limit": "file_size", "value": 4096, "mechanism": "rlimit" }]);
    assert_eq!(set["enforcement"]["limits"], expected);
}

#[test]
fn a_memory_bomb_is_stopped_and_reported() {
    let env = TestEnv::with_project();
    let control = python(&env, &[], &fill(300));
    assert_eq!(control["result"]["stdout"], json!("had it\n"), "{control}");
    let within = python(&env, &["--memory", "600M"], &fill(300));
    assert_eq!(within["result"]["stdout"], json!("had it\n"), "{within}");
    let script = fill_and_hold(300);
    let bomb = python(&env, &["--memory", "200M"], &script);
    assert_stopped_by(&bomb, "memory");
    assert_eq!(bomb["result"]["signal"], json!(9));
    let answer = env.run(&["--memory", "200M", "--", "python3", "-c", &script]).expect(137);
    let line = "the command was stopped: it used more than 200.0 MiB of memory (--memory)";
    assert!(answer.stderr.contains(line), "{answer:?}");
    let listed = env.avfs_result(&["runs", "list"]);
    let id = listed["runs"][0]["id"].as_str().unwrap();
    assert_eq!(env.avfs_result(&["runs", "show", id])["result"]["stopped_by"], json!("memory"));
}

#[test]
fn the_memory_limit_covers_all_processes_together() {
    let env = TestEnv::with_project();
    // All processes hold their memory until each has either allocated it or died.
    let script = |hold: &str| {
        format!(
            "import os, signal
go, wait = os.pipe()
filled = []
for _ in range(10):
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(wait)
        x = bytearray(40 << 20)
        for at in range(0, len(x), 4096): x[at] = 1
        os.write(write, b'.'); os.read(go, 1); os._exit(0)
    os.close(write); filled.append(read)
if all([os.read(read, 1) for read in filled]) and {hold}: signal.pause()
os.close(wait)
ended = [os.wait()[1] for _ in range(10)]
print('all lived' if not any(ended) else 'some died')"
        )
    };
    let control = python(&env, &[], &script("False"));
    assert_eq!(control["result"]["stdout"], json!("all lived\n"), "{control}");
    let bomb = python(&env, &["--memory", "200M"], &script("True"));
    match mechanism(&bomb, "memory") {
        // The kernel kills one process after the other; the rest may continue.
        "cgroup1" | "cgroup2" => {
            assert_eq!(notes(&bomb), ["limit.reached"], "{bomb}");
            assert_eq!(bomb["result"]["stdout"], json!("some died\n"), "{bomb}");
        }
        _ => assert_stopped_by(&bomb, "memory"),
    }
}

#[test]
fn memory_is_watched_where_cgroups_are_unavailable() {
    let env = TestEnv::with_project();
    let line = |script: &str| {
        format!("{NO_GROUPS} exec \"$RUN\" --json --rw $S --env S --memory 200M -- python3 -c \"{script}\"")
    };
    let shared = Shared::new(&env);
    let run = |script: &str| env.answer(on_a_host(&env, &line(script)).env("S", shared.text())).envelope();
    let bomb = run(&fill_and_hold(300));
    assert_eq!(mechanism(&bomb, "memory"), "watch");
    assert_stopped_by(&bomb, "memory");
    let nameless = "import os, signal
f = os.memfd_create('x')
for _ in range(300): os.write(f, b'x' * (1 << 20))
signal.pause()";
    assert_stopped_by(&run(nameless), "memory");
    // Pages that processes share are counted once.
    let script = "import os, time
x = bytearray(120 << 20)
for at in range(0, len(x), 4096): x[at] = 1
go, wait = os.pipe()
for _ in range(6):
    if os.fork() == 0: os.close(wait); os.read(go, 1); os._exit(0)
open(os.environ['S'] + '/ready', 'w').close()
while not os.path.exists(os.environ['S'] + '/go'): time.sleep(0.02)
os.close(wait)
for _ in range(6): os.wait()
print('fine')";
    let pauses = Pauses::new(&env.at(""));
    let mut command = on_a_host(&env, &line(script));
    let running = Running::start(pauses.set(&mut command).env("S", shared.text()));
    let mut running = shared.wait_for_word(running, "ready");
    let checks = || pauses.reached().iter().filter(|point| *point == "memory-checked").count();
    // The first check may have started earlier.
    let enough = checks() + 2;
    wait_for("the memory is checked", || checks() >= enough || running.has_ended());
    shared.put("go");
    let envelope = running.answer().envelope();
    assert_eq!(envelope["result"]["stdout"], json!("fine\n"), "{envelope}");
}

#[test]
fn memory_is_watched_after_the_main_thread_has_exited() {
    let env = TestEnv::with_project();
    let run = |options: &str, take: &str, then: &str| {
        let script = format!(
            "import ctypes, os, platform, signal, threading, time
def more():
    while open('/proc/self/stat').read().rsplit(')', 1)[1].split()[0] != 'Z': time.sleep(0.01)
    {take}
    {then}
threading.Thread(target=more).start()
ctypes.CDLL(None).syscall(dict(x86_64=60, aarch64=93)[platform.machine()], 0)"
        );
        envelope(&env, &format!("{NO_GROUPS} exec \"$RUN\" --json {options} -- python3 -c \"{script}\"")).0
    };
    let pages = "x = [bytearray(b'x' * (1 << 20)) for _ in range(300)]";
    let nameless = "f = os.memfd_create('x'); [os.write(f, b'x' * (1 << 20)) for _ in range(300)]";
    for take in [pages, nameless] {
        let control = run("", take, "print('had it', flush=True); os._exit(0)");
        assert_eq!(control["result"]["stdout"], json!("had it\n"), "{control}");
        let bomb = run("--memory 200M", take, "signal.pause()");
        assert_eq!(mechanism(&bomb, "memory"), "watch");
        assert_stopped_by(&bomb, "memory");
    }
}

const FORKS: &str = "import os, signal
made = 0
try:
    while made < 400:
        if os.fork() == 0: signal.pause()
        made += 1
except OSError as error: pass
print(made)";

fn forked(envelope: &Value) -> u64 {
    envelope["result"]["stdout"].as_str().unwrap().trim().parse().unwrap_or_else(|_| panic!("{envelope}"))
}

#[test]
fn a_fork_bomb_is_stopped_by_the_process_limit() {
    let env = TestEnv::with_project();
    assert_eq!(forked(&python(&env, &[], FORKS)), 400);
    let bomb = python(&env, &["--pids", "40"], FORKS);
    // The command itself counts too.
    assert_eq!(forked(&bomb), 39, "{bomb}");
    if mechanism(&bomb, "pids").starts_with("cgroup") {
        assert_eq!(notes(&bomb), ["limit.reached", "processes.killed"], "{bomb}");
    }
    let script = format!("{NO_GROUPS} exec \"$RUN\" --json --pids 40 -- python3 -c \"{FORKS}\"");
    let (alone, _) = envelope(&env, &script);
    // In this namespace the caller is root, for whom only the range of PIDs is a limit.
    assert_eq!(mechanism(&alone, "pids"), "pid_max");
    assert!((39..=340).contains(&forked(&alone)), "{alone}");
}

#[test]
fn writes_are_limited_in_memory_and_on_disk() {
    let env = TestEnv::with_project();
    let write = "head -c 30M /dev/zero > big; exec sleep infinity";
    let control = env.json(&["--scratch", "disk"], "head -c 30M /dev/zero > big; wc -c < big");
    assert_eq!(control["result"]["stdout"], json!("31457280\n"), "{control}");
    let memory =
        env.json(&["--disk", "20M", "--scratch", "memory"], "head -c 30M /dev/zero > big; wc -c < big");
    assert_eq!(mechanism(&memory, "disk"), "tmpfs");
    assert_eq!(notes(&memory), ["limit.reached"], "{memory}");
    let got: u64 = memory["result"]["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(got <= 20 << 20, "{memory}");
    let disk = env.json(&["--disk", "20M", "--scratch", "disk"], write);
    assert_eq!(mechanism(&disk, "disk"), "watch");
    assert_stopped_by(&disk, "disk");
    let copy = env.json(&["--disk", "20M", "--backend", "copy"], write);
    assert_stopped_by(&copy, "disk");
    let elsewhere = env.ok(&["--disk", "20M"], "head -c 30M /dev/zero > /tmp/big; wc -c < /tmp/big");
    assert!(elsewhere.trim().parse::<u64>().unwrap() <= 20 << 20, "{elsewhere}");
    env.assert_sound();
}

/// The command ends before the watch counts: what it left decides.
#[test]
fn a_command_that_ended_with_too_much_on_disk_is_over_its_limit() {
    let env = TestEnv::with_project();
    let cases = [
        (&["--disk", "1MiB", "--scratch", "disk"][..], "head -c 5M /dev/zero > big", "disk"),
        (&["--disk", "1MiB", "--backend", "copy"], "head -c 5M /dev/zero > big", "disk"),
        (&["--files", "20", "--scratch", "disk"], "seq 50 | split -l 1", "files"),
    ];
    for (options, line, limit) in cases {
        let mut command = env.command(&["--json", "--apply"]);
        command.args(options).args(["--shell", line]);
        // On failure the environment compares the directory: nothing is applied.
        let answer = env.answer(&mut command).expect(137);
        let envelope = answer.envelope();
        assert_stopped_by(&envelope, limit);
        assert!(envelope["result"]["change_counts"]["added"].as_u64() > Some(0), "{envelope}");
        let run = envelope["run_id"].as_str().unwrap();
        let diff = env.avfs(&["diff", &format!("run:{run}")]).expect(0).text();
        assert!(diff.contains("big") || diff.contains("xaa"), "kept for review: {diff}");
        let text = env.answer(env.command(options).args(["--shell", line])).expect(137);
        assert!(text.stderr.contains("--disk") || text.stderr.contains("--files"), "{text:?}");
    }
    env.assert_sound();
}

/// The hidden vault and the mount points of `cache.dirs` are entries of the sandbox.
#[test]
fn only_the_files_of_the_command_count() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("config/avfs/avfs.toml"), "cache.dirs = ['a/deep', 'src/deep', '~/.tool']\n")
        .unwrap();
    for way in [&["--scratch", "disk", "--base", "live"][..], &["--backend", "copy"]] {
        let options = [&["--files", "1"], way].concat();
        let within = env.json(&options, "touch x1; echo x > a/deep/x");
        assert_eq!(within["success"], json!(true), "{within}");
        assert_stopped_by(&env.json(&options, "touch x1 x2"), "files");
    }
    env.assert_sound();
}

/// These mechanisms do not count how often they refuse a process.
#[test]
fn a_command_that_failed_may_have_met_the_process_limit() {
    let env = TestEnv::with_project();
    let run = |script: &str| {
        let line = format!("{NO_GROUPS} exec \"$RUN\" --json --pids 100 --shell '{script}'");
        let (envelope, _) = envelope(&env, &line);
        assert!(["pid_max", "rlimit"].contains(&mechanism(&envelope, "pids")), "{envelope}");
        envelope
    };
    let failed = run("exit 3");
    assert_eq!(notes(&failed), ["limit.reached"], "{failed}");
    assert!(failed["result"]["notes"][0]["text"].as_str().unwrap().contains("may have met"), "{failed}");
    assert_eq!(notes(&run("true")), [""; 0]);
}

#[test]
fn deleted_and_inaccessible_files_count_too() {
    let env = TestEnv::with_project();
    let options = ["--disk", "20M", "--scratch", "disk"];
    let nameless = "import os, signal
f = os.open('x', os.O_CREAT | os.O_RDWR)
os.unlink('x')
for _ in range(40): os.write(f, b'x' * (1 << 20))
signal.pause()";
    assert_stopped_by(&python(&env, &options, nameless), "disk");
    let closed = "import os, signal
for n in range(8):
    os.mkdir(str(n))
    open(str(n) + '/f', 'wb').write(b'x' * (5 << 20))
    os.chmod(str(n), 0)
signal.pause()";
    // Nothing else frees space on this file system, and without capabilities root cannot open the directories either.
    let alone = "mount -t tmpfs t \"$CACHE\"; exec unshare -U --map-user=1000 --map-group=1000";
    let options = options.join(" ");
    let (closed, _) =
        envelope(&env, &format!("{alone} \"$RUN\" --json {options} -- python3 -c \"{closed}\""));
    assert_stopped_by(&closed, "disk");
    env.assert_sound();
}

/// For a tmpfs a size of 0 means no limit.
#[test]
fn a_limit_of_zero_is_refused() {
    let env = TestEnv::with_project();
    for option in ["--disk", "--files", "--memory", "--pids", "--file-size"] {
        let refused = env.shell(&[option, "0", "--scratch", "memory"], "echo ran").expect(125);
        assert!(refused.stderr.contains("expected more than 0"), "{option}: {refused:?}");
        assert_eq!(refused.text(), "");
    }
    let request = json!({ "command": ["true"], "disk": 0 }).to_string();
    let refused = env.fed(&["--json", "--request", "-"], request.as_bytes()).expect(125).envelope();
    assert!(refused["error"]["message"].as_str().unwrap().contains("disk"), "{refused}");
    let mut set = env.command(&["--", "true"]);
    env.answer(set.env("AVFS_RUN_DISK", "0")).expect(125);
}

#[test]
fn files_are_counted_in_memory_and_on_disk() {
    let env = TestEnv::with_project();
    let make = |count: u32| {
        format!("n=0; while [ $n -lt {count} ] && echo x > f-$n; do n=$((n+1)); done 2>/dev/null; echo $n")
    };
    let within = env.json(&["--files", "100", "--scratch", "disk"], &make(90));
    assert_eq!((&within["result"]["stdout"], &within["success"]), (&json!("90\n"), &json!(true)), "{within}");
    let memory = env.json(&["--files", "100", "--scratch", "memory"], &make(500));
    assert_eq!(mechanism(&memory, "files"), "tmpfs");
    assert_eq!(notes(&memory), ["limit.reached"], "{memory}");
    let made: u32 = memory["result"]["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!((100..120).contains(&made), "{memory}");
    let disk =
        env.json(&["--files", "100", "--scratch", "disk"], &format!("{}; exec sleep infinity", make(500)));
    assert_stopped_by(&disk, "files");
    // Deeper than PATH_MAX.
    let deep = "import os, signal
for _ in range(150): os.mkdir('d' * 40); os.chdir('d' * 40)
signal.pause()";
    assert_stopped_by(&python(&env, &["--files", "120", "--scratch", "disk"], deep), "files");
    env.assert_sound();
}

#[test]
fn files_are_counted_in_each_file_system_in_memory() {
    let env = TestEnv::with_project();
    let make = "import os
for dir in ['/tmp', '/var/tmp', '/dev/shm']:
    made = 0
    try:
        while made < 150: os.close(os.open(f'{dir}/{made}', os.O_CREAT | os.O_WRONLY)); made += 1
    except OSError as error: pass
    print(made)";
    let shown = env.at("shown");
    std::fs::create_dir(&shown).unwrap();
    let shown = shown.to_str().unwrap();
    let control = python(&env, &[], make);
    assert_eq!(control["result"]["stdout"], json!("150\n150\n150\n"), "{control}");
    for options in [&["--files", "100"][..], &["--files", "100", "--ro", shown]] {
        let bounded = python(&env, options, make);
        assert_eq!(bounded["result"]["stdout"], json!("100\n100\n100\n"), "{bounded}");
    }
}

#[test]
fn the_size_of_one_file_is_limited() {
    let env = TestEnv::with_project();
    env.put("large", &[7; 300_000]);
    let limit = ["--file-size", "100000"];
    let stopped = env.run(&[
        "--json",
        "--file-size",
        "100000",
        "--",
        "dd",
        "if=/dev/zero",
        "of=f",
        "bs=64K",
        "count=9",
    ]);
    assert_stopped_by(&stopped.envelope(), "file_size");
    let shell = env.json(&limit, "head -c 300000 /dev/zero > f");
    assert_stopped_by(&shell, "file_size");
    // Pipes are not files, and a command that ignores the signal gets an error.
    assert_eq!(env.ok(&limit, "head -c 300000 /dev/zero | wc -c"), "300000\n");
    // A change to a larger file of the workspace would copy it first.
    assert_stopped_by(&env.json(&limit, "chmod 700 large"), "file_size");
    assert_eq!(env.ok(&limit, "wc -c < large; chmod 700 README.md"), "300000\n");
}

#[test]
fn the_file_size_limit_does_not_apply_to_files_of_the_sandbox() {
    let env = TestEnv::with_project();
    let key = env.at("key");
    std::fs::write(&key, "0123456789abcdef".repeat(768)).unwrap();
    let secret = format!("KEY={}", key.display());
    let line = "wc -c < $KEY_FILE; ulimit -S -f; ulimit -H -f; head -c 12288 /dev/zero > f";
    let control = env.json(&["--secret", &secret], "wc -c < $KEY_FILE; ulimit -f");
    assert_eq!(control["result"]["stdout"], json!("12288\nunlimited\n"), "{control}");
    let bounded = env.json(&["--file-size", "4KiB", "--secret", &secret], line);
    assert_eq!(bounded["result"]["stdout"], json!("12288\n8\n8\n"), "{bounded}");
    assert_stopped_by(&bounded, "file_size");
}

#[test]
fn the_number_of_processors_is_limited() {
    let env = TestEnv::with_project();
    let shared = Shared::new(&env);
    let line =
        "grep Cpus_allowed_list /proc/self/status; : > $S/ready; while [ ! -e $S/go ]; do sleep 0.02; done";
    let before = groups();
    let running = shared.wait_for_word(shared.start(&env, &["--json", "--cpus", "1"], line), "ready");
    let pid = running.child.id();
    let files = groups_of(pid, &before)
        .into_iter()
        .flat_map(|dir| [dir.join("cpu.cfs_quota_us"), dir.join("cpu.max")]);
    let seen: Vec<String> = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    shared.put("go");
    let envelope = running.answer().envelope();
    match mechanism(&envelope, "cpus") {
        "affinity" => {
            let line = envelope["result"]["stdout"].as_str().unwrap();
            let list = line.trim().rsplit('\t').next().unwrap();
            assert!(list.parse::<u32>().is_ok(), "more than one processor: {line}");
        }
        "cgroup1" => assert_eq!(seen, ["100000\n"]),
        "cgroup2" => assert_eq!(seen, ["100000 100000\n"]),
        other => panic!("{other}"),
    }
    assert_eq!(groups_of(pid, &before), [""; 0].map(PathBuf::from), "a cgroup is left behind");
}

#[test]
fn a_command_cannot_use_processors_it_was_not_given() {
    let env = TestEnv::with_project();
    let take = "import os; before = os.sched_getaffinity(0); os.sched_setaffinity(0, range(64)); \
                print(before <= os.sched_getaffinity(0))";
    let line = |options: &str| format!("{NO_GROUPS} exec \"$RUN\" --json {options} -- python3 -c \"{take}\"");
    let (free, _) = envelope(&env, &line(""));
    assert_eq!(free["result"]["stdout"], json!("True\n"), "{free}");
    for options in ["--cpus 1", "--cpus 1 --seccomp off"] {
        let (held, _) = envelope(&env, &line(options));
        assert_eq!(mechanism(&held, "cpus"), "affinity");
        let error = held["result"]["stderr"].as_str().unwrap();
        assert!(error.contains("Operation not permitted"), "{held}");
    }
}

#[test]
fn an_unenforceable_limit_is_refused_with_a_remedy() {
    let env = TestEnv::with_project();
    let line = "exec \"$RUN\" --json --cpus 0.5 --pids 50";
    let (refused, code) = envelope(&env, &format!("{NO_GROUPS} {line} -- true"));
    assert_eq!((code, &refused["error"]["code"]), (Some(121), &json!("limits.unenforceable")), "{refused}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("systemd-run --user --scope -p Delegate=yes"), "{hint}");
    assert_eq!(env.scratches(), [""; 0]);
    let (degraded, code) = envelope(&env, &format!("{NO_GROUPS} {line} --allow-degraded -- true"));
    assert_eq!((code, &degraded["enforcement"]["degraded"]), (Some(0), &json!(["limit.cpus"])), "{degraded}");
    assert_eq!(mechanism(&degraded, "pids"), "pid_max");
    // A request cannot give up a limit of the policy.
    env.policy("doubt = 'allow_with_checkpoint'\n[caps]\ncpus = 0.5\n");
    let (refused, code) =
        envelope(&env, &format!("{NO_GROUPS} exec \"$RUN\" --json --allow-degraded -- true"));
    assert_eq!((code, &refused["error"]["code"]), (Some(121), &json!("limits.unenforceable")), "{refused}");
}

#[test]
fn a_killed_runner_leaves_no_processes_and_its_cgroups_are_removed() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    let shared = Shared::new(&env);
    let limits = ["--pids", "50", "--memory", "300M"];
    let line = format!("sh -c ': > $S/ready; sleep infinity; :' {marker} & wait");
    let before = groups();
    let running = shared.wait_for_word(shared.start(&env, &limits, &line), "ready");
    let pid = running.child.id();
    let made = groups_of(pid, &before);
    running.signal(Signal::KILL);
    running.answer();
    wait_for("all processes are dead", || alive(&marker).is_empty());
    // A cgroup cannot be removed before it is empty.
    let is_empty = |dir: &PathBuf| std::fs::read(dir.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty());
    wait_for("the cgroups are empty", || {
        groups_of(pid, &before).iter().all(|dir| is_empty(dir) || !dir.exists())
    });
    let next = env.json(&limits, "true");
    assert_eq!(next["success"], json!(true), "{next}");
    assert_eq!(made.is_empty(), !mechanism(&next, "pids").starts_with("cgroup"), "{made:?}: {next}");
    assert_eq!(groups_of(pid, &before), [""; 0].map(PathBuf::from));
}

#[test]
fn a_policy_lowers_requested_limits() {
    let env = TestEnv::with_project();
    env.policy(
        "doubt = 'allow_with_checkpoint'\n[[rule]]\naction = 'allow_with_checkpoint'\n\
         [caps]\nfile_size = '100KB'\npids = 60\n",
    );
    let lowered = env.json(&["--file-size", "1M", "--pids", "50"], "ulimit -f; head -c 300000 /dev/zero > f");
    assert_stopped_by(&lowered, "file_size");
    assert_eq!(notes(&lowered), ["limit.capped"], "{lowered}");
    assert_eq!(lowered["request"]["file_size"], json!(1 << 20), "the envelope contains the original request");
    let unasked = env.json(&[], "true");
    assert_eq!(notes(&unasked), ["limit.capped", "limit.capped"], "{unasked}");
    let kept: Vec<&str> = ["pids", "file_size"].into_iter().map(|limit| mechanism(&unasked, limit)).collect();
    assert_eq!(kept.len(), 2);
    let checked = env.avfs_result(&["policy", "check", "--", "ls"]);
    let max = json!([{ "limit": "pids", "value": 60 }, { "limit": "file_size", "value": 100_000 }]);
    assert_eq!(checked["decision"]["limits_max"], max, "{checked}");
}

#[test]
fn limits_can_be_set_in_the_configuration() {
    let env = TestEnv::with_project();
    std::fs::write(env.at("config/avfs/avfs.toml"), "[run]\nfile_size = '4KiB'\npids = 70\n").unwrap();
    let set = env.json(&[], "ulimit -f");
    assert_eq!(set["result"]["stdout"], json!("8\n"), "{set}");
    let over = env.json(&["--file-size", "none"], "ulimit -f");
    assert_eq!(over["result"]["stdout"], json!("unlimited\n"), "{over}");
}

#[test]
fn many_directories_are_captured_with_few_open_files() {
    let env = TestEnv::with_project();
    let line = "for n in $(seq 150); do mkdir -p $n/s; echo f > $n/s/f; echo g > $n/g; done";
    let mut command = env.clean(std::path::Path::new("bash"));
    command.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""]).arg(crate::env::runner());
    command.args(["--json", "--fork", "f", "--shell", line]);
    let envelope = env.answer(&mut command).expect(0).envelope();
    assert_eq!(envelope["result"]["change_counts"]["total"], json!(600), "{envelope}");
    env.assert_sound();
}
