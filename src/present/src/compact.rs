//! The compact envelope of a run.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;

use avfs_changes::{FOLDED_CHANGES_MAX, FoldedChanges, file_sizes, is_dir, kind_words};
use avfs_engine::{ConnectionVerdict, ExecutionResult, Omitted, Output};
use avfs_request::spec::SCHEMA_VERSION;
use avfs_types::Word;
use avfs_types::clock::time_text;
use avfs_types::path::TreePath;
use avfs_types::printable::{json_line, text_of};
use avfs_types::show_bytes_size;
use avfs_vault::diff::{Change, ChangeKind};
use avfs_wire::{
    COMPACT_BYTES_MAX, CompactChanges, CompactDir, CompactEnvelope, CompactError, ExecutionEnvelope,
    OmittedObject,
};

/// The limits of a compact envelope.
#[derive(Clone, Copy)]
struct Budget {
    /// Bytes of each stream.
    output_bytes: usize,
    /// Entries of each list.
    entries: usize,
    /// Characters of each text that is not output.
    text_chars: usize,
}

const BUDGET: Budget = Budget { output_bytes: 5 << 10, entries: FOLDED_CHANGES_MAX, text_chars: 300 };

/// A compact envelope as one line of JSON, which is never longer than [`COMPACT_BYTES_MAX`]. `ran` is the run
/// with its folded changes, if there was one.
pub fn compact_line(
    envelope: &ExecutionEnvelope,
    ran: Option<(&ExecutionResult, &FoldedChanges)>,
) -> io::Result<Vec<u8>> {
    let mut budget = BUDGET;
    loop {
        let line = json_line(&compact(envelope, ran, budget))?;
        // Measure the escaped line, because escaping makes text longer.
        if line.len() <= COMPACT_BYTES_MAX || budget.text_chars == 0 {
            return Ok(line);
        }
        budget = Budget {
            output_bytes: budget.output_bytes / 2,
            entries: budget.entries.div_ceil(2).min(budget.entries.saturating_sub(1)),
            text_chars: budget.text_chars / 2,
        };
    }
}

/// Truncated lists, and the number of omitted entries.
struct Lists {
    budget: Budget,
    left_off: u64,
}

impl Lists {
    fn text(&self, text: &str) -> String {
        let mut cut: String = text.chars().take(self.budget.text_chars).collect();
        if cut.len() < text.len() {
            cut.push('…');
        }
        cut
    }

    fn list<T, U>(&mut self, all: &[T], show: impl Fn(&Self, &T) -> U) -> Vec<U> {
        let shown = all.len().min(self.budget.entries);
        self.left_off += (all.len() - shown) as u64;
        all[..shown].iter().map(|one| show(self, one)).collect()
    }
}

fn compact(
    envelope: &ExecutionEnvelope,
    ran: Option<(&ExecutionResult, &FoldedChanges)>,
    budget: Budget,
) -> CompactEnvelope {
    let mut lists = Lists { budget, left_off: 0 };
    let said = envelope.result.as_ref();
    let (stdout, stdout_omitted) = stream(ran.and_then(|(run, _)| run.stdout.as_ref()), budget);
    let (stderr, stderr_omitted) = stream(ran.and_then(|(run, _)| run.stderr.as_ref()), budget);
    let refused: Vec<String> = ran.map(|(run, _)| refused(run)).unwrap_or_default();
    CompactEnvelope {
        schema_version: SCHEMA_VERSION,
        kind: "execution.compact".into(),
        success: envelope.success,
        state: envelope.state,
        run_id: envelope.run_id.clone(),
        exit_code: said.and_then(|result| result.exit_code),
        signal: said.and_then(|result| result.signal),
        timed_out: said.is_some_and(|result| result.timed_out),
        stopped_by: said.and_then(|result| result.stopped_by.clone()),
        cached: said.is_some_and(|result| result.cached),
        duration_ms: said.map(|result| result.duration_ms),
        stdout,
        stderr,
        stdout_omitted,
        stderr_omitted,
        changes: ran.and_then(|(run, folded)| changes(&mut lists, run, folded)),
        fork: said.and_then(|result| result.fork.clone()),
        kept_until: ran.and_then(|(run, _)| run.kept_until).map(time_text),
        applied: said.and_then(|result| result.applied),
        outside_writes: ran.map(|(run, _)| outside_writes(&mut lists, run)).unwrap_or_default(),
        runs_on_host: ran
            .map(|(run, _)| lists.list(&run.runs_on_host, |lists, one| lists.text(&one.to_string())))
            .unwrap_or_default(),
        left_out: ran
            .map(|(run, _)| {
                lists
                    .list(&run.left_out, |lists, left| lists.text(&format!("{}: {}", left.path, left.reason)))
            })
            .unwrap_or_default(),
        refused_connections: lists.list(&refused, |lists, one| lists.text(one)),
        notes: ran
            .map(|(run, _)| {
                lists.list(&run.notes, |lists, note| lists.text(&format!("{}: {}", note.code, note.text)))
            })
            .unwrap_or_default(),
        approval_id: envelope.decision.as_ref().and_then(|decision| decision.approval_id.clone()),
        // A shortened rule could not be pasted.
        allow_rule: envelope
            .decision
            .as_ref()
            .and_then(|decision| decision.allow_rule.clone())
            .filter(|_| budget.text_chars > 0),
        error: envelope.error.as_ref().map(|error| {
            let CompactError { code, message, hint } = CompactError::from(error);
            CompactError { code, message: lists.text(&message), hint: hint.map(|hint| lists.text(&hint)) }
        }),
        left_off: lists.left_off,
    }
}

fn outside_writes(lists: &mut Lists, run: &ExecutionResult) -> Vec<String> {
    let writes = &run.outside_writes;
    if writes.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("{} files, {}", writes.files, show_bytes_size(writes.bytes))];
    lines.extend(
        lists.list(&writes.paths, |lists, one| lists.text(&text_of(one.path.as_os_str().as_bytes()))),
    );
    lists.left_off += writes.left_off;
    lines
}

fn refused(run: &ExecutionResult) -> Vec<String> {
    let refusals = run.connections.list.iter().filter_map(|one| match &one.verdict {
        ConnectionVerdict::Refused(why) => Some(format!("{}:{}: {why}", one.host, one.port)),
        ConnectionVerdict::Allowed | ConnectionVerdict::Failed(_) => None,
    });
    let mut refusals: Vec<String> = refusals.collect();
    refusals.sort();
    refusals.dedup();
    refusals
}

/// A stream as text, with a line in place of omitted bytes.
fn stream(output: Option<&Output>, budget: Budget) -> (String, Option<OmittedObject>) {
    let Some(output) = output.map(|output| output.shortened(budget.output_bytes)) else {
        return (String::new(), None);
    };
    let Some(Omitted { offset, bytes }) = output.omitted else {
        return (text_of(&output.bytes()).into_owned(), None);
    };
    let bytes_kept = output.bytes();
    let (head, tail) = bytes_kept.split_at(offset);
    let head = text_of(head);
    let text = format!("{head}\n[{bytes} bytes omitted]\n{}", text_of(tail));
    (text, Some(OmittedObject { offset: head.len() as u64, bytes }))
}

fn changes(lists: &mut Lists, run: &ExecutionResult, folded: &FoldedChanges) -> Option<CompactChanges> {
    let counts = &run.changes.counts;
    let kinds = [
        ("added", counts.added),
        ("modified", counts.modified),
        ("deleted", counts.deleted),
        ("renamed", counts.renamed),
        ("mode", counts.mode),
        ("type", counts.type_changed),
        ("time", counts.time),
    ];
    let counts = kinds.into_iter().filter(|(_, count)| *count > 0);
    let counts: BTreeMap<Word, u64> = counts.map(|(kind, count)| (kind.into(), count)).collect();
    if counts.is_empty() {
        return None;
    }
    let shown = folded.others.len().min(lists.budget.entries);
    let paths = folded.others[..shown].iter().map(|change| lists.text(&one_change(change))).collect();
    let dirs = match folded.others_count > shown as u64 {
        // The directories count the changes that are not listed.
        true => counted(lists, &folded.dirs),
        false => Vec::new(),
    };
    let ignored = counted(lists, &folded.ignored);
    Some(CompactChanges { counts, paths, dirs, ignored })
}

fn counted(lists: &mut Lists, dirs: &BTreeMap<TreePath, u64>) -> Vec<CompactDir> {
    let mut dirs: Vec<(&TreePath, u64)> = dirs.iter().map(|(path, count)| (path, *count)).collect();
    dirs.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    lists.list(&dirs, |lists, (path, changes)| {
        let path = if path.is_root() { ".".to_owned() } else { lists.text(&path.to_string()) };
        CompactDir { path, changes: *changes }
    })
}

/// A line such as `M src/main.rs (12 B)`.
fn one_change(change: &Change) -> String {
    let (_, letter) = kind_words(&change.kind);
    let slash = if is_dir(change) { "/" } else { "" };
    let size = file_sizes(change).1.map(|size| format!(" ({})", show_bytes_size(size))).unwrap_or_default();
    match &change.kind {
        ChangeKind::Renamed { from } => format!("{letter} {from} -> {}{slash}", change.path),
        ChangeKind::Added
        | ChangeKind::Modified
        | ChangeKind::Deleted
        | ChangeKind::Mode
        | ChangeKind::Type
        | ChangeKind::Time => format!("{letter} {}{slash}{size}", change.path),
    }
}
