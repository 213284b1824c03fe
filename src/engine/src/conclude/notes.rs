//! Notes of a run about files and directories that behaved in another way than outside of the sandbox.

use std::path::Path;

use avfs_changes::ChangeSummary;
use avfs_request::BaseChoice;
use avfs_types::path::TreePath;
use avfs_vault::capture::WrittenLinks;
use avfs_vault::diff::ChangeKind;

use crate::fork_dirs::ForkDirs;
use crate::git::repository::{CommonDir, NotShown};
use crate::git::settings::Callers;
use crate::launcher::{Completion, Exit};
use crate::proxy::{ProxyRuntime, words_of};
use crate::run::Run;

/// Notes that the directory itself was the base and has files of other users.
pub(crate) fn note_foreign_files(run: &mut Run) {
    let (this, remedy) = match run.request.base {
        BaseChoice::Auto => ("this run could not", "the next run can"),
        BaseChoice::Live | BaseChoice::Cached | BaseChoice::Touched => {
            ("a run on the directory itself cannot", "to write them use: --base cached")
        }
    };
    let text = format!(
        "some files belong to another user or group, or have ACLs that name one: {this} write them (\"Value too large \
         for defined data type\", as root \"Permission denied\"); {remedy}"
    );
    run.note("base.foreign", text);
}

/// Notes that overlayfs refused to rename a directory.
pub(super) fn note_refused_rename(run: &mut Run) {
    let text = "a directory from before the run could not be renamed (\"Invalid cross-device link\"); programs that \
                fall back to copying still work; for others use: --backend copy";
    run.note("rename.refused", text.to_owned());
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
pub(super) fn note_links(run: &mut Run, written: &WrittenLinks) {
    let names = |paths: &[TreePath]| listed(paths, NAMED_MAX);
    if let Some(joined) = names(&written.joined) {
        let text = format!(
            "a hard link was written: {joined} have the new content in the version; in the sandbox, only the name that was \
             written had it. To keep all names one file: --backend copy",
        );
        run.note("links.joined", text);
    }
    if let Some(repeated) = names(&written.repeated) {
        let text = format!(
            "hard links of one file were written separately, with the same result: {repeated}. The version has it once; \
             outside, a later write would have found the earlier one, as when both append. To keep all names one \
             file: --backend copy",
        );
        run.note("links.repeated", text);
    }
    if let Some(split) = names(&written.split) {
        let text = format!(
            "hard links of one file were written separately, and are separate files in the version: {split}; to keep them \
             one file: --backend copy",
        );
        run.note("links.split", text);
    }
}

/// Notes that git cannot commit in a linked worktree, whose repository is mounted read-only or not at all.
pub(super) fn note_worktree(run: &mut Run, bound: Option<&Path>, completion: &Completion) {
    let Some(bound) = bound else { return };
    let may_have_failed = match completion.exit {
        // The status may be that of another command of the line.
        Exit::Code(0) => starts_git(words_of(&run.request.command), &GIT_WRITES),
        Exit::Code(_) | Exit::Signal(_) => words_of(&run.request.command).any(|word| word == "git"),
    };
    if !may_have_failed {
        return;
    }
    let state = match &run.common_dir {
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
    run.note("git.linked_worktree", text);
}

/// Notes that the command left processes running, which ended with the run. Not if the run was ended from outside: then
/// all processes were.
pub(super) fn note_left_running(run: &mut Run, completion: &Completion) {
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
        run.note("processes.killed", text);
    }
}

const GIT_SETTINGS: &str = "git.settings";

impl ProxyRuntime<'_> {
    /// Notes the settings of the caller that git in the sandbox does not have, once for each fork and setting.
    pub(super) fn note_git_settings(&self, run: &mut Run, changes: &ChangeSummary) {
        let site = self.site;
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
            run.note(GIT_SETTINGS, text);
        }
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
