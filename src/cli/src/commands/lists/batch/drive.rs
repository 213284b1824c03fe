//! Runs a batch: gives ready items to the workers and takes their results, until nothing is left to do.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use avfs_lists::batch::{Begins, Manner, Schedule, Standing};
use avfs_ops::OpError;
use avfs_present::Hint;
use avfs_request::{CacheMode, Retention};
use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, VersionId, from_hex};
use avfs_types::reference::Reference;
use avfs_vault::backend::Life;
use avfs_vault::{Vault, VaultError};
use avfs_wire::{
    Batch, BatchCounts, BatchItemResult, ExecutionEnvelope, ItemState, ListItem, StateName, WorkItem,
    WorkItemOfBatch,
};

use super::BatchArgs;
use super::before::{finish_captures, landed, succeeded};
use super::chain::Chain;
use super::plan::Plan;
use super::report::{Reports, write_reports};
use super::results::{Results, TAIL_BYTES};
use crate::context::CommandContext;
use crate::lists;
use crate::lists::{Beginning, Items, Work, beginning, shown_command};
use crate::signals::Asked;
use crate::worker_pool::{Done, Reply, WorkerError, is_of_the_command};

/// The maximum number of items that are acknowledged after one sync.
const TOGETHER_MAX: usize = 16;
/// The maximum time that an ended item waits for others to share its sync.
const TOGETHER_WAIT: Duration = Duration::from_millis(500);
/// The maximum number of unsuccessful items in the answer.
const UNSUCCESSFUL_MAX: usize = 100;

pub struct Ended {
    pub answer: Batch,
    pub interrupted: bool,
    /// When the first of the items' forks expires; `None` without such a fork.
    pub kept_until: Option<Timestamp>,
}

struct Drive<'a> {
    ctx: &'a CommandContext,
    vault: &'a Vault,
    plan: &'a Plan,
    work: Work,
    /// The result of each item.
    versions: Vec<Option<VersionId>>,
    chain: Option<Chain<'a>>,
    /// Items that were run before and did not succeed.
    tried: HashSet<u32>,
    /// The number of failed runs of an item.
    attempts: HashMap<u32, u32>,
    results: Results,
    counts: BatchCounts,
    unsuccessful: Vec<BatchItemResult>,
    /// Ended items that are not acknowledged yet: several items share one sync.
    landed: Vec<BatchItemResult>,
    /// When the first of them that made a version ended.
    unsynced: Option<Instant>,
    retry: u32,
    discard: bool,
    cache: Option<CacheMode>,
    resumed: u64,
    kept_until: Option<Timestamp>,
}

pub fn drive(
    ctx: &CommandContext,
    args: &BatchArgs,
    vault: &Vault,
    plan: &Plan,
    reports: &Reports,
) -> Result<Ended, OpError> {
    let begun = Instant::now();
    let signals = Asked::watch()?;
    let jobs = match plan.manner {
        Manner::Chain => 1,
        Manner::FanOut | Manner::Needs => lists::jobs(args.jobs),
    };
    let needs = |item: u32| plan.list.needs(item as usize);
    let schedule = Schedule::new(plan.items(), plan.manner, plan.on_failure, needs);
    let mut drive = Drive {
        ctx,
        vault,
        plan,
        work: Work::new(&ctx.ui, vault, schedule, plan.list.len(), jobs, args.options.words())?,
        versions: vec![None; plan.list.len()],
        chain: plan.fork.as_ref().map(|fork| Chain::new(ctx, vault, plan, fork)),
        tried: HashSet::new(),
        attempts: HashMap::new(),
        results: Results::open(args.results.as_deref(), plan)?,
        counts: BatchCounts::default(),
        unsuccessful: Vec::new(),
        landed: Vec::new(),
        unsynced: None,
        retry: args.retry,
        discard: args.discard,
        cache: args.cache,
        resumed: 0,
        kept_until: None,
    };
    drive.take_finished_items()?;
    drive.prepare_chain()?;
    let interrupted = lists::run(&mut drive, &signals)?;
    drive.report_the_rest()?;
    drive.finish(reports, begun.elapsed(), interrupted)
}

impl Drive<'_> {
    /// Takes over items that succeeded before; they are not run again.
    fn take_finished_items(&mut self) -> Result<(), OpError> {
        let (plan, vault) = (self.plan, self.vault);
        if plan.resumed {
            finish_captures(self.ctx, vault, &plan.record.id, |_| true)?;
            let mut newest = 0;
            // A killed process may not have synced its last commits.
            vault.flush()?;
            plan.done(vault, |item, run| {
                if !succeeded(run) {
                    self.tried.insert(item);
                    return Ok(());
                }
                if let (Some(chain), true) = (&mut self.chain, run.seq > newest) {
                    newest = run.seq;
                    chain.goes_on_from(run.version_after.or(run.version_before));
                }
                let version = run.version_after.or(run.version_before);
                if self.work.schedule.standing(item) == Standing::Succeeded
                    || self.is_missed(item, version)?
                {
                    return Ok(());
                }
                self.work.schedule.is_done(item);
                if let Some(place) = self.versions.get_mut(item as usize) {
                    *place = version;
                }
                let result = self.results.of_before(plan, item, run)?;
                self.count(result)?;
                self.resumed += 1;
                Ok(())
            })?;
        }
        self.results.begin()?;
        self.work.show.begin_at(self.resumed);
        Ok(())
    }

    /// True if other items start at the result of this one and the version no longer exists, because its
    /// unused fork expired.
    fn is_missed(&self, item: u32, version: Option<VersionId>) -> Result<bool, OpError> {
        let (Manner::Needs, true, Some(version)) =
            (self.plan.manner, self.work.schedule.is_needed(item), version)
        else {
            return Ok(false);
        };
        let known = self.vault.read()?.version(&version).map_err(VaultError::from)?;
        Ok(known.is_none_or(|version| version.pruned_at.is_some()))
    }

    fn prepare_chain(&mut self) -> avfs_vault::Result<()> {
        self.chain.as_mut().map_or(Ok(()), Chain::prepare)
    }
}

impl Items for Drive<'_> {
    fn work(&mut self) -> &mut Work {
        &mut self.work
    }

    fn begin(&mut self, item: u32) -> Result<(), OpError> {
        let read = match self.plan.list.item(item as usize) {
            Ok(read) => read,
            Err(error) => {
                self.work.stop(error.to_string());
                return self.settle(item, failed(self.plan, item, "", &error));
            }
        };
        let command = shown_command(&read);
        let from = match self.plan.manner {
            Manner::Chain => None,
            Manner::FanOut | Manner::Needs => match self.beginning(item) {
                Ok(Beginning::At(version)) => Some(version),
                Ok(Beginning::Clash(why)) => {
                    let mut result = Results::blank(self.plan, item, &command);
                    (result.state, result.reason) = (ItemState::Failed, Some(why));
                    result.code = Some("batch.clash".to_owned());
                    return self.settle(item, result);
                }
                Err(error) => {
                    self.stop_for(&error);
                    return self.settle(item, failed(self.plan, item, &command, &error));
                }
            },
        };
        self.work.show.begun(item, self.plan.list.id(item as usize), &command);
        let order = self.order(item, read, from);
        self.work.pool.give(item, order);
        Ok(())
    }

    fn ended(&mut self, done: Done<u32>, killed: bool) -> Result<(), OpError> {
        let Done { tag: item, came, took } = done;
        let attempts = self.attempts.get(&item).copied().unwrap_or(0) + 1;
        self.work.show.ended(item);
        let command =
            self.plan.list.item(item as usize).map_or_else(|_| String::new(), |it| shown_command(&it));
        let mut result = Results::blank(self.plan, item, &command);
        result.duration_ms = took.as_secs_f64() * 1e3;
        match came.and_then(Reply::answer) {
            Ok(answer) => self.take(&mut result, answer),
            Err(error) if killed => {
                result.state = ItemState::NotRun;
                result.reason = Some("interrupted".to_owned());
                tracing::debug!(%error, "a worker was killed");
            }
            Err(error) => self.died(item, &mut result, &error)?,
        }
        result.attempts = attempts;
        let tries = self.plan.list.item(item as usize).ok().and_then(|it| it.retries).unwrap_or(self.retry);
        let may_help = matches!(result.state, ItemState::Failed | ItemState::Error);
        if may_help && attempts <= tries && self.work.stopped.is_none() && !killed {
            self.attempts.insert(item, attempts);
            self.work.show.again(self.plan.list.id(item as usize), &result.ending(), attempts, tries);
            match self.prepare_chain() {
                Ok(()) => {
                    self.work.schedule.again(item);
                    return Ok(());
                }
                Err(error) => self.stop_for(&error),
            }
        }
        self.settle(item, result)
    }

    fn pause(&mut self) -> Result<(), OpError> {
        self.acknowledge_if_due()
    }
}

impl Drive<'_> {
    /// The version that an item starts at.
    fn beginning(&self, item: u32) -> avfs_vault::Result<Beginning> {
        let base = self.plan.record.base;
        let needs = match self.work.schedule.begins(item) {
            Begins::Base => return Ok(Beginning::At(base)),
            Begins::After(needs) => needs,
        };
        let left = |need: u32| {
            let version = self.versions.get(need as usize).copied().flatten();
            (self.plan.list.id(need as usize), version.unwrap_or(base))
        };
        let made: Vec<(&str, VersionId)> = needs.into_iter().map(left).collect();
        beginning(self.vault, &format!("batch-{}-{}", self.plan.record.id, item + 1), &made)
    }

    fn order(&self, item: u32, read: ListItem, from: Option<VersionId>) -> WorkItem {
        let mut request = read.request;
        request.vault = None;
        request.fork = self.plan.fork.clone();
        request.from = from.map(Reference::from);
        request.retention = self.discard.then_some(Retention::Discard);
        if let Some(mode) = self.cache {
            request.cache = Some(mode);
        }
        if self.attempts.contains_key(&item) || self.tried.contains(&item) {
            // The cached result may be the cause of the failure.
            request.cache = Some(CacheMode::Off);
        }
        request.at = request.at.or_else(|| self.plan.list.header()?.at.clone().map(PathBuf::from));
        let batch = self.plan.record.id.to_string();
        let item = Some(WorkItemOfBatch { batch, number: u64::from(item) });
        WorkItem { request, item, look: false, tail_bytes: Some(TAIL_BYTES) }
    }

    /// Stops, because all further items would fail too; the reason includes the hint.
    fn stop_for(&mut self, error: &dyn Hint) {
        let hint = error.hint(&self.ctx.ui.avfs).map(|hint| format!("; {hint}")).unwrap_or_default();
        self.work.stop(format!("{error}{hint}"));
    }

    /// A worker that died may have completed the item without answering.
    fn died(&mut self, item: u32, result: &mut BatchItemResult, error: &WorkerError) -> Result<(), OpError> {
        if let Some(run) = landed(self.ctx, self.vault, &self.plan.record.id, item)? {
            *result = Results::of_run(self.plan, item, &run)?;
            self.note_unsynced();
            return Ok(());
        }
        (result.state, result.code) = (ItemState::Error, Some(error.code().to_owned()));
        result.reason = Some(error.to_string());
        if error.is_for_all() {
            self.stop_for(error);
        }
        Ok(())
    }

    fn take(&mut self, result: &mut BatchItemResult, answer: ExecutionEnvelope) {
        result.run_id = answer.run_id.clone();
        result.approval_id = answer.needed_approval().map(str::to_owned);
        result.allow_rule = answer.allow_rule().map(str::to_owned);
        if let Some(chain) = &mut self.chain {
            chain.ended(answer.run_id.clone());
        }
        result.state = match (answer.state, answer.success) {
            (StateName::Completed, true) => ItemState::Succeeded,
            (StateName::Completed, false) => ItemState::Failed,
            (StateName::Denied | StateName::ApprovalRequired, _) => ItemState::Denied,
            (StateName::Failed | StateName::Planned, _) => ItemState::Error,
        };
        let is_of_the_command = is_of_the_command(&answer);
        if let Some(ran) = answer.result {
            if ran.version_after.is_some() {
                self.note_unsynced();
            }
            result.notes = ran.notes_of_failure();
            result.cached = ran.cached;
            result.exit_code = ran.exit_code.map(i32::from);
            result.signal = ran.signal;
            result.timed_out = ran.timed_out;
            result.fork = ran.fork;
            result.version = ran.version_after.or(ran.version_before);
            result.duration_ms = ran.duration_ms;
            result.stdout = Some(Results::tail(&ran.stdout, &ran.stdout_encoding));
            result.stderr = Some(Results::tail(&ran.stderr, &ran.stderr_encoding));
        }
        if let Some(fault) = answer.error {
            if is_of_the_command {
                if result.state == ItemState::Error {
                    result.state = ItemState::Failed;
                }
            } else {
                let hint = fault.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
                self.work.stop(format!("{}{hint}", fault.message));
            }
            (result.code, result.reason, result.hint) = (Some(fault.code), Some(fault.message), fault.hint);
        }
    }

    fn settle(&mut self, item: u32, result: BatchItemResult) -> Result<(), OpError> {
        if result.state == ItemState::NotRun {
            // Treat it as not started, so that a resume runs it.
            self.work.schedule.again(item);
            return Ok(());
        }
        let version =
            result.version.as_deref().and_then(from_hex).and_then(|hex| VersionId::from_slice(&hex));
        if let Some(place) = self.versions.get_mut(item as usize) {
            *place = version;
        }
        if let Some(chain) = &mut self.chain {
            chain.goes_on_from(version);
        }
        // Items that start at it come later in the write-ahead log: a power loss cannot keep them and lose
        // it.
        self.work.schedule.ended(item, result.state == ItemState::Succeeded);
        self.landed.push(result);
        self.acknowledge_if_due()
    }

    fn note_unsynced(&mut self) {
        self.unsynced.get_or_insert_with(Instant::now);
    }

    fn acknowledge_if_due(&mut self) -> Result<(), OpError> {
        let waits = self.unsynced.is_some_and(|since| since.elapsed() < TOGETHER_WAIT);
        if waits && self.landed.len() < TOGETHER_MAX && self.work.schedule.running() > 0 {
            return Ok(());
        }
        self.acknowledge()
    }

    /// Reports the results of ended items, after their versions are on the disk.
    fn acknowledge(&mut self) -> Result<(), OpError> {
        if self.unsynced.take().is_some() {
            self.vault.flush()?;
        }
        for result in std::mem::take(&mut self.landed) {
            self.work.show.settled(&result);
            self.results.add(&result)?;
            self.count(result)?;
        }
        Ok(())
    }

    fn count(&mut self, result: BatchItemResult) -> Result<(), OpError> {
        self.counts.add(&result);
        if let Some(fork) = result.fork.as_deref().filter(|_| self.chain.is_none()) {
            let fork = self.vault.read()?.fork(&ForkName::parse(fork)?).map_err(VaultError::from)?;
            if let Some(Life::Ephemeral { expires_at }) = fork.map(|fork| fork.life) {
                self.kept_until = Some(self.kept_until.map_or(expires_at, |until| until.min(expires_at)));
            }
        }
        if result.state != ItemState::Succeeded && self.unsuccessful.len() < UNSUCCESSFUL_MAX {
            self.unsuccessful.push(result);
        }
        Ok(())
    }

    /// Adds the items that were never started.
    fn report_the_rest(&mut self) -> Result<(), OpError> {
        for item in 0..self.plan.items() {
            let (state, reason) = match self.work.schedule.standing(item) {
                Standing::Succeeded | Standing::Failed => continue,
                Standing::LeftOut => {
                    let need =
                        self.work.schedule.in_vain(item).map_or("", |need| self.plan.list.id(need as usize));
                    (ItemState::LeftOut, format!("{need} did not succeed"))
                }
                Standing::Waiting | Standing::Ready | Standing::Running => {
                    (ItemState::NotRun, "the batch ended before the item was started".to_owned())
                }
            };
            let command =
                self.plan.list.item(item as usize).map_or_else(|_| String::new(), |it| shown_command(&it));
            let mut result = Results::blank(self.plan, item, &command);
            (result.state, result.reason) = (state, Some(reason));
            self.results.add(&result)?;
            self.count(result)?;
        }
        Ok(())
    }

    fn finish(mut self, reports: &Reports, took: Duration, interrupted: bool) -> Result<Ended, OpError> {
        self.work.show.finish();
        for note in self.work.pool.dismiss(self.ctx, self.vault)? {
            self.ctx.ui.note(format_args!("note: {}", note.text));
        }
        let (plan, counts) = (self.plan, self.counts);
        let interrupted = interrupted && !counts.all_succeeded();
        if counts.all_succeeded() {
            let detail = format!("items={}", counts.items);
            self.vault.end_batch(&plan.record, &detail)?;
        }
        self.results.finish()?;
        write_reports(reports, plan, &self.results, &counts, took)?;
        let answer = Batch {
            batch_id: plan.record.id.to_string(),
            mode: plan.manner.word().into(),
            base: plan.record.base.to_hex(),
            fork: plan.fork.as_ref().map(ToString::to_string),
            counts,
            duration_ms: took.as_secs_f64() * 1e3,
            resumed: self.resumed,
            stopped: self.work.stopped.or_else(|| interrupted.then(|| "interrupted".to_owned())),
            unsuccessful: self.unsuccessful,
            notes: plan.notes.clone(),
        };
        Ok(Ended { answer, interrupted, kept_until: self.kept_until })
    }
}

/// The result of an item that could not be started.
fn failed(plan: &Plan, item: u32, command: &str, error: &dyn Diagnose) -> BatchItemResult {
    let mut result = Results::blank(plan, item, command);
    (result.state, result.code) = (ItemState::Error, Some(error.code().to_owned()));
    result.reason = Some(error.to_string());
    result
}
