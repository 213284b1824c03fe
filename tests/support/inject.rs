//! Makes single system calls of a program fail: `strace -e inject`.
//!
//! A call is identified by its name and its number within a thread, so one failure may hit several threads at once.
//! Calls of the loader and the runtime before `main` are left out: avfs cannot handle their failure.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Calls that do not return, or that never fail: brk returns the old end instead.
const NEVER: [&str; 16] = [
    "exit",
    "exit_group",
    "rt_sigreturn",
    "restart_syscall",
    "execve",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getpid",
    "getppid",
    "gettid",
    "umask",
    "sched_yield",
    "uname",
    "brk",
];
/// Calls that take effect even if they report an error, while strace omits them: the kernel always closes the
/// descriptor and never loses a wake-up of a futex. Without them, readers of a pipe and threads wait forever.
const ALWAYS_DONE: [&str; 2] = ["close", "futex"];
/// Calls whose failure makes Rust's runtime abort the program with a message.
const OF_RUNTIME: [&str; 7] = ["mmap", "mprotect", "munmap", "mremap", "madvise", "sigaltstack", "getrandom"];
/// The last call of the runtime before `main`.
const RUNTIME_ENDS: &str = "sigaltstack";

/// One call that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// Counted from one.
    pub number: usize,
    pub errno: &'static str,
}

impl Call {
    pub fn new(name: &str, number: usize, errno: &'static str) -> Self {
        Self { name: name.to_owned(), number, errno }
    }

    /// Whether the program may end without a message of avfs.
    pub fn may_end_the_runtime(&self) -> bool {
        OF_RUNTIME.contains(&self.name.as_str())
    }

    /// An strace command that fails this call in the program that the caller appends.
    pub fn strace(&self, mut strace: Command) -> Command {
        let Self { name, number, errno } = self;
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={name}")]);
        strace.args(["-e", &format!("inject={name}:error={errno}:when={number}")]);
        strace
    }
}

/// An strace command that writes every call of a program to a file.
pub fn traced(mut strace: Command, trace: &Path) -> Command {
    strace.args(["-f", "-qq", "-o"]).arg(trace);
    strace
}

/// Every call in a trace that can fail, ordered by name.
pub fn calls(trace: &Path) -> Vec<Call> {
    let text = String::from_utf8_lossy(&std::fs::read(trace).unwrap()).into_owned();
    let mut threads: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut before_main: BTreeMap<&str, usize> = BTreeMap::new();
    let mut main_began = false;
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((name, _)) = rest.trim_start().split_once('(') else { continue };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        *threads.entry(thread).or_default().entry(name).or_default() += 1;
        if !main_began {
            *before_main.entry(name).or_default() += 1;
            main_began = name == RUNTIME_ENDS;
        }
    }
    assert!(main_began, "the program does not call {RUNTIME_ENDS}: {text}");
    let mut most: BTreeMap<&str, usize> = BTreeMap::new();
    for counts in threads.values() {
        for (name, count) in counts {
            let known = most.entry(name).or_default();
            *known = (*known).max(*count);
        }
    }
    let can_fail = most.into_iter().filter(|(name, _)| !NEVER.contains(name) && !ALWAYS_DONE.contains(name));
    can_fail
        .flat_map(|(name, count)| {
            let first = before_main.get(name).copied().unwrap_or(0) + 1;
            (first..=count).map(move |number| Call::new(name, number, errno_of(name)))
        })
        .collect()
}

/// The error with which a call of this name can fail.
fn errno_of(name: &str) -> &'static str {
    match name {
        "mmap" | "mprotect" | "mremap" | "madvise" | "munmap" => "ENOMEM",
        "clone" | "clone3" | "fork" | "vfork" => "EAGAIN",
        "flock" | "fcntl" => "ENOLCK",
        "wait4" | "waitid" => "ECHILD",
        "write" | "pwrite64" | "writev" | "ftruncate" | "mkdir" | "mkdirat" => "ENOSPC",
        _ => "EIO",
    }
}

/// The first call of each name, and others evenly distributed, at most `most`.
pub fn spread(calls: Vec<Call>, most: usize) -> Vec<Call> {
    let mut chosen: Vec<Call> = Vec::new();
    for call in &calls {
        if chosen.last().is_none_or(|last| last.name != call.name) {
            chosen.push(call.clone());
        }
    }
    let step = (calls.len() / most.max(1)).max(1);
    chosen.extend(calls.into_iter().skip(step / 2).step_by(step));
    chosen.sort_by(|a, b| (&a.name, a.number).cmp(&(&b.name, b.number)));
    chosen.dedup();
    let excess = chosen.len().div_ceil(most.max(1)).max(1);
    chosen.into_iter().step_by(excess).collect()
}
