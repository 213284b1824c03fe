//! Applications: records of the changes written to the bound directory, so that exactly these can be undone.
//!
//! An application is recorded before the first path changes. An interrupted one is finished, or undone, from the
//! same record.

use avfs_types::ids::{ForkName, RunId, RunPrefix, VersionId};
use avfs_types::words;

use super::audit::Event;
use super::undo::is_undone_at;
use super::version::History;
use crate::backend::{ApplicationRecord, Reader, RunRecord};
use crate::{Result, Transaction, Vault, VaultError};

words!(
    /// The state of a run's changes in the bound directory.
    InDirectory, "state in the directory", {
        /// All of them were written.
        Applied = "applied",
        /// Some of them were written.
        Partly = "partly_applied",
        /// They were written and later undone.
        Unapplied = "unapplied",
    }
);

impl ApplicationRecord {
    /// Whether its changes are still in the directory, as far as the vault knows.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.undone_at.is_none()
    }
}

impl Vault {
    /// Records an application before anything is written. An unfinished application of the same changes is
    /// continued.
    pub fn begin_application(&self, new: &ApplicationRecord) -> Result<ApplicationRecord> {
        self.transact(|transaction| {
            let known = transaction.view().applications_of_fork(&new.fork)?;
            let same = |old: &ApplicationRecord| {
                old.stands()
                    && old.ended_at.is_none()
                    && (&old.runs, &old.choice) == (&new.runs, &new.choice)
                    && (old.before, old.after) == (new.before, new.after)
            };
            if let Some(old) = known.into_iter().find(same) {
                return Ok(old);
            }
            let seq = transaction.writer.put_application(new)?;
            record(transaction, "apply.begin", &new.fork, &new.runs, "")?;
            Ok(ApplicationRecord { seq, ..new.clone() })
        })
    }

    /// Records that an application has ended, that the changes of the runs `whole` are now in the directory, and that
    /// those of the runs `undone` no longer are.
    pub fn end_application(
        &self,
        of: &ApplicationRecord,
        (whole, undone): (&[RunId], &[RunId]),
        detail: &str,
    ) -> Result<()> {
        self.transact(|transaction| {
            let now = transaction.now();
            transaction.writer.put_application(&ApplicationRecord { ended_at: Some(now), ..of.clone() })?;
            for run in runs(transaction, whole)? {
                transaction.writer.put_run(&RunRecord { applied_at: Some(now), ..run })?;
            }
            for run in runs(transaction, undone)? {
                transaction.writer.put_run(&RunRecord { applied_at: None, ..run })?;
            }
            record(transaction, "run.apply", &of.fork, whole, detail)
        })
    }

    /// Records that the changes of these applications are no longer in the directory.
    pub fn undo_applications(&self, all: &[ApplicationRecord], detail: &str) -> Result<()> {
        self.transact(|transaction| {
            let now = transaction.now();
            for of in all {
                transaction
                    .writer
                    .put_application(&ApplicationRecord { undone_at: Some(now), ..of.clone() })?;
                for run in runs(transaction, &of.runs)? {
                    transaction.writer.put_run(&RunRecord { applied_at: None, ..run })?;
                }
                record(transaction, "run.unapply", &of.fork, &of.runs, detail)?;
            }
            Ok(())
        })
    }
}

fn runs(transaction: &mut Transaction<'_>, ids: &[RunId]) -> Result<Vec<RunRecord>> {
    let view = transaction.view();
    let found =
        ids.iter().map(|id| view.run(id)?.ok_or_else(|| VaultError::NoRun { id: RunPrefix::from(id) }));
    found.collect()
}

fn record(
    transaction: &mut Transaction<'_>,
    action: &'static str,
    fork: &ForkName,
    runs: &[RunId],
    detail: &str,
) -> Result<()> {
    let names: String = runs.iter().map(|id| format!("run={id} ")).collect();
    let detail = format!("{names}{detail}");
    let subject = fork.as_str();
    transaction.record(&Event { action, subject, before: None, after: None, detail: detail.trim_end() })
}

/// The state of a run's changes in the bound directory; `None` if they were never written.
pub fn in_directory(reader: &dyn Reader, run: &RunRecord) -> Result<Option<InDirectory>> {
    if run.applied_at.is_some() {
        return Ok(Some(InDirectory::Applied));
    }
    let all = reader.applications_of_fork(&run.fork)?;
    let is_own = |of: &ApplicationRecord| of.runs.contains(&run.id);
    if !all.iter().any(is_own) {
        return Ok(None);
    }
    let standing: Vec<_> = all.iter().filter(|of| of.stands()).collect();
    let Some(place) = standing.iter().position(|of| is_own(of)) else {
        return Ok(Some(InDirectory::Unapplied));
    };
    // A later apply of the fork removes the changes of an undone run.
    for later in &standing[..place] {
        if has_version(reader, &later.before, run)? && is_undone_at(reader, &later.after, run)? {
            return Ok(Some(InDirectory::Unapplied));
        }
    }
    Ok(Some(InDirectory::Partly))
}

/// Whether a version was made from the one that the run created.
fn has_version(reader: &dyn Reader, id: &VersionId, run: &RunRecord) -> Result<bool> {
    for version in History::new(reader, *id) {
        match version {
            Ok(version) if Some(version.id) == run.version_after => return Ok(true),
            Ok(version) if Some(version.id) == run.version_before => return Ok(false),
            Ok(_) => {}
            // It has expired.
            Err(VaultError::MissingObject { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
