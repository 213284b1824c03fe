//! The audit log: every mutation, each row chained to the one before it by its digest.
//!
//! Where the chain ends is kept beside it, so that a row cut off the end is missed too.

use avfs_types::clock::Timestamp;
use avfs_types::ids::{AuditDigest, DIGEST_BYTES, DigestKind, RunId, VersionId};

use crate::Result;
use crate::backend::{AuditRecord, BackendError, Reader, Writer};
use crate::witness::Witness;

const HEAD: &str = "audit_head";
/// Rows read at once while verifying.
const BATCH: usize = 1000;

/// What happened, before it has its place in the log.
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

/// What a check of the whole log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditCheck {
    /// Rows that were read.
    pub rows: u64,
    /// The digest the log ends in: keep it elsewhere, and a later check can prove that nothing before it changed.
    pub head: Option<Head>,
    /// What is wrong; empty for a log that is whole.
    pub problems: Vec<Problem>,
}

/// A sign that the audit log, or something that it vouches for, was tampered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The digest of a row does not match its content and the row before it.
    #[error("row {seq} was edited, or a row before it was")]
    Edited {
        /// The number of the row.
        seq: i64,
    },
    /// A row has a number below 1.
    #[error("row {seq} stands before the first one, and is none of the log")]
    BeforeFirst {
        /// The number of the row.
        seq: i64,
    },
    /// A row is missing in the middle.
    #[error("row {expected} is missing: the log goes on with row {found}")]
    Missing {
        /// The number that the row should have.
        expected: i64,
        /// The number that was found.
        found: i64,
    },
    /// Rows are missing at the end.
    #[error("the log ends with row {found}, but row {expected} was written")]
    CutOff {
        /// The number that the row should have.
        expected: i64,
        /// The number that was found.
        found: i64,
    },
    /// A row cannot be read.
    #[error("a row after row {after} cannot be read: {detail}")]
    Unreadable {
        /// The number of the row before it.
        after: i64,
        /// What is wrong, in words.
        detail: String,
    },
    /// The stored end of the chain is not that of the last row.
    #[error("the log has no end mark, or the mark is not the digest of its last row")]
    BadHead,
    /// A digest that the caller noted earlier is not in the log.
    #[error("digest {0} that should be in the log is not there")]
    NotInLog(AuditDigest),
    /// The journal lacks a run.
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
    /// The journal's record of a run is not the one that was logged.
    #[error("the {what} of run {run} in the journal is not what was written there")]
    RunEdited {
        /// The run.
        run: RunId,
        /// Which part: `request`, `decision` or `result`.
        what: &'static str,
    },
    /// An approval is not as it was logged.
    #[error("approval {approval} stands for something else than the log says")]
    ApprovalEdited {
        /// The id of the approval.
        approval: String,
    },
    /// An approval was used without a logged decision.
    #[error("approval {approval} was used, and nobody has given it")]
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
    /// The head of a fork is not the one that was logged.
    #[error("fork {fork} stands elsewhere than the log says")]
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
    /// A checkpoint pins another version than the one that was logged.
    #[error("checkpoint {checkpoint} stands for something else than the log says")]
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
    /// A version is marked as pruned, and no prune was logged.
    #[error("version {version} counts as pruned, which the log does not say")]
    PruneEdited {
        /// The version.
        version: VersionId,
    },
}

/// Checks every row against the chain, and journal, approvals, forks and checkpoints against the rows; with `expect`
/// also that this digest is one of its links.
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
