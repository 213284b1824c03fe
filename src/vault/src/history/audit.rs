//! The audit log: every mutation, each row chained to the previous one by its digest.
//!
//! The end of the chain is stored separately, so that rows deleted at the end are detected too.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{AuditDigest, DIGEST_BYTES, DigestKind, RunId, VersionId};

use crate::Result;
use crate::backend::{AuditRecord, BackendError, Reader, Writer};
use crate::witness::Witness;

const HEAD: &str = "audit_head";
/// Rows read at once while verifying.
const BATCH: usize = 1000;

/// An event that is not yet in the log.
pub(crate) struct Event<'a> {
    pub(crate) action: &'static str,
    pub(crate) subject: &'a str,
    pub(crate) before: Option<[u8; DIGEST_BYTES]>,
    pub(crate) after: Option<[u8; DIGEST_BYTES]>,
    pub(crate) detail: &'a str,
}

/// The end of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the last row.
    pub seq: i64,
    /// The digest of the last row, which covers all rows before it.
    pub digest: AuditDigest,
}

impl Head {
    const START: Self = Self { seq: 0, digest: AuditDigest([0; DIGEST_BYTES]) };

    fn encode(self) -> Vec<u8> {
        [&self.seq.to_be_bytes()[..], &self.digest.0].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (seq, digest) = bytes.split_at_checked(8)?;
        Some(Self { seq: i64::from_be_bytes(seq.try_into().ok()?), digest: AuditDigest::from_slice(digest)? })
    }
}

fn digest(previous: &AuditDigest, row: &AuditRecord) -> AuditDigest {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&previous.0);
    bytes.extend_from_slice(&row.seq.to_be_bytes());
    bytes.extend_from_slice(&row.at.0.to_be_bytes());
    for text in [&row.actor, &row.action, &row.subject, &row.detail] {
        avfs_types::encode::put_bytes(&mut bytes, text.as_bytes());
    }
    for side in [&row.before, &row.after] {
        avfs_types::encode::put_bytes(&mut bytes, side.as_ref().map_or(&[][..], |digest| digest));
    }
    AuditDigest(DigestKind::Audit.digest(&bytes))
}

pub(crate) fn append(writer: &mut dyn Writer, at: Timestamp, actor: &str, event: &Event<'_>) -> Result<()> {
    let head = writer.view().meta(HEAD)?.and_then(|bytes| Head::decode(&bytes)).unwrap_or(Head::START);
    let mut row = AuditRecord {
        seq: head.seq + 1,
        at,
        actor: actor.to_owned(),
        action: event.action.to_owned(),
        subject: event.subject.to_owned(),
        before: event.before,
        after: event.after,
        detail: event.detail.to_owned(),
        digest: head.digest,
    };
    row.digest = digest(&head.digest, &row);
    writer.append_audit(&row)?;
    writer.set_meta(HEAD, &Head { seq: row.seq, digest: row.digest }.encode())?;
    Ok(())
}

/// The result of a check of the whole log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditCheck {
    /// Rows read.
    pub rows: u64,
    /// The last digest of the log. A copy kept elsewhere lets a later check prove that nothing before it changed.
    pub head: Option<Head>,
    /// The problems found; empty for an intact log.
    pub problems: Vec<Problem>,
}

/// Evidence that the audit log, or an object it covers, was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The digest of a row does not match its content and the previous row.
    #[error("row {seq} or an earlier row was edited")]
    Edited {
        /// The number of the row.
        seq: i64,
    },
    /// A row has a number below 1.
    #[error("row {seq} is before the first row and does not belong to the log")]
    BeforeFirst {
        /// The number of the row.
        seq: i64,
    },
    /// A row is missing in the middle.
    #[error("row {expected} is missing: the log continues with row {found}")]
    Missing {
        /// The number expected.
        expected: i64,
        /// The number found.
        found: i64,
    },
    /// Rows are missing at the end.
    #[error("the log ends with row {found}, but row {expected} was written")]
    CutOff {
        /// The number of the last row written.
        expected: i64,
        /// The number of the last row found.
        found: i64,
    },
    /// A row cannot be read.
    #[error("a row after row {after} cannot be read: {detail}")]
    Unreadable {
        /// The number of the previous row.
        after: i64,
        /// A description of the problem.
        detail: String,
    },
    /// The stored end of the chain does not match the last row.
    #[error("the log has no end mark, or the mark is not the digest of its last row")]
    BadHead,
    /// A digest that the caller saved earlier is not in the log.
    #[error("digest {0} is not in the log")]
    NotInLog(AuditDigest),
    /// A logged run is missing from the journal.
    #[error("run {run} is in the log, but not in the journal")]
    RunMissing {
        /// The run.
        run: RunId,
    },
    /// The journal has a run that was never logged.
    #[error("run {run} is in the journal, but not in the log")]
    RunUnknown {
        /// The run.
        run: RunId,
    },
    /// The journal's record of a run does not match the log.
    #[error("the {what} of run {run} in the journal does not match the log")]
    RunEdited {
        /// The run.
        run: RunId,
        /// Which part: `request`, `decision` or `result`.
        what: &'static str,
    },
    /// An approval does not match the log.
    #[error("approval {approval} does not match the log")]
    ApprovalEdited {
        /// The id of the approval.
        approval: String,
    },
    /// An approval was used without a logged decision.
    #[error("approval {approval} was used, but never granted")]
    ApprovalUnsaid {
        /// The id of the approval.
        approval: String,
    },
    /// An approval is missing.
    #[error("approval {approval} is in the log, but not in the vault")]
    ApprovalMissing {
        /// The id of the approval.
        approval: String,
    },
    /// The head of a fork does not match the log.
    #[error("the head of fork {fork} does not match the log")]
    ForkEdited {
        /// The name of the fork.
        fork: String,
    },
    /// A fork is missing.
    #[error("fork {fork} is in the log, but not in the vault")]
    ForkMissing {
        /// The name of the fork.
        fork: String,
    },
    /// A checkpoint does not match the log.
    #[error("checkpoint {checkpoint} does not match the log")]
    CheckpointEdited {
        /// The checkpoint as `FORK@NAME`.
        checkpoint: String,
    },
    /// A checkpoint is missing.
    #[error("checkpoint {checkpoint} is in the log, but not in the vault")]
    CheckpointMissing {
        /// The checkpoint as `FORK@NAME`.
        checkpoint: String,
    },
    /// A version is marked as pruned, but no prune was logged.
    #[error("version {version} is marked as pruned, but the log has no prune of it")]
    PruneEdited {
        /// The version.
        version: VersionId,
    },
}

/// Checks every row against the chain, and journal, approvals, forks and checkpoints against the rows. With
/// `expect`, also checks that this digest is in the chain.
pub fn verify(reader: &dyn Reader, expect: Option<&AuditDigest>) -> Result<AuditCheck> {
    let head = reader.meta(HEAD)?.and_then(|bytes| Head::decode(&bytes));
    let mut problems = Vec::new();
    let mut end = Head::START;
    let mut after = i64::MIN;
    let mut rows = 0_u64;
    let mut witness = Witness::default();
    let mut expected_found = expect.is_none();
    loop {
        let batch = match reader.audit_after(after, BATCH) {
            Ok(batch) => batch,
            Err(error) => {
                let BackendError::Corrupt { detail, .. } = error else { return Err(error.into()) };
                problems.push(Problem::Unreadable { after: end.seq, detail });
                break;
            }
        };
        for row in &batch {
            rows += 1;
            after = row.seq;
            if row.seq <= Head::START.seq {
                problems.push(Problem::BeforeFirst { seq: row.seq });
                continue;
            }
            witness.hear(row);
            if row.seq != end.seq + 1 {
                problems.push(Problem::Missing { expected: end.seq + 1, found: row.seq });
            } else if digest(&end.digest, row) != row.digest {
                problems.push(Problem::Edited { seq: row.seq });
            }
            expected_found |= expect == Some(&row.digest);
            end = Head { seq: row.seq, digest: row.digest };
        }
        if batch.len() < BATCH {
            break;
        }
    }
    match head {
        Some(head) if head.seq > end.seq => {
            problems.push(Problem::CutOff { expected: head.seq, found: end.seq });
        }
        Some(head) if head == end => {}
        Some(_) | None => problems.push(Problem::BadHead),
    }
    if let (false, Some(expect)) = (expected_found, expect) {
        problems.push(Problem::NotInLog(*expect));
    }
    let is_whole = problems.is_empty();
    problems.extend(witness.compare(reader, is_whole)?);
    Ok(AuditCheck { rows, head, problems })
}
