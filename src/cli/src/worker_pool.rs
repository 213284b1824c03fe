//! A pool of workers: `avfs run --serve` processes that run one request at a time each.
//!
//! Each worker has a thread that starts it, sends requests and waits for answers. A worker that dies is
//! replaced when there is more to do. Workers die with this process.

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

use avfs_engine::{HalfCaptured, Note, RecoverError, ScratchDir, sweep};
use avfs_ops::{OpError, WorkplaceError};
use avfs_present::{Avfs, error_body, hint};
use avfs_types::diagnose::Diagnose;
use avfs_vault::Vault;
use avfs_wire::{ErrorBody, ExecutionEnvelope, Inspection, ResultObject, StateName, WorkItem};

use crate::context::{CommandContext, own_command};

/// The limit on workers: each needs a thread and two pipes.
pub const WORKERS_MAX: i64 = 256;
/// How long to wait for a worker before checking for other events.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The reply of a worker to a work item.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The answer to a request that was executed.
    Executed(Box<ExecutionEnvelope>),
    /// The reply to a work item that only looks up a cached result.
    Inspection(Inspection),
}

impl Reply {
    /// The answer to a request that was executed.
    pub fn answer(self) -> Result<ExecutionEnvelope, WorkerError> {
        match self {
            Self::Executed(answer) => Ok(*answer),
            Self::Inspection(_) => {
                Err(WorkerError::Garbled { problem: "the worker only looked it up".to_owned() })
            }
        }
    }
}

/// True if the failure concerns only this command: another command may succeed.
pub fn is_of_the_command(answer: &ExecutionEnvelope) -> bool {
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
    let code = answer.error_cause.as_ref().or(answer.error.as_ref().map(|fault| &fault.code));
    code.is_some_and(|code| AREAS.iter().any(|area| code.starts_with(area)))
}

/// How the command ended, or why it was not run.
pub fn result_of(answer: ExecutionEnvelope) -> Result<ResultObject, ErrorBody> {
    match (answer.state, answer.result, answer.error) {
        (StateName::Completed, Some(result), _) => Ok(result),
        (_, _, Some(fault)) => Err(fault),
        (state, _, None) => {
            let problem = format!("its state is {state:?}, but it has neither a result nor an error");
            Err(error_body(&WorkerError::Garbled { problem }, &Avfs::default()))
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
    #[error(
        "the worker process ended before it answered ({})",
        status.map_or_else(|| "exit status unknown".to_owned(), |status| status.to_string())
    )]
    Died { status: Option<ExitStatus> },
    #[error("the answer of the worker cannot be parsed: {problem}")]
    Garbled { problem: String },
}

impl WorkerError {
    /// True if another worker would also fail: this one did not start, exited on its own, or has another
    /// version.
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
    Self::Died { .. } => Some(format!("check the state of the run with: {avfs} runs list")),
    Self::Garbled { .. } => None,
});

/// A finished task.
pub struct Done<T> {
    pub tag: T,
    pub came: Result<Reply, WorkerError>,
    pub took: Duration,
}

/// The workers and their tasks. `T` identifies a task.
pub struct WorkerPool<T> {
    tasks: Option<Sender<(T, WorkItem)>>,
    done: Receiver<Done<T>>,
    /// The process of each worker.
    pids: Arc<Mutex<Vec<Option<Pid>>>>,
    /// Set when no new task may be started.
    killed: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    size: usize,
    busy: usize,
}

impl<T: Send + 'static> WorkerPool<T> {
    /// Creates a pool of up to `size` workers for a vault; a worker starts with its first task. `options` are
    /// options of avfs-run for all requests.
    pub fn hire(
        size: usize,
        avfs: &Avfs,
        vault: &Path,
        options: &[OsString],
    ) -> Result<Self, WorkplaceError> {
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
        let threads = threads.collect::<Result<_, _>>().map_err(WorkplaceError::Threads)?;
        Ok(Self { tasks: Some(tasks), done, threads, pids, killed, size, busy: 0 })
    }

    /// The number of tasks that could be started at once.
    pub fn idle(&self) -> usize {
        self.size - self.busy
    }

    pub fn give(&mut self, tag: T, order: WorkItem) {
        if let Some(tasks) = &self.tasks {
            // The receiver exists as long as the pool.
            if tasks.send((tag, order)).is_ok() {
                self.busy += 1;
            }
        }
    }

    /// The next finished task; `None` if the timeout expires or no worker is busy.
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

    /// Kills all workers and their commands at once and permanently; results of running commands are lost.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        for pid in pids.iter().flatten() {
            // A worker that has just ended does not need to be killed.
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

impl<T: Send + 'static> WorkerPool<T> {
    /// Ends all workers. Kills busy workers and sweeps their leftovers. Returns notes for the user about
    /// that.
    pub fn dismiss(self, ctx: &CommandContext, vault: &Vault) -> Result<Vec<Note>, OpError> {
        if self.busy > 0 {
            self.kill();
        }
        let killed = self.killed.load(Ordering::SeqCst);
        drop(self);
        if !killed {
            return Ok(Vec::new());
        }
        let scratch = ScratchDir::new(&ctx.client.surroundings.cache_dir()?);
        Ok(sweep::<RecoverError>(&scratch, vault, HalfCaptured::Leave)?)
    }
}

impl<T> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            // The thread has already reported its results.
            let _ = thread.join();
        }
    }
}

/// The state of the thread of one worker.
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
        // The fork comes from the caller, not from the environment; and ^C must only reach this process.
        command.env_remove("AVFS_FORK").process_group(0);
        let start = |source| WorkerError::Start { source };
        let mut child = command.spawn().map_err(start)?;
        self.note(Pid::from_raw(child.id().cast_signed()));
        // A concurrent `kill` may not have seen this worker yet.
        if self.killed.load(Ordering::SeqCst) {
            // It is reaped like a worker that died.
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
    /// Sends a work item and reads the answer; `None` if the worker died.
    fn follow(&mut self, order: &WorkItem) -> Option<Vec<u8>> {
        let mut line = serde_json::to_vec(order).ok()?;
        line.push(b'\n');
        self.orders.as_mut()?.write_all(&line).ok()?;
        let mut answer = Vec::new();
        self.answers.read_until(b'\n', &mut answer).ok()?;
        answer.ends_with(b"\n").then_some(answer)
    }

    /// Closes the input of the worker, and waits until it exits.
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
        // The owner of the pool may be gone by now.
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
            // A failure before the lookup counts as not found: running the command reports the reason.
            let reply = match order.look {
                true => serde_json::from_slice(&line).map(Reply::Inspection),
                false => serde_json::from_slice(&line).map(Reply::Executed),
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
