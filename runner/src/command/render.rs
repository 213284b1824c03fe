//! The output of `avfs-run`: a short summary for people on stderr, or one JSON object.
//!
//! `avfs-terminal` writes it and escapes untrusted text. The command's own output is passed on unchanged.

use std::io;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use avfs_changes::{ChangeCounts, ChangeReport, file_sizes, is_dir};
use avfs_egress::{Host, place as place_of};
use avfs_engine::{
    BASE_LARGE, ConnectionVerdict, ExecutionResult, IMPORT_LARGE, OLDER_COPY, Output, OutsideWrites,
    Rehearsal, Scratch, VAULT_SKIPPED,
};
use avfs_hostfs::size_limit;
use avfs_present::{Avfs, Hint, note_text};
use avfs_request::{ExecutionRequest, ForkChoice, NetMode};
use avfs_terminal::{error_lines, pass_on, stderr, stdout};
use avfs_types::ids::ForkName;
use avfs_types::printable::text_of;
use avfs_types::secrets::Secrets;
use avfs_types::{Zone, printable, show_bytes_size};
use avfs_vault::diff::{Change, ChangeKind};
use avfs_vault::run::Landed;
use avfs_wire::{ErrorBody, ExecutionEnvelope};

const LEFT_OUT_SHOWN: usize = 5;
const REFUSED_SHOWN: usize = 10;
const OUTSIDE_SHOWN: usize = 5;
const RUNS_ON_HOST_SHOWN: usize = 10;
/// Notes that were printed before the command started.
const PRINTED_BEFORE: [&str; 4] = [BASE_LARGE, IMPORT_LARGE, OLDER_COPY, VAULT_SKIPPED];

/// The summary of a run, in lines.
///
/// `first` has the indexes of the changes to list, and whether git ignores them.
pub fn summary(result: &ExecutionResult, first: &[(Change, bool)], avfs: &Avfs) -> Vec<String> {
    let notes = result.notes.iter().filter(|note| !PRINTED_BEFORE.contains(&note.code));
    let mut lines: Vec<String> = notes.map(|note| format!("note: {}", note_text(note, avfs))).collect();
    if result.timed_out {
        lines.push("the command timed out and was stopped (--timeout)".to_owned());
    }
    if let Some(from) = result.cache.as_ref().and_then(|cache| cache.from.as_ref()) {
        lines.push(format!("cached: the command was not executed, this is the result of run {from}"));
    }
    let limits = result.enforcement.iter().flat_map(|enforcement| &enforcement.limits);
    let limit = limits.into_iter().find(|limit| Some(limit.kind) == result.stopped_by);
    if let Some(limit) = limit {
        lines.push(format!("the command was stopped: it {}", limit.kind.exceeded(limit.value)));
    }
    lines.extend(refused_connections(result));
    lines.extend(outside_writes(&result.outside_writes));
    let left_out = || result.left_out.iter().filter(|left| !result.caches.contains(&left.path));
    for left in left_out().take(LEFT_OUT_SHOWN) {
        lines.push(format!("not kept: {}: {}", left.path, left.reason));
    }
    let more = left_out().count().saturating_sub(LEFT_OUT_SHOWN);
    if more > 0 {
        lines.push(format!("not kept: and {more} more"));
    }
    if result.landed == Landed::Nothing {
        return lines;
    }
    for one in result.runs_on_host.iter().take(RUNS_ON_HOST_SHOWN) {
        lines.push(one.to_string());
    }
    let more = result.runs_on_host.len().saturating_sub(RUNS_ON_HOST_SHOWN);
    if more > 0 {
        lines.push(format!("executed or read on the host once applied: and {more} more"));
    }
    lines.push(format!("{} in run {}", counts(&result.changes.counts), result.run_id));
    match &result.change_report {
        Some(report) => lines.extend(report_lines(report)),
        None => {
            for (change, is_ignored) in first {
                let ignored = if *is_ignored { "  (ignored by git)" } else { "" };
                lines.push(format!("  {}{ignored}", one_line(change)));
            }
            let more = result.changes.changes.len().saturating_sub(first.len());
            if more > 0 {
                lines.push(format!("  and {more} more"));
            }
        }
    }
    lines.extend(next_steps(result, avfs));
    lines
}

/// The files that the command wrote to directories that are dropped with the sandbox.
fn outside_writes(writes: &OutsideWrites) -> Vec<String> {
    if writes.is_empty() {
        return Vec::new();
    }
    let files = match writes.files {
        0 => "empty directories".to_owned(),
        1 => format!("1 file ({})", show_bytes_size(writes.bytes)),
        files => format!("{files} files ({})", show_bytes_size(writes.bytes)),
    };
    let more = if writes.is_complete { "" } else { " or more" };
    let mut lines = vec![format!("dropped, outside of the workspace: {files}{more}")];
    for one in writes.paths.iter().take(OUTSIDE_SHOWN) {
        let size = one.size.map(|size| format!(" ({})", show_bytes_size(size))).unwrap_or_default();
        lines.push(format!("  {}{size}", text_of(one.path.as_os_str().as_bytes())));
    }
    let more = writes.left_off + writes.paths.len().saturating_sub(OUTSIDE_SHOWN) as u64;
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if writes.paths.iter().any(|one| one.path.ends_with(".gitconfig")) {
        lines.push("  git config without --global keeps a setting in the repository".to_owned());
    }
    lines
}

/// Each refused destination, once, and an allow list that would permit all of them.
fn refused_connections(result: &ExecutionResult) -> Vec<String> {
    let net = result.enforcement.as_ref().map(|enforcement| &enforcement.net);
    let Some(NetMode::Allow(list)) = net else { return Vec::new() };
    let mut refused: Vec<(String, usize)> = Vec::new();
    let mut places: Vec<String> = Vec::new();
    for connection in &result.connections.list {
        let ConnectionVerdict::Refused(reason) = &connection.verdict else { continue };
        let refusal = format!("{}:{} was refused: {reason}", connection.host, connection.port);
        match refused.iter_mut().find(|(other, _)| *other == refusal) {
            Some((_, times)) => *times += 1,
            None => refused.push((refusal, 1)),
        }
        let host = Host::parse(connection.host.as_bytes()).ok();
        let place = connection.address.map(|it| Host::Address(it.to_canonical())).or(host);
        let place = place.map(|host| place_of(&host, connection.port));
        if let Some(place) = place.filter(|place| !places.contains(place)) {
            places.push(place);
        }
    }
    let times = |times: usize| if times > 1 { format!(" ({times} times)") } else { String::new() };
    let shown = refused.iter().take(REFUSED_SHOWN);
    let mut lines: Vec<String> =
        shown.map(|(refusal, count)| format!("network: {refusal}{}", times(*count))).collect();
    let more = refused.len().saturating_sub(REFUSED_SHOWN);
    if more > 0 {
        lines.push(format!("network: {more} more were refused"));
    }
    if !places.is_empty() {
        places.truncate(REFUSED_SHOWN);
        lines.push(format!("  allow:   --net allow={list},{}", places.join(",")));
    }
    lines
}

/// The requested report, and the number of omitted changes.
fn report_lines(report: &ChangeReport) -> Vec<String> {
    let mut lines: Vec<String> = report.text.lines().map(|line| format!("  {line}")).collect();
    if report.left_off > 0 {
        lines.push(format!("  and {} more, omitted", report.left_off));
    }
    if report.shortened > 0 {
        lines.push(format!("  {} of them too long to show: see avfs diff --patch", report.shortened));
    }
    lines
}

fn next_steps(result: &ExecutionResult, avfs: &Avfs) -> Vec<String> {
    let Some(fork) = &result.fork else { return Vec::new() };
    if let Some(paths) = result.applied {
        let paths = if paths == 1 { "1 path was".to_owned() } else { format!("{paths} paths were") };
        let id = &result.run_id;
        return vec![
            format!("{paths} written to the directory"),
            format!("  back:    {avfs} unapply run:{id}"),
        ];
    }
    let id = &result.run_id;
    // Compared with the version it started from, even if its fork or main has moved since.
    let look = format!("  look:    {avfs} diff run:{id}");
    let is_own = *fork == ForkName::of_run(id);
    let take = if is_own { format!("run:{id}") } else { fork.to_string() };
    // A fork that was made for the changes of a conflict has nothing else.
    let away = match is_own || matches!(result.landed, Landed::Diverted { .. }) {
        true => format!("  drop:    {avfs} discard run:{id}"),
        false => format!("  back:    {avfs} undo {fork}"),
    };
    let take = match result.is_bound {
        true => format!("  take:    {avfs} apply {take}"),
        false => format!("  take:    {avfs} export {take} DIR"),
    };
    let mut lines = vec![look, take, away];
    if let Some(until) = result.kept_until {
        lines.push(format!("  kept until {}", Zone::system().show(until)));
    }
    let labels: Vec<String> = [&result.checkpoint_before, &result.checkpoint_after]
        .into_iter()
        .flatten()
        .map(|label| format!("{fork}@{label}"))
        .collect();
    if !labels.is_empty() {
        lines.push(format!("  checkpoints: {}", labels.join(", ")));
    }
    lines
}

fn counts(counts: &ChangeCounts) -> String {
    let kinds = [
        (counts.added, "added"),
        (counts.modified, "modified"),
        (counts.deleted, "deleted"),
        (counts.renamed, "renamed"),
        (counts.mode, "with a changed mode"),
        (counts.type_changed, "with a changed type"),
        (counts.time, "with a changed time"),
    ];
    let counts: Vec<String> = kinds
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if counts.is_empty() { "only times changed".to_owned() } else { counts.join(", ") }
}

fn one_line(change: &Change) -> String {
    let path = format!("{}{}", change.path, if is_dir(change) { "/" } else { "" });
    let (_, size) = file_sizes(change);
    let size = size.map(|size| format!(" ({})", show_bytes_size(size))).unwrap_or_default();
    match &change.kind {
        ChangeKind::Added => format!("A {path}{size}"),
        ChangeKind::Modified => format!("M {path}{size}"),
        ChangeKind::Deleted => format!("D {path}"),
        ChangeKind::Renamed { from } => format!("R {from} -> {path}"),
        ChangeKind::Mode => format!("m {path}"),
        ChangeKind::Type => format!("T {path}"),
        ChangeKind::Time => format!("t {path}"),
    }
}

/// The planned run, in lines.
pub fn rehearsal(request: &ExecutionRequest, rehearsal: &Rehearsal) -> Vec<String> {
    let fork = match &request.fork {
        ForkChoice::Ephemeral { from: None } => "a new one".to_owned(),
        ForkChoice::Ephemeral { from: Some(from) } => format!("a new one, from {}", from.text()),
        ForkChoice::Persistent { name, .. } => name.to_string(),
    };
    let scratch = match rehearsal.enforcement.scratch {
        Scratch::Memory { size_bytes, .. } => format!("memory, at most {}", show_bytes_size(size_bytes)),
        Scratch::Disk => "disk".to_owned(),
    };
    let lines = [
        ("would run", request.shown_command()),
        ("vault", rehearsal.vault.display().to_string()),
        ("fork", fork),
        ("workspace", rehearsal.workspace.display().to_string()),
        ("in", rehearsal.cwd.display().to_string()),
        ("decision", format!("{}: {}", rehearsal.decision.action, rehearsal.decision.reason)),
        ("network", request.net.to_string()),
        ("base", rehearsal.enforcement.base.to_string()),
        ("scratch", scratch),
        ("changes", request.retention.to_string()),
    ];
    lines.iter().map(|(what, value)| format!("avfs-run: {what}: {value}")).collect()
}

/// Why the command was not run, and what to do next.
pub fn refusal(error: &ErrorBody, allow_rule: Option<&str>) -> Vec<String> {
    let colon = if allow_rule.is_some() { ":" } else { "" };
    let hint = error.hint.as_ref().map(|hint| format!("hint: {hint}{colon}"));
    let rule = allow_rule.into_iter().flat_map(str::lines).map(str::to_owned);
    [format!("avfs-run: {}", error.message)].into_iter().chain(hint).chain(rule).collect()
}

/// The error, its causes, and what to do next.
pub fn failure(error: &dyn Hint, avfs: &Avfs) -> Vec<String> {
    let mut lines = vec![format!("error: {error}")];
    let mut cause = error.source();
    while let Some(found) = cause {
        lines.push(format!("caused by: {found}"));
        cause = found.source();
    }
    if size_limit::met() {
        lines.push("caused by: a limit on the size of files (ulimit -f)".to_owned());
    }
    lines.extend(error.hint(avfs).map(|hint| format!("hint: {hint}")));
    lines
}

/// Prints lines to stderr in one write. A closed stderr is ignored.
pub fn say<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) {
    error_lines(lines);
}

/// Prints an error, without the values of secrets.
pub fn say_failure(error: &dyn Hint, avfs: &Avfs, secrets: &Secrets) {
    say(failure(error, avfs).into_iter().map(|line| secrets.scrub_text(line)));
}

/// Prints lines to stdout.
pub fn answer<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) -> io::Result<()> {
    pass_on(avfs_terminal::lines(lines).as_bytes())
}

/// Writes the output of a command to stdout, in pieces.
pub fn pass_on_output(output: &Output) -> io::Result<()> {
    let mut out = stdout().lock();
    output.write_to(&mut out).and_then(|()| out.flush())
}

/// The same as `pass_on_output`, to stderr.
pub fn pass_on_error_output(output: &Output) -> io::Result<()> {
    output.write_to(&mut stderr().lock())
}

/// Writes an envelope to stdout, serialized while it is written.
pub fn pass_on_json(envelope: &ExecutionEnvelope) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, stdout().lock());
    printable::write_json_line(envelope, &mut out)?;
    out.flush()
}

/// In the same format as clap.
pub fn print_version() -> io::Result<()> {
    writeln!(stdout(), concat!("avfs-run ", env!("CARGO_PKG_VERSION")))
}

/// Prints a message of clap about arguments without hidden characters.
#[expect(clippy::disallowed_methods, reason = "hidden characters of the arguments are escaped before")]
pub fn print_clap(error: &clap::Error) -> io::Result<()> {
    error.print()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_omit_kinds_without_changes() {
        let some = ChangeCounts { added: 2, deleted: 1, ..ChangeCounts::default() };
        assert_eq!(counts(&some), "2 added, 1 deleted");
        assert_eq!(counts(&ChangeCounts::default()), "only times changed");
    }
}
