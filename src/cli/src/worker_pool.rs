//! Workers: `avfs run --serve` processes that take one request after the other, several at once.
//!
//! Each has a thread that starts it, feeds it and waits for its answers; a worker that dies is replaced when there is
//! more to do. Workers die with this process.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use avfs_engine::{HalfCaptured, Note, RecoverError, ScratchDir, sweep};
use avfs_present::{Avfs, error_body, hint};
use avfs_types::diagnose::Diagnose;
use avfs_vault::Vault;
use avfs_wire::{ErrorBody, Inspection, WorkItem};

use crate::context::{CommandContext, own_command};
use crate::error::EdgeError;
use crate::ui::Failure;

/// Each has a thread and two pipes here.
pub const WORKERS_MAX: i64 = 256;
/// How long to wait for a worker before something else is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a worker says to an order.
#[derive(Clone, Debug)]
pub enum Reply {
    Came(Box<Answer>),
    /// To an order that only looks.
    Inspection(Inspection),
}

impl Reply {
    /// What came of a request that was to be followed.
    pub fn answer(self) -> Result<Answer, WorkerError> {
        match self {
            Self::Came(answer) => Ok(*answer),
            Self::Inspection(_) => Err(WorkerError::Garbled { problem: "it was only looked for".to_owned() }),
        }
    }
}

/// What came of a request, as far as anybody here looks at it.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// `completed`, `denied`, `approval_required` or `failed`.
    pub state: String,
    pub run_id: Option<String>,
    pub success: bool,
    pub result: Option<Ran>,
    pub error: Option<ErrorBody>,
    /// The code of what the error came from.
    #[serde(default)]
    pub error_cause: Option<String>,
}

/// A command that ran.
#[derive(Clone, Debug, Deserialize)]
pub struct Ran {
    pub fork: Option<String>,
    pub version_before: Option<String>,
    pub version_after: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub duration_ms: f64,
    pub stdout: String,
    pub stderr: String,
    pub stdout_encoding: String,
    pub stderr_encoding: String,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    /// Nothing where it is not known.
    pub stdout_digest: Option<String>,
    pub stderr_digest: Option<String>,
    /// A remembered result was taken.
    #[serde(default)]
    pub cached: bool,
}

impl Ran {
    /// `exit 0`, `signal 9`, `timed out`.
    pub fn how(&self) -> String {
        match (self.timed_out, self.exit_code, self.signal) {
            (true, _, _) => "timed out".to_owned(),
            (false, _, Some(signal)) => format!("signal {signal}"),
            (false, Some(code), None) => format!("exit {code}"),
            (false, None, None) => "ended".to_owned(),
        }
    }
}

impl Answer {
    /// True if what failed is about this one command: another may fare better.
    pub fn is_of_the_command(&self) -> bool {
        const AREAS: [&str; 9] = [
            "command.",
            "request.",
            "policy.denied",
            "policy.no_terminal",
            "approval.",
            "ref.",
            "secret.",
            "cache.",
            "limits.unenforceable",
        ];
        let code = self.error_cause.as_ref().or(self.error.as_ref().map(|fault| &fault.code));
        code.is_some_and(|code| AREAS.iter().any(|area| code.starts_with(area)))
    }
}

impl Answer {
    /// The command and how it ended, or why it was not run.
    pub fn ran(self) -> Result<Ran, ErrorBody> {
        match (self.state.as_str(), self.result, self.error) {
            ("completed", Some(ran), _) => Ok(ran),
            (_, _, Some(fault)) => Err(fault),
            (state, _, None) => {
                let problem = format!("it has the state {state}, but neither a result nor an error");
                Err(error_body(&WorkerError::Garbled { problem }, &Avfs::default()))
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("cannot start a worker")]
    Start {
        #[source]
        source: std::io::Error,
    },
    #[error("the process that ran it ended before it had answered ({})", status.map_or_else(|| "its status is unknown".to_owned(), |status| status.to_string()))]
    Died { status: Option<ExitStatus> },
    #[error("the answer to it cannot be read: {problem}")]
    Garbled { problem: String },
}

impl WorkerError {
    /// True if another worker would do no better: it did not start, gave up by itself, or is of another version.
    pub fn is_for_all(&self) -> bool {
        match self {
            Self::Start { .. } | Self::Garbled { .. } => true,
            Self::Died { status } => status.is_some_and(|status| status.code().is_some()),
        }
    }
}

impl Diagnose for WorkerError {
    fn code(&self) -> &'static str {
        match self {
            Self::Start { .. } => "worker.start",
            Self::Died { .. } => "worker.died",
            Self::Garbled { .. } => "worker.garbled",
        }
    }
}

hint!(WorkerError, |error, avfs| match error {
    Self::Start { .. } => Some("check the limits on processes and open files (ulimit -a)".to_owned()),
    Self::Died { .. } => Some(format!("see what became of it with: {avfs} runs list")),
    Self::Garbled { .. } => None,
});

/// A task that is over.
pub struct Done<T> {
    pub tag: T,
    pub came: Result<Reply, WorkerError>,
    pub took: Duration,
}

/// Workers, and what they are at. `T` tells the tasks apart.
pub struct WorkerPool<T> {
    tasks: Option<Sender<(T, WorkItem)>>,
    done: Receiver<Done<T>>,
    /// The process of each worker.
    pids: Arc<Mutex<Vec<Option<Pid>>>>,
    /// Nobody is to begin anything any more.
    killed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    size: usize,
    busy: usize,
}

impl<T: Send + 'static> WorkerPool<T> {
    /// Up to `size` workers on a vault, started when there is something to do. `options` are avfs-run's, for all requests.
    pub fn hire(size: usize, avfs: &Avfs, vault: &Path, options: &[OsString]) -> Result<Self, EdgeError> {
        let (tasks, given) = channel();
        let (report, done) = channel();
        let given = Arc::new(Mutex::new(given));
        let pids = Arc::new(Mutex::new(vec![None; size]));
        let killed = Arc::new(AtomicBool::new(false));
        let mut words: Vec<OsString> = vec!["--serve".into(), "--vault".into(), vault.into()];
        if let Some(typed) = &avfs.vault {
            words.extend(["--vault-typed".into(), typed.clone()]);
        }
        words.extend_from_slice(options);
        let threads = (0..size).map(|number| {
            let (given, report) = (Arc::clone(&given), report.clone());
            let (pids, killed) = (Arc::clone(&pids), Arc::clone(&killed));
            let desk = Desk { number, pids, killed, words: words.clone() };
            std::thread::Builder::new().spawn(move || work(&given, &report, &desk))
        });
        let threads = threads.collect::<Result<_, _>>().map_err(EdgeError::Threads)?;
        Ok(Self { tasks: Some(tasks), done, threads, pids, killed, size, busy: 0 })
    }

    /// How many tasks could be begun at once.
    pub fn idle(&self) -> usize {
        self.size - self.busy
    }

    pub fn give(&mut self, tag: T, order: WorkItem) {
        if let Some(tasks) = &self.tasks {
            // The other side is there as long as the pool is.
            if tasks.send((tag, order)).is_ok() {
                self.busy += 1;
            }
        }
    }

    /// The next task that is over; nothing if that takes longer, or nobody is at work.
    pub fn next(&mut self, patience: Duration) -> Option<Done<T>> {
        if self.busy == 0 {
            return None;
        }
        match self.done.recv_timeout(patience) {
            Ok(done) => {
                self.busy -= 1;
                Some(done)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Ends every worker and everything it runs, at once and for good: what they were at is not kept.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        for pid in pids.iter().flatten() {
            // One that has just ended needs no killing.
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

impl<T: Send + 'static> WorkerPool<T> {
    /// Sends everybody home. Who is still at something is killed, and what that leaves is cleared away.
    /// What somebody should know of that.
    pub fn dismiss(self, ctx: &CommandContext, vault: &Vault) -> Result<Vec<Note>, Failure> {
        if self.busy > 0 {
            self.kill();
        }
        let killed = self.killed.load(Ordering::SeqCst);
        drop(self);
        if !killed {
            return Ok(Vec::new());
        }
        let scratch = ScratchDir::new(&ctx.around.cache_dir()?);
        Ok(sweep::<RecoverError>(&scratch, vault, HalfCaptured::Leave)?)
    }
}

impl<T> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            // What a thread had to say was in its reports.
            let _ = thread.join();
        }
    }
}

/// Where one worker's thread works.
struct Desk {
    number: usize,
    pids: Arc<Mutex<Vec<Option<Pid>>>>,
    killed: Arc<AtomicBool>,
    words: Vec<OsString>,
}

impl Desk {
    fn note(&self, pid: Option<Pid>) {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = pids.get_mut(self.number) {
            *place = pid;
        }
    }

    fn start(&self) -> Result<Worker, WorkerError> {
        let mut command = own_command("run");
        command.args(&self.words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // What the items stand on is the caller's to say; and ^C is for this process to understand.
        command.env_remove("AVFS_FORK").process_group(0);
        let start = |source| WorkerError::Start { source };
        let mut child = command.spawn().map_err(start)?;
        self.note(Pid::from_raw(child.id().cast_signed()));
        // Whoever killed the others did not know of this one yet.
        if self.killed.load(Ordering::SeqCst) {
            // It is waited for as one that died.
            let _ = child.kill();
        }
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let missing = || start(std::io::ErrorKind::BrokenPipe.into());
        let orders = orders.ok_or_else(missing)?;
        let answers = BufReader::new(answers.ok_or_else(missing)?);
        Ok(Worker { child, orders: Some(orders), answers })
    }
}

struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// One order and its answer; nothing if the worker died over it.
    fn follow(&mut self, order: &WorkItem) -> Option<Vec<u8>> {
        let mut line = serde_json::to_vec(order).ok()?;
        line.push(b'\n');
        self.orders.as_mut()?.write_all(&line).ok()?;
        let mut answer = Vec::new();
        self.answers.read_until(b'\n', &mut answer).ok()?;
        answer.ends_with(b"\n").then_some(answer)
    }

    /// Lets it go, and waits until it has.
    fn end(mut self) -> Option<ExitStatus> {
        self.orders = None;
        self.child.wait().ok()
    }
}

fn work<T>(given: &Mutex<Receiver<(T, WorkItem)>>, report: &Sender<Done<T>>, desk: &Desk) {
    let mut worker: Option<Worker> = None;
    loop {
        let task = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((tag, order)) = task else { break };
        let begun = Instant::now();
        let came = follow(&mut worker, &order, desk);
        // Whoever gave the task may have gone since.
        let _ = report.send(Done { tag, came, took: begun.elapsed() });
    }
    if let Some(worker) = worker {
        worker.end();
        desk.note(None);
    }
}

fn follow(worker: &mut Option<Worker>, order: &WorkItem, desk: &Desk) -> Result<Reply, WorkerError> {
    let mut at_work = match worker.take() {
        Some(at_work) => at_work,
        None if desk.killed.load(Ordering::SeqCst) => return Err(WorkerError::Died { status: None }),
        None => desk.start()?,
    };
    match at_work.follow(order) {
        Some(line) => {
            *worker = Some(at_work);
            // What failed before it could be looked for is not found either: running it tells why.
            let reply = match order.look {
                true => serde_json::from_slice(&line).map(Reply::Inspection),
                false => serde_json::from_slice(&line).map(Reply::Came),
            };
            reply.map_err(|error| WorkerError::Garbled { problem: error.to_string() })
        }
        None => {
            let status = at_work.end();
            desk.note(None);
            Err(WorkerError::Died { status })
        }
    }
}
