//! The audit log: its rows, and the check of their chain.

use avfs_types::ids::{AuditDigest, ForkName, RunPrefix};
use avfs_types::{Since, Zone};
use avfs_vault::audit;
use avfs_vault::audit_query::{self, newest};
use avfs_wire::{AuditLine, AuditList, AuditRow, AuditVerify, AuditVerifyHead};
use avfs_workplace::{OpError, Workplace};

use crate::error::VerbError;
use crate::named_run::note_fork;

/// The rows to list.
pub struct AuditQuery {
    pub run: Option<RunPrefix>,
    /// Rows about this fork and its checkpoints.
    pub fork: Option<ForkName>,
    /// One action (run.end), or all actions of a group (run).
    pub action: Option<String>,
    pub since: Option<Since>,
    /// The zone of local times.
    pub zone: Zone,
    /// The newest rows only.
    pub limit: usize,
}

/// Passes the rows to `receive` before it counts those that were left off, which reads the whole log.
pub fn list(
    workplace: &Workplace,
    query: AuditQuery,
    receive: &mut dyn FnMut(&[AuditRow]) -> Result<(), OpError>,
) -> Result<AuditList, OpError> {
    let vault = &workplace.vault;
    let wanted = audit_query::AuditQuery {
        since: query.since.map(|since| since.at(vault.now(), &query.zone)).transpose()?,
        run: match &query.run {
            Some(run) if run.steps_back().is_some() => Some(RunPrefix::from(&vault.run(run)?.id)),
            run => run.clone(),
        },
        fork: query.fork,
        action: query.action,
    };
    let reader = vault.read()?;
    let found = newest(&*reader, &wanted, query.limit)?;
    let rows: Vec<AuditRow> = found.rows.iter().map(avfs_present::audit_row).collect();
    receive(&rows)?;
    let left_off = found.left_off(&*reader, &wanted)?;
    if rows.is_empty() && left_off == 0 {
        workplace.note(format_args!("no rows found"));
        note_fork(workplace, wanted.fork.as_ref());
        if let Some(run) = &query.run {
            let avfs = &workplace.client.avfs;
            workplace.note(format_args!(
                "note: the log has no rows about run {run}; list runs with: {avfs} runs list"
            ));
        }
    }
    Ok(AuditList { rows, left_off })
}

/// Passes all rows to `receive`, oldest first.
pub fn export(
    workplace: &Workplace,
    since: Option<Since>,
    zone: &Zone,
    receive: &mut dyn FnMut(AuditLine) -> Result<(), OpError>,
) -> Result<(), OpError> {
    let vault = &workplace.vault;
    let since = since.map(|since| since.at(vault.now(), zone)).transpose()?;
    vault.export_audit(since, |link| receive(avfs_present::audit_line(&link)))
}

pub struct AuditVerdict {
    pub verify: AuditVerify,
    pub broken: Option<VerbError>,
}

/// Checks the chain, and that it contains the expected digest.
pub fn verify(workplace: &Workplace, expected: Option<&AuditDigest>) -> Result<AuditVerdict, OpError> {
    let verdict = audit::verify(&*workplace.vault.read()?, expected)?;
    let problems: Vec<String> = verdict.problems.iter().map(ToString::to_string).collect();
    let is_broken = !problems.is_empty();
    Ok(AuditVerdict {
        broken: is_broken.then(|| VerbError::AuditBroken { problems: problems.clone() }),
        verify: AuditVerify {
            rows: verdict.rows,
            head: verdict.head.map(|head| AuditVerifyHead { seq: head.seq, digest: head.digest.to_hex() }),
            problems,
        },
    })
}
