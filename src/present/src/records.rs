//! Versions, forks, checkpoints, runs and audit rows as wire types.

use avfs_types::clock::time_text;
use avfs_types::ids::{ForkName, VersionId, to_hex};
use avfs_vault::audit_query::Link;
use avfs_vault::backend::{
    AuditRecord, CheckpointRecord, Extent, ForkRecord, Life, RunRecord, RunState, VersionRecord,
};
use avfs_wire::{
    AuditLine, AuditRow, CheckpointObject, ForkObject, LifeName, RunObject, RunStateName, VersionObject,
};

#[must_use]
pub fn version(version: &VersionRecord) -> VersionObject {
    VersionObject {
        id: version.id.to_hex(),
        root: version.root.to_hex(),
        content: version.content.to_hex(),
        parents: version.parents.iter().map(VersionId::to_hex).collect(),
        run: version.run.clone(),
        message: version.message.clone(),
        author: version.author.clone(),
        at: time_text(version.at),
        at_ns: version.at.0,
        entries: version.entries,
        bytes: version.bytes,
        pruned_at: version.pruned_at.map(time_text),
        partial: version.extent == Extent::Partial,
    }
}

#[must_use]
pub fn fork(fork: &ForkRecord) -> ForkObject {
    let (life, expires_at) = match fork.life {
        Life::Persistent => (LifeName::Persistent, None),
        Life::Ephemeral { expires_at } => (LifeName::Ephemeral, Some(time_text(expires_at))),
    };
    ForkObject {
        name: fork.name.to_string(),
        head: fork.head.to_hex(),
        base: fork.base.to_hex(),
        parent: fork.parent.as_ref().map(ForkName::to_string),
        created_at: time_text(fork.created_at),
        life,
        expires_at,
    }
}

#[must_use]
pub fn checkpoint(checkpoint: &CheckpointRecord) -> CheckpointObject {
    CheckpointObject {
        fork: checkpoint.fork.to_string(),
        name: checkpoint.name.to_string(),
        version: checkpoint.version.to_hex(),
        automatic: checkpoint.automatic,
        message: checkpoint.message.clone(),
        at: time_text(checkpoint.at),
    }
}

#[must_use]
pub fn run_state(state: RunState) -> RunStateName {
    match state {
        RunState::Completed => RunStateName::Completed,
        RunState::Failed => RunStateName::Failed,
        RunState::Interrupted => RunStateName::Interrupted,
        RunState::Recoverable => RunStateName::Recoverable,
        RunState::Denied => RunStateName::Denied,
        RunState::ApprovalRequired => RunStateName::ApprovalRequired,
    }
}

#[must_use]
pub fn run(run: &RunRecord) -> RunObject {
    RunObject {
        seq: run.seq,
        id: run.id.to_string(),
        fork: run.fork.to_string(),
        state: crate::run_state(run.state),
        version_before: run.version_before.map(|id| id.to_hex()),
        version_after: run.version_after.map(|id| id.to_hex()),
        started_at: time_text(run.started_at),
        ended_at: run.ended_at.map(time_text),
        exit_code: run.exit_code,
        signal: run.signal,
        applied_at: run.applied_at.map(time_text),
        in_directory: None,
        undone: None,
        discarded_at: run.discarded_at.map(time_text),
        cached_from: crate::cache_use_of_run(run).and_then(|cache| cache.cached_from),
        command: crate::command_of(&run.request),
    }
}

#[must_use]
pub fn audit_line(link: &Link) -> AuditLine {
    AuditLine { row: crate::audit_row(&link.row), previous: link.previous.to_hex() }
}

#[must_use]
pub fn audit_row(row: &AuditRecord) -> AuditRow {
    AuditRow {
        seq: row.seq,
        at: time_text(row.at),
        at_ns: row.at.0,
        actor: row.actor.clone(),
        action: row.action.clone(),
        subject: row.subject.clone(),
        before: row.before.map(|digest| to_hex(&digest)),
        after: row.after.map(|digest| to_hex(&digest)),
        detail: row.detail.clone(),
        digest: row.digest.to_hex(),
    }
}
