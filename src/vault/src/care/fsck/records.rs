//! Checks the records beside the versions: the journal, recordings, batches, cached results, the audit log.

use std::collections::{HashMap, HashSet};

use super::Check;
use crate::backend::{BackendError, Codec, RunRecord};
use crate::memo::MemoParts;
use crate::page::FileContent;
use crate::{Result, audit, memo};

/// Rows of the journal and of the audit log per query.
const RUNS_AT_ONCE: usize = 200;
const AUDIT_AT_ONCE: usize = 1000;
/// Maximum number of findings about batch runs; more would add no information.
const ASTRAY_MAX: usize = 100;

impl Check<'_> {
    /// Checks that the start and end of each recording are positions in the journal.
    pub(super) fn recordings(&mut self) -> Result<()> {
        let recordings = self.reader.recordings()?;
        let end = self.reader.runs(i64::MAX, 1);
        let end = end.ok().and_then(|runs| Some(runs.first()?.seq)).unwrap_or(0);
        for recording in recordings {
            let last = recording.last_run.unwrap_or(recording.after_run);
            if last < recording.after_run || last > end {
                self.found(
                    "damaged",
                    format!("recording {} extends past the end of the journal", recording.name),
                );
            }
        }
        Ok(())
    }

    /// Checks that each run of a batch item is in the journal. The version that a batch started from may be gone: the
    /// row of a batch keeps no version alive.
    pub(super) fn batches(&mut self) -> Result<()> {
        self.reader.batches(usize::MAX)?;
        for (batch, item, run) in self.reader.batch_runs_astray(ASTRAY_MAX)? {
            self.found(
                "missing",
                format!("item {item} of batch {batch} refers to run {run}, which does not exist"),
            );
        }
        Ok(())
    }

    pub(super) fn audit(&mut self) -> Result<()> {
        let verdict = audit::verify(self.reader, None)?;
        self.report.audit_rows = verdict.rows;
        for problem in verdict.problems {
            self.found("audit", problem.to_string());
        }
        Ok(())
    }

    /// Checks that the key of each cached result matches its parts, and that the command's output exists.
    pub(super) fn memos(&mut self) -> Result<()> {
        for memo in memo::all(self.reader)? {
            self.report.memos += 1;
            let run = &memo.run;
            if MemoParts::from_json(&memo.parts).is_none_or(|parts| parts.key() != memo.key) {
                self.found("damaged", format!("the result of run {run} was edited: its key does not match"));
            }
            for (stream, id) in [("stdout", memo.stdout), ("stderr", memo.stderr)] {
                let of = || format!("{stream} of the cached run {run}");
                let is_list = self.reader.blob(&id)?.is_some_and(|blob| blob.codec == Codec::List);
                let content = if is_list { FileContent::Chunked(id) } else { FileContent::Whole(id) };
                self.blob(content, None, &of)?;
            }
        }
        Ok(())
    }

    /// Checks that each row of the journal can be decoded, and that its versions are those of the run.
    pub(super) fn runs(&mut self) -> Result<()> {
        let mut before = i64::MAX;
        let mut ended = None;
        loop {
            let runs = self.reader.runs(before, RUNS_AT_ONCE)?;
            let Some(last) = runs.last() else { return Ok(()) };
            before = last.seq;
            for run in &runs {
                self.report.runs += 1;
                self.run(run, &mut ended)?;
            }
        }
    }

    fn run(&mut self, run: &RunRecord, ended: &mut Option<Ended>) -> Result<()> {
        for (name, text) in [("request", &run.request), ("decision", &run.decision), ("result", &run.result)]
        {
            if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
                self.found("damaged", format!("the {name} of run {} is not JSON: {error}", run.id));
            }
        }
        if run.version_after.is_some() && run.version_before.is_none() {
            self.found("damaged", format!("run {} has a version after it, but none before it", run.id));
        }
        let made = run.version_after.map(|id| self.reader.version(&id)).transpose()?.flatten();
        if let Some(made) = &made
            && (made.run.as_deref() != Some(run.id.as_str())
                || made.parents.first() != run.version_before.as_ref())
        {
            self.found("damaged", format!("version {} is not that of run {}", made.id.short(), run.id));
        }
        for id in run.version_before.iter().chain(&run.version_after) {
            if self.reader.version(id)?.is_none() && !self.may_be_gone(run, ended)? {
                self.found("missing", format!("version {} of run {} is missing", id.short(), run.id));
            }
        }
        Ok(())
    }

    /// A run's versions live as long as its fork: they may be missing if the fork was deleted after the run, even if a
    /// new fork of the same name exists now. The audit log is read once, on first use.
    fn may_be_gone(&self, run: &RunRecord, ended: &mut Option<Ended>) -> Result<bool> {
        if run.version_after.is_none() || self.reader.fork(&run.fork)?.is_none() {
            return Ok(true);
        }
        if ended.is_none() {
            *ended = Some(self.ended()?);
        }
        Ok(match ended {
            Some(Ended::Runs(runs)) => runs.contains(&(run.fork.to_string(), run.id.to_string())),
            Some(Ended::Unknown) | None => true,
        })
    }

    fn ended(&self) -> Result<Ended> {
        let ends = ["fork.delete", "fork.expire", "run.discard"];
        let mut runs = HashSet::new();
        // By fork name: runs that landed on the fork since it was last deleted.
        let mut landed: HashMap<String, Vec<String>> = HashMap::new();
        let mut after = 0;
        loop {
            let rows = match self.reader.audit_after(after, AUDIT_AT_ONCE) {
                // The check of the audit log itself reports this.
                Err(BackendError::Corrupt { .. }) => return Ok(Ended::Unknown),
                other => other?,
            };
            let Some(last) = rows.last() else { return Ok(Ended::Runs(runs)) };
            after = last.seq;
            for row in rows {
                let named = row.detail.split(' ').filter_map(|word| word.strip_prefix("run="));
                if row.after.is_some() {
                    let named = named.map(str::to_owned);
                    landed.entry(row.subject.clone()).or_default().extend(named);
                }
                if ends.contains(&row.action.as_str()) {
                    let ended = landed.remove(&row.subject).into_iter().flatten();
                    runs.extend(ended.map(|run| (row.subject.clone(), run)));
                }
            }
        }
    }
}

/// The runs whose fork was deleted after them, as pairs of fork name and run id.
enum Ended {
    Runs(HashSet<(String, String)>),
    /// The log cannot be read.
    Unknown,
}
