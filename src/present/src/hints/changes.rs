//! Hints for changes that cannot be written to a directory, or taken out of it.

use avfs_changes::{ApplyError, Conflict};

use crate::hint;

hint!(ApplyError, |error, avfs| Some(match error {
    // Without its index or its refs a commit leaves the repository broken.
    Self::Conflict { conflicts, .. } if conflicts.iter().any(Conflict::is_in_repository) => format!(
        "the repository changed too; fetch the commits instead: {avfs} export REF ../copy && git pull ../copy"
    ),
    Self::Conflict { .. } =>
        format!("keep your changes and apply the rest with: --exclude PATH, or look at them: {avfs} status"),
    Self::ChangedSince { .. } => {
        "put those files back as they were applied (avfs diff shows how), then do it again".into()
    }
    Self::Unreadable => format!("check the vault with: {avfs} fsck"),
    Self::NotApplied { .. } | Self::NothingApplied => {
        format!("see what was applied with: {avfs} runs list")
    }
    Self::NoPermission { .. } => {
        "change the permissions, or leave it out with: --exclude PATH".into()
    }
    Self::Owner { .. } => {
        "apply it as the owner of the file or as root, or leave it out with: --exclude PATH".into()
    }
    Self::OtherFileSystem { .. } => {
        format!("leave it out with: --exclude PATH, and write it with: {avfs} export")
    }
    Self::BadPattern { .. } => "write a pattern such as 'src/**' or '*.rs'".into(),
    Self::Dir { .. } => format!("make sure that the bound directory is there: {avfs} vault info"),
    Self::Io { .. } => "what was written is whole; apply again to finish".into(),
    Self::Vault(error) => return error.hint(avfs),
}));
