//! The use of forks: their parents, their last runs, and the space that each of them holds alone.
//!
//! Only reads.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use avfs_types::clock::Timestamp;
use avfs_types::ids::ForkName;

use super::version::History;
use crate::Result;
use crate::backend::{ForkRecord, Reader, RunRecord};
use crate::reach::{Object, refers_to};

/// Runs examined to find the last one of a fork: an earlier fork may have had the same name.
const RUNS_LOOKED_AT: usize = 50;

/// Whether to count bytes, which walks all kept objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Count them.
    Counted,
    /// Do not count them.
    LeftOut,
}

/// A fork and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkUse {
    /// The fork.
    pub fork: ForkRecord,
    /// The depth in the tree of forks; 0 for a fork without a parent.
    pub depth: u64,
    /// Versions since its base.
    pub versions_ahead: u64,
    /// The last run on the fork; `None` if no run was made on it.
    pub last_run: Option<RunRecord>,
    /// Bytes that deleting the fork and a gc would free.
    pub held_bytes: Option<u64>,
}

/// Every fork, each after its parent.
pub fn fork_uses(reader: &dyn Reader, sizes: Sizes) -> Result<Vec<ForkUse>> {
    let held = match sizes {
        Sizes::Counted => Some(held_alone(reader)?),
        Sizes::LeftOut => None,
    };
    let with_use = |(fork, depth): (ForkRecord, u64)| {
        Ok(ForkUse {
            depth,
            versions_ahead: versions_ahead(reader, &fork)?,
            last_run: last_run(reader, &fork)?,
            held_bytes: held.as_ref().map(|held| held.get(&fork.name).copied().unwrap_or(0)),
            fork,
        })
    };
    in_tree_order(reader.forks()?).into_iter().map(with_use).collect()
}

fn in_tree_order(forks: Vec<ForkRecord>) -> Vec<(ForkRecord, u64)> {
    let made: HashMap<ForkName, Timestamp> =
        forks.iter().map(|fork| (fork.name.clone(), fork.created_at)).collect();
    let mut children: BTreeMap<Option<ForkName>, Vec<ForkRecord>> = BTreeMap::new();
    for fork in forks {
        // A fork whose parent was deleted has no parent, even if another fork has that name now.
        let is_older = |parent: &ForkName| made.get(parent).is_some_and(|at| *at <= fork.created_at);
        let parent = fork.parent.clone().filter(|parent| is_older(parent) && *parent != fork.name);
        children.entry(parent).or_default().push(fork);
    }
    let mut ordered = Vec::new();
    // Last, the forks that a clock set back has made their own ancestors.
    while let Some((_, tops)) = children.pop_first() {
        let mut waiting: Vec<(ForkRecord, u64)> = tops.into_iter().rev().map(|fork| (fork, 0)).collect();
        while let Some((fork, depth)) = waiting.pop() {
            let beneath = children.remove(&Some(fork.name.clone())).unwrap_or_default();
            waiting.extend(beneath.into_iter().rev().map(|fork| (fork, depth + 1)));
            ordered.push((fork, depth));
        }
    }
    ordered
}

fn versions_ahead(reader: &dyn Reader, fork: &ForkRecord) -> Result<u64> {
    let mut count = 0;
    for version in History::new(reader, fork.head) {
        if version?.id == fork.base {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The last run on a fork; `None` if no run was made on it.
pub fn last_run(reader: &dyn Reader, fork: &ForkRecord) -> Result<Option<RunRecord>> {
    // A fork created for a run is newer than the start of the run.
    let of_this_fork = |run: &RunRecord| {
        run.started_at >= fork.created_at
            || run.version_after == Some(fork.head)
            || fork.name.as_str().contains(run.id.as_str())
    };
    // Usually it is the newest one.
    let mut before = i64::MAX;
    for limit in [1, RUNS_LOOKED_AT - 1] {
        let runs = reader.runs_of_fork(&fork.name, before, limit)?;
        let Some(oldest) = runs.last() else { break };
        before = oldest.seq;
        if let Some(found) = runs.into_iter().find(of_this_fork) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The forks that refer to an object: one, by its number, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    One(usize),
    Many,
}

/// The stored bytes of trees and blobs that only one fork and its checkpoints refer to.
fn held_alone(reader: &dyn Reader) -> Result<HashMap<ForkName, u64>> {
    let forks = reader.forks()?;
    let mut holders: HashMap<Object, Holder> = HashMap::new();
    for (number, fork) in forks.iter().enumerate() {
        let mut waiting = vec![Object::Version(fork.head)];
        let checkpoints = reader.checkpoints_of_fork(&fork.name)?;
        waiting.extend(checkpoints.into_iter().map(|checkpoint| Object::Version(checkpoint.version)));
        while let Some(object) = waiting.pop() {
            match holders.entry(object) {
                Entry::Vacant(place) => {
                    place.insert(Holder::One(number));
                }
                // Its children are shared as well, so walk them once more.
                Entry::Occupied(mut place) => match *place.get() {
                    Holder::One(other) if other != number => {
                        place.insert(Holder::Many);
                    }
                    Holder::One(_) | Holder::Many => continue,
                },
            }
            waiting.extend(refers_to(reader, object)?);
        }
    }
    let mut held: HashMap<ForkName, u64> = HashMap::new();
    for (object, holder) in holders {
        if let Holder::One(number) = holder {
            *held.entry(forks[number].name.clone()).or_default() += stored_bytes(reader, object)?;
        }
    }
    Ok(held)
}

fn stored_bytes(reader: &dyn Reader, object: Object) -> Result<u64> {
    let stored = match object {
        // A record is small compared with its tree.
        Object::Version(_) => None,
        Object::Tree(id) => reader.tree(&id)?.map(|data| data.len()),
        Object::Blob(id) | Object::List(id) => reader.blob(&id)?.map(|blob| blob.data.len()),
    };
    Ok(stored.unwrap_or(0) as u64)
}
