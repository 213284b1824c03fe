//! What is asked of the audit log: some of its rows, or all of them from a point on.
//!
//! Never changes a row, and never keeps a reader open while somebody writes rows out.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{AuditDigest, DIGEST_BYTES, ForkName, RunPrefix};

use crate::backend::{AuditRecord, Reader};
use crate::{Result, Vault};

/// Rows read at once.
const BATCH_ROWS: usize = 1000;

/// Which rows are wanted; what is not said does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Rows from this time on.
    pub since: Option<Timestamp>,
    /// Rows about a run: its detail has `run=ID`.
    pub run: Option<RunPrefix>,
    /// Rows about a fork or one of its checkpoints.
    pub fork: Option<ForkName>,
    /// An action such as `run.end`, or a family of them such as `run`.
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
    // They come first; after them a command may have words that look alike.
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

/// The newest rows that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRows {
    /// Oldest first.
    pub rows: Vec<AuditRecord>,
    /// Rows before this one were not looked at.
    looked_from: i64,
}

/// The newest `limit` rows that are wanted.
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
    /// How many older rows match; looks at all of them.
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

/// A row and the digest it is chained to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Of the row before it; zeros for the first.
    pub previous: AuditDigest,
    /// The row.
    pub row: AuditRecord,
}

impl Vault {
    /// Gives every row from the first one at or after `since` on to `each`, in the order of the chain.
    ///
    /// Rows after that one are never left out, whatever their time: a clock that was set back must not tear
    /// the chain.
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
    fn every_part_of_a_query_has_to_hold() {
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
