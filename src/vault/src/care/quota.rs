//! Quotas of a vault: bytes of the file, versions kept, entries of one version.

use avfs_types::ids::VersionId;

use crate::audit::Event;
use crate::backend::{Reader, Writer};
use crate::page::Totals;
use crate::run::digest;
use crate::{Result, Vault, VaultError};

/// The limits of a vault; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes in use in the vault file.
    pub bytes: Option<u64>,
    /// Versions whose content is kept.
    pub versions: Option<u64>,
    /// Entries of one version.
    pub files: Option<u64>,
}

const KEYS: [&str; 3] = ["quota_bytes", "quota_versions", "quota_files"];

/// The limits in this view of the vault.
pub fn read(reader: &dyn Reader) -> Result<Quota> {
    let number = |key| -> Result<Option<u64>> {
        let text = reader.meta(key)?;
        Ok(text.and_then(|text| std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok())))
    };
    Ok(Quota { bytes: number(KEYS[0])?, versions: number(KEYS[1])?, files: number(KEYS[2])? })
}

fn write(writer: &mut dyn Writer, quota: &Quota) -> Result<()> {
    for (key, limit) in KEYS.iter().zip([quota.bytes, quota.versions, quota.files]) {
        let text = limit.map_or_else(String::new, |limit| limit.to_string());
        writer.set_meta(key, text.as_bytes())?;
    }
    Ok(())
}

/// Fails if a version would exceed a limit. Its objects are already stored, but not committed.
///
/// A vault over its quota must be able to shrink, so two cases pass: the files limit, if the version has no more
/// entries than the version `before` it; and the bytes limit, if its files plus the `added` bytes of new content take
/// fewer bytes than those of `before`.
pub(crate) fn check(
    reader: &dyn Reader,
    totals: &Totals,
    before: Option<&VersionId>,
    added: u64,
) -> Result<()> {
    let quota = read(reader)?;
    if quota == Quota::default() {
        return Ok(());
    }
    let before = before.map(|id| reader.version(id)).transpose()?.flatten();
    if before.as_ref().is_none_or(|before| totals.bytes.saturating_add(added) >= before.bytes) {
        check_bytes(reader, &quota)?;
    }
    if let Some(limit) = quota.files
        && totals.entries > limit
        && before.is_none_or(|before| totals.entries > before.entries)
    {
        return Err(VaultError::Quota { what: "files", limit, would_be: totals.entries });
    }
    if let Some(limit) = quota.versions {
        let would_be = reader.versions_kept()? + 1;
        if would_be > limit {
            return Err(VaultError::Quota { what: "versions", limit, would_be });
        }
    }
    Ok(())
}

/// Fails if the file is already larger than the bytes limit.
pub(crate) fn check_bytes(reader: &dyn Reader, quota: &Quota) -> Result<()> {
    let Some(limit) = quota.bytes else { return Ok(()) };
    let would_be = reader.bytes_used()?;
    if would_be > limit { Err(VaultError::Quota { what: "bytes", limit, would_be }) } else { Ok(()) }
}

impl Vault {
    /// The current limits.
    pub fn quota(&self) -> Result<Quota> {
        read(&*self.read()?)
    }

    /// Replaces the current limits with the result of `change`.
    pub fn change_quota(&self, change: impl FnOnce(Quota) -> Quota) -> Result<()> {
        let show = |limit: Option<u64>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        let describe = |quota: &Quota| {
            let [bytes, versions, files] = [quota.bytes, quota.versions, quota.files].map(show);
            format!("bytes={bytes} versions={versions} files={files}")
        };
        self.transact(|transaction| {
            let before = read(transaction.view())?;
            let quota = change(before);
            write(&mut *transaction.writer, &quota)?;
            let (before, detail) = (describe(&before), describe(&quota));
            transaction.record(&Event {
                action: "quota.set",
                subject: "",
                before: Some(digest(&before)),
                after: Some(digest(&detail)),
                detail: &detail,
            })
        })
    }
}
