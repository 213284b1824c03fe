//! Removes applied changes from the bound directory.

use avfs_changes::{Applied, ApplyError, ChangeSummary, Choice, Standing};
use avfs_engine::require_bound_dir;
use avfs_vault::backend::{ApplicationRecord, Reader, RunRecord};
use avfs_vault::changes::Changes;
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_wire::Unapply;
use avfs_workplace::{OpError, Workplace};

use super::Conflicts;
use crate::changes::{ChangeLines, without_times};
use crate::named_run::command_text;
use crate::text::{command_line, plural};

/// What to remove from the directory.
pub struct UnapplyQuery {
    /// `None`: the last apply.
    pub what: Option<ChangesOf>,
    /// Compare only, and write nothing.
    pub dry_run: bool,
}

pub struct Reverted {
    pub unapply: Unapply,
    pub lines: ChangeLines,
    /// The words that apply the changes again, one line for each choice of paths, oldest first; none if the run was
    /// discarded.
    pub again: Vec<String>,
}

pub fn unapply(
    workplace: &Workplace,
    query: &UnapplyQuery,
) -> Result<Result<Reverted, Conflicts<Unapply>>, OpError> {
    let vault = &workplace.vault;
    let dir = require_bound_dir(vault)?;
    let reader = vault.read()?;
    let what = match &query.what {
        Some(what) => what.meant(&*reader)?,
        None => Standing::newest(&*reader)?,
    };
    let groups = match &what {
        ChangesOf::Fork(name) => Standing::of_fork(&*reader, name)?,
        ChangesOf::Run(prefix) => Standing::of_run(&*reader, &vault.run(prefix)?)?,
    };
    let runs = Standing::runs(&*reader, &groups)?;
    let again = note_applied(workplace, &*reader, &groups, &runs)?;
    drop(reader);
    let outcome = {
        let trial = if query.dry_run { Trial::DryRun } else { Trial::Real };
        let progress = workplace.client.observer.operation("reverting")?;
        avfs_changes::unapply(vault, &groups, &dir, trial, &progress.meter)
    };
    let (all, conflicts) = match outcome {
        Ok(all) => (all, None),
        Err(error @ ApplyError::ChangedSince { .. }) => (Applied::default(), Some(error)),
        Err(error) => return Err(error.into()),
    };
    let reverted = without_times(all.changes.iter(), Changes::new(vault.temporary_dirs()))?;
    let reverted_runs = if conflicts.is_none() { runs } else { Vec::new() };
    let summary = ChangeSummary::of(reverted)?;
    let lines = ChangeLines::from(&summary);
    let result = Unapply {
        runs: reverted_runs.iter().map(|run| run.id.to_string()).collect(),
        dir: dir.to_string_lossy().into_owned(),
        dry_run: query.dry_run,
        changes: avfs_present::change_list(&summary),
        change_counts: lines.counts,
        already: all.already,
        kept_dirs: avfs_present::path_texts(&all.kept_dirs),
        conflicts: match &conflicts {
            Some(ApplyError::ChangedSince { conflicts, .. }) => avfs_present::conflicts(conflicts),
            Some(_) | None => Vec::new(),
        },
    };
    Ok(match conflicts {
        Some(error) => Err(Conflicts { result, error: Box::new(error) }),
        None => Ok(Reverted { unapply: result, lines, again }),
    })
}

/// Maximum number of commands that are listed to apply the changes again.
const AGAIN_MAX: usize = 4;

/// Notes the origin of the applied changes: one run, or a fork. Returns the words to apply them again.
fn note_applied(
    workplace: &Workplace,
    reader: &dyn Reader,
    groups: &[Standing],
    runs: &[RunRecord],
) -> Result<Vec<String>, OpError> {
    let applications: Vec<&ApplicationRecord> = groups.iter().flat_map(|group| &group.applications).collect();
    let what = match (runs, applications.first()) {
        ([run], _) => {
            workplace.note(format_args!("run {}: {}", run.id, command_line(&command_text(run))));
            run.discarded_at.is_none().then(|| run.id.to_string())
        }
        (_, Some(of)) => {
            let runs = plural(runs.len() as u64, "run", "runs");
            workplace.note(format_args!("fork {}: {runs}", of.fork));
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
