//! `avfs runs list|show`

use clap::{Args, Subcommand};

use avfs_changes::{ChangeSummary, GitIgnored, Shown};
use avfs_engine::journal::{self, JournalRow, Recorded, RunDecision, RunRequest, RunResult};
use avfs_engine::{LocateError, RunLife, ScratchDir, UnfinishedRun};
use avfs_ops::{OpError, command_text, discards, quoted};
use avfs_policy::Action;
use avfs_present::in_effect;
use avfs_request::BaseChoice;
use avfs_terminal::Tone;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{ForkName, RunId, RunPrefix, VersionId};
use avfs_types::show_bytes_size;
use avfs_vault::application;
use avfs_vault::application::InDirectory;
use avfs_vault::backend::{Life, Reader, RunRecord, RunState};
use avfs_vault::tree::Pages;
use avfs_vault::undo::InEffect;
use avfs_vault::version::{root_of_either, roots_to_compare};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{ConnectionObject, ErrorBody, LastLinesObject, RunsList, RunsShow, asked_for};

use super::run_approval;
use crate::commands::patch;
use crate::context::CommandContext;
use crate::ui::{Format, Out, Outcome};
use crate::view::{command_line, first_line, local_time, plural};

/// The number of runs read at once.
const LIST_ROWS: usize = 200;

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
    let vault = ctx.open_vault()?;
    let mut unsettled = unfinished(ctx, &vault)?;
    unsettled.retain(|run| args.fork.as_ref().is_none_or(|fork| run.record.fork == fork.as_str()));
    let (mut out, mut runs) = (ctx.ui.out(), Vec::new());
    if ctx.ui.format == Format::Human && !unsettled.is_empty() {
        out.line(format_args!("unfinished:"))?;
        unsettled.iter().try_for_each(|run| show_unfinished(&mut out, run))?;
    }
    let mut headed = unsettled.is_empty();
    let mut shown = 0;
    let more = newest(&vault, args, |run, effect| {
        shown += 1;
        match ctx.ui.format {
            Format::Json => {
                runs.push(in_effect(avfs_present::run(&run), effect.in_directory, effect.is_undone));
            }
            Format::Human => {
                if !std::mem::replace(&mut headed, true) {
                    out.line(format_args!("finished:"))?;
                }
                show_line(&mut out, &run, effect)?;
            }
        }
        // Show the first one at once, however many follow.
        if shown == 1 { out.flush() } else { Ok(()) }
    })?;
    out.flush()?;
    drop(out);
    if shown == 0 && unsettled.is_empty() && !more {
        ctx.ui.note(format_args!("no runs found"));
        note_fork(ctx, &vault, args.fork.as_ref());
    }
    if more {
        ctx.ui.note(format_args!("note: there are older runs; show more with: --limit N"));
    }
    let unsettled = unsettled.iter().map(avfs_present::unsettled_run).collect();
    ctx.ui.answer(&RunsList { unsettled, runs, more }, |_| Ok(()))
}

/// Records about a fork can outlive it, so an unknown fork is not an error; but the name may be mistyped.
pub fn note_fork(ctx: &CommandContext, vault: &Vault, fork: Option<&ForkName>) {
    if let Some(fork) = fork
        && matches!(vault.fork(fork), Err(VaultError::NoFork { .. }))
    {
        ctx.ui
            .note(format_args!("note: there is no fork {fork}; list forks with: {} fork list", ctx.ui.avfs));
    }
}

/// Runs whose state is not in the journal yet. Empty if there is no cache directory.
fn unfinished(ctx: &CommandContext, vault: &Vault) -> Result<Vec<UnfinishedRun>, OpError> {
    match ctx.client.surroundings.cache_dir() {
        Ok(cache_dir) => Ok(UnfinishedRun::find(&ScratchDir::new(&cache_dir), &vault.id()?)?),
        Err(LocateError::NoHome { .. }) => Ok(Vec::new()),
        Err(other) => Err(other.into()),
    }
}

fn show_unfinished(out: &mut Out, run: &UnfinishedRun) -> Result<(), OpError> {
    let (id, fork) = (out.paint(Tone::Id, &run.record.run), out.paint(Tone::Name, &run.record.fork));
    let (at, stands) = (local_time(run.record.started_at()), stands(run));
    let command = quoted(avfs_present::command_of(&run.record.request).as_ref());
    out.line(format_args!("{id}  {at}  {stands:<12}  {fork}  {}", command_line(&command)))
}

/// The state of a run, or its last state before its process died.
fn stands(run: &UnfinishedRun) -> String {
    match run.life {
        RunLife::Running => run.stands.to_string(),
        RunLife::Dead => format!("died {}", run.stands),
        RunLife::Recoverable => "recoverable".to_owned(),
    }
}

/// Passes the newest runs to `show`. Returns true if there are older ones.
fn newest(
    vault: &Vault,
    args: &ListArgs,
    mut show: impl FnMut(RunRecord, Effect) -> Result<(), OpError>,
) -> Result<bool, OpError> {
    let (mut left, mut before, mut in_effect) = (args.limit, i64::MAX, InEffect::default());
    loop {
        // Read one more run than is shown, to know whether there are older ones.
        let limit = left.saturating_add(1).min(LIST_ROWS);
        let runs = match &args.fork {
            Some(fork) => vault.runs_of_fork(fork, before, limit)?,
            None => vault.runs(before, limit)?,
        };
        let Some(oldest) = runs.last() else { return Ok(false) };
        before = oldest.seq;
        let reader = vault.read()?;
        for run in runs {
            if left == 0 {
                return Ok(true);
            }
            left -= 1;
            let effect = Effect {
                in_directory: application::in_directory(&*reader, &run)?,
                is_undone: in_effect.is_undone(&*reader, &run)?,
            };
            show(run, effect)?;
        }
    }
}

/// Whether the changes of a run are in effect.
#[derive(Clone, Copy)]
struct Effect {
    in_directory: Option<InDirectory>,
    /// On its fork.
    is_undone: bool,
}

/// The fork of a run; `None` for a run without changes, or that did not complete, which created no fork.
fn fork_of(run: &RunRecord) -> Option<&str> {
    let has_none =
        run.version_after.is_none() && run.fork.as_str().strip_prefix("run-") == Some(run.id.as_str());
    (!has_none).then_some(run.fork.as_str())
}

fn show_line(out: &mut Out, run: &RunRecord, effect: Effect) -> Result<(), OpError> {
    let (id, fork) = (out.paint(Tone::Id, &run.id), out.paint(Tone::Name, fork_of(run).unwrap_or("-")));
    let cached = avfs_present::cache_use_of_run(run).is_some_and(|cache| cache.cached_from.is_some());
    let cached = if cached { "  (cached)" } else { "" };
    let undone = if effect.is_undone && run.discarded_at.is_none() { "  (undone)" } else { "" };
    let marks = match (effect.in_directory, run.discarded_at, run.version_after) {
        (Some(InDirectory::Applied), Some(_), _) => "  (discarded, but applied)",
        (Some(InDirectory::Partly), Some(_), _) => "  (discarded, but partly applied)",
        (Some(InDirectory::Unapplied) | None, Some(_), _) => "  (discarded)",
        (Some(InDirectory::Applied), None, _) => "  (applied)",
        (Some(InDirectory::Partly), None, _) => "  (partly applied)",
        (Some(InDirectory::Unapplied), None, _) if effect.is_undone => "",
        (Some(InDirectory::Unapplied), None, _) => "  (unapplied)",
        (None, None, None) if run.state == RunState::Completed => {
            if discards(run) {
                "  (nothing kept)"
            } else {
                "  (no changes)"
            }
        }
        (None, None, _) => "",
    };
    let ended = ended(run).filter(|_| run.state == RunState::Completed);
    let (at, ended) = (local_time(run.started_at), ended.unwrap_or_else(|| run.state.word().to_owned()));
    out.line(format_args!(
        "{id}  {at}  {ended:<12}  {fork}{cached}{undone}{marks}  {}",
        command_line(&command_text(run))
    ))
}

/// `exit 0` or `signal 9`; `None` if the run did not end.
fn ended(run: &RunRecord) -> Option<String> {
    match (run.exit_code, run.signal) {
        (_, Some(signal)) => Some(format!("signal {signal}")),
        (Some(code), None) => Some(format!("exit {code}")),
        (None, None) => None,
    }
}

fn show(ctx: &CommandContext, args: &ShowArgs) -> Outcome {
    let vault = ctx.open_vault()?;
    let run = match named(ctx, &vault, args)? {
        Named::Ended(run) => *run,
        Named::Unfinished(run) => return show_unsettled(ctx, &run),
    };
    if args.output {
        return super::kept_output::show(ctx, &vault, &run);
    }
    note_unreadable(ctx, &run);
    let reader = vault.read()?;
    let summary = changes_of(&vault, &*reader, &run)?;
    let changes = summary
        .as_ref()
        .map(|summary| (avfs_present::change_list(summary), avfs_present::change_totals(&summary.counts)));
    let kept_until = kept_until(&*reader, &run)?;
    let mut result = avfs_present::run_shown(&run, changes, kept_until);
    let state = application::in_directory(&*reader, &run)?;
    let is_undone = InEffect::default().is_undone(&*reader, &run)?;
    result.run = in_effect(result.run, state, is_undone);
    ctx.ui.answer(&result, |out| {
        show_record(out, &run)?;
        if is_undone {
            out.line(format_args!("undone     on fork {}", out.paint(Tone::Name, &run.fork)))?;
        }
        show_applied(ctx, out, &run, state)?;
        if let Some(until) = kept_until {
            out.line(format_args!("kept until {}", local_time(until)))?;
        }
        // The lines of the record have the command, the fork and the base.
        let asked = asked_for(&result.request).into_iter().skip(1);
        for (name, text) in asked.filter(|(name, _)| !["fork", "base"].contains(&name.as_str())) {
            out.line(format_args!("{name:<10} {text}"))?;
        }
        show_decision(out, &result.decision)?;
        run_approval::show(ctx, out, &vault, &run)?;
        show_outcome(out, &run.id, &result)?;
        out.line(format_args!(""))?;
        match &summary {
            Some(summary) => patch::show_summary(out, &ignored_last(&*reader, &run, summary)?),
            None => out.line(format_args!("its changes are unknown: its versions are no longer kept")),
        }
    })
}

/// When the unapplied changes of a run expire; `None` if they do not.
fn kept_until(reader: &dyn Reader, run: &RunRecord) -> Result<Option<Timestamp>, OpError> {
    if run.version_after.is_none() || run.applied_at.is_some() || run.discarded_at.is_some() {
        return Ok(None);
    }
    Ok(match reader.fork(&run.fork)?.map(|fork| fork.life) {
        Some(Life::Ephemeral { expires_at }) => Some(expires_at),
        Some(Life::Persistent) | None => None,
    })
}

/// The changes in the order for people, with paths ignored by git last.
fn ignored_last(
    reader: &dyn Reader,
    run: &RunRecord,
    summary: &ChangeSummary,
) -> Result<ChangeSummary, OpError> {
    let after = match run.version_after {
        Some(after) => reader.version(&after)?,
        None => None,
    };
    match after {
        Some(after) => Ok(GitIgnored::new(reader, root_of_either(&after)?).sorted(summary)?),
        None => Ok(summary.clone()),
    }
}

/// Prints the decision of the policy and its reason.
pub fn show_decision(out: &mut Out, decision: &Recorded<RunDecision>) -> Result<(), OpError> {
    let Some(decision) = decision.read() else { return Ok(()) };
    let RunDecision { action, categories, rule, reason, hint, allow_rule, .. } = decision;
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
fn show_outcome(out: &mut Out, id: &RunId, shown: &RunsShow) -> Result<(), OpError> {
    if let Some(result) = shown.result.result() {
        show_result(out, id, result)?;
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

fn show_result(out: &mut Out, id: &RunId, result: &RunResult) -> Result<(), OpError> {
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

/// Reports the records of a run that cannot be read.
fn note_unreadable(ctx: &CommandContext, run: &RunRecord) {
    let JournalRow { request, decision, outcome } = journal::read(run);
    let parts =
        [("request", request.problem()), ("decision", decision.problem()), ("result", outcome.problem())];
    for (part, problem) in parts {
        if let Some(problem) = problem {
            ctx.ui.note(format_args!("note: the {part} of run {} cannot be read: {problem}", run.id));
        }
    }
}

/// A run that the user named.
enum Named {
    Ended(Box<RunRecord>),
    /// It is not in the journal yet.
    Unfinished(Box<UnfinishedRun>),
}

/// The run of an id, or by its age: a run that is still running is newer than those that ended before it started. It
/// has no output yet.
fn named(ctx: &CommandContext, vault: &Vault, args: &ShowArgs) -> Result<Named, OpError> {
    let Some(back) = args.id.steps_back().filter(|_| !args.output) else {
        return match vault.run(&args.id) {
            Ok(run) => Ok(Named::Ended(Box::new(run))),
            Err(VaultError::NoRun { id }) => {
                let mut all = unfinished(ctx, vault)?.into_iter();
                let found = all.find(|run| run.record.run.starts_with(id.as_str()));
                Ok(Named::Unfinished(Box::new(found.ok_or(VaultError::NoRun { id })?)))
            }
            Err(error) => Err(error.into()),
        };
    };
    let newest = vault.runs(i64::MAX, 1)?.first().map(|run| run.started_at);
    let mut running = unfinished(ctx, vault)?;
    running.retain(|run| {
        run.life == RunLife::Running && newest.is_none_or(|newest| run.record.started_at() > newest)
    });
    running.sort_by_key(|run| std::cmp::Reverse(run.record.started_at()));
    match usize::try_from(back).ok().filter(|back| *back < running.len()) {
        Some(back) => Ok(Named::Unfinished(Box::new(running.swap_remove(back)))),
        None if running.is_empty() => Ok(Named::Ended(Box::new(vault.run(&args.id)?))),
        None => {
            let id = RunPrefix::parse(&format!("last~{}", back - running.len() as u64))?;
            Ok(Named::Ended(Box::new(vault.run(&id)?)))
        }
    }
}

/// Shows a run that is not in the journal yet.
fn show_unsettled(ctx: &CommandContext, run: &UnfinishedRun) -> Outcome {
    let result = avfs_present::unsettled_run(run);
    ctx.ui.answer(&result, |out| {
        out.line(format_args!("run        {}", out.paint(Tone::Id, &run.record.run)))?;
        let command = quoted(avfs_present::command_of(&run.record.request).as_ref());
        out.line(format_args!("command    {}", command_line(&command)))?;
        out.line(format_args!("state      {}", stands(run)))?;
        out.line(format_args!("fork       {}", out.paint(Tone::Name, &run.record.fork)))?;
        out.line(format_args!("started    {}", local_time(run.record.started_at())))?;
        match run.life {
            RunLife::Running => Ok(()),
            RunLife::Dead => out.line(format_args!("the next run removes its leftovers")),
            RunLife::Recoverable => {
                out.line(format_args!("finish it with: {} recover {}", ctx.ui.avfs, run.record.run))
            }
        }
    })
}

fn show_record(out: &mut Out, run: &RunRecord) -> Result<(), OpError> {
    out.line(format_args!("run        {}", out.paint(Tone::Id, &run.id)))?;
    out.line(format_args!("command    {}", command_line(&command_text(run))))?;
    let how = ended(run);
    let how = how.map(|how| format!(", {how}")).unwrap_or_default();
    out.line(format_args!("state      {}{how}", run.state.word()))?;
    if let Some(fork) = fork_of(run) {
        out.line(format_args!("fork       {}", out.paint(Tone::Name, fork)))?;
    }
    if let Some(from) = avfs_present::cache_use_of_run(run).and_then(|cache| cache.cached_from) {
        out.line(format_args!("cached     from run {}", out.paint(Tone::Id, from)))?;
    }
    let request = Recorded::<RunRequest>::parse(&run.request);
    let asked = request.read().map(|request| &*request.base).filter(|base| *base != BaseChoice::Auto.word());
    match (avfs_present::base_kind_of_run(run), asked) {
        (Some(kind), Some(asked)) if asked != kind => {
            out.line(format_args!("base       {kind} (requested: {asked})"))?;
        }
        (Some(kind), _) => out.line(format_args!("base       {kind}"))?,
        (None, Some(asked)) => out.line(format_args!("base       none (requested: {asked})"))?,
        (None, None) => {}
    }
    let version = |id: Option<VersionId>| id.map_or_else(|| "-".to_owned(), |id| id.to_hex());
    out.line(format_args!("before     {}", version(run.version_before)))?;
    out.line(format_args!("after      {}", version(run.version_after)))?;
    out.line(format_args!("started    {}", local_time(run.started_at)))?;
    for (what, at) in [("ended", run.ended_at), ("discarded", run.discarded_at)] {
        if let Some(at) = at {
            out.line(format_args!("{what:<9}  {}", local_time(at)))?;
        }
    }
    Ok(())
}

/// Prints whether the changes of the run are in the bound directory, and how to change that.
fn show_applied(
    ctx: &CommandContext,
    out: &mut Out,
    run: &RunRecord,
    state: Option<InDirectory>,
) -> Result<(), OpError> {
    let (avfs, id) = (&ctx.ui.avfs, &run.id);
    let at = run.applied_at.map(local_time).unwrap_or_default();
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

/// The changes of a run; `None` if one of its versions was deleted or pruned.
fn changes_of(vault: &Vault, reader: &dyn Reader, run: &RunRecord) -> Result<Option<ChangeSummary>, OpError> {
    let Some(after) = run.version_after else { return Ok(Some(ChangeSummary::default())) };
    let Some(before) = run.version_before else { return Ok(None) };
    let (Some(before), Some(after)) = (reader.version(&before)?, reader.version(&after)?) else {
        return Ok(None);
    };
    if before.pruned_at.is_some() || after.pruned_at.is_some() {
        return Ok(None);
    }
    let pages: &dyn Pages = &reader;
    let [before, after] = roots_to_compare(reader, &before, &after)?;
    Ok(Some(ChangeSummary::compare(vault, pages, (&before, &after), &[], Shown::WithoutTimes)?))
}
