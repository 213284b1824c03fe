//! One run: its record, its approval, its changes, and its output.

use avfs_changes::{ChangeSummary, GitIgnored, Shown};
use avfs_engine::journal::{self, JournalRow, Recorded, RunDecision};
use avfs_engine::{RunLife, UnfinishedRun};
use avfs_present::in_effect;
use avfs_types::clock::Timestamp;
use avfs_types::ids::{ApprovalPrefix, RunPrefix};
use avfs_vault::application::{InDirectory, in_directory};
use avfs_vault::backend::{ApprovalRecord, Life, Reader, RunRecord, RunState};
use avfs_vault::tree::Pages;
use avfs_vault::undo::InEffect;
use avfs_vault::version::{root_of_either, roots_to_compare};
use avfs_vault::{Vault, VaultError};
use avfs_wire::{ApprovalStateName, RunsShow, UnsettledRun};
use avfs_workplace::{OpError, Workplace};

use super::list::unfinished;
use super::output::KeptOutput;
use crate::changes::ChangeLines;

/// The number of rows read at once.
const BATCH_ROWS: usize = 200;

/// How much to find out about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunDetail {
    /// What the journal has.
    Record,
    /// Also its approval, and its changes as lines, with the paths that git ignores last.
    Lines,
}

/// A run that the caller named.
pub enum FoundRun<T> {
    Settled(Box<T>),
    /// It is not in the journal yet.
    Unsettled(Box<UnsettledRun>),
}

pub struct SettledRun {
    pub shown: RunsShow,
    pub in_directory: Option<InDirectory>,
    pub approval: Option<RunApproval>,
    /// `None` if its versions are no longer kept, or if no lines are wanted.
    pub lines: Option<ChangeLines>,
}

/// The approval that allowed a run, or that it asked for.
pub struct RunApproval {
    pub id: String,
    pub state: ApprovalStateName,
    /// The command that approves it, if it is pending.
    pub approve: Option<String>,
}

/// The run with this id, or of this age: a run that still runs is newer than those that ended before it started.
pub fn show_run(
    workplace: &Workplace,
    id: &RunPrefix,
    detail: RunDetail,
) -> Result<FoundRun<SettledRun>, OpError> {
    let vault = &workplace.vault;
    let run = match named(workplace, id)? {
        FoundRun::Settled(run) => run,
        FoundRun::Unsettled(run) => return Ok(FoundRun::Unsettled(run)),
    };
    note_unreadable(workplace, &run);
    let reader = vault.read()?;
    let summary = changes_of(vault, &*reader, &run)?;
    let changes = summary
        .as_ref()
        .map(|summary| (avfs_present::change_list(summary), avfs_present::change_totals(&summary.counts)));
    let mut shown = avfs_present::run_shown(&run, changes, kept_until(&*reader, &run)?);
    let state = in_directory(&*reader, &run)?;
    shown.run = in_effect(shown.run, state, InEffect::default().is_undone(&*reader, &run)?);
    let (approval, lines) = match detail {
        RunDetail::Record => (None, None),
        RunDetail::Lines => {
            let sorted = summary.map(|summary| ignored_last(&*reader, &run, &summary)).transpose()?;
            (approval_of(workplace, &run)?, sorted.as_ref().map(ChangeLines::from))
        }
    };
    Ok(FoundRun::Settled(Box::new(SettledRun { shown, in_directory: state, approval, lines })))
}

/// The kept output of a run. A run that still runs has none, so ages count the runs that ended.
pub fn kept_output<'w>(
    workplace: &'w Workplace,
    id: &RunPrefix,
) -> Result<FoundRun<KeptOutput<'w>>, OpError> {
    Ok(match by_id(workplace, id)? {
        FoundRun::Settled(run) => FoundRun::Settled(Box::new(KeptOutput::of(workplace, &run)?)),
        FoundRun::Unsettled(run) => FoundRun::Unsettled(run),
    })
}

fn named(workplace: &Workplace, id: &RunPrefix) -> Result<FoundRun<RunRecord>, OpError> {
    let vault = &workplace.vault;
    let Some(back) = id.steps_back() else { return by_id(workplace, id) };
    let newest = vault.runs(i64::MAX, 1)?.first().map(|run| run.started_at);
    let mut running = unfinished(workplace)?;
    running.retain(|run| {
        run.life == RunLife::Running && newest.is_none_or(|newest| run.record.started_at() > newest)
    });
    running.sort_by_key(|run| std::cmp::Reverse(run.record.started_at()));
    match usize::try_from(back).ok().and_then(|back| running.get(back)) {
        Some(run) => Ok(unsettled(run)),
        None if running.is_empty() => Ok(FoundRun::Settled(Box::new(vault.run(id)?))),
        None => {
            let id = RunPrefix::parse(&format!("last~{}", back - running.len() as u64))?;
            Ok(FoundRun::Settled(Box::new(vault.run(&id)?)))
        }
    }
}

fn by_id(workplace: &Workplace, id: &RunPrefix) -> Result<FoundRun<RunRecord>, OpError> {
    match workplace.vault.run(id) {
        Ok(run) => Ok(FoundRun::Settled(Box::new(run))),
        Err(VaultError::NoRun { id }) => {
            let all = unfinished(workplace)?;
            let found = all.iter().find(|run| run.record.run.starts_with(id.as_str()));
            Ok(unsettled(found.ok_or(VaultError::NoRun { id })?))
        }
        Err(error) => Err(error.into()),
    }
}

fn unsettled<T>(run: &UnfinishedRun) -> FoundRun<T> {
    FoundRun::Unsettled(Box::new(avfs_present::unsettled_run(run)))
}

/// Notes the records of a run that cannot be read.
fn note_unreadable(workplace: &Workplace, run: &RunRecord) {
    let JournalRow { request, decision, outcome } = journal::read(run);
    let parts =
        [("request", request.problem()), ("decision", decision.problem()), ("result", outcome.problem())];
    for (part, problem) in parts {
        if let Some(problem) = problem {
            workplace.note(format_args!("note: the {part} of run {} cannot be read: {problem}", run.id));
        }
    }
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

fn approval_of(workplace: &Workplace, run: &RunRecord) -> Result<Option<RunApproval>, OpError> {
    let Workplace { client, vault } = workplace;
    Ok(find_approval(vault, run)?.map(|approval| {
        let state = avfs_present::approval_state(&approval, vault.now());
        let is_pending = state == ApprovalStateName::Pending;
        let approve = is_pending.then(|| avfs_present::command_to_approve(&client.avfs, &approval));
        RunApproval { id: approval.id.to_string(), state, approve }
    }))
}

fn find_approval(vault: &Vault, run: &RunRecord) -> Result<Option<ApprovalRecord>, OpError> {
    let decision = Recorded::<RunDecision>::parse(&run.decision);
    if let Some(id) = decision.read().and_then(|decision| decision.approval_id.as_ref()) {
        return match vault.approval(&ApprovalPrefix::parse(id)?) {
            Ok(approval) => Ok(Some(approval)),
            Err(VaultError::NoApproval { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        };
    }
    if run.state != RunState::ApprovalRequired {
        return Ok(None);
    }
    // The row of a run is written before its approval exists. An earlier run may have asked the same question.
    let is_asked = |approval: &ApprovalRecord| {
        approval.asked_by == run.id
            || approval.request == run.request && run.ended_at.is_none_or(|end| approval.created_at <= end)
    };
    let mut before = i64::MAX;
    loop {
        let approvals = vault.approvals(before, BATCH_ROWS)?;
        let Some(last) = approvals.last() else { return Ok(None) };
        before = last.seq;
        if let Some(found) = approvals.into_iter().find(is_asked) {
            return Ok(Some(found));
        }
    }
}
