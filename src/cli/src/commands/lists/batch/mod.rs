//! `avfs batch`

mod before;
mod chain;
mod drive;
mod error;
mod hold;
mod plan;
mod report;
mod results;

use std::path::PathBuf;

use clap::Args;
use drive::{Ended, drive};
use plan::Plan;

use avfs_engine::journal::journal_value;
use avfs_lists::batch::{Manner, markdown};
use avfs_request::CacheMode;
use avfs_types::exit_code;
use avfs_types::ids::{BatchPrefix, ForkName};
use avfs_types::reference::{BadReference, Reference};
use avfs_vault::backend::sqlite::Mapped;
use avfs_wire::{Batch, BatchAnswer, BatchList, BatchObject, ErrorBody, ItemState};

use crate::context::CommandContext;
use crate::run_options::RunOptions;
use crate::ui::{Out, Outcome, Tone};
use crate::view::{first_line, local_time};
use crate::whole::check_place;
use crate::worker_pool::WORKERS_MAX;

/// Run a list of commands
///
/// LIST is a file with one command a line, plain or as JSON (docs/LISTS.md), or - for standard input. Its items follow
/// each other as --mode says: chain, each on the result of the one before; fan-out, each on its own fork of the same
/// base; needs, each on what the items it needs have made. Options of avfs-run hold for every item, and win over what it
/// says itself.
///
/// Interrupted, killed or stopped by a failure, it can be gone on with: --resume runs what has not succeeded yet.
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
    /// How the items follow each other [default: needs if an item has some, else chain] [possible values: chain,
    /// fan-out, needs]
    #[arg(long, value_name = "MODE")]
    mode: Option<Manner>,
    /// How many run at once [default: the number of processors; a chain runs one at a time]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX))]
    jobs: Option<u16>,
    /// What the first items begin from [default: the bound directory as it is now, else main]
    #[arg(long, value_name = "REF", conflicts_with = "resume")]
    from: Option<String>,
    /// The fork of a chain; made if it is not there [default: batch-ID]
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    fork: Option<ForkName>,
    /// Keep nothing of a fan-out but the record
    #[arg(long)]
    discard: bool,
    /// After a failure go on with what does not need it
    #[arg(short, long)]
    keep_going: bool,
    /// Try an item that failed again, so many times; an item's own `retries` wins
    #[arg(long, value_name = "N", default_value_t = 0)]
    retry: u32,
    /// Go on with a batch of this list: with the last one, or the one that is named
    #[arg(long, value_name = "BATCH", num_args = 0..=1, default_missing_value = LATEST)]
    resume: Option<String>,
    /// Write what became of each item, one line of JSON each, as soon as it is known
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    results: Option<PathBuf>,
    /// Write a report as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Write a summary as Markdown; it is also appended to $GITHUB_STEP_SUMMARY where that is set
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    summary: Option<PathBuf>,
    /// List the batches of the vault
    #[arg(long, conflicts_with_all = ["list_file", "resume", "from", "fork"])]
    list: bool,
    /// Take remembered results, or remember new ones too (avfs cache); a retry takes none [possible values: off, read,
    /// write]
    #[arg(long, value_name = "MODE")]
    cache: Option<CacheMode>,
    #[command(flatten)]
    options: RunOptions,
}

/// The batch that is gone on with where none is named.
const LATEST: &str = "";
/// Batches that are listed.
const LISTED_MAX: usize = 100;

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
    for path in args.junit.iter().chain(&args.summary) {
        check_place(path)?;
    }
    let list = Plan::read(args)?;
    let vault = ctx.open_or_make_vault(Mapped::No)?;
    let plan = Plan::make(ctx, args, &vault, list)?;
    let Ended { answer, interrupted } = drive(ctx, args, &vault, &plan)?;
    let code = show(ctx, args, &answer, plan.list_path())?;
    Ok(if interrupted { exit_code::INTERRUPTED } else { code })
}

fn show(ctx: &CommandContext, args: &BatchArgs, batch: &Batch, list: &str) -> Outcome {
    let answer = BatchAnswer::Ran(Box::new(batch.clone()));
    let avfs = &ctx.ui.avfs;
    let go_on = format!("go on with: {avfs} batch {list} --resume {}", batch.batch_id);
    let human = |out: &mut Out| {
        for result in batch.unsuccessful.iter().filter(|result| result.state != ItemState::LeftOut) {
            let (id, ending) = (out.paint(Tone::Deleted, &result.id), result.ending());
            out.line(format_args!("{id}  {ending}  {}", first_line(&result.command)))?;
            if let Some(run) = &result.run_id {
                out.line(format_args!("    {avfs} runs show {run}"))?;
            }
        }
        let seconds = batch.duration_ms / 1e3;
        out.line(format_args!("batch {}: {}", batch.batch_id, markdown::sentence(&batch.counts, seconds)))?;
        match &batch.fork {
            Some(fork) => out.line(format_args!("the result is on fork {fork}: {avfs} diff {fork}"))?,
            None if batch.counts.succeeded > 0 && !args.discard => {
                out.line(format_args!("what each item changed is on a fork of its own: {avfs} fork list"))?;
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
            None => "not every item succeeded".to_owned(),
        },
        hint: Some(go_on.clone()),
    };
    ctx.ui.answer_no(&answer, &why, human)
}

fn list(ctx: &CommandContext) -> Outcome {
    let vault = ctx.open_vault()?;
    let records = vault.batches(LISTED_MAX)?;
    let batches: Vec<BatchObject> = records.iter().map(avfs_present::batch).collect();
    let answer = BatchAnswer::Listed(BatchList { batches });
    ctx.ui.answer(&answer, |out| {
        for record in &records {
            let stands = if record.ended_at.is_some() { "ended" } else { "not ended" };
            let (id, when) = (out.paint(Tone::Id, &record.id), local_time(record.started_at));
            let plan = journal_value(&record.plan);
            let told = |key: &str| plan[key].as_str().map(first_line).unwrap_or_default();
            out.line(format_args!("{id}  {when}  {stands:<9}  {:<7}  {}", told("mode"), told("list")))?;
        }
        if records.is_empty() {
            out.line(format_args!("there are no batches"))?;
        }
        Ok(())
    })?;
    Ok(exit_code::OK)
}
