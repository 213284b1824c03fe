//! Recordings: named groups of runs, each between two marks in the journal.
//!
//! A recording contains no run itself: it is the rows between its marks, including runs that started before the
//! first one.

use avfs_types::ids::{ForkName, RecordingName};

use super::audit::Event;
use crate::backend::{Reader, RecordingRecord, RunRecord};
use crate::{Result, Transaction, Vault, VaultError};

impl RecordingRecord {
    /// Whether runs are still added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.stopped_at.is_none()
    }

    /// True if runs of the fork are recorded.
    #[must_use]
    pub(crate) fn covers(&self, fork: &ForkName) -> bool {
        self.fork.as_ref().is_none_or(|own| own == fork)
    }

    /// Whether a run belongs to the recording.
    #[must_use]
    pub fn holds(&self, run: &RunRecord) -> bool {
        run.seq > self.after_run && self.last_run.is_none_or(|last| run.seq <= last) && self.covers(&run.fork)
    }
}

impl Vault {
    /// Starts a recording of the runs of one fork, or of all forks. Without a name it gets a number.
    pub fn start_recording(
        &self,
        name: Option<&RecordingName>,
        fork: Option<&ForkName>,
    ) -> Result<RecordingRecord> {
        self.transact(|transaction| {
            let known = transaction.view().recordings()?;
            let name = match name {
                Some(name) if known.iter().any(|recording| recording.name == *name) => {
                    return Err(VaultError::RecordingExists { name: name.clone() });
                }
                Some(name) => name.clone(),
                None => numbered(&known)?,
            };
            let recording = RecordingRecord {
                seq: 0,
                name,
                fork: fork.cloned(),
                after_run: last_run(transaction.view())?,
                last_run: None,
                started_at: transaction.now(),
                stopped_at: None,
            };
            transaction.writer.put_recording(&recording)?;
            record(transaction, "recording.start", &recording)?;
            one(transaction.view(), &recording.name)
        })
    }

    /// Stops a recording; without a name, the only open one.
    pub fn stop_recording(&self, name: Option<&RecordingName>) -> Result<RecordingRecord> {
        self.transact(|transaction| {
            let recording = match name {
                Some(name) => one(transaction.view(), name)?,
                None => the_open_one(transaction.view())?,
            };
            if !recording.is_open() {
                return Err(VaultError::RecordingStopped { name: recording.name });
            }
            let last_run = Some(last_run(transaction.view())?);
            let recording = RecordingRecord { last_run, stopped_at: Some(transaction.now()), ..recording };
            transaction.writer.put_recording(&recording)?;
            record(transaction, "recording.stop", &recording)?;
            Ok(recording)
        })
    }

    /// Deletes a recording, open or not; its runs stay.
    pub fn delete_recording(&self, name: &RecordingName) -> Result<RecordingRecord> {
        self.transact(|transaction| {
            let recording = one(transaction.view(), name)?;
            transaction.writer.delete_recording(name)?;
            record(transaction, "recording.delete", &recording)?;
            Ok(recording)
        })
    }

    /// One recording. Fails with [`VaultError::NoRecording`].
    pub fn recording(&self, name: &RecordingName) -> Result<RecordingRecord> {
        one(&*self.read()?, name)
    }

    /// Every recording, oldest first.
    pub fn recordings(&self) -> Result<Vec<RecordingRecord>> {
        Ok(self.read()?.recordings()?)
    }

    /// True while the runs of a fork are recorded.
    pub fn is_recorded(&self, fork: &ForkName) -> Result<bool> {
        let recordings = self.recordings()?;
        Ok(recordings.iter().any(|recording| recording.is_open() && recording.covers(fork)))
    }

    /// Runs with a sequence number above `after`, oldest first.
    pub fn runs_after(&self, after: i64, limit: usize) -> Result<Vec<RunRecord>> {
        Ok(self.read()?.runs_after(after, limit)?)
    }

    /// Like [`Vault::runs_after`], for one fork.
    pub fn runs_of_fork_after(&self, fork: &ForkName, after: i64, limit: usize) -> Result<Vec<RunRecord>> {
        Ok(self.read()?.runs_of_fork_after(fork, after, limit)?)
    }
}

/// The mark at the end of the journal.
fn last_run(reader: &dyn Reader) -> Result<i64> {
    Ok(reader.runs(i64::MAX, 1)?.first().map_or(0, |run| run.seq))
}

fn one(reader: &dyn Reader, name: &RecordingName) -> Result<RecordingRecord> {
    let found = reader.recordings()?.into_iter().find(|recording| recording.name == *name);
    found.ok_or_else(|| VaultError::NoRecording { name: name.clone() })
}

fn the_open_one(reader: &dyn Reader) -> Result<RecordingRecord> {
    let mut open = reader.recordings()?;
    open.retain(RecordingRecord::is_open);
    if open.len() > 1 {
        let names: Vec<&str> = open.iter().map(|recording| recording.name.as_str()).collect();
        return Err(VaultError::SeveralRecordings { names: names.join(", ") });
    }
    open.pop().ok_or(VaultError::NotRecording)
}

fn record(transaction: &mut Transaction<'_>, action: &'static str, of: &RecordingRecord) -> Result<()> {
    let fork = of.fork.as_ref().map_or(String::new(), |fork| format!(" fork={fork}"));
    let last = of.last_run.map_or(String::new(), |last| format!(" last_run={last}"));
    let detail = format!("after_run={}{last}{fork}", of.after_run);
    let (subject, before, after) = (of.name.as_str(), None, None);
    transaction.record(&Event { action, subject, before, after, detail: &detail })
}

/// The first free name of `recording-1`, `recording-2` …
fn numbered(known: &[RecordingRecord]) -> Result<RecordingName> {
    let taken = |name: &str| known.iter().any(|recording| recording.name.as_str() == name);
    let mut names = (1..=known.len() + 1).map(|number| format!("recording-{number}"));
    // One more name than there are recordings, so one of them is free.
    let name = names.find(|name| !taken(name)).unwrap_or_default();
    RecordingName::parse(&name).map_err(|error| VaultError::Input(std::io::Error::other(error)))
}
