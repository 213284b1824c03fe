//! Replays the runs of a list and compares each with its record.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use avfs_changes::ChangeSummary;
use avfs_hostfs::random;
use avfs_lists::batch::{Begins, Manner, OnFailure, Schedule};
use avfs_lists::replay::{Noise, Outputs, Seen, TreeChanges, compare, verdict};
use avfs_ops::{OpError, VerbError, WorkplaceError};
use avfs_request::{CacheMode, CheckpointMode};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{ForkName, RunId, VersionId};
use avfs_types::printable;
use avfs_vault::Vault;
use avfs_vault::changes::Changes;
use avfs_vault::discard::ChangesOf;
use avfs_wire::{
    ChangeObject, ExecutionEnvelope, Inspection, ListItem, ListNoise, LongText, Replay, ReplayCounts,
    ReplayItemResult, ReplayVerdict, WorkItem,
};

use super::error::ReplayError;
use super::evidence::{Streams, seen_by_cache, seen_of};
use super::source::Source;
use super::{ReplayArgs, evidence};
use crate::context::CommandContext;
use crate::lists;
use crate::lists::{Beginning, Items, Work, beginning, shown_command};
use crate::signals::Asked;
use crate::whole::Target;
use crate::worker_pool::{Done, Reply, is_of_the_command, result_of};

/// The maximum number of runs that are listed individually.
const LISTED_MAX: usize = 100;
/// The maximum number of changes that are listed for the first diverged run.
const CHANGES_MAX: usize = 200;

pub struct Replayed {
    pub answer: Replay,
    pub changes: ChangeSummary,
    pub interrupted: bool,
}

/// An item that was given to a worker.
struct Begun {
    read: ListItem,
    /// Whether it is only looked up in the cache.
    look: bool,
}

struct Drive<'a> {
    vault: &'a Vault,
    source: &'a Source,
    args: &'a ReplayArgs,
    noise: ListNoise,
    work: Work,
    /// The start version of items that name no version and wait for no item.
    main: VersionId,
    /// The result of each run, for the runs that wait for it; until it ends, its start version.
    versions: Vec<Option<VersionId>>,
    /// Items that were given to workers.
    begun: HashMap<u32, Begun>,
    /// The forks with the changes of runs that were not judged yet.
    forks: HashMap<u32, String>,
    /// Forks to discard at the end, because other runs start at them.
    done_with: Vec<String>,
    /// The prefix of the names of forks that only join results.
    joins: String,
    counts: ReplayCounts,
    first: Option<(ReplayItemResult, Changes)>,
    others: Vec<ReplayItemResult>,
    results: Option<BufWriter<File>>,
}

pub fn drive(
    ctx: &CommandContext,
    args: &ReplayArgs,
    vault: &Vault,
    source: &Source,
) -> Result<Replayed, OpError> {
    if args.cache == CacheMode::Write {
        return Err(ReplayError::OnlyReads.into());
    }
    let begun = Instant::now();
    let asked = Asked::watch()?;
    let items = u32::try_from(source.list.len()).unwrap_or(u32::MAX);
    let results = match &args.results {
        Some(path) => {
            let file = Target::open(path)?.emptied().map_err(WorkplaceError::host("write", path))?;
            Some(BufWriter::new(file))
        }
        None => None,
    };
    let needs = |item| source.waits_for(item);
    let schedule = Schedule::new(items, Manner::Needs, OnFailure::KeepGoing, needs);
    let (jobs, options) = (lists::jobs(args.jobs), args.options.words());
    let mut drive = Drive {
        vault,
        source,
        args,
        noise: args.noise(),
        work: Work::new(&ctx.ui, vault, schedule, source.list.len(), jobs, options)?,
        main: vault.fork(&ForkName::main())?.head,
        versions: vec![None; source.list.len()],
        begun: HashMap::new(),
        forks: HashMap::new(),
        done_with: Vec::new(),
        joins: format!("replay-{}", random::suffix().map_err(VerbError::Random)?),
        counts: ReplayCounts::default(),
        first: None,
        others: Vec::new(),
        results,
    };
    // Check it first: an error in it applies to every run.
    Noise::of(None, &drive.noise)?;
    let interrupted = lists::run(&mut drive, &asked)?;
    drive.finish(ctx, begun.elapsed(), interrupted)
}

impl Items for Drive<'_> {
    fn work(&mut self) -> &mut Work {
        &mut self.work
    }

    fn begin(&mut self, item: u32) -> Result<(), OpError> {
        self.give(item, self.args.cache == CacheMode::Read)
    }

    fn ended(&mut self, done: Done<u32>, killed: bool) -> Result<(), OpError> {
        let Done { tag: item, came, took } = done;
        let Begun { read, look: was_looking } = match self.begun.remove(&item) {
            Some(begun) => begun,
            None => Begun { read: self.source.list.item(item as usize)?, look: false },
        };
        let mut result = blank(item, &read);
        result.duration_ms = took.as_secs_f64() * 1e3;
        let came = match came {
            Ok(Reply::Inspection(Inspection { found: None })) if was_looking => {
                return self.give(item, false);
            }
            Ok(Reply::Inspection(Inspection { found: Some(found) })) if was_looking => {
                result.cached = true;
                self.left(item, evidence::version(found.version.as_ref()));
                let streams = match RunId::parse(&found.run_id) {
                    Ok(run) => evidence::remembered_outputs(self.vault, &run)?,
                    Err(_) => [None, None],
                };
                return self.judge(item, &read, result, &seen_by_cache(found), &streams);
            }
            other => other.and_then(Reply::answer),
        };
        match came {
            Ok(answer) => self.came(item, &read, result, answer),
            Err(error) if killed => {
                tracing::debug!(%error, "a worker was killed");
                self.work.show.ended(item);
                // Treat it as not started.
                self.work.schedule.again(item);
                Ok(())
            }
            Err(error) => {
                if error.is_for_all() {
                    self.work.stop(error.to_string());
                }
                (result.code, result.reason) = (Some(error.code().to_owned()), Some(error.to_string()));
                self.settle(item, result, None, Changes::default())
            }
        }
    }
}

impl Drive<'_> {
    /// Gives an item to a worker, to run it or only to look it up.
    fn give(&mut self, item: u32, look: bool) -> Result<(), OpError> {
        let read = self.source.list.item(item as usize)?;
        let from = match self.from(item, &read)? {
            Beginning::At(version) => version,
            Beginning::Clash(why) => {
                let mut result = blank(item, &read);
                (result.code, result.reason) = (Some("replay.clash".to_owned()), Some(why));
                return self.settle(item, result, None, Changes::default());
            }
        };
        self.left(item, Some(from));
        if !look {
            self.work.show.begun(item, &read.id, &shown_command(&read));
        }
        let quiet = |noise: &ListNoise| noise.output.is_empty();
        let noise = quiet(&self.noise) && read.noise.as_ref().is_none_or(quiet);
        let mut request = read.request.clone();
        self.begun.insert(item, Begun { read, look });
        (request.vault, request.fork, request.retention) = (None, None, None);
        request.from = Some(from.into());
        request.at = request.at.or_else(|| self.source.list.header()?.at.clone().map(PathBuf::from));
        request.base = None;
        request.approved = None;
        request.checkpoint = Some(CheckpointMode::Never);
        request.cache = Some(if look { CacheMode::Read } else { CacheMode::Off });
        // Without noise in the outputs, their digests are sufficient.
        self.work.pool.give(item, WorkItem { request, item: None, look, tail_bytes: noise.then_some(0) });
        Ok(())
    }

    /// The start version of an item: the recorded one if it exists, else the result of the items it waited
    /// for.
    fn from(&mut self, item: u32, read: &ListItem) -> Result<Beginning, OpError> {
        if let Some(version) = self.source.begins(item, read) {
            return Ok(Beginning::At(version));
        }
        let needs = match self.work.schedule.begins(item) {
            Begins::Base => return Ok(Beginning::At(self.main)),
            Begins::After(needs) => needs,
        };
        let made = |need: u32| {
            let version = self.versions.get(need as usize).copied().flatten();
            (self.source.list.id(need as usize), version.unwrap_or(self.main))
        };
        let (several, made): (bool, Vec<_>) = (needs.len() > 1, needs.into_iter().map(made).collect());
        let name = format!("{}-{}", self.joins, item + 1);
        let begins = beginning(self.vault, &name, &made)?;
        if several && !self.done_with.contains(&name) {
            self.done_with.push(name);
        }
        Ok(begins)
    }

    fn left(&mut self, item: u32, version: Option<VersionId>) {
        if let Some(place) = self.versions.get_mut(item as usize) {
            *place = version.or(*place);
        }
    }

    fn came(
        &mut self,
        item: u32,
        read: &ListItem,
        mut result: ReplayItemResult,
        answer: ExecutionEnvelope,
    ) -> Result<(), OpError> {
        result.run_id = answer.run_id.clone();
        result.approval_id = answer.needed_approval().map(str::to_owned);
        let is_for_all = answer.error.is_some() && !is_of_the_command(&answer);
        let ran = match result_of(answer) {
            Ok(ran) => ran,
            Err(error) => {
                if is_for_all {
                    self.work.stop(error.message.clone());
                }
                (result.code, result.reason) = (Some(error.code), Some(error.message));
                return self.settle(item, result, None, Changes::default());
            }
        };
        result.duration_ms = ran.duration_ms;
        result.version = ran.version_after.clone().or(ran.version_before.clone());
        self.forks.extend(ran.fork.clone().map(|fork| (item, fork)));
        let left = evidence::version(result.version.as_ref());
        self.left(item, left);
        let seen = seen_of(self.vault, &ran, left)?;
        let text =
            |text: &LongText, encoding: &str| (encoding == "utf-8").then(|| text.to_string().into_bytes());
        let streams = [text(&ran.stdout, &ran.stdout_encoding), text(&ran.stderr, &ran.stderr_encoding)];
        self.judge(item, read, result, &seen, &streams)
    }

    fn judge(
        &mut self,
        item: u32,
        read: &ListItem,
        mut result: ReplayItemResult,
        seen: &Seen,
        [out, err]: &Streams,
    ) -> Result<(), OpError> {
        let noise = Noise::of(read.noise.as_ref(), &self.noise)?;
        let Some(expected) = &read.expected else {
            return self.settle(item, result, Some(ReplayVerdict::Unrecorded), Changes::default());
        };
        result.expected_version = expected.version.clone();
        let same = |recorded: &Option<String>, now: &String| recorded.as_ref().is_none_or(|it| it == now);
        let same_tree = same(&expected.tree, &seen.tree) && same(&expected.content, &seen.content);
        let changes = match same_tree {
            true => Some(TreeChanges::default()),
            false => {
                let left = self.versions.get(item as usize).copied().flatten();
                evidence::changes(self.vault, evidence::version(expected.version.as_ref()), left, &noise)?
            }
        };
        let recorded = match noise.is_in_outputs() {
            true => evidence::recorded_outputs(self.vault, read)?,
            false => [None, None],
        };
        let [old_out, old_err] = &recorded;
        let outputs = [
            Outputs { recorded: old_out.as_deref(), seen: out.as_deref() },
            Outputs { recorded: old_err.as_deref(), seen: err.as_deref() },
        ];
        let differences = compare(expected, seen, &noise, changes.as_ref(), outputs);
        result.differences = differences.iter().map(avfs_present::difference).collect();
        let loud = changes.map(|changes| changes.loud).unwrap_or_default();
        self.settle(item, result, Some(verdict(expected, &differences)), loud)
    }

    fn settle(
        &mut self,
        item: u32,
        mut result: ReplayItemResult,
        verdict: Option<ReplayVerdict>,
        changes: Changes,
    ) -> Result<(), OpError> {
        result.verdict = verdict.map_or("error", ReplayVerdict::word).into();
        self.counts.add(verdict, result.cached);
        let well = !matches!(verdict, Some(ReplayVerdict::Diverged) | None);
        self.work.show.ended(item);
        self.work.show.item_ended(well, &result.id, &result.ending(), result.duration_ms, &result.command);
        if let Some(results) = &mut self.results {
            let written = printable::json_line(&result).and_then(|line| results.write_all(&line));
            let path = self.args.results.clone().unwrap_or_default();
            written.map_err(WorkplaceError::host("write", &path))?;
        }
        if verdict == Some(ReplayVerdict::Diverged) {
            if self.first.as_ref().is_none_or(|(first, _)| first.item > result.item) {
                self.first = Some((result.clone(), changes));
            }
            if self.args.fail_fast {
                self.work.schedule.stop();
            }
        }
        let enough = if self.args.exact { verdict == Some(ReplayVerdict::Identical) } else { well };
        if !enough && self.others.len() < LISTED_MAX {
            self.others.push(result);
        }
        // Keep the fork of a diverged run for inspection.
        match self.forks.remove(&item) {
            Some(name) if well && self.work.schedule.is_needed(item) => self.done_with.push(name),
            Some(name) if well => discard(self.vault, &name),
            Some(_) | None => {}
        }
        // Items that wait for it can start from its result, regardless of the verdict.
        self.work.schedule.ended(item, verdict.is_some());
        Ok(())
    }

    fn finish(
        mut self,
        ctx: &CommandContext,
        took: Duration,
        interrupted: bool,
    ) -> Result<Replayed, OpError> {
        self.work.show.finish();
        for note in self.work.pool.dismiss(ctx, self.vault)? {
            ctx.ui.note(format_args!("note: {}", note.text));
        }
        if let Some(mut results) = self.results.take() {
            let path = self.args.results.clone().unwrap_or_default();
            results.flush().map_err(WorkplaceError::host("write", &path))?;
        }
        // In reverse order: a fork may be based on an earlier one.
        self.done_with.iter().rev().for_each(|name| discard(self.vault, name));
        self.counts.not_run = self.source.list.len() as u64 - self.counts.items;
        self.counts.items = self.source.list.len() as u64;
        let interrupted = interrupted && self.counts.not_run > 0;
        self.others.sort_by_key(|other| other.item);
        let (first, changes) = self.first.unzip();
        let changes = ChangeSummary::of(changes.unwrap_or_default())?;
        let counts = self.counts;
        let listed: Vec<ChangeObject> =
            changes.changes.first(CHANGES_MAX).iter().map(avfs_present::change).collect();
        let answer = Replay {
            source: self.args.what.clone(),
            verdict: counts.verdict().into(),
            counts,
            duration_ms: took.as_secs_f64() * 1e3,
            first_diverged: first,
            changes_left_off: changes.changes.len() - listed.len(),
            changes: listed,
            others: self.others,
            stopped: self.work.stopped.or_else(|| interrupted.then(|| "interrupted".to_owned())),
        };
        Ok(Replayed { answer, changes, interrupted })
    }
}

/// Discards a fork that is not needed for inspection.
fn discard(vault: &Vault, name: &str) {
    if let Ok(fork) = name.parse::<ChangesOf>()
        && let Err(error) = vault.discard(&fork)
    {
        tracing::warn!(%error, fork = name, "cannot discard a fork of the replay; it stays until it expires");
    }
}

fn blank(item: u32, read: &ListItem) -> ReplayItemResult {
    ReplayItemResult {
        item: u64::from(item) + 1,
        id: read.id.clone(),
        command: shown_command(read),
        verdict: "error".into(),
        cached: false,
        differences: Vec::new(),
        run_id: None,
        version: None,
        expected_version: None,
        approval_id: None,
        duration_ms: 0.0,
        reason: None,
        code: None,
    }
}
