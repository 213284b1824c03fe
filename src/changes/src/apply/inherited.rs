//! Inherited changes: the start of a fork or run has them from another fork, or from earlier runs of the same one. An
//! apply does not write them, so the ones that the directory lacks are named.

use std::collections::{HashMap, HashSet};

use avfs_hostfs::stat::HostKind;
use avfs_types::clock::{FileTime, Timestamp};
use avfs_types::ids::{ForkName, RunId, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::backend::{Extent, ForkRecord, Life, Reader, RunRecord, VersionRecord};
use avfs_vault::changes::Changes;
use avfs_vault::diff::ChangeKind;
use avfs_vault::own::is_in_own_dir;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::sync::{LastSync, last_sync};
use avfs_vault::tree::Pages;
use avfs_vault::undo::versions_in_effect;
use avfs_vault::version::{History, root_of_either};
use avfs_vault::{Vault, VaultError, require_version, tree};

use super::host::{Host, Look};
use super::{Subject, applied_by_choice};
use crate::apply::error::{ApplyError, Conflict};

/// Maximum runs that a remedy lists.
const RUNS_LISTED_MAX: usize = 3;

/// Changes of one fork that the directory lacks, although the changes to apply were made on top of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The fork that they are from; `None` if it is unknown.
    pub fork: Option<ForkName>,
    /// The version before them.
    pub before: VersionId,
    /// The version with all of them.
    pub after: VersionId,
    /// The runs that made them, oldest first; empty if something else made some of them.
    pub runs: Vec<RunId>,
    /// How many of them the directory lacks.
    pub changes: u64,
    /// What has to be applied for the directory to get them.
    pub remedy: InheritedRemedy,
}

/// What writes inherited changes to the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InheritedRemedy {
    /// The whole fork, first.
    Fork(ForkName),
    /// The whole fork, instead of one of its later runs.
    ForkInstead(ForkName),
    /// These runs, first: the fork has newer changes too.
    Runs(Vec<RunId>),
    /// Neither a fork nor a few runs have exactly these changes.
    Neither,
}

impl Inherited {
    /// The source of the changes, in words.
    #[must_use]
    pub fn source(&self) -> String {
        match &self.fork {
            Some(fork) => fork.to_string(),
            None => format!("version {}", self.after.short()),
        }
    }

    /// The changes and the remedy, as a note.
    #[must_use]
    pub fn text(&self) -> String {
        let (changes, are) = match self.changes {
            1 => ("change", "is"),
            _ => ("changes", "are"),
        };
        let what = format!("{} {changes} of {} {are} not included", self.changes, self.source());
        match &self.remedy {
            InheritedRemedy::Fork(fork) => format!("{what}; apply {fork} first"),
            InheritedRemedy::ForkInstead(fork) => format!("{what}; apply {fork} instead"),
            InheritedRemedy::Runs(runs) => {
                let runs: Vec<String> = runs.iter().map(|run| format!("run:{run}")).collect();
                format!("{what}; apply {} first", runs.join(", "))
            }
            InheritedRemedy::Neither => {
                format!(
                    "{what}; they are between versions {} and {}",
                    self.before.short(),
                    self.after.short()
                )
            }
        }
    }
}

/// Finds the inherited changes to wanted paths that the directory lacks, oldest first.
pub fn missing(
    vault: &Vault,
    subject: &Subject,
    host: &Host<'_>,
    pages: &dyn Pages,
    wanted: &dyn Fn(&TreePath) -> bool,
) -> Result<Vec<Inherited>, ApplyError> {
    let chain = Chain::of(&*vault.read()?, subject)?;
    let mut missing = Vec::new();
    for (place, link) in chain.links.iter().enumerate() {
        let (roots, places) = ((&link.before, &link.after), vault.temporary_dirs());
        let changes = Changes::between(pages, roots, places, |change| change.kind != ChangeKind::Time)?;
        let mut lacking = 0;
        for change in &changes {
            host.require_going()?;
            let path = &change?.path;
            let counts = wanted(path) && !is_in_own_dir(path);
            lacking += u64::from(counts && !chain.is_there(host, pages, place, path)?);
        }
        if lacking > 0 {
            missing.push(Inherited { changes: lacking, ..link.of.clone() });
        }
    }
    Ok(missing)
}

/// Gives each conflict that a missing inherited change causes that reason. Returns the links that the reasons name.
pub fn explain(
    vault: &Vault,
    subject: &Subject,
    host: &Host<'_>,
    pages: &dyn Pages,
    conflicts: &mut [Conflict],
) -> Result<Vec<Inherited>, ApplyError> {
    let chain = Chain::of(&*vault.read()?, subject)?;
    let mut named = vec![0_u64; chain.links.len()];
    for conflict in conflicts {
        host.require_going()?;
        for (link, named) in chain.links.iter().zip(&mut named) {
            if link.causes(host, pages, &conflict.path)? {
                let source = link.of.source();
                conflict.reason = format!("the directory lacks a change of {source}").into();
                *named += 1;
                break;
            }
        }
    }
    let links = chain.links.into_iter().zip(named);
    Ok(links
        .filter(|(_, named)| *named > 0)
        .map(|(link, changes)| Inherited { changes, ..link.of })
        .collect())
}

/// The states between the directory and the start of the changes.
#[derive(Default)]
struct Chain {
    /// Oldest first.
    links: Vec<Link>,
    /// The states before and after the changes themselves.
    own: Vec<DirRef>,
}

struct Link {
    of: Inherited,
    before: DirRef,
    after: DirRef,
}

/// A version between the directory and the start of the changes.
struct Step {
    version: VersionRecord,
    /// The runs that made its changes; empty if something else made some of them.
    runs: Vec<RunRecord>,
    owner: Option<ForkName>,
    /// Its changes are those of all parents except the first.
    is_join: bool,
}

impl Chain {
    /// Empty if nothing is inherited, or if that is no longer known.
    fn of(reader: &dyn Reader, subject: &Subject) -> Result<Self, VaultError> {
        match Self::known(reader, subject) {
            // A version has expired or was pruned.
            Err(VaultError::MissingObject { .. } | VaultError::Pruned { .. }) => Ok(Self::default()),
            chain => chain,
        }
    }

    fn known(reader: &dyn Reader, subject: &Subject) -> Result<Self, VaultError> {
        let own = vec![root_of_either(&subject.before)?, root_of_either(&subject.after)?];
        let mut chain = Self { links: Vec::new(), own };
        let Some(mut directory) = DirectoryLine::of(reader)? else { return Ok(chain) };
        let Some(start) = subject.start else { return Ok(chain) };
        let Some((base, passed)) = directory.first_met(start)? else { return Ok(chain) };
        if passed.is_empty() {
            return Ok(chain);
        }
        let line = ForkRecord {
            name: subject.fork.clone(),
            head: start,
            base,
            parent: None,
            created_at: Timestamp(0),
            life: Life::Persistent,
        };
        let steps = steps(&mut directory, &line, passed, subject.source.as_ref())?;
        let applied = applied_steps(reader, &steps)?;
        let (mut before, mut first) = match applied.checked_sub(1).and_then(|last| steps.get(last)) {
            Some(step) => (step.version.id, applied),
            None => (base, 0),
        };
        if let LastSync::Found { version, merged } = last_sync(reader, &line, usize::MAX)?
            && let Some(synced) = steps.iter().position(|step| step.version.id == version)
            && synced >= first
            && directory.contains(&merged)?
        {
            (before, first) = (merged, synced);
        }
        for steps in steps.get(first..).unwrap_or_default().chunk_by(|one, other| one.owner == other.owner) {
            let [.., last] = steps else { continue };
            chain.links.push(Link {
                of: inherited(reader, subject, before, steps, &last.version)?,
                before: root_of_either(&require_version(reader, &before)?)?,
                after: root_of_either(&last.version)?,
            });
            before = last.version.id;
        }
        Ok(chain)
    }

    /// Whether the directory has a path as it is after a link, or as later links or the changes themselves make it.
    fn is_there(
        &self,
        host: &Host<'_>,
        pages: &dyn Pages,
        place: usize,
        path: &TreePath,
    ) -> Result<bool, ApplyError> {
        let later = self.links.iter().skip(place).map(|link| &link.after);
        let mut seen: Vec<Option<Node>> = Vec::new();
        for root in later.chain(&self.own) {
            let node = tree::lookup(pages, root, path)?;
            if !seen.contains(&node) {
                if has(host, path, node.as_ref())? {
                    return Ok(true);
                }
                seen.push(node);
            }
        }
        Ok(false)
    }
}

impl Link {
    /// Whether the directory has a path, or a directory above it, as it was before the link changed it.
    fn causes(&self, host: &Host<'_>, pages: &dyn Pages, path: &TreePath) -> Result<bool, ApplyError> {
        for (is_above, at) in
            std::iter::once((false, path.clone())).chain(path.ancestors().map(|at| (true, at)))
        {
            let before = tree::lookup(pages, &self.before, &at)?;
            let after = tree::lookup(pages, &self.after, &at)?;
            let is_changed = match (&before, &after) {
                (Some(Node::Dir(_)), Some(Node::Dir(_))) => false,
                (Some(before), Some(after)) => !is_same_but_time(before, after),
                (None, None) => false,
                (Some(_), None) | (None, Some(_)) => true,
            };
            // Above the path only a directory that is missing is a cause.
            let is_cause = !is_above || matches!((&before, &after), (None, Some(Node::Dir(_))));
            if is_changed && is_cause && has(host, &at, before.as_ref())? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether the directory has an entry like this, or none. A path that cannot be read counts as present.
fn has(host: &Host<'_>, path: &TreePath, node: Option<&Node>) -> Result<bool, ApplyError> {
    let compared = host.look(path).and_then(|look| match (look, node) {
        (Look::Absent | Look::NoParent, node) => Ok(node.is_none()),
        (Look::There(_), None) => Ok(false),
        (Look::There(stat), Some(Node::Dir(_))) => Ok(stat.kind == HostKind::Dir),
        (Look::There(stat), Some(node)) => host.found(path, stat).is(node, None),
    });
    match compared {
        Err(ApplyError::NoPermission { .. } | ApplyError::Io { .. }) => Ok(true),
        compared => compared,
    }
}

fn is_same_but_time(one: &Node, other: &Node) -> bool {
    let without_time = |node: &Node| {
        let mut node = node.clone();
        match &mut node {
            Node::File(file) => file.mtime = FileTime::default(),
            Node::Symlink(link) => link.mtime = FileTime::default(),
            Node::Fifo(fifo) => fifo.mtime = FileTime::default(),
            Node::Dir(_) => {}
        }
        node
    };
    without_time(one) == without_time(other)
}

/// The versions of main, which are states of the bound directory. Read as far as they are asked for.
struct DirectoryLine<'r> {
    reader: &'r dyn Reader,
    passed: HashSet<VersionId>,
    rest: History<'r>,
}

impl<'r> DirectoryLine<'r> {
    fn of(reader: &'r dyn Reader) -> Result<Option<Self>, VaultError> {
        let main = reader.fork(&ForkName::main())?;
        Ok(main.map(|main| Self { reader, passed: HashSet::new(), rest: History::new(reader, main.head) }))
    }

    fn contains(&mut self, id: &VersionId) -> Result<bool, VaultError> {
        while !self.passed.contains(id) {
            let Some(version) = self.rest.next() else { return Ok(false) };
            self.passed.insert(version?.id);
        }
        Ok(true)
    }

    /// The newest version of main that `start` was made from, and the versions since, newest first. `None` for a start
    /// that was made from no version of main, such as the touched paths of a run.
    fn first_met(&mut self, start: VersionId) -> Result<Option<(VersionId, Vec<VersionRecord>)>, VaultError> {
        let mut passed = Vec::new();
        for version in History::new(self.reader, start) {
            let version = version?;
            if version.extent == Extent::Partial {
                return Ok(None);
            }
            if self.contains(&version.id)? {
                return Ok(Some((version.id, passed)));
            }
            passed.push(version);
        }
        Ok(None)
    }
}

/// The versions in effect between the base and the head of a line, oldest first, each with its fork. A version that no
/// run made is on the fork of the next run if that fork began before it, otherwise on the fork of the last one.
fn steps(
    directory: &mut DirectoryLine<'_>,
    line: &ForkRecord,
    passed: Vec<VersionRecord>,
    source: Option<&ForkName>,
) -> Result<Vec<Step>, VaultError> {
    let reader = directory.reader;
    let in_effect = versions_in_effect(reader, line)?;
    let ids: HashSet<VersionId> = passed.iter().map(|version| version.id).collect();
    let mut begun: HashMap<ForkName, Option<VersionId>> = HashMap::new();
    let (mut steps, mut newer): (Vec<Step>, Option<ForkName>) = (Vec::new(), source.cloned());
    // The versions that `newer` can have: those since its base.
    let mut is_newer = newer.is_some();
    for version in passed {
        if is_join(directory, &ids, &version)? {
            let runs = joined_runs(directory, &version)?;
            let owner = match runs.as_slice() {
                [run] => Some(run.fork.clone()),
                _ => None,
            };
            steps.push(Step { version, runs, owner, is_join: true });
            continue;
        }
        let run = run_of(reader, &version)?;
        if let Some(run) = &run {
            (newer, is_newer) = (Some(run.fork.clone()), true);
        }
        if let Some(name) = &newer {
            if !begun.contains_key(name) {
                begun.insert(name.clone(), reader.fork(name)?.map(|fork| fork.base));
            }
            is_newer &= begun.get(name).is_none_or(|base| *base != Some(version.id)) || run.is_some();
        }
        let owner = newer.clone().filter(|_| is_newer);
        steps.push(Step { version, runs: run.into_iter().collect(), owner, is_join: false });
    }
    steps.reverse();
    let mut older = steps.iter().find_map(|step| step.owner.clone());
    for step in steps.iter_mut().filter(|step| !step.is_join) {
        older = step.owner.clone().or(older);
        step.owner.clone_from(&older);
    }
    steps.retain(|step| in_effect.contains(&step.version.id));
    Ok(steps)
}

fn run_of(reader: &dyn Reader, version: &VersionRecord) -> Result<Option<RunRecord>, VaultError> {
    match version.run.as_deref().map(RunId::parse) {
        Some(Ok(id)) => Ok(reader.run(&id)?),
        Some(Err(_)) | None => Ok(None),
    }
}

/// Whether a version joins results, as a batch does for an item that needs several others. A sync joins a fork with a
/// version of main, and an undo repeats an earlier version of its fork.
fn is_join(
    directory: &mut DirectoryLine<'_>,
    passed: &HashSet<VersionId>,
    version: &VersionRecord,
) -> Result<bool, VaultError> {
    let others = version.parents.get(1..).unwrap_or_default();
    let mut is_join = version.run.is_none() && !others.is_empty();
    for other in others {
        is_join = is_join && !passed.contains(other) && !directory.contains(other)?;
    }
    Ok(is_join)
}

/// The runs whose results a join added to its first parent; empty if one of them was made on top of others.
fn joined_runs(
    directory: &mut DirectoryLine<'_>,
    join: &VersionRecord,
) -> Result<Vec<RunRecord>, VaultError> {
    let mut runs = Vec::new();
    for parent in join.parents.iter().skip(1) {
        let parent = require_version(directory.reader, parent)?;
        let is_first = match parent.parents.first() {
            Some(before) => directory.contains(before)?,
            None => false,
        };
        match run_of(directory.reader, &parent)? {
            Some(run) if is_first => runs.push(run),
            Some(_) | None => return Ok(Vec::new()),
        }
    }
    Ok(runs)
}

/// Number of the first steps whose changes are in the directory, because their runs were applied without a gap.
fn applied_steps(reader: &dyn Reader, steps: &[Step]) -> Result<usize, VaultError> {
    let (mut applied, mut chosen) = (0, HashMap::new());
    for (place, step) in steps.iter().enumerate() {
        for run in &step.runs {
            if !chosen.contains_key(&run.fork) {
                chosen.insert(run.fork.clone(), applied_by_choice(reader, &run.fork)?);
            }
            let is_partial = chosen.get(&run.fork).is_some_and(|runs| runs.contains(&run.id));
            if run.applied_at.is_none() || is_partial {
                return Ok(applied);
            }
        }
        if !step.runs.is_empty() {
            applied = place + 1;
        }
    }
    Ok(applied)
}

/// The changes of steps of one fork.
fn inherited(
    reader: &dyn Reader,
    subject: &Subject,
    before: VersionId,
    steps: &[Step],
    last: &VersionRecord,
) -> Result<Inherited, VaultError> {
    let fork = steps.first().and_then(|step| step.owner.clone());
    let records = || steps.iter().flat_map(|step| &step.runs);
    let runs: Vec<RunId> = match steps.iter().all(|step| !step.runs.is_empty()) {
        true => records().map(|run| run.id.clone()).collect(),
        false => Vec::new(),
    };
    // The user does not want their changes, and `apply` refuses them.
    let is_discarded = records().any(|run| run.discarded_at.is_some());
    let head = match &fork {
        Some(name) => reader.fork(name)?.map(|fork| require_version(reader, &fork.head)).transpose()?,
        None => None,
    };
    let remedy = match (&fork, head) {
        (Some(name), Some(head)) if head.content == last.content => InheritedRemedy::Fork(name.clone()),
        (_, _) if is_discarded => InheritedRemedy::Neither,
        (_, _) if (1..=RUNS_LISTED_MAX).contains(&runs.len()) => InheritedRemedy::Runs(runs.clone()),
        (Some(name), Some(_)) if *name == subject.fork => InheritedRemedy::ForkInstead(name.clone()),
        (_, _) => InheritedRemedy::Neither,
    };
    Ok(Inherited { fork, before, after: last.id, runs, changes: 0, remedy })
}
