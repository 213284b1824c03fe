//! Notes of a run about files and directories that behaved in another way than outside of the sandbox.

use std::path::Path;

use avfs_request::BaseChoice;
use avfs_types::path::TreePath;
use avfs_vault::capture::WrittenLinks;

use crate::git::repository::{CommonDir, NotShown};
use crate::launcher::{Completion, Exit};
use crate::proxy::words_of;
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

/// Notes the hard links that the command wrote to.
pub(super) fn note_links(run: &mut Run, written: &WrittenLinks) {
    let names = |paths: &[TreePath]| {
        let named: Vec<String> = paths.iter().take(NAMED_MAX).map(TreePath::to_string).collect();
        let more = paths.len() - named.len();
        named.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
    };
    if !written.joined.is_empty() {
        let text = format!(
            "a hard link was written: {} have the new content in the version; in the sandbox, only the name that was \
             written had it. To keep all names one file: --backend copy",
            names(&written.joined)
        );
        run.note("links.joined", text);
    }
    if !written.repeated.is_empty() {
        let text = format!(
            "hard links of one file were written separately, with the same result: {}. The version has it once; \
             outside, a later write would have found the earlier one, as when both append. To keep all names one \
             file: --backend copy",
            names(&written.repeated)
        );
        run.note("links.repeated", text);
    }
    if !written.split.is_empty() {
        let text = format!(
            "hard links of one file were written separately, and are separate files in the version: {}; to keep them \
             one file: --backend copy",
            names(&written.split)
        );
        run.note("links.split", text);
    }
}

/// Notes that git cannot commit in a linked worktree, whose repository is mounted read-only or not at all.
pub(super) fn note_worktree(run: &mut Run, bound: Option<&Path>, completion: &Completion) {
    let Some(bound) = bound else { return };
    let may_have_failed = match completion.exit {
        // The status may be that of another command of the line.
        Exit::Code(0) => writes_with_git(words_of(&run.request.command)),
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

/// Commands of git that usually write to the repository.
const GIT_WRITES: [&str; 11] =
    ["add", "am", "cherry-pick", "commit", "merge", "mv", "pull", "rebase", "reset", "revert", "rm"];

fn writes_with_git(mut words: impl Iterator<Item = String>) -> bool {
    while words.any(|word| word == "git") {
        let mut command = words.next();
        while let Some(option) = command.as_deref().filter(|word| word.starts_with('-')) {
            if ["-C", "-c"].contains(&option) {
                words.next();
            }
            command = words.next();
        }
        if command.is_some_and(|command| GIT_WRITES.contains(&command.as_str())) {
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
        let writes = |line: &str| writes_with_git(words_of(&CommandLine::Shell(line.into())));
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
