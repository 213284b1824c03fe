//! Notes of a run about files and directories that behaved in another way than outside of the sandbox.

use std::path::Path;

use avfs_changes::ChangeSummary;
use avfs_request::confinement::refused_text;
use avfs_request::{BaseChoice, EnforcedLimit, ExecutionRequest, LimitKind, Mechanism};
use avfs_types::CommandLine;
use avfs_types::command_line::shown_word;
use avfs_types::path::TreePath;
use avfs_vault::capture::WrittenLinks;
use avfs_vault::diff::ChangeKind;
use avfs_vault::import::Scanned;
use avfs_vault::run::Landed;

use super::effective::Effective;
use super::execute::Ended;
use super::record::Run;
use super::result::{Note, Notes};
use super::site::Site;

use crate::fork_dirs::ForkDirs;
use crate::git::repository::{CommonDir, NotShown};
use crate::git::settings::Callers;
use crate::launcher::{Completion, Exit};
use crate::scratch_size::Scratch;

/// The note of a run whose output could not be delivered completely.
pub const OUTPUT_LOST: &str = "output.lost";
/// The note of a run whose command was killed because it could no longer be watched.
pub const SANDBOX_LOST: &str = "sandbox.lost";

/// Notes that the directory itself was the base and has files of other users.
pub(crate) fn note_foreign_files(request: &ExecutionRequest, notes: &mut Notes) {
    let (this, remedy) = match request.base {
        BaseChoice::Auto => ("this run could not", "the next run can"),
        BaseChoice::Live | BaseChoice::Cached | BaseChoice::Touched => {
            ("a run on the directory itself cannot", "to write them use: --base cached")
        }
    };
    let text = format!(
        "some files belong to another user or group, or have ACLs that name one: {this} write them (\"Value too large \
         for defined data type\", as root \"Permission denied\"); {remedy}"
    );
    notes.add("base.foreign", text);
}

/// Notes the files that an import could not keep.
pub(crate) fn note_import(scanned: &Scanned, notes: &mut Notes) {
    for trouble in &scanned.troubles {
        notes.add("import.trouble", format!("{}: {}", trouble.path, trouble.reason));
    }
    if scanned.mended > 0 {
        let blobs = scanned.mended;
        let note =
            Note::new("import.mended", format!("{blobs} damaged blobs in the vault were stored again"));
        notes.push(note.with_remedy("check for other damage with", "fsck".to_owned()));
    }
}

/// Notes where the changes went, if their fork had moved.
pub(super) fn note_landing(run: &Run, landed: &Landed, notes: &mut Notes) {
    match landed {
        Landed::Nothing | Landed::Advanced { .. } => {}
        Landed::Rebased { .. } => notes.add(
            "fork.rebased",
            format!("fork {} has moved since; the changes were rebased onto its new head", run.fork),
        ),
        Landed::Diverted { fork, paths, .. } => {
            let why = match paths.first() {
                Some(path) => format!("{path} was also changed by others"),
                None => format!("fork {} was deleted", run.fork),
            };
            notes.add("fork.diverted", format!("{why}: the changes are on fork {fork}"));
        }
    }
}

/// Notes what the sandbox lost or refused.
pub(super) fn note_sandbox(completion: &Completion, notes: &mut Notes) {
    if let Some(error) = &completion.undelivered {
        notes.add(OUTPUT_LOST, format!("cannot deliver the output of the command: {error}"));
    }
    if let Some(error) = &completion.unwatched {
        let text = format!("lost the connection to the sandbox, and killed the command: {error}");
        notes.add(SANDBOX_LOST, text);
    }
    if let Some(text) = refused_text(&completion.refused_calls) {
        notes.add("seccomp.refused", text);
    }
    // By overlayfs.
    if completion.dirs_not_renamed > 0 {
        notes.add(
            "rename.refused",
            "a directory from before the run could not be renamed (\"Invalid cross-device link\"); programs that fall \
             back to copying still work; for others use: --backend copy",
        );
    }
}

/// Notes that the scratch is full: the command only sees "no space left on device".
pub(super) fn note_room(site: &Site<'_>, request: &ExecutionRequest, ended: &Ended<'_>, notes: &mut Notes) {
    let full = |fs: rustix::fs::StatVfs| fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0);
    match (ended.upper.memory(), ended.scratch_place) {
        (Some(memory), Scratch::Memory { size_bytes, .. }) => {
            let Ok(fs) = rustix::fs::fstatvfs(memory) else { return };
            let limits = request.limits;
            // At its limit: a scratch elsewhere would have the same limit.
            let bound = match (fs.f_bavail == 0, fs.f_favail == 0) {
                (true, _) if limits.disk == Some(size_bytes) => Some(LimitKind::Disk),
                (_, true) if limits.files.is_some() => Some(LimitKind::Files),
                (true | false, true | false) => None,
            };
            if let Some((kind, value)) = bound.and_then(|kind| Some((kind, limits.get(kind)?))) {
                let (option, value) = (kind.option(), kind.show(value));
                notes.add("limit.reached", format!("the limit --{option} {value} was used up"));
            } else if full(fs) {
                let size = avfs_types::show_bytes_size(size_bytes);
                notes.add(
                    "scratch.full",
                    format!("the scratch in memory ({size}) was full; run it again with: --scratch disk"),
                );
            }
        }
        (None, _) | (Some(_), Scratch::Disk) => {
            if rustix::fs::statvfs(site.cache_dir.as_path()).is_ok_and(full) {
                let dir = site.cache_dir.display();
                site.layers.account().note_disk_full();
                notes.add("scratch.full", format!("the file system of {dir} is full; free some space"));
            }
        }
    }
}

/// Notes limits that were reached without stopping the command: it may have failed or done less because of them.
pub(super) fn note_limits(request: &ExecutionRequest, completion: &Completion, notes: &mut Notes) {
    for kind in &completion.limits_reached {
        let Some(value) = request.limits.get(*kind) else { continue };
        let value_text = kind.show(value);
        let text = match kind {
            LimitKind::Memory => {
                format!("a process was killed because it exceeded --memory {value_text}")
            }
            LimitKind::Pids => {
                format!("the limit of {value_text} processes was reached (--pids)")
            }
            LimitKind::Disk | LimitKind::Files | LimitKind::Cpus | LimitKind::FileSize => {
                format!("the command {}, but ended before it was stopped", kind.exceeded(value))
            }
        };
        notes.add("limit.reached", text);
    }
    // These mechanisms count no refusals.
    let is_inexact = |limit: &&EnforcedLimit| {
        limit.kind == LimitKind::Pids && [Mechanism::Rlimit, Mechanism::PidMax].contains(&limit.mechanism)
    };
    let has_failed =
        completion.exit != Exit::Code(0) && !completion.timed_out && completion.stopped_by.is_none();
    if has_failed && let Some(limit) = completion.limits.iter().find(is_inexact) {
        let value = limit.kind.show(limit.value);
        let text = format!(
            "the command failed: it may have met the limit of {value} processes (--pids), which is not counted here"
        );
        notes.add("limit.reached", text);
    }
}

/// Maximum names listed in a note.
const NAMED_MAX: usize = 5;
const SETTINGS_MAX: usize = 16;

/// Names, separated by commas; `None` for an empty list.
fn listed(names: &[impl ToString], max: usize) -> Option<String> {
    let named: Vec<String> = names.iter().take(max).map(ToString::to_string).collect();
    let more = names.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| named.join(", ") + &more)
}

/// Notes the hard links that the command wrote to.
pub(super) fn note_links(written: &WrittenLinks, notes: &mut Notes) {
    let names = |paths: &[TreePath]| listed(paths, NAMED_MAX);
    if let Some(joined) = names(&written.joined) {
        let text = format!(
            "a hard link was written: {joined} have the new content in the version; in the sandbox, only the name that was \
             written had it. To keep all names one file: --backend copy",
        );
        notes.add("links.joined", text);
    }
    if let Some(repeated) = names(&written.repeated) {
        let text = format!(
            "hard links of one file were written separately, with the same result: {repeated}. The version has it once; \
             outside, a later write would have found the earlier one, as when both append. To keep all names one \
             file: --backend copy",
        );
        notes.add("links.repeated", text);
    }
    if let Some(split) = names(&written.split) {
        let text = format!(
            "hard links of one file were written separately, and are separate files in the version: {split}; to keep them \
             one file: --backend copy",
        );
        notes.add("links.split", text);
    }
}

/// Notes that git cannot commit in a linked worktree, whose repository is mounted read-only or not at all.
pub(super) fn note_worktree(
    bound: Option<&Path>,
    effective: &Effective<'_>,
    completion: &Completion,
    notes: &mut Notes,
) {
    let Some(bound) = bound else { return };
    let run = &effective.run;
    let may_have_failed = match completion.exit {
        // The status may be that of another command of the line.
        Exit::Code(0) => starts_git(words_of(&run.request.command), &GIT_WRITES),
        Exit::Code(_) | Exit::Signal(_) => words_of(&run.request.command).any(|word| word == "git"),
    };
    if !may_have_failed {
        return;
    }
    let state = match &effective.admitted.common_dir {
        Some(_) if run.decision.looks_only() => return,
        Some(common) => format!("its repository {} is read-only in the sandbox", common.path.display()),
        None => match CommonDir::of(bound).map_err(NotShown::reason) {
            Ok(_) | Err(None) => return,
            Err(Some(why)) => format!("its repository is not shown in the sandbox, because {why}"),
        },
    };
    let text = format!(
        "the workspace is a linked worktree, and {state}: apply the changes and commit them outside, or work in a clone"
    );
    notes.add("git.linked_worktree", text);
}

/// Notes that the command left processes running, which ended with the run. Not if the run was ended from outside: then
/// all processes were.
pub(super) fn note_left_running(completion: &Completion, notes: &mut Notes) {
    let is_ended = completion.timed_out
        || completion.stopped_by.is_some()
        || completion.signalled
        || completion.unwatched.is_some();
    let (what, were) = match completion.left_running {
        0 => return,
        1 => ("1 process".to_owned(), "was"),
        count => (format!("{count} processes"), "were"),
    };
    if !is_ended {
        let text = format!(
            "{what} that the command left running {were} killed at its end; start and use a background process in one \
             command"
        );
        notes.add("processes.killed", text);
    }
}

const GIT_SETTINGS: &str = "git.settings";

/// Notes the settings of the caller that git in the sandbox does not have, once for each fork and setting.
pub(super) fn note_git_settings(site: &Site<'_>, run: &Run, changes: &ChangeSummary, notes: &mut Notes) {
    let request = &run.request;
    if run.decision.looks_only() {
        return;
    }
    let (global, home, bound) = (&site.git_configs, site.home.as_deref(), site.bound.as_deref());
    let missing = Callers { global, home, bound, request }.missing();
    let is_started = || starts_git(words_of(&request.command), &[&GIT_WRITES[..], &GIT_FILES].concat());
    if missing.is_empty() || !is_started() && !changes_repository(changes) {
        return;
    }
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    let dirs = ForkDirs::new(&site.cache_dir, &site.vault_id);
    let missing = dirs.first_notes(&request.fork, GIT_SETTINGS, &missing, site.notes);
    if let Some(settings) = listed(&missing, SETTINGS_MAX) {
        let text = format!(
            "git in the sandbox does not have these settings of yours, which change results: {settings}; set them \
             in the repository (git config) if they should be in effect"
        );
        notes.add(GIT_SETTINGS, text);
    }
}

/// Whether git wrote to a repository: an object, a reference or the head is new. An index alone can be refreshed by a
/// command that only looks.
fn changes_repository(changes: &ChangeSummary) -> bool {
    changes.changes.iter().flatten().any(|change| {
        let mut components = change.path.components();
        let is_inside = components.by_ref().any(|name| name == b".git");
        let part = components.next();
        is_inside
            && change.after.is_some()
            && change.kind != ChangeKind::Time
            && part.is_some_and(|part| [&b"HEAD"[..], b"objects", b"refs", b"reftable"].contains(&part))
    })
}

/// Commands of git that usually write to the repository.
const GIT_WRITES: [&str; 11] =
    ["add", "am", "cherry-pick", "commit", "merge", "mv", "pull", "rebase", "reset", "revert", "rm"];
/// Commands that write files or a new repository.
const GIT_FILES: [&str; 12] = [
    "apply",
    "archive",
    "checkout",
    "checkout-index",
    "clean",
    "clone",
    "init",
    "restore",
    "stash",
    "submodule",
    "switch",
    "worktree",
];

/// Whether a command starts git with one of these commands.
fn starts_git(mut words: impl Iterator<Item = String>, commands: &[&str]) -> bool {
    while words.any(|word| word == "git") {
        let mut command = words.next();
        while let Some(option) = command.as_deref().filter(|word| word.starts_with('-')) {
            if ["-C", "-c"].contains(&option) {
                words.next();
            }
            command = words.next();
        }
        if command.is_some_and(|command| commands.contains(&command.as_str())) {
            return true;
        }
    }
    false
}

/// The words of a command, or of a shell command line.
pub(super) fn words_of(command: &CommandLine) -> impl Iterator<Item = String> {
    let texts = match command {
        CommandLine::Argv(words) => words.as_slice(),
        CommandLine::Shell(line) => std::slice::from_ref(line),
    };
    let is_between = |c: char| c.is_whitespace() || ";|&()\"'".contains(c);
    texts.iter().flat_map(move |text| {
        let text = shown_word(text);
        let words = text.split(is_between).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use avfs_types::CommandLine;

    use super::*;

    #[test]
    fn commands_that_write_to_a_repository() {
        let writes = |line: &str| starts_git(words_of(&CommandLine::Shell(line.into())), &GIT_WRITES);
        for line in [
            "git commit -qm x || true",
            "git status; git -C dir -c user.name=x commit -m y; echo done",
            "sh -c \"git add -A\"; true",
            "(cd sub && git rm old)",
        ] {
            assert!(writes(line), "{line}");
        }
        for line in
            ["git log; echo add > x", "git status > commit", "echo commit > git", "git stash list", "make"]
        {
            assert!(!writes(line), "{line}");
        }
    }
}
