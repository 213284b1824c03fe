//! What the audit log says of the journal, of approvals and of forks: the texts of each run by their digests, what was
//! said to each approval, where each fork stands and what was saved of it by hand.
//!
//! A row of the journal that was edited or removed is found by it, as far as it is of a run that was kept since
//! the log tells of them; a yes that nobody said is found always.

use std::collections::{BTreeMap, BTreeSet};

use avfs_types::ids::{DIGEST_BYTES, RunId, VersionId};

use super::gc::digest_of_versions;
use crate::Result;
use crate::audit::Problem;
use crate::backend::{ApprovalState, AuditRecord, Reader};
use crate::run::digest;

type Digest = [u8; DIGEST_BYTES];

/// What was written of one run, the newest of each.
#[derive(Clone, Copy, Default)]
struct Seen {
    request: Option<Digest>,
    decision: Option<Digest>,
    result: Option<Digest>,
}

/// Approvals or runs read at once.
const BATCH: usize = 500;

/// Collects what the log tells.
pub(crate) struct Witness {
    runs: BTreeMap<RunId, Seen>,
    /// What every approval came to, and for which request.
    approvals: BTreeMap<String, (ApprovalState, Digest)>,
    /// Approvals that were used without having been given.
    unsaid: Vec<String>,
    /// The head of every fork, by its name.
    forks: BTreeMap<String, Digest>,
    /// The version and the remark of every checkpoint, by `FORK@NAME`; those that runs saved are not among them.
    checkpoints: BTreeMap<String, (Digest, String)>,
    /// How many versions were pruned at a time, and which; nothing of a log that has said less.
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
                // Two at the same moment are told apart by nothing.
                prunes
                    .entry(at)
                    .and_modify(|told: &mut (usize, _)| *told = (told.0 + count, None))
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
        // Logs of vaults of format 2 say that a run is complete where later ones say that it was captured.
        let ends = match row.action.as_str() {
            "fork.delete" | "fork.expire" => true,
            // With its fork, or without.
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

    /// A fork gets another name, and with it what was saved of it.
    fn rename(&mut self, to: &str, detail: &str) {
        let from = detail.split(' ').next().unwrap_or_default();
        self.forks.remove(from);
        let saved = std::mem::take(&mut self.checkpoints);
        let renamed = |name: String| match name.strip_prefix(from).and_then(|rest| rest.strip_prefix('@')) {
            Some(checkpoint) => format!("{to}@{checkpoint}"),
            None => name,
        };
        self.checkpoints = saved.into_iter().map(|(name, told)| (renamed(name), told)).collect();
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
            let as_told = match self.checkpoints.get(&checkpoint) {
                Some((version, remark)) => {
                    !saved.automatic && *version == saved.version.0 && *remark == saved.message
                }
                None => saved.automatic,
            };
            if !as_told {
                problems.push(Problem::CheckpointEdited { checkpoint: checkpoint.clone() });
            }
            listed.insert(checkpoint);
        }
        let gone = self.checkpoints.keys().filter(|checkpoint| !listed.contains(*checkpoint));
        problems.extend(gone.map(|checkpoint| Problem::CheckpointMissing { checkpoint: checkpoint.clone() }));
        Ok(problems)
    }

    /// Versions that were pruned go with their forks, so there may be fewer than the log tells, and never others.
    fn compare_prunes(&self, reader: &dyn Reader) -> Result<Vec<Problem>> {
        let Some(told) = &self.prunes else { return Ok(Vec::new()) };
        let mut pruned: BTreeMap<i64, Vec<VersionId>> = BTreeMap::new();
        for id in reader.version_ids()? {
            if let Some(at) = reader.version(&id)?.and_then(|version| version.pruned_at) {
                pruned.entry(at.0).or_default().push(id);
            }
        }
        let as_told = |at: &i64, versions: &[VersionId]| match told.get(at) {
            Some((count, Some(digest))) if versions.len() == *count => {
                digest_of_versions(versions.to_vec()) == *digest
            }
            Some((count, _)) => versions.len() <= *count,
            None => false,
        };
        let others = pruned.into_iter().filter(|(at, versions)| !as_told(at, versions));
        Ok(others
            .flat_map(|(_, versions)| versions)
            .map(|version| Problem::PruneEdited { version })
            .collect())
    }

    /// Runs of the journal that the log does not have. Those before the first that it has are older than what it tells,
    /// unless they stand where no run is put.
    fn unknown_runs(&self, reader: &dyn Reader) -> Result<Vec<Problem>> {
        let (mut problems, mut after, mut tells) = (Vec::new(), i64::MIN, false);
        loop {
            let runs = reader.runs_after(after, BATCH)?;
            let Some(last) = runs.last() else { return Ok(problems) };
            after = last.seq;
            for run in runs {
                if self.runs.contains_key(&run.id) {
                    tells = true;
                } else if tells || run.seq <= 0 {
                    problems.push(Problem::RunUnknown { run: run.id });
                }
            }
        }
    }

    /// What journal and approvals tell differently, and forks and prunes if the log is whole: each of its rows may move
    /// one.
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
