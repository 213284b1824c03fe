//! `avfs batch`

mod before;
mod chain;
mod drive;
mod error;
pub(super) mod hold;
mod plan;
mod report;
mod results;

use std::collections::HashSet;
use std::path::PathBuf;

use before::succeeded;
use clap::Args;
use drive::{Ended, drive};
use plan::Plan;
use report::Reports;

use avfs_lists::batch::{Manner, markdown};
use avfs_ops::OpError;
use avfs_request::CacheMode;
use avfs_terminal::Tone;
use avfs_types::exit_code;
use avfs_types::ids::{BatchPrefix, ForkName};
use avfs_types::reference::{BadReference, Reference};
use avfs_vault::Vault;
use avfs_vault::backend::BatchRecord;
use avfs_vault::backend::sqlite::Mapped;
use avfs_wire::{
    BatchAnswer, BatchItemResult, BatchList, BatchObject, BatchPlan, ErrorBody, ItemState, Recorded,
};

use crate::context::CommandContext;
use crate::run_options::RunOptions;
use crate::ui::{Out, Outcome};
use crate::view::{command_line, first_line, local_time};
use crate::worker_pool::WORKERS_MAX;

/// Run a list of commands
///
/// LIST is a file with one command per line, or - for standard input. A line is a command for /bin/sh -c or, if
/// the first line starts with {, a JSON object such as {"command": "make test", "id": "test", "retries": 2}; all
/// keys are under ListItem in: avfs schema. Empty lines and lines that start with # are skipped.
///
/// With --mode chain, each item starts at the result of the previous one; with fan-out, each runs on its own fork
/// of the same base; with needs, each starts at the results of the items it needs. Options of avfs-run apply
/// to every item, and override the item's own.
///
/// --resume continues a batch that was interrupted, killed or stopped by a failure: it runs the items that
/// have not succeeded yet.
///
/// Exits with 0 only if every item succeeded.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs batch tests.txt --mode fan-out --jobs 4 --keep-going
  avfs batch build.jsonl --junit report.xml --results results.jsonl
  avfs batch nightly.jsonl --retry 2 --timeout 10m --memory 2GiB
  avfs batch nightly.jsonl --resume
  avfs batch --list")]
pub struct BatchArgs {
    /// The list: a file, or - for standard input
    #[arg(value_name = "LIST", required_unless_present = "list", value_hint = clap::ValueHint::FilePath)]
    list_file: Option<PathBuf>,
    /// Choose where each item starts. chain: at the result of the previous item; fan-out: at the same base;
    /// needs: at the results of the items it needs [default: needs if any item has needs, else chain]
    /// [possible values: chain, fan-out, needs]
    #[arg(long, value_name = "MODE")]
    mode: Option<Manner>,
    /// Run N items at once [default: the number of processors; a chain runs one at a time]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    jobs: Option<u16>,
    /// Start the first items at this version [default: the current state of the bound directory, else main]
    #[arg(long, value_name = "REF", conflicts_with = "resume")]
    from: Option<String>,
    /// Use this fork for a chain, and create it if missing [default: batch-ID]
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    fork: Option<ForkName>,
    /// Discard the changes of a fan-out, and keep only its record
    #[arg(long)]
    discard: bool,
    /// After a failure, continue with the items that do not need the failed one
    #[arg(short, long)]
    keep_going: bool,
    /// Retry a failed item up to N times; an item's own `retries` overrides it
    #[arg(long, value_name = "N", default_value_t = 0)]
    retry: u32,
    /// Resume a batch of this list: the latest, or the given one
    #[arg(long, value_name = "BATCH", num_args = 0..=1, default_missing_value = LATEST)]
    resume: Option<String>,
    /// Write the result of each item to FILE, one line of JSON per item, as soon as it is known
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    results: Option<PathBuf>,
    /// Write a report as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Write a summary as Markdown; it is also appended to $GITHUB_STEP_SUMMARY if that is set
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    summary: Option<PathBuf>,
    /// List the batches of the vault
    #[arg(long, conflicts_with_all = ["list_file", "resume", "from", "fork"])]
    list: bool,
    /// Reuse cached results, or also cache new ones (avfs cache); a retry does not reuse any [possible
    /// values: off, read, write]
    #[arg(long, value_name = "MODE")]
    cache: Option<CacheMode>,
    #[command(flatten)]
    options: RunOptions,
}

/// The value of --resume without an id: the latest batch.
const LATEST: &str = "";
/// The maximum number of batches that are listed.
const LISTED_MAX: usize = 100;
/// The number of different hints and notes that are shown.
const ADVICE_MAX: usize = 20;

impl BatchArgs {
    fn resume(&self) -> Result<Option<Option<BatchPrefix>>, avfs_types::ids::DrawnIdError> {
        match self.resume.as_deref() {
            None => Ok(None),
            Some(LATEST) => Ok(Some(None)),
            Some(text) => BatchPrefix::parse(text).map(|prefix| Some(Some(prefix))),
        }
    }

    fn from(&self) -> Result<Option<Reference>, BadReference> {
        self.from.as_deref().map(Reference::parse).transpose()
    }
}

pub fn run(ctx: &CommandContext, args: &BatchArgs) -> Outcome {
    if args.list {
        return list(ctx);
    }
    let reports = Reports::open(args)?;
    let list = Plan::read(args)?;
    let vault = ctx.client.open_or_make(Mapped::No)?.vault;
    let plan = Plan::make(ctx, args, &vault, list)?;
    let ended = drive(ctx, args, &vault, &plan, &reports)?;
    let code = show(ctx, args, &ended, plan.list_path())?;
    Ok(if ended.interrupted { exit_code::INTERRUPTED } else { code })
}

fn show(ctx: &CommandContext, args: &BatchArgs, ended: &Ended, list: &str) -> Outcome {
    let Ended { answer: batch, kept_until, .. } = ended;
    let answer = BatchAnswer::Ran(Box::new(batch.clone()));
    let avfs = &ctx.ui.avfs;
    let go_on = format!("resume with: {avfs} batch {list} --resume {}", batch.batch_id);
    let human = |out: &mut Out| {
        let mut advice = Advice::default();
        for result in batch.unsuccessful.iter().filter(|result| result.state != ItemState::LeftOut) {
            let (id, ending) = (out.paint(Tone::Deleted, &result.id), result.ending());
            out.line(format_args!("{id}  {ending}  {}", command_line(&result.command)))?;
            if let Some(run) = &result.run_id {
                out.line(format_args!("    {avfs} runs show {run}"))?;
            }
            // An approval is different for each item, and its hint names the command that approves it.
            advice.show(out, result)?;
        }
        let seconds = batch.duration_ms / 1e3;
        out.line(format_args!("batch {}: {}", batch.batch_id, markdown::sentence(&batch.counts, seconds)))?;
        match &batch.fork {
            Some(fork) => out.line(format_args!("the result is on fork {fork}: {avfs} diff {fork}"))?,
            None if batch.counts.succeeded > 0 && !args.discard => {
                out.line(format_args!("each item has its own fork: {avfs} fork list"))?;
                if let Some(until) = kept_until {
                    out.line(format_args!("  kept at least until {}", local_time(*until)))?;
                }
            }
            None => {}
        }
        if let Some(stopped) = &batch.stopped {
            out.line(format_args!("stopped: {stopped}"))?;
        }
        if !batch.counts.all_succeeded() {
            out.line(format_args!("{go_on}"))?;
        }
        Ok(())
    };
    if batch.counts.all_succeeded() {
        return ctx.ui.answer(&answer, human);
    }
    let why = ErrorBody {
        code: if batch.stopped.is_some() { "batch.stopped" } else { "batch.failed" }.to_owned(),
        message: match &batch.stopped {
            Some(stopped) => format!("the batch was stopped: {stopped}"),
            None => "some items did not succeed".to_owned(),
        },
        hint: Some(go_on.clone()),
    };
    ctx.ui.answer_no(&answer, &why, human)
}

/// Hints and notes of items that did not succeed. Items often have the same ones, so each text is shown once.
#[derive(Default)]
struct Advice {
    shown: HashSet<String>,
}

impl Advice {
    fn show(&mut self, out: &mut Out, result: &BatchItemResult) -> Result<(), OpError> {
        for note in &result.notes {
            self.once(out, &format!("note: {}", note.text))?;
        }
        let Some(hint) = &result.hint else { return Ok(()) };
        match &result.allow_rule {
            Some(rule) => self.once(out, &format!("hint: {hint}:\n{rule}")),
            None => self.once(out, &format!("hint: {hint}")),
        }
    }

    fn once(&mut self, out: &mut Out, text: &str) -> Result<(), OpError> {
        if self.shown.len() >= ADVICE_MAX || !self.shown.insert(text.to_owned()) {
            return Ok(());
        }
        text.lines().try_for_each(|line| out.line(format_args!("    {line}")))
    }
}

/// The state of a batch, in one word. It has a time of its end only if every item has succeeded.
fn stands(vault: &Vault, batch: &BatchRecord) -> Result<&'static str, OpError> {
    if batch.ended_at.is_some() {
        return Ok("ended");
    }
    let items = Recorded::<BatchPlan>::parse(&batch.plan).read().map(|plan| plan.items);
    let (mut ran, mut done) = (HashSet::new(), HashSet::new());
    vault.each_batch_run(&batch.id, |item, run| {
        ran.insert(item);
        if succeeded(&run) {
            done.insert(item);
        }
        Ok::<(), OpError>(())
    })?;
    let is_all = |items_of: &HashSet<u64>| items.is_some_and(|items| items_of.len() as u64 >= items);
    Ok(match (is_all(&ran), is_all(&done)) {
        (_, true) => "ended",
        (true, false) => "failed",
        (false, false) => "unfinished",
    })
}

fn list(ctx: &CommandContext) -> Outcome {
    let vault = ctx.open_vault()?;
    let records = vault.batches(LISTED_MAX)?;
    let batches: Vec<BatchObject> = records.iter().map(avfs_present::batch).collect();
    let answer = BatchAnswer::Listed(BatchList { batches });
    ctx.ui.answer(&answer, |out| {
        for record in &records {
            let stands = stands(&vault, record)?;
            let (id, when) = (out.paint(Tone::Id, &record.id), local_time(record.started_at));
            let plan = Recorded::<BatchPlan>::parse(&record.plan).into_read();
            let (mode, list) = plan.map_or_else(|_| Default::default(), |plan| (plan.mode, plan.list));
            out.line(format_args!("{id}  {when}  {stands:<10}  {mode:<7}  {}", first_line(&list)))?;
        }
        if records.is_empty() {
            out.line(format_args!("no batches"))?;
        }
        Ok(())
    })?;
    Ok(exit_code::OK)
}
