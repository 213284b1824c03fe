//! Compares the journal, the approvals and the forks with the audit log, which records the digests of each run's texts,
//! the decision on each approval, the head of each fork and the checkpoints saved by hand.
//!
//! Detects journal rows that were edited or removed, for runs recorded since the log covers runs, and always an
//! approval that was used without having been granted.

use std::collections::{BTreeMap, BTreeSet};

use avfs_types::ids::{DIGEST_BYTES, RunId, VersionId};

use super::gc::digest_of_versions;
use crate::Result;
use crate::audit::Problem;
use crate::backend::{ApprovalState, AuditRecord, Reader};
use crate::run::digest;

type Digest = [u8; DIGEST_BYTES];

/// The newest digest of each text of one run.
#[derive(Clone, Copy, Default)]
struct Seen {
    request: Option<Digest>,
    decision: Option<Digest>,
    result: Option<Digest>,
}

/// Approvals or runs per query.
const BATCH: usize = 500;

/// The state of the vault according to the audit log.
pub(crate) struct Witness {
    runs: BTreeMap<RunId, Seen>,
    /// The final state of each approval, and the digest of its request.
    approvals: BTreeMap<String, (ApprovalState, Digest)>,
    /// Approvals that were used without having been granted.
    unsaid: Vec<String>,
    /// The head of every fork, by its name.
    forks: BTreeMap<String, Digest>,
    /// The version and the message of each checkpoint, by `FORK@NAME`, except those that runs saved automatically.
    checkpoints: BTreeMap<String, (Digest, String)>,
    /// By time of a prune: the number of pruned versions and their digest. `None` if the log of an older avfs lacks
    /// these.
    prunes: Option<BTreeMap<i64, (usize, Option<Digest>)>>,
}

impl Default for Witness {
    fn default() -> Self {
        let (runs, approvals, unsaid, forks, checkpoints) = Default::default();
        Self { runs, approvals, unsaid, forks, checkpoints, prunes: Some(BTreeMap::new()) }
    }
}

impl Witness {
    pub(crate) fn hear(&mut self, row: &AuditRecord) {
        let came_to = match row.action.as_str() {
            "approval.ask" => Some(ApprovalState::Pending),
            "approval.approve" => Some(ApprovalState::Approved),
            "approval.deny" => Some(ApprovalState::Denied),
            "approval.use" => Some(ApprovalState::Used),
            _ => None,
        };
        if let (Some(state), Some(digest)) = (came_to, row.after) {
            let before = self.approvals.insert(row.subject.clone(), (state, digest));
            if state == ApprovalState::Used && before != Some((ApprovalState::Approved, digest)) {
                self.unsaid.push(row.subject.clone());
            }
        }
        self.hear_of_forks(row);
        if row.action == "vault.prune" {
            self.prunes = self.prunes.take().and_then(|mut prunes| {
                let number = |key: &str| row.detail.split(' ').find_map(|word| word.strip_prefix(key));
                let at = number("pruned_at=")?.parse().ok()?;
                let (count, digest) = (number("versions=")?.parse().ok()?, row.after?);
                // Two prunes at the same time cannot be distinguished: only their total count is checked.
                prunes
                    .entry(at)
                    .and_modify(|logged: &mut (usize, _)| *logged = (logged.0 + count, None))
                    .or_insert((count, Some(digest)));
                Some(prunes)
            });
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

    fn hear_of_forks(&mut self, row: &AuditRecord) {
        // Audit logs of format 2 have `run.complete` where later formats have `run.capture`.
        let ends = match row.action.as_str() {
            "fork.delete" | "fork.expire" => true,
            // The row has `before` only if the fork was deleted too.
            "run.discard" => row.before.is_some(),
            _ => false,
        };
        let moves = matches!(row.action.as_str(), "vault.create" | "run.capture" | "run.complete")
            || row.action.starts_with("fork.");
        match (row.action.as_str(), row.after) {
            _ if ends => {
                self.forks.remove(&row.subject);
                let of_it = format!("{}@", row.subject);
                self.checkpoints.retain(|name, _| !name.starts_with(&of_it));
            }
            ("checkpoint.save", Some(version)) => {
                self.checkpoints.insert(row.subject.clone(), (version, row.detail.clone()));
            }
            ("checkpoint.delete", _) => {
                self.checkpoints.remove(&row.subject);
            }
            (action, Some(head)) if moves => {
                if action == "fork.keep" {
                    self.rename(&row.subject, row.detail.strip_prefix("from=").unwrap_or_default());
                }
                self.forks.insert(row.subject.clone(), head);
            }
            _ => {}
        }
    }

    /// Renames a fork and its checkpoints.
    fn rename(&mut self, to: &str, detail: &str) {
        let from = detail.split(' ').next().unwrap_or_default();
        self.forks.remove(from);
        let saved = std::mem::take(&mut self.checkpoints);
        let renamed = |name: String| match name.strip_prefix(from).and_then(|rest| rest.strip_prefix('@')) {
            Some(checkpoint) => format!("{to}@{checkpoint}"),
            None => name,
        };
        self.checkpoints = saved.into_iter().map(|(name, logged)| (renamed(name), logged)).collect();
    }

    fn compare_forks(&self, reader: &dyn Reader) -> Result<Vec<Problem>> {
        let (mut problems, mut there) = (Vec::new(), BTreeSet::new());
        for fork in reader.forks()? {
            if self.forks.get(fork.name.as_str()) != Some(&fork.head.0) {
                problems.push(Problem::ForkEdited { fork: fork.name.to_string() });
            }
            there.insert(fork.name.to_string());
        }
        let gone = self.forks.keys().filter(|fork| !there.contains(*fork));
        problems.extend(gone.map(|fork| Problem::ForkMissing { fork: fork.clone() }));
        let mut listed = BTreeSet::new();
        for saved in reader.checkpoints()? {
            let checkpoint = format!("{}@{}", saved.fork, saved.name);
            let matches_log = match self.checkpoints.get(&checkpoint) {
                Some((version, remark)) => {
                    !saved.automatic && *version == saved.version.0 && *remark == saved.message
                }
                None => saved.automatic,
            };
            if !matches_log {
                problems.push(Problem::CheckpointEdited { checkpoint: checkpoint.clone() });
            }
            listed.insert(checkpoint);
        }
        let gone = self.checkpoints.keys().filter(|checkpoint| !listed.contains(*checkpoint));
        problems.extend(gone.map(|checkpoint| Problem::CheckpointMissing { checkpoint: checkpoint.clone() }));
        Ok(problems)
    }

    /// Pruned versions are deleted with their forks, so fewer may exist than the log records, but never different ones.
    fn compare_prunes(&self, reader: &dyn Reader) -> Result<Vec<Problem>> {
        let Some(logged) = &self.prunes else { return Ok(Vec::new()) };
        let mut pruned: BTreeMap<i64, Vec<VersionId>> = BTreeMap::new();
        for id in reader.version_ids()? {
            if let Some(at) = reader.version(&id)?.and_then(|version| version.pruned_at) {
                pruned.entry(at.0).or_default().push(id);
            }
        }
        let matches_log = |at: &i64, versions: &[VersionId]| match logged.get(at) {
            Some((count, Some(digest))) if versions.len() == *count => {
                digest_of_versions(versions.to_vec()) == *digest
            }
            Some((count, _)) => versions.len() <= *count,
            None => false,
        };
        let others = pruned.into_iter().filter(|(at, versions)| !matches_log(at, versions));
        Ok(others
            .flat_map(|(_, versions)| versions)
            .map(|version| Problem::PruneEdited { version })
            .collect())
    }

    /// Runs of the journal that the log lacks. Runs before the first logged run predate the logging of runs, unless
    /// their sequence number is one that is never assigned.
    fn unknown_runs(&self, reader: &dyn Reader) -> Result<Vec<Problem>> {
        let (mut problems, mut after, mut logging_began) = (Vec::new(), i64::MIN, false);
        loop {
            let runs = reader.runs_after(after, BATCH)?;
            let Some(last) = runs.last() else { return Ok(problems) };
            after = last.seq;
            for run in runs {
                if self.runs.contains_key(&run.id) {
                    logging_began = true;
                } else if logging_began || run.seq <= 0 {
                    problems.push(Problem::RunUnknown { run: run.id });
                }
            }
        }
    }

    /// Reports where journal and approvals differ from the log. Forks and prunes are compared only if the log is
    /// complete: any missing row could have moved a fork.
    pub(crate) fn compare(self, reader: &dyn Reader, is_whole: bool) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        if is_whole {
            problems.extend(self.compare_forks(reader)?);
            problems.extend(self.compare_prunes(reader)?);
        }
        problems.extend(self.unknown_runs(reader)?);
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
        problems.extend(self.unsaid.into_iter().map(|approval| Problem::ApprovalUnsaid { approval }));
        problems.extend(compare_approvals(self.approvals, reader)?);
        Ok(problems)
    }
}

fn compare_approvals(
    mut logged: BTreeMap<String, (ApprovalState, Digest)>,
    reader: &dyn Reader,
) -> Result<Vec<Problem>> {
    let (mut problems, mut before) = (Vec::new(), i64::MAX);
    loop {
        let batch = reader.approvals(before, BATCH)?;
        let Some(last) = batch.last() else { break };
        before = last.seq;
        for approval in batch {
            if logged.remove(approval.id.as_str()) != Some((approval.state, approval.request_digest.0)) {
                problems.push(Problem::ApprovalEdited { approval: approval.id.to_string() });
            }
        }
    }
    problems.extend(logged.into_keys().map(|approval| Problem::ApprovalMissing { approval }));
    Ok(problems)
}

/// The run that a row is about.
fn run_of(detail: &str) -> Option<RunId> {
    let id = detail.strip_prefix("run=")?.split(' ').next()?;
    RunId::parse(id).ok()
}
