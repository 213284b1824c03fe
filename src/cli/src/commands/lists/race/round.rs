//! The attempts of a race while they run, and their results.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;

use avfs_lists::race::score_of;
use avfs_ops::OpError;
use avfs_present::{Avfs, error_body};
use avfs_request::{Retention, RunSpec};
use avfs_types::CommandLine;
use avfs_types::ids::BatchId;
use avfs_types::reference::Reference;
use avfs_vault::backend::VersionRecord;
use avfs_wire::{
    AttemptState, EndedObject, ErrorBody, ExecutionEnvelope, RaceAttempt, ResultObject, WorkItem,
    WorkItemOfBatch,
};

use super::RaceArgs;
use super::entries::from_version;
use super::error::RaceError;
use crate::context::CommandContext;
use crate::run_options::command_request;
use crate::signals::Asked;
use crate::worker_pool::{Done, LOOK_EVERY, Reply, WorkerError, WorkerPool, result_of};

/// The number of different hints and notes that are shown.
const ADVICE_MAX: usize = 20;

/// The task of a worker, for the attempt with this number.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    Attempt(usize),
    Score(usize),
}

pub struct Round<'a> {
    ctx: &'a CommandContext,
    args: &'a RaceArgs,
    base: &'a VersionRecord,
    /// Identifies the runs of all attempts, even of those that never answered.
    id: BatchId,
    requests: Vec<RunSpec>,
    waiting: VecDeque<Task>,
    under_way: usize,
    pub attempts: Vec<RaceAttempt>,
    /// The first attempt that succeeded, if that ends the race.
    pub first: Option<usize>,
    /// Hints and notes that were shown: attempts often have the same ones.
    advised: HashSet<String>,
}

impl<'a> Round<'a> {
    pub fn new(
        ctx: &'a CommandContext,
        args: &'a RaceArgs,
        base: &'a VersionRecord,
        id: BatchId,
        requests: Vec<RunSpec>,
    ) -> Self {
        let attempt = |(number, request): (u64, &RunSpec)| RaceAttempt {
            attempt: number,
            command: request.command.clone(),
            state: AttemptState::NotBegun,
            ended: EndedObject::default(),
            fork: None,
            version: None,
            score: None,
            error: None,
            notes: Vec::new(),
        };
        let attempts: Vec<RaceAttempt> = (1..).zip(&requests).map(attempt).collect();
        let waiting = (0..requests.len()).map(Task::Attempt).collect();
        Self {
            ctx,
            args,
            base,
            id,
            requests,
            waiting,
            under_way: 0,
            attempts,
            first: None,
            advised: HashSet::new(),
        }
    }

    /// Runs until all attempts have ended, or until one has won that ends the race.
    pub fn run(&mut self, pool: &mut WorkerPool<Task>, asked: &Asked) -> Result<(), OpError> {
        while self.first.is_none() && (self.under_way > 0 || !self.waiting.is_empty()) {
            while pool.idle() > 0
                && let Some(task) = self.waiting.pop_front()
            {
                self.give(pool, task);
            }
            if asked.times() > 0 {
                return Err(RaceError::Interrupted.into());
            }
            if let Some(Done { tag, came, .. }) = pool.next(LOOK_EVERY) {
                let came = came.and_then(Reply::answer);
                self.under_way -= 1;
                match tag {
                    Task::Attempt(number) => self.ended(number, came),
                    Task::Score(number) => self.scored(number, came),
                }
            }
        }
        Ok(())
    }

    /// Records that the fork of an attempt was deleted.
    pub fn forget(&mut self, fork: &str) {
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.fork.as_deref() == Some(fork)) {
            (attempt.fork, attempt.version) = (None, None);
        }
    }

    fn give(&mut self, pool: &mut WorkerPool<Task>, task: Task) {
        let base = Reference::from(self.base.id);
        let order = match task {
            Task::Attempt(number) => {
                let attempt = &mut self.attempts[number];
                // The state until the attempt ends: if it never does, it was stopped.
                attempt.state = AttemptState::Stopped;
                let request = std::mem::take(&mut self.requests[number]);
                let item = WorkItemOfBatch { batch: self.id.to_string(), number: attempt.attempt - 1 };
                let request = from_version(request, attempt.attempt, base, Retention::Review);
                WorkItem { request, item: Some(item), look: false, tail_bytes: None }
            }
            Task::Score(number) => {
                let attempt = &self.attempts[number];
                let line = self.args.score.as_ref().map(OsString::from).unwrap_or_default();
                let request = command_request(&CommandLine::Shell(line));
                let version = attempt.version.as_deref().and_then(|version| version.parse().ok());
                let version = version.unwrap_or(base);
                let request = from_version(request, attempt.attempt, version, Retention::Discard);
                WorkItem { request, item: None, look: false, tail_bytes: None }
            }
        };
        pool.give(task, order);
        self.under_way += 1;
    }

    fn ended(&mut self, number: usize, came: Result<ExecutionEnvelope, WorkerError>) {
        let (run_id, ran) = outcome_of(came, &self.ctx.ui.avfs);
        let attempt = &mut self.attempts[number];
        attempt.ended.run_id = run_id;
        let (how, hint) = match ran {
            Ok(ran) => {
                attempt.state = match (ran.timed_out, ran.exit_code) {
                    (false, Some(0)) => AttemptState::Succeeded,
                    (_, _) => AttemptState::Failed,
                };
                (attempt.fork, attempt.version) = (ran.fork.clone(), ran.version_after.clone());
                attempt.ended.exit_code = ran.exit_code.map(i32::from);
                attempt.ended.signal = ran.signal;
                attempt.ended.timed_out = ran.timed_out;
                attempt.ended.duration_ms = ran.duration_ms;
                attempt.notes = ran.notes_of_failure();
                let notes: Vec<String> =
                    attempt.notes.iter().map(|note| format!("note: {}", note.text)).collect();
                let how = format!("{:<9}  {:7.2} s", ran.ending(), ran.duration_ms / 1000.0);
                self.say(number, &how, Some(&ran));
                self.advise(notes);
                return self.succeeded(number);
            }
            Err(error) => {
                attempt.state = AttemptState::NotRun;
                let how = format!("not run: {}", error.message);
                let hint = error.hint.as_ref().map(|hint| format!("hint: {hint}"));
                attempt.error = Some(error);
                (how, hint)
            }
        };
        self.say(number, &how, None);
        self.advise(hint);
    }

    /// Shows each text once.
    fn advise(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            if self.advised.len() < ADVICE_MAX && !self.advised.contains(&text) {
                self.ctx.ui.note(format_args!("{text}"));
                self.advised.insert(text);
            }
        }
    }

    /// Handles an attempt that has ended, if it succeeded.
    fn succeeded(&mut self, number: usize) {
        if self.attempts[number].state != AttemptState::Succeeded {
            return;
        }
        if self.args.until_success {
            self.first = Some(number);
        }
        if self.args.score.is_some() {
            // Score it before starting other attempts, so that the leader is known sooner.
            self.waiting.push_front(Task::Score(number));
        }
    }

    fn scored(&mut self, number: usize, came: Result<ExecutionEnvelope, WorkerError>) {
        let (_, ran) = outcome_of(came, &self.ctx.ui.avfs);
        let output = ran.as_ref().ok().cloned();
        let scored = ran.and_then(|ran| score(&ran));
        let attempt = &mut self.attempts[number];
        let how = match scored {
            Ok(score) => {
                attempt.score = Some(score);
                format!("score {score}")
            }
            Err(error) => {
                attempt.state = AttemptState::Disqualified;
                let how = format!("disqualified: {}", error.message);
                attempt.error = Some(error);
                how
            }
        };
        self.say(number, &how, output.as_ref());
    }

    fn say(&self, number: usize, how: &str, ran: Option<&ResultObject>) {
        self.ctx.ui.note(format_args!("attempt {:<3}  {how}", number + 1));
        if let (true, Some(ran)) = (self.args.verbose, ran) {
            self.ctx.ui.note_output(ran);
        }
    }
}

/// The run, and how its command ended, or the error.
fn outcome_of(
    came: Result<ExecutionEnvelope, WorkerError>,
    avfs: &Avfs,
) -> (Option<String>, Result<ResultObject, ErrorBody>) {
    match came {
        Ok(answer) => (answer.run_id.clone(), result_of(answer)),
        Err(error) => (None, Err(error_body(&error, avfs))),
    }
}

fn score(ran: &ResultObject) -> Result<f64, ErrorBody> {
    let bad = |message: String| ErrorBody { code: "race.bad_score".to_owned(), message, hint: None };
    if ran.timed_out || ran.exit_code != Some(0) {
        return Err(bad(format!("the score command failed ({})", ran.ending())));
    }
    if ran.stdout_truncated {
        return Err(bad("the output of the score command is too long".to_owned()));
    }
    match &*ran.stdout_encoding {
        "utf-8" => score_of(&ran.stdout.to_string()).map_err(|error| error_body(&error, &Avfs::default())),
        _ => Err(bad("the output of the score command is not text".to_owned())),
    }
}
