//! Versions: immutable records of a root tree, and the references that resolve to them.

use avfs_types::clock::Timestamp;
use avfs_types::encode::{put_bytes, put_number};
use avfs_types::ids::{DIGEST_BYTES, DigestKind, ForkName, PREFIX_HEX_DIGITS_MIN, RunPrefix, VersionId};
use avfs_types::path::TreePath;
use avfs_types::reference::{Base, Reference};

use super::run::find_run;
use crate::backend::{Extent, Reader, RunRecord, RunState, VersionRecord};
use crate::page::DirRef;
use crate::tree::Pages;
use crate::{Result, VaultError, require_version, tree};

/// Versions named in the message about an ambiguous reference.
const EXAMPLES_MAX: usize = 4;

/// A version before it has an id.
pub struct Draft<'a> {
    /// A description of the version.
    pub message: &'a str,
    /// The run that created it; `None` if it was not created by a run.
    pub run: Option<&'a str>,
    /// The versions it was made from, the replaced head first.
    pub parents: Vec<VersionId>,
    /// How much of the directory its tree contains; always partial if it is made from a partial version.
    pub extent: Extent,
}

impl Draft<'_> {
    /// The record with its id, which is a digest of all fields.
    #[must_use]
    pub fn finish(self, root: &DirRef, author: &str, at: Timestamp) -> VersionRecord {
        let mut version = VersionRecord {
            id: VersionId([0; DIGEST_BYTES]),
            root: root.tree,
            content: root.content,
            parents: self.parents,
            extent: self.extent,
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

/// The id that a version's record must have.
#[must_use]
pub(crate) fn id_of(version: &VersionRecord) -> VersionId {
    let mut bytes = Vec::with_capacity(256);
    bytes.extend_from_slice(&version.root.0);
    bytes.extend_from_slice(&version.content.0);
    put_number(&mut bytes, version.marked_parents().count() as u64);
    version.marked_parents().for_each(|parent| bytes.extend_from_slice(&parent.0));
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

/// The root directory of a version; fails if it is pruned or partial.
pub fn root_of(version: &VersionRecord) -> Result<DirRef> {
    match version.extent {
        Extent::Full => root_of_either(version),
        Extent::Partial => Err(VaultError::Partial { id: version.id }),
    }
}

/// Like [`root_of`], but allows a partial version: for comparing two versions, or reading only touched paths.
pub fn root_of_either(version: &VersionRecord) -> Result<DirRef> {
    if version.pruned_at.is_some() {
        return Err(VaultError::Pruned { id: version.id });
    }
    check_entries(version.entries)?;
    let totals = crate::page::Totals { entries: version.entries, bytes: version.bytes, links: 0 };
    Ok(DirRef { tree: version.root, content: version.content, totals })
}

/// Refuses a version with too many entries, both when creating and when reading it.
pub(crate) fn check_entries(entries: u64) -> Result<()> {
    if entries > tree::ENTRIES_MAX {
        return Err(VaultError::TooManyEntries { entries });
    }
    Ok(())
}

/// Like [`root_of`], with the number of hard-linked entries, which the record does not contain.
pub fn full_root_of(reader: &dyn Reader, version: &VersionRecord) -> Result<DirRef> {
    with_links(reader, root_of(version)?)
}

/// Like [`full_root_of`], but allows a partial version.
pub fn full_root_of_either(reader: &dyn Reader, version: &VersionRecord) -> Result<DirRef> {
    with_links(reader, root_of_either(version)?)
}

fn with_links(reader: &dyn Reader, root: DirRef) -> Result<DirRef> {
    let (_, body) = tree::open(&reader as &dyn Pages, &root, &TreePath::root())?;
    Ok(DirRef { totals: body.totals(), ..root })
}

/// The roots of two versions that can be compared: both contain the whole tree, or both contain the paths that the
/// same run touched.
pub fn roots_to_compare(
    reader: &dyn Reader,
    before: &VersionRecord,
    after: &VersionRecord,
) -> Result<[DirRef; 2]> {
    match (before.extent, after.extent) {
        (Extent::Full, Extent::Full) => {}
        (Extent::Partial, Extent::Partial) if origin(reader, before)? == origin(reader, after)? => {}
        (Extent::Partial, _) => return Err(VaultError::Partial { id: before.id }),
        (Extent::Full, Extent::Partial) => return Err(VaultError::Partial { id: after.id }),
    }
    Ok([root_of_either(before)?, root_of_either(after)?])
}

/// The origin of a partial version: the state before the run.
fn origin(reader: &dyn Reader, version: &VersionRecord) -> Result<VersionId> {
    let mut origin = version.id;
    for version in History::new(reader, version.id) {
        origin = version?.id;
    }
    Ok(origin)
}

/// Resolves a reference to a version and the fork it names.
pub fn resolve(reader: &dyn Reader, reference: &Reference) -> Result<(VersionRecord, Option<ForkName>)> {
    if let Some(id) = of_last_run(reader, reference)? {
        return Ok((require_version(reader, &id)?, None));
    }
    let (id, fork) = match &reference.base {
        Base::Run(run) => (of_run(reader, reference, run)?, None),
        Base::Checkpoint(fork, name) => {
            if reader.fork(fork)?.is_none() {
                return Err(VaultError::NoFork { name: fork.clone() });
            }
            let found = reader.checkpoint(fork, name)?;
            let found =
                found.ok_or_else(|| VaultError::NoCheckpoint { fork: fork.clone(), name: name.clone() })?;
            (found.version, Some(fork.clone()))
        }
        Base::Name(name) => by_name(reader, reference, name)?,
    };
    let mut version = require_version(reader, &id)?;
    for _ in 0..reference.back {
        let parent = version.parents.first();
        let parent =
            parent.ok_or_else(|| VaultError::BeforeFirst { reference: reference.text().to_owned() })?;
        version = require_version(reader, parent)?;
    }
    Ok((version, fork))
}

/// `last~N` counts runs, not versions. A fork of that name takes precedence.
fn of_last_run(reader: &dyn Reader, reference: &Reference) -> Result<Option<VersionId>> {
    let is_last = match &reference.base {
        Base::Name(name) if name == "last" => {
            reader.fork(&ForkName::parse(name).map_err(|_| unknown(reference))?)?.is_none()
        }
        Base::Name(_) => false,
        Base::Run(name) => name == "last",
        Base::Checkpoint(..) => false,
    };
    match is_last {
        true => of_run(reader, reference, &format!("last~{}", reference.back)).map(Some),
        false => Ok(None),
    }
}

/// Why a run has neither a start version nor one that it created.
#[must_use]
pub fn why_none(run: &RunRecord) -> &'static str {
    if run.state == RunState::Completed {
        "it changed nothing, or its changes were dropped"
    } else {
        "it ended before it made one"
    }
}

/// The version created by a run, or the version it started from if it changed nothing.
fn of_run(reader: &dyn Reader, reference: &Reference, text: &str) -> Result<VersionId> {
    let prefix = RunPrefix::parse(text).ok();
    let run = prefix.map_or(Ok(None), |prefix| find_run(reader, &prefix))?;
    let Some(run) = run else {
        // Versions name the runs that created them, including runs that are not in the journal.
        return reader.version_of_run(text)?.ok_or_else(|| unknown(reference));
    };
    let without = |reason| VaultError::RunWithoutVersion { id: run.id.clone(), reason };
    let id = run.version_after.or(run.version_before);
    let id = id.ok_or_else(|| without(why_none(&run)))?;
    match reader.version(&id)? {
        Some(_) => Ok(id),
        None => Err(without("its fork was deleted, and gc removed the version")),
    }
}

/// A fork of that name takes precedence; digits mean a version only if no fork has the name, and a run only if no
/// version matches.
fn by_name(reader: &dyn Reader, reference: &Reference, name: &str) -> Result<(VersionId, Option<ForkName>)> {
    if let Some(fork) = reader.fork(&ForkName::parse(name).map_err(|_| unknown(reference))?)? {
        return Ok((fork.head, Some(fork.name)));
    }
    let hex = name.to_ascii_lowercase();
    let digits = hex.len() >= PREFIX_HEX_DIGITS_MIN && hex.len() <= 2 * DIGEST_BYTES;
    if !digits || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(unknown(reference));
    }
    let found = reader.versions_with_prefix(&hex, 100)?;
    match found.as_slice() {
        [] => Ok((of_run(reader, reference, &hex)?, None)),
        [only] => Ok((*only, None)),
        many => {
            let examples: Vec<String> = many.iter().take(EXAMPLES_MAX).map(VersionId::short).collect();
            Err(VaultError::AmbiguousRef {
                reference: reference.text().to_owned(),
                count: many.len(),
                examples: examples.join(", "),
            })
        }
    }
}

fn unknown(reference: &Reference) -> VaultError {
    VaultError::UnknownRef { reference: reference.text().chars().take(80).collect() }
}

/// A version and its first parents, newest first; stops at a missing version.
pub struct History<'a> {
    reader: &'a dyn Reader,
    next: Option<VersionId>,
    seen: std::collections::HashSet<VersionId>,
}

impl<'a> History<'a> {
    /// The versions from `from` back along first parents, `from` included.
    #[must_use]
    pub fn new(reader: &'a dyn Reader, from: VersionId) -> Self {
        Self { reader, next: Some(from), seen: std::collections::HashSet::new() }
    }
}

/// The error for a cycle. Ids are digests that cover the parents' ids, so only a forged vault can contain one.
pub(super) fn own_ancestor(id: &VersionId) -> VaultError {
    let detail = "it is its own ancestor".to_owned();
    VaultError::DamagedObject { kind: "version", id: id.short(), detail }
}

impl Iterator for History<'_> {
    type Item = Result<VersionRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.next.take()?;
        if !self.seen.insert(id) {
            return Some(Err(own_ancestor(&id)));
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
