//! Queries of the audit log: selected rows, or all rows from a given time on.
//!
//! Never changes a row, and never keeps a reader open while the caller writes rows out.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{AuditDigest, DIGEST_BYTES, ForkName, RunPrefix};

use crate::backend::{AuditRecord, Reader};
use crate::{Result, Vault};

/// Rows read at once.
const BATCH_ROWS: usize = 1000;

/// Filters for rows; a filter that is `None` matches every row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Rows from this time on.
    pub since: Option<Timestamp>,
    /// Rows about a run: its detail has `run=ID`.
    pub run: Option<RunPrefix>,
    /// Rows about a fork or one of its checkpoints.
    pub fork: Option<ForkName>,
    /// An action such as `run.end`, or a group of actions such as `run`.
    pub action: Option<String>,
}

impl AuditQuery {
    #[must_use]
    pub(crate) fn wants(&self, row: &AuditRecord) -> bool {
        let Self { since, run, fork, action } = self;
        since.is_none_or(|since| row.at >= since)
            && run.as_ref().is_none_or(|run| names_run(&row.detail, run))
            && fork.as_ref().is_none_or(|fork| is_about(&row.subject, fork))
            && action.as_ref().is_none_or(|action| is_of(&row.action, action))
    }
}

fn names_run(detail: &str, run: &RunPrefix) -> bool {
    // Ids come first in the detail; the command after them may contain similar words.
    let ids = detail.split_ascii_whitespace().map_while(|word| word.strip_prefix("run="));
    ids.into_iter().any(|id| id.starts_with(run.as_str()))
}

/// A subject is a fork, or `FORK@CHECKPOINT`.
fn is_about(subject: &str, fork: &ForkName) -> bool {
    subject.split_once('@').map_or(subject, |(fork, _)| fork) == fork.as_str()
}

fn is_of(action: &str, wanted: &str) -> bool {
    action.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The newest rows that match a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRows {
    /// Oldest first.
    pub rows: Vec<AuditRecord>,
    /// Rows before this one were not read.
    looked_from: i64,
}

/// The newest `limit` rows that match.
pub fn newest(reader: &dyn Reader, query: &AuditQuery, limit: usize) -> Result<AuditRows> {
    let mut rows = Vec::new();
    let mut looked_from = i64::MAX;
    while rows.len() < limit {
        let batch = reader.audit_before(looked_from, BATCH_ROWS)?;
        if batch.is_empty() {
            break;
        }
        for row in batch {
            if rows.len() == limit {
                break;
            }
            looked_from = row.seq;
            if query.wants(&row) {
                rows.push(row);
            }
        }
    }
    rows.reverse();
    Ok(AuditRows { rows, looked_from })
}

impl AuditRows {
    /// The number of older rows that match; reads all of them.
    pub fn left_off(&self, reader: &dyn Reader, query: &AuditQuery) -> Result<u64> {
        let (mut before, mut count) = (self.looked_from, 0);
        loop {
            let batch = reader.audit_before(before, BATCH_ROWS)?;
            let Some(last) = batch.last() else { return Ok(count) };
            before = last.seq;
            count += batch.iter().filter(|row| query.wants(row)).count() as u64;
        }
    }
}

/// A row and the digest that it is chained to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The digest of the previous row; zeros for the first row.
    pub previous: AuditDigest,
    /// The row.
    pub row: AuditRecord,
}

impl Vault {
    /// Passes every row, starting with the first one at or after `since`, to `each`, in the order of the chain.
    ///
    /// Later rows are never skipped, regardless of their time: a clock that was set back must not break the chain.
    pub fn export_audit<E: From<crate::VaultError>>(
        &self,
        since: Option<Timestamp>,
        mut each: impl FnMut(Link) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (mut after, mut previous) = (i64::MIN, AuditDigest([0; DIGEST_BYTES]));
        let mut begun = since.is_none();
        loop {
            let batch = self.audit_batch(after)?;
            let Some(last) = batch.last() else { return Ok(()) };
            after = last.seq;
            for row in batch {
                let digest = row.digest;
                begun |= since.is_some_and(|since| row.at >= since);
                if begun {
                    each(Link { previous, row })?;
                }
                previous = digest;
            }
        }
    }

    fn audit_batch(&self, after: i64) -> Result<Vec<AuditRecord>> {
        Ok(self.read()?.audit_after(after, BATCH_ROWS)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(action: &str, subject: &str, detail: &str) -> AuditRecord {
        AuditRecord {
            seq: 1,
            at: Timestamp(5),
            actor: "me".to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            before: None,
            after: None,
            detail: detail.to_owned(),
            digest: AuditDigest([0; DIGEST_BYTES]),
        }
    }

    #[test]
    fn rows_must_match_every_filter_of_a_query() {
        let of_run = row("run.end", "fix", "run=3f9a01bc77 exit=0");
        let saved = row("checkpoint.save", "fix@good", "not run=3f9");
        let query = |text: &str| AuditQuery { run: RunPrefix::parse(text).ok(), ..AuditQuery::default() };
        assert!(AuditQuery::default().wants(&of_run));
        assert!(query("3f9a").wants(&of_run) && query("3f9a01bc77").wants(&of_run));
        let forged = row("run.request", "fix", "run=aaaaaaaaaa echo run=3f9a01bc77");
        let applied = row("run.apply", "fix", "run=aaaaaaaaaa run=3f9a01bc77 paths=2");
        assert!(!query("3f9a").wants(&forged) && query("3f9a").wants(&applied));
        assert!(!query("01bc").wants(&of_run) && !query("3f9a").wants(&saved));
        let fork = |name: &str| AuditQuery { fork: ForkName::parse(name).ok(), ..AuditQuery::default() };
        assert!(fork("fix").wants(&of_run) && fork("fix").wants(&saved) && !fork("fi").wants(&saved));
        let action = |name: &str| AuditQuery { action: Some(name.to_owned()), ..AuditQuery::default() };
        assert!(action("run").wants(&of_run) && action("run.end").wants(&of_run));
        assert!(!action("ru").wants(&of_run) && !action("run").wants(&saved));
        let since = |at| AuditQuery { since: Some(Timestamp(at)), ..AuditQuery::default() };
        assert!(since(5).wants(&of_run) && !since(6).wants(&of_run));
        assert!(!AuditQuery { since: Some(Timestamp(6)), ..query("3f9a") }.wants(&of_run));
    }
}
