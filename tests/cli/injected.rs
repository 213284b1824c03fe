//! Every system call of an import, an apply, a gc and a run fails once. Either the result is complete, or there is a
//! clear error and nothing is lost.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use crate::env::{Answer, TestEnv, binary};
use crate::support::inject::{Call, calls, spread, traced};
use crate::support::is_long;

/// Calls of each command that fail in an ordinary run of the suite.
const USUAL: usize = 28;
/// Cases after which the whole vault is checked.
const CHECKED_EVERY: usize = 10;

/// Seconds after which a command counts as hung; longer than any command takes.
const HANGS_AFTER: &str = "120";
/// The exit code of a command that was killed because it hung.
const HUNG: i32 = -9;

/// A command to run with failing calls, its preparation, and the conditions that hold afterwards.
struct Subject<'a> {
    env: &'a TestEnv,
    words: &'a dyn Fn(usize) -> Vec<String>,
    /// Prepares the work of a case; it differs in each case.
    prepare: &'a dyn Fn(usize),
    /// Whether the result of the case exists and is complete.
    is_done: &'a dyn Fn(usize) -> bool,
    /// Checks that nothing that existed before is lost.
    check: &'a dyn Fn(usize),
}

impl Subject<'_> {
    fn command(&self, strace: Command, case: usize) -> Command {
        let mut command = strace;
        command.arg(binary()).args((self.words)(case));
        command
    }

    fn strace(&self) -> Command {
        let mut command = self.env.clean(Path::new("timeout"));
        command.args(["--signal=KILL", HANGS_AFTER, "strace"]);
        command
    }

    fn hold(&self) {
        let trace = self.env.at("trace");
        (self.prepare)(0);
        let whole = Answer::of(self.command(traced(self.strace(), &trace), 0));
        assert_eq!(whole.code, 0, "{whole:?}");
        assert!((self.is_done)(0), "{whole:?}");
        let all = calls(&trace);
        let chosen = if is_long() { all } else { spread(all, USUAL) };
        assert!(chosen.len() > 10, "{chosen:?}");
        for (number, call) in chosen.iter().enumerate() {
            self.fail(call, number + 1);
        }
        self.env.assert_sound();
        self.env.ok(&["audit", "verify"]);
    }

    fn fail(&self, call: &Call, case: usize) {
        (self.prepare)(case);
        let answer = Answer::of(self.command(call.strace(self.strace()), case));
        let context = || format!("{call:?}: {answer:?}");
        assert_ne!(answer.code, HUNG, "{}", context());
        assert!(answer.code >= 0 || call.may_end_the_runtime(), "{}", context());
        // Other crates panic if a call fails that the kernel never fails.
        let ours = ["panicked at src/", "panicked at runner/"];
        assert!(!ours.iter().any(|place| answer.stderr.contains(place)), "{}", context());
        if answer.code == 0 {
            assert!((self.is_done)(case), "it succeeded, but its result is missing: {}", context());
        } else {
            assert!(!answer.stderr.is_empty(), "it failed without a message: {}", context());
            // The same command succeeds without the failure: nothing is in its way.
            let again = Answer::of(self.env.avfs(&(self.words)(case)));
            assert!(again.code == 0 && (self.is_done)(case), "{}\nthen: {again:?}", context());
        }
        (self.check)(case);
        if case.is_multiple_of(CHECKED_EVERY) {
            self.env.assert_sound();
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn assert_kept(env: &TestEnv) {
    assert_eq!(env.ok(&["cat", "main", "README.md"]), "hello\n");
}

#[test]
fn import_with_a_failing_call_is_complete_or_an_error() {
    let env = TestEnv::with_project();
    let text = |case: usize| format!("case {case}\n");
    Subject {
        env: &env,
        words: &|_| words(&["import"]),
        prepare: &|case| {
            env.put("new/file", text(case).as_bytes());
            env.put("large", &crate::support::noise(case as u64, 1 << 20));
        },
        is_done: &|case| env.run(&["cat", "main", "new/file"]).stdout == text(case),
        check: &|_| assert_kept(&env),
    }
    .hold();
}

#[test]
fn a_directory_that_the_disk_cannot_list_is_not_reported_as_vanished() {
    let env = TestEnv::with_project();
    let mut strace = Call::new("getdents64", 1, "EIO").strace(env.clean(Path::new("strace")));
    let project = env.project();
    let answer = Answer::of(strace.arg("-P").arg(&project).arg(binary()).arg("import"));
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stderr.contains("Input/output error") && !answer.stderr.contains("vanished"),
        "{answer:?}"
    );
}

/// SQLite ignores that the lock of a read mark was not released, and then waits for itself.
#[test]
fn a_lock_of_a_reader_that_is_not_released_fails_at_most_one_transaction() {
    let env = TestEnv::with_project();
    let strace = || env.clean(Path::new("strace"));
    let import = |mut strace: Command| Answer::of(strace.arg(binary()).arg("import"));
    let trace = env.at("trace");
    env.put("file", b"traced\n");
    assert_eq!(import(traced(strace(), &trace)).code, 0);
    let text = std::fs::read_to_string(&trace).unwrap();
    let first = text.split(' ').next().unwrap();
    let calls = text.lines().filter(|line| line.starts_with(first) && line.contains(" fcntl("));
    let calls: Vec<&str> = calls.collect();
    // The last one: in a transaction, not while the vault is opened.
    let is_mark = |line: &str, kind: &str| line.contains(kind) && line.contains("l_start=124,");
    let marks = calls.windows(2).rposition(|pair| is_mark(pair[0], "F_WRLCK") && is_mark(pair[1], "F_UNLCK"));
    let number = marks.unwrap_or_else(|| panic!("no mark was set: {calls:#?}")) + 2;
    env.put("file", b"injected\n");
    let answer = import(Call::new("fcntl", number, "ENOLCK").strace(strace()));
    if answer.code != 0 {
        assert!(answer.stderr.starts_with("error: ") && answer.stderr.contains("lock"), "{answer:?}");
        env.ok(&["import"]);
    }
    assert_eq!(env.ok(&["cat", "main", "file"]), "injected\n");
    env.assert_sound();
}

#[test]
fn apply_with_a_failing_call_can_be_completed() {
    let env = TestEnv::with_project();
    env.put("one", b"old\n");
    env.put("two", b"old\n");
    let text = |case: usize| format!("case {case}\n");
    let there = |name: &str| std::fs::read_to_string(env.project().join(name)).unwrap();
    let prepare = |case: usize| {
        let fork = format!("fix-{case}");
        env.ok(&["import"]);
        env.ok(&["fork", "create", &fork]);
        for name in ["one", "two", "new/deep"] {
            env.ok(&["write", name, "--text", &text(case), "--fork", &fork]);
        }
    };
    Subject {
        env: &env,
        words: &|case| words(&["apply", &format!("fix-{case}")]),
        prepare: &prepare,
        is_done: &|case| ["one", "two", "new/deep"].iter().all(|name| there(name) == text(case)),
        check: &|_| assert_kept(&env),
    }
    .hold();
    // The removal of a staging directory may be the call that failed; the next apply removes what it left.
    let last = usize::MAX;
    prepare(last);
    env.ok(&["apply", &format!("fix-{last}")]);
    let left: Vec<_> = std::fs::read_dir(env.project().join(".avfs")).unwrap().flatten().collect();
    let staged = |entry: &&std::fs::DirEntry| entry.file_name().to_string_lossy().contains("export");
    assert_eq!(left.iter().filter(staged).count(), 0, "{left:?}");
}

#[test]
fn gc_with_a_failing_call_removes_nothing_in_use() {
    let env = TestEnv::with_project();
    Subject {
        env: &env,
        words: &|_| words(&["gc"]),
        prepare: &|case| {
            env.ok(&["fork", "create", "waste"]);
            let text = format!("waste {case}\n").repeat(1000);
            env.ok(&["write", "waste", "--text", &text, "--fork", "waste"]);
            env.ok(&["fork", "delete", "waste"]);
        },
        is_done: &|_| true,
        check: &|_| assert_kept(&env),
    }
    .hold();
}

#[test]
fn run_with_a_failing_call_is_complete_or_an_error() {
    let env = TestEnv::with_project();
    let text = |case: usize| format!("case {case}\n");
    Subject {
        env: &env,
        words: &|case| words(&["run", "--fork", "f", "--", "sh", "-c", &format!("echo case {case} > file")]),
        prepare: &|_| {},
        is_done: &|case| env.run(&["cat", "f", "file"]).stdout == text(case),
        check: &|_| assert_kept(&env),
    }
    .hold();
}

/// The numbers of the calls that release the lock of the writer (byte 120 of the `-shm` file), within their threads.
fn releases(trace: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(trace).unwrap();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut found = Vec::new();
    for (thread, call) in text.lines().filter_map(|line| line.split_once(' ')) {
        if call.trim_start().starts_with("fcntl(") {
            let count = counts.entry(thread).or_default();
            *count += 1;
            if call.contains("F_UNLCK") && call.contains("l_start=120") {
                found.push(*count);
            }
        }
    }
    found
}

/// SQLite does not notice that the lock stays held, and every later writer of the process would wait for it.
#[test]
fn write_lock_that_cannot_be_released_stops_no_writer() {
    let env = TestEnv::with_project();
    let trace = env.at("trace");
    let traced_gc = |options: &[&str]| {
        let mut strace = env.clean(Path::new("strace"));
        strace.args(["-f", "-qq", "-e", "trace=fcntl", "-o"]).arg(&trace).args(options);
        Answer::of(strace.arg(binary()).arg("gc"))
    };
    env.ok(&["gc"]);
    assert_eq!(traced_gc(&[]).code, 0);
    let mut hits = 0;
    for number in releases(&trace) {
        let answer = traced_gc(&["-e", &format!("inject=fcntl:error=ENOLCK:when={number}")]);
        assert_eq!(answer.code, 0, "{number}: {answer:?}");
        let text = std::fs::read_to_string(&trace).unwrap();
        hits += text.lines().filter(|line| line.contains("l_start=120") && line.contains("INJECTED")).count();
    }
    assert!(hits > 0, "no release failed");
    env.assert_sound();
}
