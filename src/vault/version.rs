//! Versions: immutable records of a root tree, and the references that lead to them.

use crate::backend::{Reader, VersionRecord};
use crate::clock::Timestamp;
use crate::ids::{
    CheckpointName, DIGEST_BYTES, DigestKind, ForkName, PREFIX_HEX_DIGITS_MIN, RunPrefix, VersionId,
};

use super::codec::{put_bytes, put_number};
use super::error::{Result, VaultError};
use super::page::DirRef;
use super::path::TreePath;
use super::run::{find_run, run_of_word};
use super::store::require_version;
use super::tree::{self, Pages};

/// Versions named in the message about an ambiguous reference.
const EXAMPLES_MAX: usize = 4;

/// A version before it has an id.
pub struct Draft<'a> {
    pub message: &'a str,
    pub run: Option<&'a str>,
    pub parents: Vec<VersionId>,
}

impl Draft<'_> {
    #[must_use]
    pub fn finish(self, root: &DirRef, author: &str, at: Timestamp) -> VersionRecord {
        let mut version = VersionRecord {
            id: VersionId([0; DIGEST_BYTES]),
            root: root.tree,
            content: root.content,
            parents: self.parents,
            run: self.run.map(str::to_owned),
            message: self.message.to_owned(),
            author: author.to_owned(),
            at,
            entries: root.totals.entries,
            bytes: root.totals.bytes,
            pruned_at: None,
        };
        version.id = id_of(&version);
        version
    }
}

/// The id a version's record must have.
#[must_use]
pub fn id_of(version: &VersionRecord) -> VersionId {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&version.root.0);
    bytes.extend_from_slice(&version.content.0);
    put_number(&mut bytes, version.parents.len() as u64);
    version.parents.iter().for_each(|parent| bytes.extend_from_slice(&parent.0));
    bytes.extend_from_slice(&version.at.0.to_be_bytes());
    put_number(&mut bytes, version.entries);
    put_number(&mut bytes, version.bytes);
    for text in [&version.message, &version.author] {
        put_bytes(&mut bytes, text.as_bytes());
    }
    bytes.push(u8::from(version.run.is_some()));
    put_bytes(&mut bytes, version.run.as_deref().unwrap_or("").as_bytes());
    VersionId(DigestKind::Version.digest(&bytes))
}

/// The root directory of a version whose files are kept.
pub fn root_of(version: &VersionRecord) -> Result<DirRef> {
    if version.pruned_at.is_some() {
        return Err(VaultError::Pruned { id: version.id });
    }
    check_entries(version.entries)?;
    let totals = super::page::Totals { entries: version.entries, bytes: version.bytes, links: 0 };
    Ok(DirRef { tree: version.root, content: version.content, totals })
}

/// A version of more entries is neither made nor read.
pub fn check_entries(entries: u64) -> Result<()> {
    if entries > tree::ENTRIES_MAX {
        return Err(VaultError::TooManyEntries { entries });
    }
    Ok(())
}

/// As [`root_of`], with the number of linked entries, which the record does not keep.
pub fn full_root_of(reader: &dyn Reader, version: &VersionRecord) -> Result<DirRef> {
    let root = root_of(version)?;
    let (_, body) = tree::open(&reader as &dyn Pages, &root, &TreePath::root())?;
    Ok(DirRef { totals: body.totals(), ..root })
}

/// A reference as it was typed: `BASE` followed by any number of `~N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    base: Base,
    back: u64,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    /// A fork, or the first digits of a version.
    Name(String),
    Checkpoint(ForkName, CheckpointName),
    Run(String),
}

impl Reference {
    /// As it was typed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn parse(text: &str) -> Result<Self> {
        let bad = |reason| VaultError::BadRef { reference: text.chars().take(80).collect(), reason };
        let mut parts = text.split('~');
        let base = parts.next().unwrap_or_default();
        let mut back = 0_u64;
        for part in parts {
            let steps =
                if part.is_empty() { 1 } else { part.parse().map_err(|_| bad("~ takes a number"))? };
            back = back.saturating_add(steps);
        }
        let base = if let Some(run) = base.strip_prefix("run:") {
            if run.is_empty() {
                return Err(bad("run: takes the id of a run"));
            }
            Base::Run(run.to_owned())
        } else if let Some((fork, checkpoint)) = base.split_once('@') {
            let fork = ForkName::parse(fork).map_err(|_| bad("what stands before @ is not a fork's name"))?;
            let name = CheckpointName::parse(checkpoint)
                .map_err(|_| bad("what stands after @ is not a checkpoint's name"))?;
            Base::Checkpoint(fork, name)
        } else {
            ForkName::parse(base).map_err(|_| bad("it is neither a fork's name nor digits of a version"))?;
            Base::Name(base.to_owned())
        };
        Ok(Self { base, back, text: text.to_owned() })
    }

    /// The fork it names, if that is all it does.
    #[must_use]
    pub fn fork_name(&self) -> Option<ForkName> {
        match &self.base {
            Base::Name(name) if self.back == 0 => ForkName::parse(name).ok(),
            Base::Name(_) | Base::Checkpoint(..) | Base::Run(_) => None,
        }
    }

    /// The version it leads to, and the fork it went through.
    pub fn resolve(&self, reader: &dyn Reader) -> Result<(VersionRecord, Option<ForkName>)> {
        let (id, fork) = match &self.base {
            Base::Run(run) => (self.of_run(reader, run)?, None),
            Base::Checkpoint(fork, name) => {
                if reader.fork(fork)?.is_none() {
                    return Err(VaultError::NoFork { name: fork.clone() });
                }
                let found = reader.checkpoint(fork, name)?;
                let found = found
                    .ok_or_else(|| VaultError::NoCheckpoint { fork: fork.clone(), name: name.clone() })?;
                (found.version, Some(fork.clone()))
            }
            Base::Name(name) => self.by_name(reader, name)?,
        };
        let mut version = require_version(reader, &id)?;
        for _ in 0..self.back {
            let parent = version.parents.first();
            let parent = parent.ok_or_else(|| VaultError::BeforeFirst { reference: self.text.clone() })?;
            version = require_version(reader, parent)?;
        }
        Ok((version, fork))
    }

    /// What a run made; where it changed nothing, what it began with.
    fn of_run(&self, reader: &dyn Reader, text: &str) -> Result<VersionId> {
        let prefix = RunPrefix::parse(text).ok();
        let run = prefix.map_or(Ok(None), |prefix| find_run(reader, &prefix))?;
        let Some(run) = run else {
            // Versions name the runs that made them, also those that no journal knows.
            return reader.version_of_run(text)?.ok_or_else(|| self.unknown());
        };
        let without = |reason| VaultError::RunWithoutVersion { id: run.id.clone(), reason };
        let id = run.version_after.or(run.version_before);
        let id = id.ok_or_else(|| without("it ended before it had one"))?;
        match reader.version(&id)? {
            Some(_) => Ok(id),
            None => Err(without("its fork was deleted, and gc has taken the version with it")),
        }
    }

    /// A fork of that name comes first; digits mean a version only where no fork has the name.
    fn by_name(&self, reader: &dyn Reader, name: &str) -> Result<(VersionId, Option<ForkName>)> {
        if let Some(fork) = reader.fork(&ForkName::parse(name).map_err(|_| self.unknown())?)? {
            return Ok((fork.head, Some(fork.name)));
        }
        let hex = name.to_ascii_lowercase();
        let digits = hex.len() >= PREFIX_HEX_DIGITS_MIN && hex.len() <= 2 * DIGEST_BYTES;
        if !digits || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(self.unknown_to(reader, name));
        }
        let found = reader.versions_with_prefix(&hex, 100)?;
        match found.as_slice() {
            [] => Err(self.unknown_to(reader, name)),
            [only] => Ok((*only, None)),
            many => {
                let examples: Vec<String> = many.iter().take(EXAMPLES_MAX).map(VersionId::short).collect();
                Err(VaultError::AmbiguousRef {
                    reference: self.text.clone(),
                    count: many.len(),
                    examples: examples.join(", "),
                })
            }
        }
    }

    fn unknown(&self) -> VaultError {
        VaultError::UnknownRef { reference: self.text.chars().take(80).collect(), run: None }
    }

    /// A run's id without `run:` is easily taken from a list of runs.
    fn unknown_to(&self, reader: &dyn Reader, name: &str) -> VaultError {
        let reference = self.text.chars().take(80).collect();
        VaultError::UnknownRef { reference, run: run_of_word(reader, name) }
    }
}

impl std::str::FromStr for Reference {
    type Err = VaultError;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

/// A version and its first parents, newest first; stops at a version that is not there.
pub struct History<'a> {
    reader: &'a dyn Reader,
    next: Option<VersionId>,
    seen: std::collections::HashSet<VersionId>,
}

impl<'a> History<'a> {
    #[must_use]
    pub fn new(reader: &'a dyn Reader, from: VersionId) -> Self {
        Self { reader, next: Some(from), seen: std::collections::HashSet::new() }
    }
}

impl Iterator for History<'_> {
    type Item = Result<VersionRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.next.take()?;
        // Ids are digests of their parents' ids, so only a forged vault can hold a cycle.
        if !self.seen.insert(id) {
            let detail = "it is its own ancestor".to_owned();
            return Some(Err(VaultError::DamagedObject { kind: "version", id: id.short(), detail }));
        }
        match require_version(self.reader, &id) {
            Ok(version) => {
                self.next = version.parents.first().copied();
                Some(Ok(version))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_apart_from_their_form() {
        let parse = |text: &str| Reference::parse(text);
        assert_eq!(parse("main").unwrap().fork_name(), Some(ForkName::main()));
        assert_eq!(parse("main~2~").unwrap().back, 3);
        assert_eq!(parse("run:7").unwrap().base, Base::Run("7".to_owned()));
        assert!(matches!(parse("f@c~1").unwrap().base, Base::Checkpoint(..)));
        for bad in ["", "~1", "main~x", "run:", "a@", "@b", "a/b", "a b"] {
            assert!(matches!(parse(bad), Err(VaultError::BadRef { .. })), "{bad:?} was taken");
        }
    }
}
