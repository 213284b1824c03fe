//! Hints for changes that cannot be applied to a directory, or reverted in it.

use avfs_changes::{ApplyError, Conflict};

use crate::hint;

hint!(ApplyError, |error, avfs| Some(match error {
    // Without its index or its refs, a commit would leave the repository broken.
    Self::Conflict { conflicts, version, .. } if conflicts.iter().any(Conflict::is_in_repository) => format!(
        "the repository changed too; merge the commits instead: {avfs} export {} ../copy && \
         git pull --no-rebase ../copy",
        version.short()
    ),
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
    Self::Owner { .. } => {
        "apply it as the owner of the file, as a member of its group, or as root; or leave it out with: --exclude PATH"
            .into()
    }
    Self::OtherFileSystem { .. } => {
        format!("leave it out with: --exclude PATH, and write it with: {avfs} export")
    }
    Self::BadPattern { .. } => "write a pattern such as 'src/**' or '*.rs'".into(),
    Self::Dir { .. } => format!("check that the bound directory exists: {avfs} vault info"),
    Self::Io { .. } => "the files written so far are complete; apply again to finish".into(),
    Self::Vault(error) => return error.hint(avfs),
}));
