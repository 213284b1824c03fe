//! `avfs unapply`

use clap::Args;

use avfs_changes::{Applied, ApplyError, ChangeSummary, Choice, Standing, unapply};
use avfs_engine::require_bound_dir;
use avfs_ops::OpError;
use avfs_present::error_body;
use avfs_terminal::Tone;
use avfs_vault::backend::{ApplicationRecord, Reader, RunRecord};
use avfs_vault::changes::Changes;
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_wire::Unapply;

use crate::commands::apply::without_times;
use crate::commands::patch;
use crate::commands::runs::command_text;
use crate::context::CommandContext;
use crate::ui::{Format, Outcome, Ui};
use crate::view::{command_line, plural};

/// Remove applied changes from the bound directory
///
/// Reverts exactly the changes that `avfs apply` or a run with --apply wrote, including partial applies;
/// for a fork, those of all its applies. If any of these paths has changed since, nothing is written and all
/// such paths are listed. The run and its version stay, so `avfs apply` can write the changes again. Applied
/// changes can be reverted for the time that the setting fork.expires gives, 7 days by default.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  avfs unapply
  avfs unapply last --dry-run
  avfs unapply 3f9a && avfs apply 3f9a --exclude '*.lock'")]
pub struct UnapplyArgs {
    /// The run (its ID, last or last~N) or the fork [default: the last apply]
    #[arg(value_name = "FORK|RUN")]
    what: Option<ChangesOf>,
    /// Only compare, and print the changes that would be removed
    #[arg(long)]
    dry_run: bool,
}

pub fn run(ctx: &CommandContext, args: &UnapplyArgs) -> Outcome {
    take_back(ctx, &ctx.ui, args.what.as_ref(), args.dry_run)
}

/// Reverts applied changes, and answers as `avfs unapply`.
pub fn take_back(ctx: &CommandContext, ui: &Ui, what: Option<&ChangesOf>, dry_run: bool) -> Outcome {
    let vault = ctx.open_vault()?;
    let dir = require_bound_dir(&vault)?;
    let reader = vault.read()?;
    let what = match what {
        Some(what) => what.meant(&*reader)?,
        None => Standing::newest(&*reader)?,
    };
    let groups = match &what {
        ChangesOf::Fork(name) => Standing::of_fork(&*reader, name)?,
        ChangesOf::Run(prefix) => Standing::of_run(&*reader, &vault.run(prefix)?)?,
    };
    let runs = Standing::runs(&*reader, &groups)?;
    let again = name_applied(ui, &*reader, &groups, &runs)?;
    drop(reader);
    let trial = if dry_run { Trial::DryRun } else { Trial::Real };
    let outcome = {
        let progress = ctx.client.observer.operation("reverting")?;
        unapply(&vault, &groups, &dir, trial, &progress.meter)
    };
    let (all, conflicts) = match outcome {
        Ok(all) => (all, None),
        Err(error @ ApplyError::ChangedSince { .. }) => (Applied::default(), Some(error)),
        Err(error) => return Err(error.into()),
    };
    let reverted = without_times(all.changes.iter(), Changes::new(vault.temporary_dirs()))?;
    let reverted_runs = if conflicts.is_none() { runs } else { Vec::new() };
    let summary = ChangeSummary::of(reverted)?;
    let result = Unapply {
        runs: reverted_runs.iter().map(|run| run.id.to_string()).collect(),
        dir: dir.to_string_lossy().into_owned(),
        dry_run,
        changes: avfs_present::change_list(&summary),
        change_counts: avfs_present::change_totals(&summary.counts),
        already: all.already,
        kept_dirs: avfs_present::path_texts(&all.kept_dirs),
        conflicts: match &conflicts {
            Some(ApplyError::ChangedSince { conflicts, .. }) => avfs_present::conflicts(conflicts),
            Some(_) | None => Vec::new(),
        },
    };
    if let Some(error) = conflicts {
        return match ui.format {
            Format::Json => ui.answer_no(&result, &error_body(&error, &ui.avfs), |_| Ok(())),
            Format::Human => Err(error.into()),
        };
    }
    ui.answer(&result, |out| {
        patch::show_summary(out, &summary)?;
        for kept in &all.kept_dirs {
            let word = out.paint(Tone::Changed, "kept    ");
            out.line(format_args!("{word}  {kept}/  (contains files that are not versioned)"))?;
        }
        let word = if dry_run { "would be removed from" } else { "removed from" };
        out.line(format_args!("{word} {}", dir.display()))?;
        for words in again.iter().filter(|_| !dry_run) {
            out.line(format_args!("apply it again with: {} apply {words}", ui.avfs))?;
        }
        Ok(())
    })
}

/// Maximum number of commands that are listed to apply the changes again.
const AGAIN_MAX: usize = 4;

/// Prints the origin of the applied changes: one run, or a fork. Returns the words to apply them again, one line for
/// each choice of paths, oldest first; none if the run was discarded.
fn name_applied(
    ui: &Ui,
    reader: &dyn Reader,
    groups: &[Standing],
    runs: &[RunRecord],
) -> Result<Vec<String>, OpError> {
    let applications: Vec<&ApplicationRecord> = groups.iter().flat_map(|group| &group.applications).collect();
    let what = match (runs, applications.first()) {
        ([run], _) => {
            ui.note(format_args!("run {}: {}", run.id, command_line(&command_text(run))));
            run.discarded_at.is_none().then(|| run.id.to_string())
        }
        (_, Some(of)) => {
            ui.note(format_args!("fork {}: {}", of.fork, plural(runs.len() as u64, "run", "runs")));
            reader.fork(&of.fork)?.map(|fork| fork.name.to_string())
        }
        (_, None) => None,
    };
    let Some(what) = what else { return Ok(Vec::new()) };
    let mut again = Vec::new();
    for of in applications.iter().rev() {
        let words = format!("{what}{}", Choice::read(&of.choice)?.options());
        if !again.contains(&words) {
            again.push(words);
        }
    }
    // Without options everything is applied.
    Ok(if again.len() > AGAIN_MAX || again.contains(&what) { vec![what] } else { again })
}
