//! `avfs runs list|show`

use clap::{Args, Subcommand};

use avfs_ops::runs::{
    FoundRun, InDirectory, KeptOutput, RunApproval, RunDetail, RunRow, RunsQuery, SettledRun,
};
use avfs_ops::{OpError, note_fork, quoted};
use avfs_policy::Action;
use avfs_request::BaseChoice;
use avfs_terminal::{ErrorText, Tone};
use avfs_types::ids::{ForkName, RunPrefix};
use avfs_types::show_bytes_size;
use avfs_wire::{
    ConnectionObject, DecisionObject, ErrorBody, LastLinesObject, Recorded, RunObject, RunResult,
    RunStateName, RunsList, RunsShow, UnsettledRun, asked_for,
};

use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{command_line, first_line, local_time_of, plural};

/// List and show runs: request, decision and result
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
///
/// Runs that are still running, died, or can be recovered (`avfs recover`) are listed before the others, under
/// the heading "unfinished".
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs runs list
  avfs runs list --fork experiment --limit 5
  avfs runs list --json")]
struct ListArgs {
    /// List only runs whose changes went to this fork
    #[arg(long, value_name = "FORK")]
    fork: Option<ForkName>,
    /// List at most N finished runs; unfinished runs are always listed
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// Show a run: its request, decision, exit status and changes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs runs show last
  avfs runs show 3f9a
  avfs runs show last --output
  avfs runs show run:3f9a01bc77 --json")]
struct ShowArgs {
    /// The run: the first four or more digits of its id, or last, or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    id: RunPrefix,
    /// Print the output of the command, if it was kept (avfs-run --keep-output)
    #[arg(long)]
    output: bool,
}

pub fn run(ctx: &CommandContext, args: &RunsArgs) -> Outcome {
    match &args.action {
        RunsAction::List(args) => list(ctx, args),
        RunsAction::Show(args) => show(ctx, args),
    }
}

fn list(ctx: &CommandContext, args: &ListArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    let unsettled = avfs_ops::runs::unsettled_runs(&workplace, args.fork.as_ref())?;
    let (mut out, mut runs) = (ctx.ui.out(), Vec::new());
    if ctx.ui.format == Format::Human && !unsettled.is_empty() {
        out.line(format_args!("unfinished:"))?;
        unsettled.iter().try_for_each(|run| show_unfinished(&mut out, run))?;
    }
    let mut headed = unsettled.is_empty();
    let mut shown = 0;
    let query = RunsQuery { fork: args.fork.clone(), limit: args.limit };
    let more = avfs_ops::runs::each_run(&workplace, &query, &mut |row| {
        shown += 1;
        match ctx.ui.format {
            Format::Json => runs.push(row.run),
            Format::Human => {
                if !std::mem::replace(&mut headed, true) {
                    out.line(format_args!("finished:"))?;
                }
                show_line(&mut out, &row)?;
            }
        }
        // Show the first one at once, however many follow.
        if shown == 1 { out.flush() } else { Ok(()) }
    })?;
    out.flush()?;
    drop(out);
    if shown == 0 && unsettled.is_empty() && !more {
        ctx.ui.note(format_args!("no runs found"));
        note_fork(&workplace, args.fork.as_ref());
    }
    if more {
        ctx.ui.note(format_args!("note: there are older runs; show more with: --limit N"));
    }
    ctx.ui.answer(&RunsList { unsettled, runs, more }, |_| Ok(()))
}

fn show_unfinished(out: &mut Out, run: &UnsettledRun) -> Result<(), OpError> {
    let (id, fork) = (out.paint(Tone::Id, &run.id), out.paint(Tone::Name, &run.fork));
    let (at, stands) = (local_time_of(&run.started_at), stands(run));
    out.line(format_args!("{id}  {at}  {stands:<12}  {fork}  {}", unsettled_command(run)))
}

fn unsettled_command(run: &UnsettledRun) -> String {
    command_line(&quoted(run.request.read().map(|request| &request.command)))
}

/// The state of a run, or its last state before its process died.
fn stands(run: &UnsettledRun) -> String {
    match &*run.life {
        "running" => run.stands.to_string(),
        "dead" => format!("died {}", run.stands),
        life => life.to_owned(),
    }
}

/// The fork of a run; `None` for a run without changes, or that did not complete, which created no fork.
fn fork_of(run: &RunObject) -> Option<&str> {
    let has_none = run.version_after.is_none() && run.fork.strip_prefix("run-") == Some(run.id.as_str());
    (!has_none).then_some(run.fork.as_str())
}

fn show_line(out: &mut Out, row: &RunRow) -> Result<(), OpError> {
    let RunRow { run, in_directory, discards } = row;
    let (id, fork) = (out.paint(Tone::Id, &run.id), out.paint(Tone::Name, fork_of(run).unwrap_or("-")));
    let is_undone = run.undone == Some(true);
    let cached = if run.cached_from.is_some() { "  (cached)" } else { "" };
    let undone = if is_undone && run.discarded_at.is_none() { "  (undone)" } else { "" };
    let marks = match (in_directory, &run.discarded_at, &run.version_after) {
        (Some(InDirectory::Applied), Some(_), _) => "  (discarded, but applied)",
        (Some(InDirectory::Partly), Some(_), _) => "  (discarded, but partly applied)",
        (Some(InDirectory::Unapplied) | None, Some(_), _) => "  (discarded)",
        (Some(InDirectory::Applied), None, _) => "  (applied)",
        (Some(InDirectory::Partly), None, _) => "  (partly applied)",
        (Some(InDirectory::Unapplied), None, _) if is_undone => "",
        (Some(InDirectory::Unapplied), None, _) => "  (unapplied)",
        (None, None, None) if run.state == RunStateName::Completed => {
            if *discards {
                "  (nothing kept)"
            } else {
                "  (no changes)"
            }
        }
        (None, None, _) => "",
    };
    let ended = ended(run).filter(|_| run.state == RunStateName::Completed);
    let (at, ended) = (local_time_of(&run.started_at), ended.unwrap_or_else(|| run.state.word().to_owned()));
    out.line(format_args!(
        "{id}  {at}  {ended:<12}  {fork}{cached}{undone}{marks}  {}",
        command_line(&quoted(run.command.as_ref()))
    ))
}

/// `exit 0` or `signal 9`; `None` if the run did not end.
fn ended(run: &RunObject) -> Option<String> {
    match (run.exit_code, run.signal) {
        (_, Some(signal)) => Some(format!("signal {signal}")),
        (Some(code), None) => Some(format!("exit {code}")),
        (None, None) => None,
    }
}

fn show(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let workplace = ctx.client.open()?;
    if args.output {
        return match avfs_ops::runs::kept_output(&workplace, &args.id)? {
            FoundRun::Settled(output) => show_output(ctx, &output),
            FoundRun::Unsettled(run) => show_unsettled(ctx, &run),
        };
    }
    let detail = match ctx.ui.format {
        Format::Json => RunDetail::Record,
        Format::Human => RunDetail::Lines,
    };
    let SettledRun { shown, in_directory, approval, lines } =
        match avfs_ops::runs::show_run(&workplace, &args.id, detail)? {
            FoundRun::Settled(run) => *run,
            FoundRun::Unsettled(run) => return show_unsettled(ctx, &run),
        };
    let run = &shown.run;
    ctx.ui.answer(&shown, |out| {
        show_record(out, &shown)?;
        if run.undone == Some(true) {
            out.line(format_args!("undone     on fork {}", out.paint(Tone::Name, &run.fork)))?;
        }
        show_applied(ctx, out, run, in_directory)?;
        if let Some(until) = &shown.kept_until {
            out.line(format_args!("kept until {}", local_time_of(until)))?;
        }
        // The lines of the record have the command, the fork and the base.
        let asked = asked_for(&shown.request).into_iter().skip(1);
        for (name, text) in asked.filter(|(name, _)| !["fork", "base"].contains(&name.as_str())) {
            out.line(format_args!("{name:<10} {text}"))?;
        }
        show_decision(out, &shown.decision)?;
        if let Some(approval) = &approval {
            show_approval(out, approval)?;
        }
        show_outcome(out, &shown)?;
        out.line(format_args!(""))?;
        match lines {
            Some(lines) => patch::show_summary(out, lines),
            None => out.line(format_args!("its changes are unknown: its versions are no longer kept")),
        }
    })
}

/// Prints the output of a run: stdout verbatim, like `avfs cat`, and stderr escaped.
fn show_output(ctx: &CommandContext, output: &KeptOutput<'_>) -> Outcome {
    let result = match ctx.ui.format {
        Format::Json => Some(output.answer()?),
        Format::Human => None,
    };
    ctx.ui.answer(&result, |out| {
        let mut stderr = ErrorText::default();
        out.content(|to| output.copy(to, &mut stderr))?;
        stderr.finish();
        Ok(())
    })
}

/// Prints the approval of a run, and how to answer it if it is pending.
fn show_approval(out: &mut Out, approval: &RunApproval) -> Result<(), OpError> {
    let (id, word) = (out.paint(Tone::Id, &approval.id), approval.state.word());
    match &approval.approve {
        Some(command) => out.line(format_args!("approval   {id}, {word}; approve with: {command}")),
        None => out.line(format_args!("approval   {id}, {word}")),
    }
}

/// Prints the decision of the policy and its reason.
pub fn show_decision(out: &mut Out, decision: &Recorded<DecisionObject>) -> Result<(), OpError> {
    let Some(decision) = decision.read() else { return Ok(()) };
    let DecisionObject { action, categories, rule, reason, hint, allow_rule, .. } = decision;
    let rule = rule.as_deref().unwrap_or_default();
    out.line(format_args!("decision   {action} by {rule} ({})", categories.join(", ")))?;
    out.line(format_args!("because    {}", first_line(reason)))?;
    let Some(hint) = hint.as_ref().filter(|hint| action == Action::Deny.word() && !hint.is_empty()) else {
        return Ok(());
    };
    let allow_rule = allow_rule.as_deref().unwrap_or_default();
    let colon = if allow_rule.is_empty() { "" } else { ":" };
    out.line(format_args!("hint       {}{colon}", first_line(hint)))?;
    allow_rule.lines().try_for_each(|line| out.line(format_args!("{line}")))
}

/// Prints the resource use of the run and its output, or the error.
fn show_outcome(out: &mut Out, shown: &RunsShow) -> Result<(), OpError> {
    if let Some(result) = shown.result.result() {
        show_result(out, &shown.run.id, result)?;
    }
    let error = shown.result.failure().and_then(|failure| failure.error.as_ref());
    // The error of a refused request repeats the reason of the decision.
    let reason = shown.decision.read().map(|decision| &*decision.reason).filter(|reason| !reason.is_empty());
    let is_new = |error: &&ErrorBody| reason.is_none_or(|reason| !error.message.ends_with(reason));
    match error.filter(is_new) {
        Some(error) => out.line(format_args!("error      {}", first_line(&error.message))),
        None => Ok(()),
    }
}

fn show_result(out: &mut Out, id: &str, result: &RunResult) -> Result<(), OpError> {
    let [execute, user, system] =
        [result.phases_ms.execute, result.user_ms as f64, result.system_ms as f64].map(|ms| ms / 1000.0);
    out.line(format_args!("took       {execute:.2} s ({user:.2} s user, {system:.2} s system)"))?;
    out.line(format_args!("memory     {}", show_bytes_size(result.max_rss_bytes)))?;
    out.line(format_args!("wrote      {}", show_bytes_size(result.bytes_written)))?;
    if let Some(limit) = &result.stopped_by {
        out.line(format_args!("stopped by the limit on {limit}"))?;
    }
    if result.timed_out {
        out.line(format_args!("stopped by the timeout"))?;
    }
    if let Some(outside) = &result.outside_writes {
        let (files, size) = (plural(outside.files, "file", "files"), show_bytes_size(outside.bytes));
        out.line(format_args!("dropped    {files} ({size}) outside of the workspace"))?;
        for path in &outside.paths {
            out.line(format_args!("           {}", first_line(path)))?;
        }
    }
    for ConnectionObject { verdict, host, port, bytes_down, .. } in &result.connections {
        let bytes = show_bytes_size(*bytes_down);
        out.line(format_args!("network    {verdict} {host}:{port} ({bytes} received)"))?;
    }
    if result.kept_output.is_some() {
        out.line(format_args!("output     kept; print it with: avfs runs show {id} --output"))?;
    }
    let LastLinesObject { stdout, stderr } = result.last_lines.clone().unwrap_or_default();
    for (stream, text) in [("stdout", stdout), ("stderr", stderr)] {
        text.lines().try_for_each(|line| out.line(format_args!("{stream:<10} {line}")))?;
    }
    Ok(())
}

/// Shows a run that is not in the journal yet.
fn show_unsettled(ctx: &CommandContext, run: &UnsettledRun) -> Outcome {
    ctx.ui.answer(run, |out| {
        out.line(format_args!("run        {}", out.paint(Tone::Id, &run.id)))?;
        out.line(format_args!("command    {}", unsettled_command(run)))?;
        out.line(format_args!("state      {}", stands(run)))?;
        out.line(format_args!("fork       {}", out.paint(Tone::Name, &run.fork)))?;
        out.line(format_args!("started    {}", local_time_of(&run.started_at)))?;
        match &*run.life {
            "dead" => out.line(format_args!("the next run removes its leftovers")),
            "recoverable" => out.line(format_args!("finish it with: {} recover {}", ctx.ui.avfs, run.id)),
            _ => Ok(()),
        }
    })
}

fn show_record(out: &mut Out, shown: &RunsShow) -> Result<(), OpError> {
    let run = &shown.run;
    out.line(format_args!("run        {}", out.paint(Tone::Id, &run.id)))?;
    out.line(format_args!("command    {}", command_line(&quoted(run.command.as_ref()))))?;
    let how = ended(run).map(|how| format!(", {how}")).unwrap_or_default();
    out.line(format_args!("state      {}{how}", run.state.word()))?;
    if let Some(fork) = fork_of(run) {
        out.line(format_args!("fork       {}", out.paint(Tone::Name, fork)))?;
    }
    if let Some(from) = &run.cached_from {
        out.line(format_args!("cached     from run {}", out.paint(Tone::Id, from)))?;
    }
    let asked = shown.request.read().map(|request| &*request.base);
    let asked = asked.filter(|base| *base != BaseChoice::Auto.word());
    match (shown.base_kind.as_deref(), asked) {
        (Some(kind), Some(asked)) if asked != kind => {
            out.line(format_args!("base       {kind} (requested: {asked})"))?;
        }
        (Some(kind), _) => out.line(format_args!("base       {kind}"))?,
        (None, Some(asked)) => out.line(format_args!("base       none (requested: {asked})"))?,
        (None, None) => {}
    }
    out.line(format_args!("before     {}", run.version_before.as_deref().unwrap_or("-")))?;
    out.line(format_args!("after      {}", run.version_after.as_deref().unwrap_or("-")))?;
    out.line(format_args!("started    {}", local_time_of(&run.started_at)))?;
    for (what, at) in [("ended", &run.ended_at), ("discarded", &run.discarded_at)] {
        if let Some(at) = at {
            out.line(format_args!("{what:<9}  {}", local_time_of(at)))?;
        }
    }
    Ok(())
}

/// Prints whether the changes of the run are in the bound directory, and how to change that.
fn show_applied(
    ctx: &CommandContext,
    out: &mut Out,
    run: &RunObject,
    state: Option<InDirectory>,
) -> Result<(), OpError> {
    let (avfs, id) = (&ctx.ui.avfs, &run.id);
    let at = run.applied_at.as_deref().map(local_time_of).unwrap_or_default();
    match state {
        Some(InDirectory::Applied) => {
            out.line(format_args!("applied    {at}; revert it with: {avfs} unapply {id}"))
        }
        Some(InDirectory::Partly) if run.discarded_at.is_some() => {
            out.line(format_args!("applied    in part; revert it with: {avfs} unapply {id}"))
        }
        Some(InDirectory::Partly) => {
            out.line(format_args!("applied    in part; write the rest with: {avfs} apply {id}"))
        }
        Some(InDirectory::Unapplied) if run.discarded_at.is_none() => {
            out.line(format_args!("applied    and removed again; write it with: {avfs} apply {id}"))
        }
        Some(InDirectory::Unapplied) => out.line(format_args!("applied    and removed again")),
        None => Ok(()),
    }
}
