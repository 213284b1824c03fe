//! Results of runs as wire types.

use std::fmt;
use std::os::unix::ffi::OsStrExt;

use avfs_changes::{ChangeReport, RunsOnHost};
use avfs_engine::{ExecutionResult, Exit, Note, Output, OutsideWrite, OutsideWrites, Remedy};
use avfs_types::base64::base64;
use avfs_types::clock::{millis, time_text};
use avfs_types::ids::{CheckpointName, ForkName, RunId, VersionId};
use avfs_types::printable::text_of;
use avfs_vault::run::Landed;
use avfs_wire::{
    CHANGES_MAX, CacheObject, ChangeObject, ChangeReportObject, ConnectionObject, LongText, NoteObject,
    OmittedObject, OutsideWriteObject, OutsideWritesObject, PathText, PhasesObject, RefusedCallObject,
    ResultObject, RunLeftOutObject as LeftOutObject, RunsOnHostObject, UsageObject,
};

use crate::Avfs;

/// The output of a stream, and its encoding.
#[must_use]
pub fn stream(output: Option<&Output>) -> (LongText, &'static str) {
    let output = output.cloned().unwrap_or_default();
    match output.is_text() {
        true => (LongText::new(move |each| text_pieces(&output, each)), "utf-8"),
        false => (LongText::new(move |each| base64_pieces(&output, each)), "base64"),
    }
}

type Each<'a> = &'a mut dyn FnMut(&str) -> fmt::Result;

fn text_pieces(output: &Output, each: Each<'_>) -> fmt::Result {
    let (mut begun, mut outcome) = (Vec::new(), Ok(()));
    output.read(|piece| {
        begun.extend_from_slice(piece);
        // The whole output is valid text, so an incomplete character at the end continues in the next piece.
        let whole = match std::str::from_utf8(&begun) {
            Ok(text) => text,
            Err(error) => {
                begun.get(..error.valid_up_to()).map_or("", |it| std::str::from_utf8(it).unwrap_or_default())
            }
        };
        outcome = outcome.and_then(|()| each(whole));
        begun.drain(..whole.len());
    });
    outcome
}

fn base64_pieces(output: &Output, each: Each<'_>) -> fmt::Result {
    let (mut begun, mut outcome) = (Vec::new(), Ok(()));
    output.read(|piece| {
        begun.extend_from_slice(piece);
        // Encode groups of three bytes, which give four digits without padding.
        let whole = begun.len() - begun.len() % 3;
        outcome = outcome.and_then(|()| each(&base64(&begun[..whole])));
        begun.drain(..whole);
    });
    outcome.and_then(|()| each(&base64(&begun)))
}

fn omitted(output: Option<&Output>) -> Option<OmittedObject> {
    output?.omitted.map(OmittedObject::from)
}

fn outside_writes(writes: &OutsideWrites) -> Option<OutsideWritesObject> {
    if writes.is_empty() {
        return None;
    }
    let one = |one: &OutsideWrite| {
        let bytes = one.path.as_os_str().as_bytes();
        let path_base64 = std::str::from_utf8(bytes).is_err().then(|| base64(bytes));
        OutsideWriteObject { path: text_of(bytes).into_owned(), path_base64, size: one.size }
    };
    Some(OutsideWritesObject {
        files: writes.files,
        dirs: writes.dirs,
        bytes: writes.bytes,
        paths: writes.paths.iter().map(one).collect(),
        left_off: writes.left_off,
        complete: writes.is_complete,
    })
}

#[must_use]
pub fn runs_on_host(it: &RunsOnHost) -> RunsOnHostObject {
    let link = it.link.as_ref().map(PathText::of);
    RunsOnHostObject { path: PathText::of(&it.path), kind: it.used.word().into(), why: it.why.into(), link }
}

/// The text of a note, with the command that resolves it.
#[must_use]
pub fn note_text(note: &Note, avfs: &Avfs) -> String {
    match &note.remedy {
        Some(Remedy { purpose, arguments }) => format!("{}; {purpose}: {avfs} {arguments}", note.text),
        None => note.text.clone(),
    }
}

#[must_use]
pub fn change_report(report: &ChangeReport) -> ChangeReportObject {
    ChangeReportObject {
        form: report.form.word().into(),
        text: report.text.clone(),
        left_off: report.left_off,
        shortened: report.shortened,
    }
}

#[must_use]
pub fn result(result: &ExecutionResult, avfs: &Avfs) -> ResultObject {
    let (stdout, stdout_encoding) = stream(result.stdout.as_ref());
    let (stderr, stderr_encoding) = stream(result.stderr.as_ref());
    let (exit_code, signal) = match result.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let from = result.cache.as_ref().and_then(|cache| cache.from.as_ref());
    let changes: Vec<ChangeObject> =
        result.changes.changes.first(CHANGES_MAX).iter().map(crate::change).collect();
    ResultObject {
        run_id: result.run_id.to_string(),
        fork: result.fork.as_ref().map(ForkName::to_string),
        version_before: result.version_before.as_ref().map(VersionId::to_hex),
        version_after: result.version_after.as_ref().map(VersionId::to_hex),
        checkpoint_before: result.checkpoint_before.as_ref().map(CheckpointName::to_string),
        checkpoint_after: result.checkpoint_after.as_ref().map(CheckpointName::to_string),
        exit_code,
        signal,
        timed_out: result.timed_out,
        stopped_by: result.stopped_by.map(|limit| limit.word().into()),
        started_at: time_text(result.started_at),
        duration_ms: millis(result.duration),
        stdout,
        stderr,
        stdout_truncated: result.stdout.as_ref().is_some_and(Output::is_truncated),
        stderr_truncated: result.stderr.as_ref().is_some_and(Output::is_truncated),
        stdout_omitted: omitted(result.stdout.as_ref()),
        stderr_omitted: omitted(result.stderr.as_ref()),
        stdout_encoding: stdout_encoding.into(),
        stderr_encoding: stderr_encoding.into(),
        stdout_digest: result.stdout.as_ref().map(Output::digest),
        stderr_digest: result.stderr.as_ref().map(Output::digest),
        changes_left_off: result.changes.changes.len() - changes.len(),
        change_report: result.change_report.as_ref().map(crate::change_report),
        changes,
        change_counts: crate::change_totals(&result.changes.counts),
        left_out: result
            .left_out
            .iter()
            .map(|left| LeftOutObject { path: PathText::of(&left.path), reason: left.reason.to_string() })
            .collect(),
        landing: match result.landed {
            Landed::Nothing => "nothing",
            Landed::Advanced { .. } => "advanced",
            Landed::Rebased { .. } => "rebased",
            Landed::Diverted { .. } => "diverted",
        }
        .into(),
        classification_violated: result.classification_violated,
        runs_on_host: result.runs_on_host.iter().map(crate::runs_on_host).collect(),
        connections: result.connections.list.iter().map(ConnectionObject::from).collect(),
        connections_left_off: result.connections.left_off,
        refused_calls: result
            .refused_calls
            .iter()
            .map(|it| RefusedCallObject { call: it.call.clone(), count: it.count })
            .collect(),
        outside_writes: outside_writes(&result.outside_writes),
        applied: result.applied,
        kept_until: result.kept_until.map(time_text),
        cached: from.is_some(),
        cached_from: from.map(RunId::to_string),
        remembered: result.cache.as_ref().is_some_and(|cache| cache.remembered),
        cache: result.cache.as_ref().map(CacheObject::from),
        usage: UsageObject {
            user_ms: millis(result.usage.user),
            system_ms: millis(result.usage.system),
            max_rss_bytes: result.usage.max_rss_bytes,
        },
        phases_ms: PhasesObject::from(&result.phases),
        notes: result
            .notes
            .iter()
            .map(|note| NoteObject { code: note.code.to_owned(), text: note_text(note, avfs) })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_note_names_the_vault() {
        let plain = Note::new("env.missing", "A is not set".to_owned());
        let note =
            Note::new("fork.behind", "it changed".to_owned()).with_remedy("merge with", "sync f".to_owned());
        let named = Avfs::on(Some("my vault".as_ref()));
        assert_eq!(note_text(&plain, &named), "A is not set");
        assert_eq!(note_text(&note, &named), "it changed; merge with: avfs --vault 'my vault' sync f");
    }
}
