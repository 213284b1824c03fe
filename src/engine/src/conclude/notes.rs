//! Notes of a run about files and directories that behaved in another way than outside of the sandbox.

use avfs_request::BaseChoice;
use avfs_types::path::TreePath;
use avfs_vault::capture::WrittenLinks;

use crate::launcher::{Completion, Exit};
use crate::proxy::words_of;
use crate::run::Run;

/// Notes that the directory itself was the base and has files of other users.
pub(super) fn note_foreign_files(run: &mut Run) {
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

/// Notes that git cannot commit in a linked worktree, whose repository is mounted read-only.
pub(super) fn note_worktree(run: &mut Run, completion: &Completion) {
    let Some(common) = &run.common_dir else { return };
    if completion.exit == Exit::Code(0) || !words_of(&run.request.command).any(|word| word == "git") {
        return;
    }
    let text = format!(
        "the workspace is a linked worktree, and its repository {} is read-only in the sandbox: \
         apply the changes and commit them outside, or work in a clone",
        common.display()
    );
    run.note("git.linked_worktree", text);
}
