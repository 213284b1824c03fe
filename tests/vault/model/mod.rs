//! The vault compared with a simple model: maps of paths, and lists of versions.
//!
//! The same steps run on both backends; after each step every fork must match the model, including errors, and the two
//! backends must agree on every id.

mod state;
mod steps;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use proptest_state_machine::{StateMachineTest, prop_state_machine};
use state::{Model, Step, Thing, Tree, content, run_path};

use avfs_types::KeepCount;
use avfs_types::clock::{FileTime, SteppingClock, Timestamp};
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{CheckpointName, VersionId};
use avfs_types::path::TreePath;
use avfs_vault::backend::memory::MemoryBackend;
use avfs_vault::backend::{Codec, Durability, Life, Reader};
use avfs_vault::checkpoint::Origin;
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::fork::Deletion;
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::ops::{Depth, Parents};
use avfs_vault::page::{FileContent, FileNode, Node};
use avfs_vault::run::{AuditTexts, Landing, RunLanding};
use avfs_vault::tree::{Pages, Walk};
use avfs_vault::version::{History, root_of};
use avfs_vault::{Batch, Context, Vault, VaultError, content, require_version};

use crate::support::Scratch;
use crate::{runs, support};

/// Later than any file of the host: the stat cache then trusts every file whose timestamps are unchanged. The model
/// gives each new content another length, so that this is always correct.
const LATER: Timestamp = Timestamp(4_000_000_000_000_000_000);

/// Both vaults, and the directory that they import.
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
        // The backend in memory counts every reference again each time: both must keep the same objects.
        Step::Gc if which == "memory" => vault.gc(&|_| {}).map(|_| 0),
        Step::Gc => vault.gc_since(Some(&pair.cache("references")), &|_| {}).map(|_| 0),
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
                edited: Some(&support::landing::edited(vault, &base, &edits)?),
                message: "run",
                checkpoint_before: None,
                checkpoint_after: None,
                checkpoints_keep: KeepCount::DEFAULT,
                memo: None,
                kept: None,
                record: runs::record(*number, new.as_ref().unwrap_or(&parent)),
                item: None,
                durability: Durability::Synced,
                texts: AuditTexts::default(),
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
            let imported = vault.import(&pair.host(), &fork(on), "import", &options);
            imported.map(|_| 0).map_err(support::vault_error)
        }
    }
}

fn read_file(reader: &dyn Reader, node: &Node) -> Thing {
    match node {
        Node::Dir(_) => Thing::Dir,
        Node::File(file) => {
            let blob = content::fetch(reader, file.content.id()).unwrap();
            assert_ne!(blob.codec, Codec::List, "the model writes only small files");
            let content = content::decode(blob).unwrap();
            assert_eq!(content.len() as u64, file.size);
            Thing::File { content, mode: file.mode }
        }
        Node::Symlink(_) | Node::Fifo(_) => panic!("the model makes no {}", node.kind()),
    }
}

fn listing(reader: &dyn Reader, version: &VersionId) -> Tree {
    let root = root_of(&require_version(reader, version).unwrap()).unwrap();
    let pages: &dyn Pages = &reader;
    let walked = Walk::new(pages, &root, &TreePath::root()).map(|walked| {
        let walked = walked.unwrap();
        let path = String::from_utf8(walked.path.as_bytes().to_vec()).unwrap();
        (path, read_file(reader, &walked.node))
    });
    walked.collect()
}

/// The journal lists the landed runs, newest first, and each run refers to its version while that is kept.
fn check_runs(which: &str, reader: &dyn Reader, model: &Model) {
    let kept = reader.runs(i64::MAX, 100).unwrap();
    let listed: Vec<(String, String)> =
        kept.iter().map(|run| (run.id.to_string(), run.fork.to_string())).collect();
    let expected: Vec<(String, String)> =
        model.runs.iter().rev().map(|run| (runs::run_id(run.number).to_string(), run.fork.clone())).collect();
    assert_eq!(listed, expected, "{which}: journal");
    for (run, row) in model.runs.iter().rev().zip(&kept) {
        assert_eq!(run.after.is_some(), row.version_after.is_some(), "{which}: {row:?}");
        let at = &model.versions[run.after.unwrap_or(run.before)];
        let reachable = model.heads.keys().flat_map(|fork| model.history(fork));
        let reached = reachable.into_iter().any(|version| version == run.after.unwrap_or(run.before));
        let found = avfs_vault::version::resolve(reader, &support::reference(&format!("run:{}", row.id)));
        match found {
            Ok((version, _)) if version.pruned_at.is_none() => {
                assert!(listing(reader, &version.id) == at.tree, "{which}: {row:?}");
            }
            Ok(_) => assert!(at.pruned || !reached, "{which}: {row:?}"),
            Err(error) => {
                assert_eq!(error.code(), "run.no_version", "{which}: {row:?}");
                assert!(!reached, "{which}: the version of {row:?} is missing");
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
        let options = avfs_vault::backend::sqlite::OpenOptions::default();
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
                assert_eq!(count, model.pruned, "{which}: number of pruned versions");
            }
        }
        pair
    }

    fn check_invariants(pair: &Pair, model: &Model) {
        let (mut heads, mut journals, mut objects) = (Vec::new(), Vec::new(), Vec::new());
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
            let usage = reader.usage().unwrap();
            objects.push((usage.versions, usage.trees, usage.blobs));
            heads.push(forks.iter().map(|fork| (fork.name.clone(), fork.head)).collect::<Vec<_>>());
        }
        assert_eq!(heads[0], heads[1], "the backends differ in ids");
        assert_eq!(journals[0], journals[1], "the backends differ in the journal");
        assert_eq!(objects[0], objects[1], "the backends differ in versions, trees and blobs");
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
        cases: support::usual_or_long(16, 300),
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    })]

    #[test]
    fn vault_matches_the_model(sequential 5..40 => BothBackends);
}
