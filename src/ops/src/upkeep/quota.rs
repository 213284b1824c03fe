//! The limits of the vault.

use avfs_types::{Limit, show_bytes_size};
use avfs_vault::quota::Quota;
use avfs_vault::require_version;
use avfs_wire::QuotaShow;
use avfs_workplace::{OpError, Workplace};

/// New limits; those that are `None` stay.
pub struct QuotaChange {
    pub bytes: Option<Limit>,
    pub versions: Option<Limit>,
    pub files: Option<Limit>,
}

/// Sets limits, and shows all of them.
pub fn change_quota(workplace: &Workplace, change: &QuotaChange) -> Result<QuotaShow, OpError> {
    let new = |limit: Option<Limit>, old: Option<u64>| limit.map_or(old, |limit| limit.0);
    workplace.vault.change_quota(|old| Quota {
        bytes: new(change.bytes, old.bytes),
        versions: new(change.versions, old.versions),
        files: new(change.files, old.files),
    })?;
    quota(workplace)
}

/// The limits and their usage. Notes those that the vault exceeds.
pub fn quota(workplace: &Workplace) -> Result<QuotaShow, OpError> {
    let quota = workplace.vault.quota()?;
    let reader = workplace.vault.read()?;
    let result = QuotaShow {
        bytes: quota.bytes,
        versions: quota.versions,
        files: quota.files,
        bytes_used: reader.bytes_used()?,
        versions_used: reader.versions_kept()?,
    };
    let mut largest = 0;
    if quota.files.is_some() {
        for fork in reader.forks()? {
            largest = largest.max(require_version(&*reader, &fork.head)?.entries);
        }
    }
    note_exceeded(workplace, &result, largest);
    Ok(result)
}

fn note_exceeded(workplace: &Workplace, quota: &QuotaShow, largest: u64) {
    let avfs = &workplace.client.avfs;
    let note = |text: String, free: String| {
        workplace.note(format_args!("note: {text}, so nothing can be added; {free}"));
    };
    let exceeded = |limit: Option<u64>, used: u64| limit.filter(|limit| used > *limit);
    if let Some(limit) = exceeded(quota.bytes, quota.bytes_used) {
        let (used, limit) = (show_bytes_size(quota.bytes_used), show_bytes_size(limit));
        let free = format!("free space with: {avfs} prune --keep-last N && {avfs} gc");
        note(format!("the vault uses {used}, more than the limit of {limit}"), free);
    }
    if let Some(limit) = exceeded(quota.versions, quota.versions_used) {
        let used = quota.versions_used;
        let free = format!("free versions with: {avfs} prune --keep-last N && {avfs} gc");
        note(format!("the vault has {used} versions, more than the limit of {limit}"), free);
    }
    if let Some(limit) = exceeded(quota.files, largest) {
        let free = format!("remove files with: {avfs} rm, or exclude them in .avfsignore");
        note(format!("a fork has {largest} entries, more than the limit of {limit}"), free);
    }
}
