//! Hints for changes that cannot be applied to a directory, or reverted in it.

use std::path::Path;

use avfs_changes::{ApplyError, BlockedRepository, Inherited, InheritedRemedy, RepositoryChange};
use avfs_types::diagnose::shell_word;
use avfs_types::ids::VersionId;

use crate::{Avfs, hint};

/// How to merge the commits of a version into the repository in the directory. HEAD, refs and index belong together:
/// with a part of them, the repository would be broken, or show changes that revert a commit.
#[must_use]
pub fn merge_commits(avfs: &Avfs, dir: &Path, version: &VersionId, repository: &BlockedRepository) -> String {
    let mut copy = dir.as_os_str().to_owned();
    copy.push(format!("-{}", version.short()));
    let word = |path: &Path| shell_word(path.as_os_str());
    let export = format!("{avfs} export {} {}", version.short(), shell_word(&copy));
    if repository.change == RepositoryChange::NestedCommits {
        return format!("a submodule or worktree has commits: merge them with git from a copy: {export}");
    }
    format!(
        "the changes include commits; commit your own changes, then merge the commits instead: {export} && \
         git -C {} pull --no-rebase {}",
        word(&repository.work_tree_in(dir)),
        word(&repository.work_tree_in(Path::new(&copy)))
    )
}

/// How to write changes together with the changes that they were made on top of.
fn apply_inherited(avfs: &Avfs, of: &Inherited, version: &VersionId) -> String {
    match &of.remedy {
        InheritedRemedy::Fork(fork) => format!("apply {fork} first: {avfs} apply {fork}"),
        InheritedRemedy::ForkInstead(fork) => format!("apply the whole fork instead: {avfs} apply {fork}"),
        InheritedRemedy::Runs(runs) => {
            let commands: Vec<String> = runs.iter().map(|run| format!("{avfs} apply run:{run}")).collect();
            format!("apply the earlier changes first: {}", commands.join(" && "))
        }
        InheritedRemedy::Neither => format!(
            "write all of them together: {avfs} fork create NAME --from {} && {avfs} restore {} --fork NAME && \
             {avfs} apply NAME",
            of.before.short(),
            version.short()
        ),
    }
}

hint!(ApplyError, |error, avfs| Some(match error {
    Self::Conflict { version, inherited, .. } if !inherited.is_empty() => {
        inherited.first().map(|first| apply_inherited(avfs, first, version))?
    }
    Self::Conflict { dir, version, repository: Some(repository), .. } => match repository.change {
        RepositoryChange::Commits | RepositoryChange::NestedCommits => {
            merge_commits(avfs, dir, version, repository)
        }
        RepositoryChange::Index | RepositoryChange::Other => format!(
            "the repository changed too; apply the files without it, to stage them again, with: --exclude {}",
            shell_word(repository.git_dir_pattern().as_ref())
        ),
    },
    Self::Conflict { .. } => format!(
        "keep your changes and apply the rest with: --exclude PATH; show your changes with: {avfs} status"
    ),
    Self::ChangedSince { .. } => {
        "restore those files to their applied state (avfs diff shows it), then try again".into()
    }
    Self::Unreadable => format!("check the vault with: {avfs} fsck"),
    Self::NotApplied { .. } | Self::NothingApplied => {
        format!("list applied runs with: {avfs} runs list")
    }
    Self::Expired { .. } => {
        "revert the files by hand; fork.expires in the settings decides how long an apply can be reverted"
            .into()
    }
    Self::NoPermission { .. } => {
        "change the permissions, or leave it out with: --exclude PATH".into()
    }
    Self::Owner { what: "group", path } => {
        let name = path.to_string();
        let file = shell_word(name.as_ref());
        format!(
            "give it, or the directory of a new file, a group that you are in: chgrp GROUP {file}; or leave it out with: \
             --exclude {file}"
        )
    }
    Self::Owner { .. } => {
        "apply it as the owner of the file, as a member of its group, or as root; or leave it out with: --exclude PATH"
            .into()
    }
    Self::OtherFileSystem { .. } => {
        format!("leave it out with: --exclude PATH, and write it with: {avfs} export")
    }
    Self::BadPattern { .. } => "write a pattern such as 'src/**' or '*.rs'".into(),
    Self::Symlink { link, real } => {
        let (link, real) = (shell_word(link.as_os_str()), shell_word(real.as_os_str()));
        format!("put the directory itself there: it leads to {real}; check it with: ls -ld {link}")
    }
    Self::Dir { .. } => format!("check that the bound directory exists: {avfs} vault info"),
    Self::Io { .. } => "the files written so far are complete; apply again to finish".into(),
    Self::Interrupted => return None,
    Self::Vault(error) => return error.hint(avfs),
}));
