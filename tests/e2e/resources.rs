//! Commands that want more than they may have: what holds them, what is said about it, and what is left behind.
//!
//! Each has a control: without the limit the same command gets what it wants.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::env::{TestEnv, wait_for};
use crate::limits::{envelope, notes};
use crate::shared::{alive, marker};

/// A host whose control groups are out of reach.
const NO_GROUPS: &str = "mount -t tmpfs t /sys/fs/cgroup; ";

/// Fills so many MiB.
fn fill(mib: u32) -> String {
    format!("x = [bytearray(b'x' * (1 << 20)) for _ in range({mib})]; print('had it')")
}

#[track_caller]
fn python(env: &TestEnv, options: &[&str], script: &str) -> Value {
    let mut words = vec!["--json"];
    words.extend(options);
    words.extend(["--", "python3", "-c", script]);
    env.run(&words).envelope()
}

/// What kept a limit.
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

/// Control groups of runners that are alive or were killed.
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

fn groups_of(runner: u32) -> Vec<PathBuf> {
    let name = format!("avfs-{runner}-");
    let is_its = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&name);
    groups().into_iter().filter(is_its).collect()
}

#[test]
fn without_limits_nothing_is_set() {
    let env = TestEnv::with_project();
    let plain = env.json(&[], "ulimit -u; ulimit -f; ulimit -d");
    let set = env.json(&["--file-size", "4096", "--timeout", "60s"], "ulimit -f");
    assert_eq!(plain["enforcement"]["limits"], json!([]), "{plain}");
    assert_eq!(plain["result"]["stopped_by"], json!(null));
    assert!(plain["result"]["stdout"].as_str().unwrap().contains("unlimited"), "{plain}");
    assert_eq!(set["result"]["stdout"], json!("8\n"), "{set}");
    let expected = json!([{ "limit": "file_size", "value": 4096, "mechanism": "rlimit" }]);
    assert_eq!(set["enforcement"]["limits"], expected);
}

#[test]
fn a_memory_bomb_is_stopped_and_told() {
    let env = TestEnv::with_project();
    let control = python(&env, &[], &fill(300));
    assert_eq!(control["result"]["stdout"], json!("had it\n"), "{control}");
    let within = python(&env, &["--memory", "600M"], &fill(300));
    assert_eq!(within["result"]["stdout"], json!("had it\n"), "{within}");
    let script = fill(4000);
    let bomb = python(&env, &["--memory", "200M"], &script);
    assert_stopped_by(&bomb, "memory");
    assert_eq!(bomb["result"]["signal"], json!(9));
    let told = env.run(&["--memory", "200M", "--", "python3", "-c", &script]).expect(137);
    let line = "the command was stopped: it used more than 200.0 MiB of memory (--memory)";
    assert!(told.stderr.contains(line), "{told:?}");
    let listed = env.avfs_result(&["runs", "list"]);
    let id = listed["runs"][0]["id"].as_str().unwrap();
    assert_eq!(env.avfs_result(&["runs", "show", id])["result"]["stopped_by"], json!("memory"));
}

#[test]
fn the_memory_of_many_processes_is_one() {
    let env = TestEnv::with_project();
    let script = "import os, time
for _ in range(10):
    if os.fork() == 0:
        x = bytearray(b'x' * (40 << 20)); time.sleep(3); os._exit(0)
ended = [os.wait()[1] for _ in range(10)]
print('all lived' if not any(ended) else 'some died')";
    let control = python(&env, &[], script);
    assert_eq!(control["result"]["stdout"], json!("all lived\n"), "{control}");
    let bomb = python(&env, &["--memory", "200M"], script);
    match mechanism(&bomb, "memory") {
        // The kernel kills one after the other; who is left may go on.
        "cgroup1" | "cgroup2" => {
            assert_eq!(notes(&bomb), ["limit.reached"], "{bomb}");
            assert_eq!(bomb["result"]["stdout"], json!("some died\n"), "{bomb}");
        }
        _ => assert_stopped_by(&bomb, "memory"),
    }
}

#[test]
fn memory_is_watched_where_there_are_no_groups() {
    let env = TestEnv::with_project();
    let run = |script: &str| {
        let line = format!("{NO_GROUPS} exec \"$RUN\" --json --memory 200M -- python3 -c \"{script}\"");
        envelope(&env, &line).0
    };
    let bomb = run(&fill(4000));
    assert_eq!(mechanism(&bomb, "memory"), "watch");
    assert_stopped_by(&bomb, "memory");
    let shared = "import os, time
x = bytearray(120 << 20)
for at in range(0, len(x), 4096): x[at] = 1
for _ in range(6):
    if os.fork() == 0: time.sleep(1); os._exit(0)
for _ in range(6): os.wait()
print('fine')";
    // What processes share is not counted for each of them.
    assert_eq!(run(shared)["result"]["stdout"], json!("fine\n"));
    let nameless = "import os, time
f = os.memfd_create('x')
for _ in range(400): os.write(f, b'x' * (1 << 20))
time.sleep(20)";
    assert_stopped_by(&run(nameless), "memory");
}

#[test]
fn memory_is_watched_after_the_first_thread_has_exited() {
    let env = TestEnv::with_project();
    let run = |options: &str, take: &str| {
        let script = format!(
            "import ctypes, os, platform, threading, time
def more():
    time.sleep(0.3)
    {take}
    time.sleep(2); print('had it', flush=True); os._exit(0)
threading.Thread(target=more).start()
ctypes.CDLL(None).syscall(dict(x86_64=60, aarch64=93)[platform.machine()], 0)"
        );
        envelope(&env, &format!("{NO_GROUPS} exec \"$RUN\" --json {options} -- python3 -c \"{script}\"")).0
    };
    let pages = "x = [bytearray(b'x' * (1 << 20)) for _ in range(400)]";
    let nameless = "f = os.memfd_create('x'); [os.write(f, b'x' * (1 << 20)) for _ in range(400)]";
    for take in [pages, nameless] {
        let control = run("", take);
        assert_eq!(control["result"]["stdout"], json!("had it\n"), "{control}");
        let bomb = run("--memory 200M", take);
        assert_eq!(mechanism(&bomb, "memory"), "watch");
        assert_stopped_by(&bomb, "memory");
    }
}

const FORKS: &str = "import os, time
made = 0
try:
    while made < 700:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        made += 1
except OSError as error: pass
print(made)";

fn forked(envelope: &Value) -> u64 {
    envelope["result"]["stdout"].as_str().unwrap().trim().parse().unwrap_or_else(|_| panic!("{envelope}"))
}

#[test]
fn a_fork_bomb_comes_to_its_end() {
    let env = TestEnv::with_project();
    assert_eq!(forked(&python(&env, &[], FORKS)), 700);
    let bomb = python(&env, &["--pids", "40"], FORKS);
    // The command itself is one of them.
    assert_eq!(forked(&bomb), 39, "{bomb}");
    if mechanism(&bomb, "pids").starts_with("cgroup") {
        assert_eq!(notes(&bomb), ["limit.reached"], "{bomb}");
    }
    let script = format!("{NO_GROUPS} exec \"$RUN\" --json --pids 40 -- python3 -c \"{FORKS}\"");
    let (alone, _) = envelope(&env, &script);
    // In this namespace the caller is root, whom only the numbers themselves bound.
    assert_eq!(mechanism(&alone, "pids"), "pid_max");
    assert!((39..=340).contains(&forked(&alone)), "{alone}");
}

#[test]
fn what_is_written_is_bounded_in_memory_and_on_disk() {
    let env = TestEnv::with_project();
    let write = "head -c 30M /dev/zero > big; echo $?; sleep 3; wc -c < big";
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

#[test]
fn what_is_hidden_from_a_walk_counts_too() {
    let env = TestEnv::with_project();
    let options = ["--disk", "20M", "--scratch", "disk"];
    let nameless = "import os, time
f = os.open('x', os.O_CREAT | os.O_RDWR)
os.unlink('x')
for _ in range(60): os.write(f, b'x' * (1 << 20))
time.sleep(20)";
    assert_stopped_by(&python(&env, &options, nameless), "disk");
    let closed = "import os, time
for n in range(12):
    os.mkdir(f'd{n}')
    open(f'd{n}/f', 'wb').write(b'x' * (5 << 20))
    os.chmod(f'd{n}', 0)
time.sleep(20)";
    assert_stopped_by(&python(&env, &options, closed), "disk");
    env.assert_sound();
}

/// A file system in memory of size 0 has no limit.
#[test]
fn a_limit_of_nothing_is_refused() {
    let env = TestEnv::with_project();
    for option in ["--disk", "--files", "--memory", "--pids", "--file-size"] {
        let refused = env.shell(&[option, "0", "--scratch", "memory"], "echo ran").expect(125);
        assert!(refused.stderr.contains("leaves nothing"), "{option}: {refused:?}");
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
    let disk = env.json(&["--files", "100", "--scratch", "disk"], &format!("{}; sleep 20", make(500)));
    assert_stopped_by(&disk, "files");
    let deep = "import os, time
for _ in range(3000): os.mkdir('d'); os.chdir('d')
time.sleep(20)";
    assert_stopped_by(&python(&env, &["--files", "2000", "--scratch", "disk"], deep), "files");
    env.assert_sound();
}

#[test]
fn files_are_counted_in_each_file_system_in_memory() {
    let env = TestEnv::with_project();
    let make = |dir: &str| {
        format!(
            "import os
made = 0
try:
    while made < 700: os.close(os.open(f'{dir}/{{made}}', os.O_CREAT | os.O_WRONLY)); made += 1
except OSError as error: pass
print(made)"
        )
    };
    let shown = env.at("shown");
    std::fs::create_dir(&shown).unwrap();
    let shown = shown.to_str().unwrap();
    for dir in ["/tmp", "/var/tmp", "/dev/shm"] {
        let control = python(&env, &[], &make(dir));
        assert_eq!(control["result"]["stdout"], json!("700\n"), "{control}");
        for options in [&["--files", "100"][..], &["--files", "100", "--ro", shown]] {
            let bounded = python(&env, options, &make(dir));
            assert_eq!(bounded["result"]["stdout"], json!("100\n"), "{dir}: {bounded}");
        }
    }
}

#[test]
fn one_file_is_bounded() {
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
    // Pipes are no files, and what ignores the signal gets an error.
    assert_eq!(env.ok(&limit, "head -c 300000 /dev/zero | wc -c"), "300000\n");
    // A larger file of the workspace would have to be copied first.
    assert_stopped_by(&env.json(&limit, "chmod 700 large"), "file_size");
    assert_eq!(env.ok(&limit, "wc -c < large; chmod 700 README.md"), "300000\n");
}

#[test]
fn the_size_of_a_file_does_not_hold_for_what_the_sandbox_makes() {
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
fn processors_are_shared_out() {
    let env = TestEnv::with_project();
    let running =
        env.start(&["--json", "--cpus", "1", "--shell", "grep Cpus_allowed_list /proc/self/status; sleep 2"]);
    let pid = running.child.id();
    let quotas = || -> Vec<String> {
        let files =
            groups_of(pid).into_iter().flat_map(|dir| [dir.join("cpu.cfs_quota_us"), dir.join("cpu.max")]);
        files.filter_map(|file| std::fs::read_to_string(file).ok()).collect()
    };
    // Groups are made before the command starts, where they are made at all.
    let mut seen = Vec::new();
    let give_up_at = Instant::now() + Duration::from_millis(1500);
    while seen.is_empty() && Instant::now() < give_up_at {
        std::thread::sleep(Duration::from_millis(10));
        seen = quotas();
    }
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
    assert_eq!(groups_of(pid), [""; 0].map(PathBuf::from), "a group is left behind");
}

#[test]
fn processors_that_were_not_given_cannot_be_taken() {
    let env = TestEnv::with_project();
    let take = "import os; before = os.sched_getaffinity(0); os.sched_setaffinity(0, range(64)); \
                print(before == os.sched_getaffinity(0))";
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
fn what_cannot_be_kept_is_refused_with_its_remedy() {
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
    // A limit of the policy's is not the request's to give up.
    env.policy("doubt = 'allow_with_checkpoint'\n[caps]\ncpus = 0.5\n");
    let (refused, code) =
        envelope(&env, &format!("{NO_GROUPS} exec \"$RUN\" --json --allow-degraded -- true"));
    assert_eq!((code, &refused["error"]["code"]), (Some(121), &json!("limits.unenforceable")), "{refused}");
}

#[test]
fn a_killed_runner_leaves_nobody_and_its_groups_are_swept() {
    let env = TestEnv::with_project();
    let marker = marker(&env);
    let line = format!(": {marker}; sleep 600 & sleep 600");
    let running = env.start(&["--pids", "50", "--memory", "300M", "--shell", &line]);
    let pid = running.child.id();
    wait_for("it runs", || !alive(&marker).is_empty());
    running.signal(Signal::KILL);
    running.answer();
    wait_for("everybody is dead", || alive(&marker).is_empty());
    let next = env.json(&["--pids", "50", "--memory", "300M"], "true");
    assert_eq!(next["success"], json!(true), "{next}");
    assert_eq!(groups_of(pid), [""; 0].map(PathBuf::from));
}

#[test]
fn a_policy_lowers_what_is_asked_for() {
    let env = TestEnv::with_project();
    env.policy(
        "doubt = 'allow_with_checkpoint'\n[[rule]]\naction = 'allow_with_checkpoint'\n\
         [caps]\nfile_size = '100KB'\npids = 60\n",
    );
    let lowered = env.json(&["--file-size", "1M", "--pids", "50"], "ulimit -f; head -c 300000 /dev/zero > f");
    assert_stopped_by(&lowered, "file_size");
    assert_eq!(notes(&lowered), ["limit.capped"], "{lowered}");
    assert_eq!(lowered["request"]["file_size"], json!(1 << 20), "the request is told as it came");
    let unasked = env.json(&[], "true");
    assert_eq!(notes(&unasked), ["limit.capped", "limit.capped"], "{unasked}");
    let kept: Vec<&str> = ["pids", "file_size"].into_iter().map(|limit| mechanism(&unasked, limit)).collect();
    assert_eq!(kept.len(), 2);
    let checked = env.avfs_result(&["policy", "check", "--", "ls"]);
    let max = json!([{ "limit": "pids", "value": 60 }, { "limit": "file_size", "value": 100_000 }]);
    assert_eq!(checked["decision"]["limits_max"], max, "{checked}");
}

#[test]
fn settings_ask_for_limits_too() {
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
    let line = "for n in $(seq 300); do mkdir -p $n/s; echo f > $n/s/f; echo g > $n/g; done";
    let mut command = env.clean(std::path::Path::new("bash"));
    command.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""]).arg(crate::env::runner());
    command.args(["--json", "--fork", "f", "--shell", line]);
    let envelope = env.answer(&mut command).expect(0).envelope();
    assert_eq!(envelope["result"]["change_counts"]["total"], json!(1200), "{envelope}");
    env.assert_sound();
}
