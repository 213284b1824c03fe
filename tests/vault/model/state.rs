//! The model: a vault without digests and rows, and the effect of each step on it.

use std::collections::{BTreeMap, BTreeSet};

use crate::support;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Dir,
    File { content: Vec<u8>, mode: u32 },
}

pub(super) type Tree = BTreeMap<String, Thing>;

#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) tree: Tree,
    /// Two versions with the same number have the same root.
    pub(super) root: u64,
    pub(super) parent: Option<usize>,
    pub(super) pruned: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    pub(super) version: usize,
    pub(super) automatic: bool,
}

/// A row of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) number: u8,
    pub(super) fork: String,
    pub(super) before: usize,
    pub(super) after: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) runs: Vec<Run>,
    pub(super) versions: Vec<Version>,
    pub(super) heads: BTreeMap<String, usize>,
    /// The versions that forks started from.
    pub(super) bases: BTreeMap<String, usize>,
    pub(super) checkpoints: BTreeMap<(String, String), Checkpoint>,
    pub(super) host: Tree,
    pub(super) host_root: u64,
    pub(super) next_root: u64,
    /// The outcome of the last step: success, or an error code.
    pub(super) outcome: Result<(), &'static str>,
    /// The number of versions that the last prune removed.
    pub(super) pruned: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
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

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

pub(super) fn is_beneath(path: &str, top: &str) -> bool {
    path == top || top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

pub(super) fn look<'a>(tree: &'a Tree, path: &str) -> Option<&'a Thing> {
    if path.is_empty() { Some(&Thing::Dir) } else { tree.get(path) }
}

/// Fails at the first ancestor of the path that is not a directory.
pub(super) fn make_parents(tree: &mut Tree, path: &str) -> Result<(), &'static str> {
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

pub(super) fn require_dir(tree: &Tree, path: &str) -> Result<(), &'static str> {
    match look(tree, path) {
        None => Err("path.not_found"),
        Some(Thing::File { .. }) => Err("path.not_a_directory"),
        Some(Thing::Dir) => Ok(()),
    }
}

pub(super) fn target(tree: &Tree, from: &str, to: &str) -> Result<(Thing, String), &'static str> {
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

pub(super) fn copied(tree: &Tree, from: &str, to: &str) -> Tree {
    let taken = tree.iter().filter(|(path, _)| is_beneath(path, from));
    taken.map(|(path, thing)| (format!("{to}{}", &path[from.len()..]), thing.clone())).collect()
}

pub(super) fn content(length: usize) -> Vec<u8> {
    support::noise(length as u64, length)
}

impl Model {
    pub(super) fn new() -> Self {
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

    pub(super) fn fresh(&mut self) -> u64 {
        self.next_root += 1;
        self.next_root
    }

    pub(super) fn head(&self, fork: &str) -> Result<usize, &'static str> {
        self.heads.get(fork).copied().ok_or("fork.not_found")
    }

    pub(super) fn advance(&mut self, fork: &str, tree: Tree, root: u64) {
        let head = self.heads[fork];
        if self.versions[head].root != root {
            self.versions.push(Version { tree, root, parent: Some(head), pruned: false });
            self.heads.insert(fork.to_owned(), self.versions.len() - 1);
        }
    }

    pub(super) fn edit(
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

    pub(super) fn history(&self, fork: &str) -> Vec<usize> {
        std::iter::successors(Some(self.heads[fork]), |at| self.versions[*at].parent).collect()
    }

    pub(super) fn restore(&mut self, fork: &str, to: usize) -> Result<(), &'static str> {
        if self.versions[to].pruned {
            return Err("version.pruned");
        }
        let Version { tree, root, .. } = self.versions[to].clone();
        self.advance(fork, tree, root);
        Ok(())
    }

    pub(super) fn prune(&mut self, last: u64, only: Option<&str>) -> Result<(), &'static str> {
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

    pub(super) fn step(&mut self, step: &Step) -> Result<(), &'static str> {
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
                // Copying a file over an equal one, including times, changes nothing.
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

/// The path that a run writes: unique for each run, so that every landing changes something.
pub(super) fn run_path(number: u8) -> String {
    format!("by-run-{number}")
}
