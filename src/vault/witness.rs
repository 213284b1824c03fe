//! What the audit log says of the journal and of approvals: the texts of each run by their digests, and what was
//! said to each approval.
//!
//! A row of the journal that was edited or removed is found by it, as far as it is of a run that was kept since
//! the log tells of them; a yes that nobody said is found always.

use std::collections::BTreeMap;

use crate::backend::{ApprovalState, AuditRecord, Reader};
use crate::ids::{DIGEST_BYTES, RunId};

use super::audit::Problem;
use super::error::Result;
use super::run::digest;

type Digest = [u8; DIGEST_BYTES];

/// What was written of one run, the newest of each.
#[derive(Clone, Copy, Default)]
struct Seen {
    request: Option<Digest>,
    decision: Option<Digest>,
    result: Option<Digest>,
}

/// Approvals read at once.
const BATCH: usize = 500;

/// Collects what the log tells.
#[derive(Default)]
pub struct Witness {
    runs: BTreeMap<RunId, Seen>,
    /// What every approval came to, and for which request.
    approvals: BTreeMap<String, (ApprovalState, Digest)>,
}

impl Witness {
    pub fn hear(&mut self, row: &AuditRecord) {
        let came_to = match row.action.as_str() {
            "approval.ask" => Some(ApprovalState::Pending),
            "approval.approve" => Some(ApprovalState::Approved),
            "approval.deny" => Some(ApprovalState::Denied),
            "approval.use" => Some(ApprovalState::Used),
            _ => None,
        };
        if let (Some(state), Some(digest)) = (came_to, row.after) {
            self.approvals.insert(row.subject.clone(), (state, digest));
        }
        let part: fn(&mut Seen) -> &mut Option<Digest> = match row.action.as_str() {
            "run.request" => |seen| &mut seen.request,
            "run.decision" => |seen| &mut seen.decision,
            "run.end" | "run.fail" | "run.interrupt" | "run.recoverable" => |seen| &mut seen.result,
            _ => return,
        };
        if let (Some(run), Some(digest)) = (run_of(&row.detail), row.after) {
            *part(self.runs.entry(run).or_default()) = Some(digest);
        }
    }

    /// What the journal tells differently.
    pub fn compare(self, reader: &dyn Reader) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        for (id, seen) in self.runs {
            let Some(run) = reader.run(&id)? else {
                problems.push(Problem::RunMissing { run: id });
                continue;
            };
            let texts = [
                ("request", seen.request, &run.request),
                ("decision", seen.decision, &run.decision),
                ("result", seen.result, &run.result),
            ];
            for (what, written, text) in texts {
                if written.is_some_and(|written| written != digest(text)) {
                    problems.push(Problem::RunEdited { run: id.clone(), what });
                }
            }
        }
        problems.extend(compare_approvals(self.approvals, reader)?);
        Ok(problems)
    }
}

fn compare_approvals(
    mut told: BTreeMap<String, (ApprovalState, Digest)>,
    reader: &dyn Reader,
) -> Result<Vec<Problem>> {
    let (mut problems, mut before) = (Vec::new(), i64::MAX);
    loop {
        let batch = reader.approvals(before, BATCH)?;
        let Some(last) = batch.last() else { break };
        before = last.seq;
        for approval in batch {
            if told.remove(approval.id.as_str()) != Some((approval.state, approval.request_digest.0)) {
                problems.push(Problem::ApprovalEdited { approval: approval.id.to_string() });
            }
        }
    }
    problems.extend(told.into_keys().map(|approval| Problem::ApprovalMissing { approval }));
    Ok(problems)
}

/// The run that a row is about.
fn run_of(detail: &str) -> Option<RunId> {
    let id = detail.strip_prefix("run=")?.split(' ').next()?;
    RunId::parse(id).ok()
}
