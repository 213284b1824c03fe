//! Cached results: the result of a run, looked up by everything it depended on.
//!
//! A result keeps the command's output alive until it expires or is forgotten. It does not keep its versions: they
//! live as long as a fork refers to them, and a result whose versions are gone is useless.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use avfs_types::clock::Timestamp;
use avfs_types::encode::put_bytes;
use avfs_types::ids::{DigestKind, MemoKey, PartDigest, RunId, from_hex};

use super::audit::Event;
use super::kept_output::is_kept_output;
use super::run::{Landed, LandedRun};
use super::stored_output::StoredOutput;
use crate::backend::{Guard, MemoRecord, Reader};
use crate::{Result, Transaction, Vault};

/// Rows read at once.
const BATCH_ROWS: usize = 500;
/// The name of the part for the command.
pub const COMMAND_PART: &str = "command";

/// The dependencies of a result: a digest for each named part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoParts(BTreeMap<Cow<'static, str>, PartDigest>);

impl MemoParts {
    /// Adds a part, as the digest of `bytes`.
    pub fn set(&mut self, name: &'static str, bytes: &[u8]) {
        self.0.insert(Cow::Borrowed(name), PartDigest(DigestKind::MemoPart.digest(bytes)));
    }

    /// The digest of the named part; `None` if the result does not depend on it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<PartDigest> {
        self.0.get(name).copied()
    }

    /// The key of the result.
    #[must_use]
    pub fn key(&self) -> MemoKey {
        let mut bytes = Vec::with_capacity(512);
        for (name, digest) in &self.0 {
            put_bytes(&mut bytes, name.as_bytes());
            bytes.extend_from_slice(digest.as_bytes());
        }
        MemoKey(DigestKind::Memo.digest(&bytes))
    }

    /// The sorted names of the parts that differ.
    #[must_use]
    pub fn differing<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let names: std::collections::BTreeSet<&str> =
            self.0.keys().chain(other.0.keys()).map(AsRef::as_ref).collect();
        names.into_iter().filter(|name| self.get(name) != other.get(name)).collect()
    }

    /// The form stored in a row: a JSON object of hex digits.
    #[must_use]
    pub(crate) fn to_json(&self) -> String {
        let named: BTreeMap<&str, String> =
            self.0.iter().map(|(name, digest)| (name.as_ref(), digest.to_hex())).collect();
        serde_json::to_string(&named).unwrap_or_else(|_| "{}".to_owned())
    }

    /// `None` if the text is not such an object.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let named: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let part = |(name, hex): (String, String)| {
            Some((Cow::Owned(name), PartDigest::from_slice(&from_hex(&hex)?)?))
        };
        named.into_iter().map(part).collect::<Option<BTreeMap<_, _>>>().map(Self)
    }
}

/// A result to be cached together with its run.
#[derive(Clone, Debug)]
pub struct Memo {
    parts: MemoParts,
    exit_code: u8,
    stdout: StoredOutput,
    stderr: StoredOutput,
    expires_at: Timestamp,
}

impl Memo {
    /// Hashes and compresses: before the transaction, never in it.
    pub fn new(
        vault: &Vault,
        parts: MemoParts,
        exit_code: u8,
        [stdout, stderr]: [&mut (dyn Read + Send); 2],
        expires_at: Timestamp,
    ) -> Result<Self> {
        let (stdout, stderr) = (StoredOutput::of(vault, stdout)?, StoredOutput::of(vault, stderr)?);
        Ok(Self { parts, exit_code, stdout, stderr, expires_at })
    }

    /// Prevents a sweep of blobs that are stored already; held until the row is committed.
    pub(crate) fn pins(&self) -> [Option<Arc<Guard>>; 2] {
        [self.stdout.pin.clone(), self.stderr.pin.clone()]
    }
}

/// Stores a result in the transaction that lands its run; returns false if it cannot be cached.
pub(crate) fn remember(transaction: &mut Transaction<'_>, memo: Memo, landed: &LandedRun) -> Result<bool> {
    // After a rebase, the difference between the versions includes changes made by others.
    if matches!(landed.landed, Landed::Rebased { .. }) {
        return Ok(false);
    }
    let Memo { parts, exit_code, stdout, stderr, expires_at } = memo;
    let Some(command) = parts.get(COMMAND_PART) else { return Ok(false) };
    transaction.put_blobs(&stdout.blobs)?;
    transaction.put_blobs(&stderr.blobs)?;
    let record = MemoRecord {
        seq: 0,
        key: parts.key(),
        command,
        parts: parts.to_json(),
        run: landed.record.id.clone(),
        exit_code: i32::from(exit_code),
        stdout: stdout.id,
        stderr: stderr.id,
        stdout_digest: stdout.digest,
        stderr_digest: stderr.digest,
        version_before: landed.record.version_before,
        version_after: landed.record.version_after,
        created_at: transaction.now(),
        expires_at,
    };
    transaction.writer.put_memo(&record)?;
    audit_memo(transaction, "cache.remember", &record, "")?;
    Ok(true)
}

fn audit_memo(
    transaction: &mut Transaction<'_>,
    action: &'static str,
    memo: &MemoRecord,
    why: &str,
) -> Result<()> {
    let key = Some(memo.key.0);
    let (before, after) = if action == "cache.forget" { (key, None) } else { (None, key) };
    let detail = format!("run={}{}{why}", memo.run, if why.is_empty() { "" } else { " " });
    transaction.record(&Event { action, subject: &memo.key.to_hex(), before, after, detail: &detail })
}

/// Why a cached result can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It has expired.
    Expired,
    /// A version no longer exists, or its files do not.
    Version,
    /// The command's output no longer exists.
    Output,
}

impl Lost {
    /// The name of the reason in JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Version => "version-gone",
            Self::Output => "output-gone",
        }
    }
}

/// Why a result can no longer be used; `None` if everything it needs exists.
pub fn lost(reader: &dyn Reader, memo: &MemoRecord, now: Timestamp) -> Result<Option<Lost>> {
    if memo.expires_at <= now {
        return Ok(Some(Lost::Expired));
    }
    // A run without changes needs no versions.
    if let Some(after) = memo.version_after {
        for id in memo.version_before.into_iter().chain([after]) {
            if reader.version(&id)?.is_none_or(|version| version.pruned_at.is_some()) {
                return Ok(Some(Lost::Version));
            }
        }
    }
    for id in [&memo.stdout, &memo.stderr] {
        if !reader.has_blob(id)? {
            return Ok(Some(Lost::Output));
        }
    }
    Ok(None)
}

/// The cached result of this run.
pub fn of_run(reader: &dyn Reader, run: &RunId) -> Result<Option<MemoRecord>> {
    Ok(reader.memo_of_run(run)?.filter(|memo| !is_kept_output(memo)))
}

/// Every result and every kept output, newest first.
pub(crate) fn all(reader: &dyn Reader) -> Result<Vec<MemoRecord>> {
    newer_than(reader, 0)
}

/// Every result with a sequence number above `seen`, newest first.
pub(crate) fn newer_than(reader: &dyn Reader, seen: i64) -> Result<Vec<MemoRecord>> {
    let mut found: Vec<MemoRecord> = Vec::new();
    loop {
        let before = found.last().map_or(i64::MAX, |memo| memo.seq);
        let mut more = reader.memos(before, BATCH_ROWS)?;
        more.retain(|memo| memo.seq > seen);
        let ended = more.len() < BATCH_ROWS;
        found.extend(more);
        if ended {
            return Ok(found);
        }
    }
}

/// Which results to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forget {
    /// All of them.
    All,
    /// The result of this run.
    OfRun(RunId),
    /// One that turned out to be unusable.
    Lost(MemoKey, Lost),
}

impl Vault {
    /// Results with a sequence number below `before`, newest first.
    pub fn memos(&self, before: i64, limit: usize) -> Result<Vec<MemoRecord>> {
        let reader = self.read()?;
        let (mut found, mut before) = (Vec::new(), before);
        loop {
            let rows = reader.memos(before, BATCH_ROWS)?;
            let Some(last) = rows.last() else { return Ok(found) };
            before = last.seq;
            found.extend(rows.into_iter().filter(|memo| !is_kept_output(memo)));
            if found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    /// Deletes results and returns them. If nothing matches, only one read is done and no write.
    pub fn forget(&self, which: &Forget) -> Result<Vec<MemoRecord>> {
        if chosen(&*self.read()?, which)?.is_empty() {
            return Ok(Vec::new());
        }
        self.transact(|transaction| {
            let gone = chosen(transaction.view(), which)?;
            for (memo, why) in &gone {
                transaction.writer.delete_memo(&memo.key)?;
                audit_memo(transaction, "cache.forget", memo, why)?;
            }
            Ok(gone.into_iter().map(|(memo, _)| memo).collect())
        })
    }
}

impl Vault {
    /// The keys of the results that can no longer be used.
    pub(crate) fn lost_memos(&self) -> Result<Vec<MemoKey>> {
        let (reader, now) = (self.read()?, self.now());
        let mut found = Vec::new();
        for memo in all(&*reader)? {
            if lost(&*reader, &memo, now)?.is_some() {
                found.push(memo.key);
            }
        }
        Ok(found)
    }

    /// Deletes those of the results that can no longer be used; returns their number.
    pub(crate) fn forget_if_lost(&self, keys: &[MemoKey]) -> Result<u64> {
        self.transact(|transaction| {
            let mut count = 0;
            for key in keys {
                let Some(memo) = transaction.view().memo(key)? else { continue };
                if let Some(why) = lost(transaction.view(), &memo, transaction.now())? {
                    transaction.writer.delete_memo(key)?;
                    audit_memo(transaction, "cache.forget", &memo, why.word())?;
                    count += 1;
                }
            }
            Ok(count)
        })
    }
}

fn chosen(reader: &dyn Reader, which: &Forget) -> Result<Vec<(MemoRecord, &'static str)>> {
    let asked = |memo| (memo, "asked");
    Ok(match which {
        Forget::All => all(reader)?.into_iter().filter(|memo| !is_kept_output(memo)).map(asked).collect(),
        Forget::OfRun(run) => of_run(reader, run)?.into_iter().map(asked).collect(),
        Forget::Lost(key, why) => reader.memo(key)?.into_iter().map(|memo| (memo, why.word())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_does_not_depend_on_the_order_of_parts() {
        let mut one = MemoParts::default();
        one.set("a", b"1");
        one.set("b", b"2");
        let mut other = MemoParts::default();
        other.set("b", b"2");
        other.set("a", b"1");
        assert_eq!(one.key(), other.key());
        other.set("b", b"3");
        assert_ne!(one.key(), other.key());
        assert_eq!(one.differing(&other), ["b"]);
        other.set("c", b"");
        assert_eq!(one.differing(&other), ["b", "c"]);
        assert_eq!(MemoParts::from_json(&one.to_json()), Some(one));
        assert_eq!(MemoParts::from_json("{\"a\": \"xyz\"}"), None);
        assert_eq!(MemoParts::from_json("[]"), None);
    }
}
