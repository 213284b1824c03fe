//! Recordings as wire types.

use avfs_types::clock::time_text;
use avfs_vault::backend::RecordingRecord;
use avfs_wire::RecordingObject;

#[must_use]
pub fn recording(recording: &RecordingRecord) -> RecordingObject {
    RecordingObject {
        name: recording.name.to_string(),
        fork: recording.fork.as_ref().map(ToString::to_string),
        open: recording.is_open(),
        after_run: recording.after_run,
        last_run: recording.last_run,
        started_at: time_text(recording.started_at),
        stopped_at: recording.stopped_at.map(time_text),
    }
}
