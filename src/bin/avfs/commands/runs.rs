//! `avfs runs list|show`

use avfs::backend::{Reader, RunRecord};
use avfs::ids::{ForkName, RunPrefix, VersionId};
use avfs::runtime::envelope::{ChangeObject, ChangeTotals, RunObject, RunsList, RunsShow, journal_value};
use avfs::runtime::{ChangeSummary, Shown};
use avfs::vault::Vault;
use avfs::vault::tree::Pages;
use avfs::vault::version::root_of;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::patch;
use crate::context::CommandContext;
use crate::ui::{Failure, Out, Outcome, Tone};
use crate::view::{local_time, one_line};

/// List and describe runs: what was asked, decided and done
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs runs list
  avfs runs show 3f9a")]
pub struct RunsArgs {
    #[command(subcommand)]
    action: RunsAction,
}

#[derive(Debug, Subcommand)]
enum RunsAction {
    List(ListArgs),
    Show(ShowArgs),
}

/// List runs, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs runs list
  avfs runs list --fork experiment --limit 5
  avfs runs list --json")]
struct ListArgs {
    /// Only those whose changes went to this fork
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Describe a run: its request, the decision, how it ended and what it changed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs runs show 3f9a
  avfs runs show run:3f9a01bc77 --json")]
struct ShowArgs {
    /// The run: at least four digits of its id
    #[arg(value_name = "ID")]
    id: RunPrefix,
}

pub fn run(ctx: &CommandContext, args: &RunsArgs) -> Outcome {
    match &args.action {
        RunsAction::List(args) => list(ctx, args),
        RunsAction::Show(args) => show(ctx, args),
    }
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let (runs, more) = newest(&vault, args)?;
    if runs.is_empty() {
        ctx.ui.note(format_args!("there are no runs"));
    }
    if more {
        ctx.ui.note(format_args!("note: there are older runs; see more with: --limit N"));
    }
    let result = RunsList { runs: runs.iter().map(RunObject::from).collect(), more };
    ctx.ui.answer(&result, |out| runs.iter().try_for_each(|run| show_line(out, run)))
}

/// One more is asked for than is shown: then there are older ones.
fn newest(vault: &Vault, args: &ListArgs) -> Result<(Vec<RunRecord>, bool), Failure> {
    let limit = args.limit.saturating_add(1);
    let mut runs = match &args.fork {
        Some(fork) => vault.runs_of_fork(fork, i64::MAX, limit)?,
        None => vault.runs(i64::MAX, limit)?,
    };
    let more = runs.len() > args.limit;
    runs.truncate(args.limit);
    Ok((runs, more))
}

fn show_line(out: &mut Out, run: &RunRecord) -> Result<(), Failure> {
    let (id, fork) = (out.paint(Tone::Id, &run.id), out.paint(Tone::Name, &run.fork));
    let marks = match (run.applied_at, run.discarded_at, run.version_after) {
        (_, Some(_), _) => "  (discarded)",
        (Some(_), None, _) => "  (applied)",
        (None, None, None) => "  (no changes)",
        (None, None, Some(_)) => "",
    };
    let (at, ended) = (local_time(run.started_at), ended(run));
    out.line(format_args!("{id}  {at}  {ended:<12}  {fork}{marks}  {}", one_line(&command_text(run))))
}

/// `exit 0`, `signal 9`, or the state of a run that did not get so far.
fn ended(run: &RunRecord) -> String {
    match (run.exit_code, run.signal) {
        (_, Some(signal)) => format!("signal {signal}"),
        (Some(code), None) => format!("exit {code}"),
        (None, None) => run.state.word().to_owned(),
    }
}

fn command_text(run: &RunRecord) -> String {
    match &journal_value(&run.request)["command"] {
        Value::String(text) => text.clone(),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            words.join(" ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn show(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let run = vault.run(&args.id)?;
    let reader = vault.read()?;
    let summary = changes_of(&*reader, &run)?;
    let told = summary.as_ref().map(|summary| {
        (summary.changes.iter().map(ChangeObject::from).collect(), ChangeTotals::from(&summary.counts))
    });
    let result = RunsShow::of(&run, told);
    ctx.ui.answer(&result, |out| {
        show_record(out, &run)?;
        for (name, value) in
            [("request", &result.request), ("decision", &result.decision), ("result", &result.result)]
        {
            out.line(format_args!("\n{name}"))?;
            let text = format!("{value:#}");
            text.lines().try_for_each(|line| out.line(format_args!("    {}", one_line(line))))?;
        }
        out.line(format_args!(""))?;
        match &summary {
            Some(summary) => patch::show_summary(out, summary),
            None => out.line(format_args!("its changes cannot be told: its versions are no longer kept")),
        }
    })
}

fn show_record(out: &mut Out, run: &RunRecord) -> Result<(), Failure> {
    out.line(format_args!("run        {}", out.paint(Tone::Id, &run.id)))?;
    out.line(format_args!("command    {}", one_line(&command_text(run))))?;
    out.line(format_args!("state      {}, {}", run.state.word(), ended(run)))?;
    out.line(format_args!("fork       {}", out.paint(Tone::Name, &run.fork)))?;
    let version = |id: Option<VersionId>| id.map_or_else(|| "-".to_owned(), |id| id.to_hex());
    out.line(format_args!("before     {}", version(run.version_before)))?;
    out.line(format_args!("after      {}", version(run.version_after)))?;
    out.line(format_args!("started    {}", local_time(run.started_at)))?;
    for (what, at) in [("ended", run.ended_at), ("applied", run.applied_at), ("discarded", run.discarded_at)]
    {
        if let Some(at) = at {
            out.line(format_args!("{what:<9}  {}", local_time(at)))?;
        }
    }
    Ok(())
}

/// Nothing if one of its versions is gone or was pruned.
fn changes_of(reader: &dyn Reader, run: &RunRecord) -> Result<Option<ChangeSummary>, Failure> {
    let Some(after) = run.version_after else { return Ok(Some(ChangeSummary::default())) };
    let Some(before) = run.version_before else { return Ok(None) };
    let (Some(before), Some(after)) = (reader.version(&before)?, reader.version(&after)?) else {
        return Ok(None);
    };
    if before.pruned_at.is_some() || after.pruned_at.is_some() {
        return Ok(None);
    }
    let pages: &dyn Pages = &reader;
    let (before, after) = (root_of(&before)?, root_of(&after)?);
    Ok(Some(ChangeSummary::compare(pages, &before, &after, &[], Shown::WithoutTimes)?))
}
