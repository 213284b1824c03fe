//! Writes the changes of a fork or a run to the bound directory.

use avfs_changes::{ApplyError, ApplyOptions, ChangeSummary, Filter, Subject, called_out, changes_to_apply};
use avfs_engine::config_files::ConfigTexts;
use avfs_engine::require_bound_dir;
use avfs_vault::discard::ChangesOf;
use avfs_vault::gc::Trial;
use avfs_vault::set_ids::SetIds;
use avfs_vault::version::root_of_either;
use avfs_wire::Apply;
use avfs_workplace::{OpError, Workplace};

use super::{Conflicts, note_inherited};
use crate::changes::{ChangeLines, without_times};
use crate::error::VerbError;
use crate::named_run::last_change;

/// What to apply.
pub struct ApplyQuery {
    /// `None`: the newest run in effect that changed content.
    pub what: Option<ChangesOf>,
    /// Patterns of the only paths to apply; if empty, all paths.
    pub include: Vec<String>,
    /// Patterns of paths not to apply.
    pub exclude: Vec<String>,
    pub keep_setid: bool,
    /// Compare only, and write nothing.
    pub dry_run: bool,
}

pub struct Applied {
    pub apply: Apply,
    pub lines: ChangeLines,
    /// The number of requested changes, including those of a modification time only.
    pub requested: u64,
}

pub fn apply(
    workplace: &Workplace,
    query: &ApplyQuery,
) -> Result<Result<Applied, Conflicts<Apply>>, OpError> {
    let Workplace { client, vault } = workplace;
    let dir = require_bound_dir(vault)?;
    let filter = Filter::new(&query.include, &query.exclude)?;
    let what = match &query.what {
        Some(what) => what.clone(),
        None => ChangesOf::Run(last_change(workplace)?),
    };
    let subject = Subject::of(vault, &what).map_err(VerbError::of_changes)?;
    let runs_on_host = {
        let progress = client.observer.unshown_operation()?;
        let changes = changes_to_apply(vault, &subject, &filter, &progress.meter)?;
        called_out(vault, &root_of_either(&subject.after)?, Some(&dir), &changes, &progress.meter)?
    };
    // Note them before writing: afterwards a host tool may already have executed the path.
    for one in &runs_on_host {
        workplace.note(format_args!("{one}"));
    }
    let keep_seconds = ConfigTexts::read(&client.surroundings, Some(&dir))?.merged()?.fork_expires.value.0;
    let outcome = {
        let progress = client.observer.operation("applying")?;
        let options = ApplyOptions {
            filter: &filter,
            keep_seconds,
            set_ids: if query.keep_setid { SetIds::Kept } else { SetIds::Stripped },
            trial: if query.dry_run { Trial::DryRun } else { Trial::Real },
            meter: &progress.meter,
        };
        avfs_changes::apply(vault, &subject, &dir, &options)
    };
    let result = avfs_present::apply(&subject, &dir, query.dry_run, &runs_on_host);
    let applied = match outcome {
        Ok(applied) => applied,
        Err(error) => {
            let ApplyError::Conflict { conflicts, inherited, .. } = &error else { return Err(error.into()) };
            let result = avfs_present::apply_refused(result, conflicts, inherited);
            return Ok(Err(Conflicts { result, error: Box::new(error) }));
        }
    };
    let summary = ChangeSummary::of(without_times(applied.changes.iter(), applied.changes.empty_like())?)?;
    let lines = ChangeLines::from(&summary);
    let apply = avfs_present::applied(result, &applied, avfs_present::change_list(&summary), lines.counts);
    note_inherited(workplace, &applied.inherited);
    Ok(Ok(Applied { apply, lines, requested: applied.changes.len() as u64 }))
}
