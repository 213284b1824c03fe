//! The vault against a model that a reader can check: maps of paths, and lists of versions.
//!
//! The same steps run over both backends; after each one every fork must list what the model says, refusals
//! included, and the two backends must agree on every id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use avfs::backend::memory::MemoryBackend;
use avfs::backend::{Codec, Life, Reader};
use avfs::clock::{SteppingClock, Timestamp};
use avfs::diagnose::Diagnose;
use avfs::hostfs::stat::FileTime;
use avfs::ids::{CheckpointName, VersionId};
use avfs::vault::checkpoint::{KeepCount, Origin};
use avfs::vault::edit::{Edit, Edits};
use avfs::vault::fork::Deletion;
use avfs::vault::gc::{Keep, Trial};
use avfs::vault::import::{ImportOptions, OnTrouble};
use avfs::vault::meter::Meter;
use avfs::vault::ops::{Depth, Parents};
use avfs::vault::page::{FileContent, FileNode, Node};
use avfs::vault::path::TreePath;
use avfs::vault::run::{Landing, RunLanding, Told};
use avfs::vault::tree::{Pages, Walk};
use avfs::vault::version::{History, root_of};
use avfs::vault::{Batch, Context, Vault, VaultError, content, require_version};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use crate::runs;
use crate::support::{self, Scratch};

/// Later than any file of the host: the stat cache then vouches for every file whose stamp is the same. The
/// model gives each new content another length, so that a stamp never lies.
const LATER: Timestamp = Timestamp(4_000_000_000_000_000_000);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Thing {
    Dir,
    File { content: Vec<u8>, mode: u32 },
}

type Tree = BTreeMap<String, Thing>;

#[derive(Clone, Debug)]
struct Version {
    tree: Tree,
    /// Two versions with the same number here have the same root.
    root: u64,
    parent: Option<usize>,
    pruned: bool,
}

#[derive(Clone, Debug)]
struct Checkpoint {
    version: usize,
    automatic: bool,
}

/// A row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    number: u8,
    fork: String,
    before: usize,
    after: Option<usize>,
}

#[derive(Clone, Debug)]
struct Model {
    runs: Vec<Run>,
    versions: Vec<Version>,
    heads: BTreeMap<String, usize>,
    /// What forks began with.
    bases: BTreeMap<String, usize>,
    checkpoints: BTreeMap<(String, String), Checkpoint>,
    host: Tree,
    host_root: u64,
    next_root: u64,
    /// How the last step ended: nothing, or the code of its refusal.
    outcome: Result<(), &'static str>,
    /// How many versions the last prune gave up.
    pruned: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        fork: String,
        path: String,
        length: usize,
        mode: Option<u32>,
    },
    Mkdir {
        fork: String,
        path: String,
        parents: bool,
    },
    Remove {
        fork: String,
        path: String,
        recursive: bool,
    },
    Move {
        fork: String,
        from: String,
        to: String,
    },
    Copy {
        fork: String,
        from: String,
        to: String,
        recursive: bool,
    },
    ForkCreate {
        name: String,
        from: String,
    },
    ForkDelete {
        name: String,
        forced: bool,
    },
    CheckpointSave {
        fork: String,
        name: String,
        automatic: bool,
    },
    CheckpointDelete {
        fork: String,
        name: String,
    },
    CheckpointRestore {
        fork: String,
        from: String,
        name: String,
    },
    Restore {
        fork: String,
        from: String,
        back: usize,
    },
    Prune {
        last: u64,
        fork: Option<String>,
    },
    Gc,
    HostWrite {
        path: String,
    },
    HostRemove {
        path: String,
    },
    Import {
        fork: String,
    },
    /// A run that writes a file at the top, or nothing, on its fork or on a new one.
    Land {
        number: u8,
        fork: String,
        new_fork: Option<String>,
        length: Option<usize>,
    },
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn is_beneath(path: &str, top: &str) -> bool {
    path == top || top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

fn look<'a>(tree: &'a Tree, path: &str) -> Option<&'a Thing> {
    if path.is_empty() { Some(&Thing::Dir) } else { tree.get(path) }
}

/// The first thing on the way to a path that is not a directory ends the way.
fn make_parents(tree: &mut Tree, path: &str) -> Result<(), &'static str> {
    let mut missing = Vec::new();
    let mut at = parent(path);
    while !at.is_empty() {
        match tree.get(at) {
            Some(Thing::Dir) => break,
            Some(Thing::File { .. }) => return Err("path.not_a_directory"),
            None => missing.push(at.to_owned()),
        }
        at = parent(at);
    }
    tree.extend(missing.into_iter().map(|dir| (dir, Thing::Dir)));
    Ok(())
}

fn require_dir(tree: &Tree, path: &str) -> Result<(), &'static str> {
    match look(tree, path) {
        None => Err("path.not_found"),
        Some(Thing::File { .. }) => Err("path.not_a_directory"),
        Some(Thing::Dir) => Ok(()),
    }
}

fn target(tree: &Tree, from: &str, to: &str) -> Result<(Thing, String), &'static str> {
    let thing = look(tree, from).ok_or("path.not_found")?.clone();
    if from.is_empty() {
        return Err("path.cycle");
    }
    let name = from.rsplit('/').next().unwrap_or(from);
    let target = match look(tree, to) {
        Some(Thing::Dir) if to.is_empty() => name.to_owned(),
        Some(Thing::Dir) => format!("{to}/{name}"),
        Some(Thing::File { .. }) | None => to.to_owned(),
    };
    if is_beneath(&target, from) {
        return Err("path.cycle");
    }
    match (look(tree, &target), &thing) {
        (Some(Thing::Dir), _) | (Some(_), Thing::Dir) => return Err("path.exists"),
        (Some(Thing::File { .. }), Thing::File { .. }) => {}
        (None, _) => require_dir(tree, parent(&target))?,
    }
    Ok((thing, target))
}

fn copied(tree: &Tree, from: &str, to: &str) -> Tree {
    let taken = tree.iter().filter(|(path, _)| is_beneath(path, from));
    taken.map(|(path, thing)| (format!("{to}{}", &path[from.len()..]), thing.clone())).collect()
}

fn content(length: usize) -> Vec<u8> {
    support::noise(length as u64, length)
}

impl Model {
    fn new() -> Self {
        let empty = Version { tree: Tree::new(), root: 0, parent: None, pruned: false };
        let mut host = Tree::from([("many".to_owned(), Thing::Dir), ("sub".to_owned(), Thing::Dir)]);
        // More than one page of entries.
        for n in 0..70 {
            host.insert(format!("many/n{n:02}"), Thing::File { content: content(n + 1), mode: 0o644 });
        }
        Self {
            runs: Vec::new(),
            versions: vec![empty],
            heads: BTreeMap::from([("main".to_owned(), 0)]),
            bases: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            host,
            host_root: 1,
            next_root: 2,
            outcome: Ok(()),
            pruned: 0,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next_root += 1;
        self.next_root
    }

    fn head(&self, fork: &str) -> Result<usize, &'static str> {
        self.heads.get(fork).copied().ok_or("fork.not_found")
    }

    fn advance(&mut self, fork: &str, tree: Tree, root: u64) {
        let head = self.heads[fork];
        if self.versions[head].root != root {
            self.versions.push(Version { tree, root, parent: Some(head), pruned: false });
            self.heads.insert(fork.to_owned(), self.versions.len() - 1);
        }
    }

    fn edit(
        &mut self,
        fork: &str,
        change: impl FnOnce(&mut Tree) -> Result<bool, &'static str>,
    ) -> Result<(), &'static str> {
        let mut tree = self.versions[self.head(fork)?].tree.clone();
        if change(&mut tree)? {
            let root = self.fresh();
            self.advance(fork, tree, root);
        }
        Ok(())
    }

    fn history(&self, fork: &str) -> Vec<usize> {
        std::iter::successors(Some(self.heads[fork]), |at| self.versions[*at].parent).collect()
    }

    fn restore(&mut self, fork: &str, to: usize) -> Result<(), &'static str> {
        if self.versions[to].pruned {
            return Err("version.pruned");
        }
        let Version { tree, root, .. } = self.versions[to].clone();
        self.advance(fork, tree, root);
        Ok(())
    }

    fn prune(&mut self, last: u64, only: Option<&str>) -> Result<(), &'static str> {
        if only.is_some_and(|name| !self.heads.contains_key(name)) {
            return Err("fork.not_found");
        }
        let mut kept: BTreeSet<usize> = self.heads.values().chain(self.bases.values()).copied().collect();
        kept.extend(self.checkpoints.values().filter(|c| !c.automatic).map(|c| c.version));
        let mut reached = BTreeSet::new();
        for fork in self.heads.keys() {
            let chosen = only.is_none_or(|name| name == fork);
            for (age, version) in self.history(fork).into_iter().enumerate() {
                if !chosen || (age as u64) < last {
                    kept.insert(version);
                }
                reached.insert(version);
            }
        }
        let given_up: Vec<usize> =
            reached.into_iter().filter(|at| !kept.contains(at) && !self.versions[*at].pruned).collect();
        self.checkpoints.retain(|_, checkpoint| !given_up.contains(&checkpoint.version));
        given_up.iter().for_each(|at| self.versions[*at].pruned = true);
        self.pruned = given_up.len();
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), &'static str> {
        match step {
            Step::Write { fork, path, length, mode } => self.edit(fork, |tree| {
                let old_mode = match look(tree, path) {
                    Some(Thing::Dir) => return Err("path.is_a_directory"),
                    Some(Thing::File { mode, .. }) => *mode,
                    None => 0o644,
                };
                make_parents(tree, path)?;
                let file = Thing::File { content: content(*length), mode: mode.unwrap_or(old_mode) };
                tree.insert(path.clone(), file);
                Ok(true)
            }),
            Step::Mkdir { fork, path, parents } => self.edit(fork, |tree| {
                match (look(tree, path), parents) {
                    (None, _) => {}
                    (Some(Thing::Dir), true) => return Ok(false),
                    (Some(_), _) => return Err("path.exists"),
                }
                if *parents {
                    make_parents(tree, path)?
                } else {
                    require_dir(tree, parent(path))?
                }
                tree.insert(path.clone(), Thing::Dir);
                Ok(true)
            }),
            Step::Remove { fork, path, recursive } => self.edit(fork, |tree| {
                let thing = look(tree, path).ok_or("path.not_found")?;
                if *thing == Thing::Dir && (path.is_empty() || !recursive) {
                    return Err("path.is_a_directory");
                }
                tree.retain(|known, _| !is_beneath(known, path));
                Ok(true)
            }),
            Step::Move { fork, from, to } => self.edit(fork, |tree| {
                let (_, target) = target(tree, from, to)?;
                let moved = copied(tree, from, &target);
                tree.retain(|known, _| !is_beneath(known, from));
                tree.extend(moved);
                Ok(true)
            }),
            Step::Copy { fork, from, to, recursive } => self.edit(fork, |tree| {
                let (thing, target) = target(tree, from, to)?;
                if thing == Thing::Dir && !recursive {
                    return Err("path.is_a_directory");
                }
                // A file copied over one that is its equal, times included, changes nothing.
                let before = tree.clone();
                tree.extend(copied(&before, from, &target));
                Ok(true)
            }),
            Step::ForkCreate { name, from } => {
                if self.heads.contains_key(name) {
                    return Err("fork.exists");
                }
                let head = *self.heads.get(from).ok_or("ref.unknown")?;
                self.heads.insert(name.clone(), head);
                self.bases.insert(name.clone(), head);
                Ok(())
            }
            Step::ForkDelete { name, forced } => {
                self.head(name)?;
                if name == "main" {
                    return Err("fork.main");
                }
                let by_hand = self.checkpoints.iter().any(|((fork, _), c)| fork == name && !c.automatic);
                if by_hand && !forced {
                    return Err("fork.has_checkpoints");
                }
                self.heads.remove(name);
                self.bases.remove(name);
                self.checkpoints.retain(|(fork, _), _| fork != name);
                Ok(())
            }
            Step::CheckpointSave { fork, name, automatic } => {
                let version = self.head(fork)?;
                let key = (fork.clone(), name.clone());
                if self.checkpoints.contains_key(&key) {
                    return Err("checkpoint.exists");
                }
                self.checkpoints.insert(key, Checkpoint { version, automatic: *automatic });
                Ok(())
            }
            Step::CheckpointDelete { fork, name } => {
                self.head(fork)?;
                let gone = self.checkpoints.remove(&(fork.clone(), name.clone()));
                gone.map(drop).ok_or("checkpoint.not_found")
            }
            Step::CheckpointRestore { fork, from, name } => {
                self.head(fork)?;
                self.head(from)?;
                let found = self.checkpoints.get(&(from.clone(), name.clone()));
                let version = found.ok_or("checkpoint.not_found")?.version;
                self.restore(fork, version)
            }
            Step::Restore { fork, from, back } => {
                self.head(fork)?;
                self.heads.get(from).ok_or("ref.unknown")?;
                let version = self.history(from).get(*back).copied().ok_or("ref.before_first")?;
                self.restore(fork, version)
            }
            Step::Prune { last, fork } => self.prune(*last, fork.as_deref()),
            Step::Gc => Ok(()),
            Step::HostWrite { path } => {
                self.host_root = self.fresh();
                let length = usize::try_from(self.host_root).unwrap_or(0) + 100;
                self.host.insert(path.clone(), Thing::File { content: content(length), mode: 0o644 });
                Ok(())
            }
            Step::HostRemove { path } => {
                if self.host.remove(path).is_some() {
                    self.host_root = self.fresh();
                }
                Ok(())
            }
            Step::Land { number, fork, new_fork, length } => {
                let before = self.head(fork)?;
                if self.runs.iter().any(|run| run.number == *number) {
                    return Err("run.captured_already");
                }
                let on = new_fork.as_ref().unwrap_or(fork).clone();
                let mut run = Run { number: *number, fork: on.clone(), before, after: None };
                if let Some(length) = length {
                    if new_fork.is_some() && self.heads.contains_key(&on) {
                        return Err("fork.exists");
                    }
                    let mut tree = self.versions[before].tree.clone();
                    let file = Thing::File { content: content(*length), mode: 0o600 };
                    tree.insert(run_path(*number), file);
                    self.heads.insert(on.clone(), before);
                    if new_fork.is_some() {
                        self.bases.insert(on.clone(), before);
                    }
                    let root = self.fresh();
                    self.advance(&on, tree, root);
                    run.after = Some(self.heads[&on]);
                }
                self.runs.push(run);
                Ok(())
            }
            Step::Import { fork } => {
                self.head(fork)?;
                let (tree, root) = (self.host.clone(), self.host_root);
                self.advance(fork, tree, root);
                Ok(())
            }
        }
    }
}

/// Where a run writes: no two runs write to the same place, so that every landing changes something.
fn run_path(number: u8) -> String {
    format!("by-run-{number}")
}

fn fork_name() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("main"), 3 => Just("f1"), 2 => Just("f2")].prop_map(str::to_owned)
}

fn new_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "dir", "é\n", ".wh.x"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn host_path() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["top", "sub/x", "sub/y", "many/n07", "many/n33", "many/new"])
        .prop_map(str::to_owned)
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::new()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        // Paths that are somewhere, so that most steps find what they name.
        let known: BTreeSet<String> =
            state.heads.values().flat_map(|head| state.versions[*head].tree.keys().cloned()).collect();
        let mut known: Vec<String> = known.into_iter().collect();
        known.push(String::new());
        let path = move || prop_oneof![3 => prop::sample::select(known.clone()), 2 => new_path()].boxed();
        let file_path = || path().prop_filter("a file has a name", |path| !path.is_empty());
        let checkpoint = || prop::sample::select(vec!["c1", "c2"]).prop_map(str::to_owned);
        prop_oneof![
            6 => (fork_name(), file_path(), 0..300_usize, prop::option::of(Just(0o755_u32)))
                .prop_map(|(fork, path, length, mode)| Step::Write { fork, path, length, mode }),
            3 => (fork_name(), file_path(), any::<bool>())
                .prop_map(|(fork, path, parents)| Step::Mkdir { fork, path, parents }),
            4 => (fork_name(), path(), any::<bool>())
                .prop_map(|(fork, path, recursive)| Step::Remove { fork, path, recursive }),
            5 => (fork_name(), path(), path()).prop_map(|(fork, from, to)| Step::Move { fork, from, to }),
            4 => (fork_name(), path(), path(), any::<bool>())
                .prop_map(|(fork, from, to, recursive)| Step::Copy { fork, from, to, recursive }),
            3 => (fork_name(), fork_name()).prop_map(|(name, from)| Step::ForkCreate { name, from }),
            1 => (fork_name(), any::<bool>()).prop_map(|(name, forced)| Step::ForkDelete { name, forced }),
            3 => (fork_name(), checkpoint(), any::<bool>())
                .prop_map(|(fork, name, automatic)| Step::CheckpointSave { fork, name, automatic }),
            1 => (fork_name(), checkpoint()).prop_map(|(fork, name)| Step::CheckpointDelete { fork, name }),
            2 => (fork_name(), fork_name(), checkpoint())
                .prop_map(|(fork, from, name)| Step::CheckpointRestore { fork, from, name }),
            3 => (fork_name(), fork_name(), 0..6_usize)
                .prop_map(|(fork, from, back)| Step::Restore { fork, from, back }),
            2 => (0..4_u64, prop::option::of(fork_name())).prop_map(|(last, fork)| Step::Prune { last, fork }),
            2 => Just(Step::Gc),
            2 => host_path().prop_map(|path| Step::HostWrite { path }),
            1 => host_path().prop_map(|path| Step::HostRemove { path }),
            4 => fork_name().prop_map(|fork| Step::Import { fork }),
            4 => (1..12_u8, fork_name(), prop::option::of(fork_name()), prop::option::of(1..300_usize))
                .prop_map(|(number, fork, new_fork, length)| Step::Land { number, fork, new_fork, length }),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        match step {
            // Whether a copy over an equal file changes anything depends on times, which the model has none of.
            Step::Copy { fork, from, to, .. } => state.heads.get(fork).is_none_or(|head| {
                let tree = &state.versions[*head].tree;
                target(tree, from, to).map_or(true, |(_, target)| look(tree, &target).is_none())
            }),
            Step::Write { .. }
            | Step::Mkdir { .. }
            | Step::Remove { .. }
            | Step::Move { .. }
            | Step::ForkCreate { .. }
            | Step::ForkDelete { .. }
            | Step::CheckpointSave { .. }
            | Step::CheckpointDelete { .. }
            | Step::CheckpointRestore { .. }
            | Step::Restore { .. }
            | Step::Prune { .. }
            | Step::Gc
            | Step::HostWrite { .. }
            | Step::HostRemove { .. }
            | Step::Land { .. }
            | Step::Import { .. } => true,
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.outcome = state.step(step);
        state
    }
}

/// Both vaults, and the directory they import from.
struct Pair {
    scratch: Scratch,
    vaults: Vec<(&'static str, Vault)>,
}

impl Pair {
    fn host(&self) -> PathBuf {
        self.scratch.join("host")
    }

    fn cache(&self, which: &str) -> PathBuf {
        self.scratch.join(&format!("cache-{which}"))
    }
}

fn put_on_host(host: &std::path::Path, path: &str, thing: &Thing) {
    use std::os::unix::fs::PermissionsExt;
    let path = host.join(path);
    match thing {
        Thing::Dir => std::fs::create_dir(&path).unwrap(),
        Thing::File { content, mode } => {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
        }
    }
}

fn run(vault: &Vault, pair: &Pair, which: &str, step: &Step) -> Result<usize, VaultError> {
    let fork = support::fork;
    let checkpoint = |name: &str| CheckpointName::parse(name).unwrap();
    let path = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
    let depth = |recursive: bool| if recursive { Depth::Recursive } else { Depth::FilesOnly };
    match step {
        Step::Write { fork: on, path: to, length, mode } => {
            vault.write_file(&fork(on), &path(to), content(*length).as_slice(), *mode, "write").map(|_| 0)
        }
        Step::Mkdir { fork: on, path: at, parents } => {
            let parents = if *parents { Parents::Made } else { Parents::Required };
            vault.make_dir(&fork(on), &path(at), parents, "mkdir").map(|_| 0)
        }
        Step::Remove { fork: on, path: at, recursive } => {
            vault.remove(&fork(on), &[path(at)], depth(*recursive), "rm").map(|_| 0)
        }
        Step::Move { fork: on, from, to } => {
            vault.move_path(&fork(on), &path(from), &path(to), "mv").map(|_| 0)
        }
        Step::Copy { fork: on, from, to, recursive } => {
            vault.copy_path(&fork(on), &path(from), &path(to), depth(*recursive), "cp").map(|_| 0)
        }
        Step::ForkCreate { name, from } => {
            vault.create_fork(&fork(name), &support::reference(from), Life::Persistent).map(|_| 0)
        }
        Step::ForkDelete { name, forced } => {
            let deletion = if *forced { Deletion::Forced } else { Deletion::Careful };
            vault.delete_fork(&fork(name), deletion).map(|_| 0)
        }
        Step::CheckpointSave { fork: on, name, automatic } => {
            let origin = if *automatic { Origin::Automatic } else { Origin::ByHand };
            vault.save_checkpoint(&fork(on), Some(checkpoint(name)), "save", origin).map(|_| 0)
        }
        Step::CheckpointDelete { fork: on, name } => {
            vault.delete_checkpoint(&fork(on), &checkpoint(name)).map(|_| 0)
        }
        Step::CheckpointRestore { fork: on, from, name } => {
            vault.restore(&fork(on), &support::reference(&format!("{from}@{name}")), None).map(|_| 0)
        }
        Step::Restore { fork: on, from, back } => {
            vault.restore(&fork(on), &support::reference(&format!("{from}~{back}")), None).map(|_| 0)
        }
        Step::Prune { last, fork: only } => {
            let only = only.as_deref().map(fork);
            let keep = Keep { last: Some(*last), since: None };
            vault.prune(&keep, only.as_ref(), Trial::Real).map(|pruned| pruned.versions.len())
        }
        Step::Gc => vault.gc(&|_| {}).map(|_| 0),
        Step::HostWrite { .. } | Step::HostRemove { .. } => Ok(0),
        Step::Land { number, fork: on, new_fork, length } => {
            let base = vault.fork(&fork(on))?.head;
            let (parent, new) = (fork(on), new_fork.as_deref().map(fork));
            let landing = match &new {
                None => Landing::Fork { name: &parent, base },
                Some(name) => Landing::NewFork { name, base, parent: &parent, life: Life::Persistent },
            };
            let text = length.map(content);
            let node = |text: &[u8]| {
                Node::File(FileNode {
                    mode: 0o600,
                    mtime: FileTime { seconds: i64::from(*number), nanos: 0 },
                    size: text.len() as u64,
                    content: FileContent::Whole(content::id_of(text)),
                    xattrs: None,
                    link: None,
                })
            };
            let edits: Edits =
                text.iter().map(|text| (path(&run_path(*number)), Edit::Put(node(text)))).collect();
            let mut batch = Batch::new(vault)?;
            if let Some(text) = text {
                batch.push(content::encode(content::id_of(&text), text))?;
            }
            let run = RunLanding {
                landing,
                edits: &edits,
                message: "run",
                checkpoint_before: None,
                checkpoint_after: None,
                checkpoints_keep: KeepCount::DEFAULT,
                memo: None,
                record: runs::record(*number, new.as_ref().unwrap_or(&parent)),
                item: None,
                told: Told::default(),
            };
            vault.land_run(run, batch).map(|_| 0)
        }
        Step::Import { fork: on } => {
            let cache = pair.cache(which);
            let meter = Meter::default();
            let options = ImportOptions {
                on_trouble: OnTrouble::Fail,
                stat_cache: Some(&cache),
                exclude: &[],
                meter: &meter,
            };
            vault.import(&pair.host(), &fork(on), "import", &options).map(|_| 0)
        }
    }
}

fn read_file(reader: &dyn Reader, node: &Node) -> Thing {
    match node {
        Node::Dir(_) => Thing::Dir,
        Node::File(file) => {
            let blob = content::fetch(reader, file.content.id()).unwrap();
            assert_ne!(blob.codec, Codec::List, "the model writes small files only");
            let content = content::decode(blob).unwrap();
            assert_eq!(content.len() as u64, file.size);
            Thing::File { content, mode: file.mode }
        }
        Node::Symlink(_) | Node::Fifo(_) => panic!("nobody made a {}", node.kind()),
    }
}

fn listing(reader: &dyn Reader, version: &VersionId) -> Tree {
    let root = root_of(&require_version(reader, version).unwrap()).unwrap();
    let pages: &dyn Pages = &reader;
    let walked = Walk::new(pages, &root.tree, &TreePath::root()).map(|walked| {
        let walked = walked.unwrap();
        let path = String::from_utf8(walked.path.as_bytes().to_vec()).unwrap();
        (path, read_file(reader, &walked.node))
    });
    walked.collect()
}

/// The journal lists what landed, newest first, and each run leads to its version while that is kept.
fn check_runs(which: &str, reader: &dyn Reader, model: &Model) {
    let kept = reader.runs(i64::MAX, 100).unwrap();
    let told: Vec<(String, String)> =
        kept.iter().map(|run| (run.id.to_string(), run.fork.to_string())).collect();
    let expected: Vec<(String, String)> =
        model.runs.iter().rev().map(|run| (runs::run_id(run.number).to_string(), run.fork.clone())).collect();
    assert_eq!(told, expected, "{which}: journal");
    for (run, row) in model.runs.iter().rev().zip(&kept) {
        assert_eq!(run.after.is_some(), row.version_after.is_some(), "{which}: {row:?}");
        let at = &model.versions[run.after.unwrap_or(run.before)];
        let reachable = model.heads.keys().flat_map(|fork| model.history(fork));
        let reached = reachable.into_iter().any(|version| version == run.after.unwrap_or(run.before));
        let found = support::reference(&format!("run:{}", row.id)).resolve(reader);
        match found {
            Ok((version, _)) if version.pruned_at.is_none() => {
                assert!(listing(reader, &version.id) == at.tree, "{which}: {row:?}");
            }
            Ok(_) => assert!(at.pruned || !reached, "{which}: {row:?}"),
            Err(error) => {
                assert_eq!(error.code(), "run.no_version", "{which}: {row:?}");
                assert!(!reached, "{which}: the version of {row:?} is gone");
            }
        }
    }
}

struct BothBackends;

impl StateMachineTest for BothBackends {
    type SystemUnderTest = Pair;
    type Reference = Model;

    fn init_test(model: &Model) -> Pair {
        let scratch = Scratch::new();
        let host = scratch.dir("host");
        model.host.iter().for_each(|(path, thing)| put_on_host(&host, path, thing));
        let context =
            || Context { clock: Arc::new(SteppingClock::starting_at(LATER)), actor: "model".to_owned() };
        let options = avfs::backend::sqlite::OpenOptions::default();
        let vaults = vec![
            ("sqlite", Vault::create(&scratch.join("vault.db"), None, options, context()).unwrap()),
            ("memory", Vault::over(Box::<MemoryBackend>::default(), context()).unwrap()),
        ];
        Pair { scratch, vaults }
    }

    fn apply(pair: Pair, model: &Model, step: Step) -> Pair {
        if let Step::HostWrite { path } = &step {
            put_on_host(&pair.host(), path, &model.host[path]);
        }
        if let Step::HostRemove { path } = &step {
            let _ = std::fs::remove_file(pair.host().join(path));
        }
        for (which, vault) in &pair.vaults {
            let done = run(vault, &pair, which, &step);
            let code = done.as_ref().map(drop).map_err(Diagnose::code);
            assert_eq!(code, model.outcome, "{which}: {step:?} ended with {done:?}");
            if let (Step::Prune { .. }, Ok(count)) = (&step, done) {
                assert_eq!(count, model.pruned, "{which}: versions given up");
            }
        }
        pair
    }

    fn check_invariants(pair: &Pair, model: &Model) {
        let (mut heads, mut journals) = (Vec::new(), Vec::new());
        for (which, vault) in &pair.vaults {
            let reader = vault.read().unwrap();
            let forks = reader.forks().unwrap();
            let names: BTreeSet<&str> = forks.iter().map(|fork| fork.name.as_str()).collect();
            assert_eq!(names, model.heads.keys().map(String::as_str).collect(), "{which}: forks");
            for fork in &forks {
                let head = model.heads[fork.name.as_str()];
                assert!(
                    listing(&*reader, &fork.head) == model.versions[head].tree,
                    "{which}: fork {} lists {:#?}",
                    fork.name,
                    listing(&*reader, &fork.head).keys()
                );
                let history: Vec<bool> =
                    History::new(&*reader, fork.head).map(|v| v.unwrap().pruned_at.is_some()).collect();
                let expected: Vec<bool> =
                    model.history(fork.name.as_str()).iter().map(|at| model.versions[*at].pruned).collect();
                assert_eq!(history, expected, "{which}: history of {}, pruned ones marked", fork.name);
            }
            let saved: BTreeSet<(String, String)> = reader
                .checkpoints()
                .unwrap()
                .into_iter()
                .map(|checkpoint| (checkpoint.fork.to_string(), checkpoint.name.to_string()))
                .collect();
            assert_eq!(saved, model.checkpoints.keys().cloned().collect(), "{which}: checkpoints");
            check_runs(which, &*reader, model);
            journals.push(reader.runs(i64::MAX, 100).unwrap());
            heads.push(forks.iter().map(|fork| (fork.name.clone(), fork.head)).collect::<Vec<_>>());
        }
        assert_eq!(heads[0], heads[1], "the backends do not agree on the ids");
        assert_eq!(journals[0], journals[1], "the backends do not agree on the journal");
    }

    fn teardown(pair: Pair, _: Model) {
        for (_, vault) in &pair.vaults {
            support::assert_clean(vault);
            vault.gc(&|_| {}).unwrap();
            support::assert_clean(vault);
        }
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: 120,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_vault_does_what_the_model_says(sequential 5..40 => BothBackends);
}
