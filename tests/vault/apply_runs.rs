//! Applies the changes of a run to the host directory.

use std::collections::BTreeSet;
use std::fs;

use avfs_changes::Filter;
use avfs_types::KeepCount;
use avfs_types::clock::Timestamp;
use avfs_types::diagnose::Diagnose;
use avfs_types::ids::{RunPrefix, VersionId};
use avfs_vault::Vault;
use avfs_vault::backend::{Durability, Life, RunRecord};
use avfs_vault::diff::diff;
use avfs_vault::discard::ChangesOf;
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::gc::Trial;
use avfs_vault::page::Node;
use avfs_vault::run::{AuditTexts, Landed, LandedRun, Landing, RunLanding};
use avfs_vault::tree::Pages;

use crate::apply::{Stand, apply_fork, apply_with, change_everything, everything};
use crate::support::snapshot::assert_same;
use crate::support::{fork, main_fork};
use crate::{runs, support};

/// The edits from one version to another, as a capture would find them.
pub fn edits_between(vault: &Vault, before: &VersionId, after: &VersionId) -> Edits {
    let reader = vault.read().unwrap();
    let pages: &dyn Pages = &&*reader;
    let root = |id| {
        let version = reader.version(id).unwrap().unwrap();
        avfs_vault::version::full_root_of(&*reader, &version).unwrap()
    };
    let mut edits = Edits::new();
    for change in diff(pages, &root(before), &root(after)).unwrap() {
        let gone = |above: &avfs_types::path::TreePath| edits.get(above) == Some(&Edit::Remove);
        let above = change.path.split().map(|(parent, _)| parent);
        let edit = match change.after {
            None if above.as_ref().is_some_and(gone) => continue,
            None => Edit::Remove,
            Some(side) => match (side.node, side.dir_meta) {
                (Node::Dir(_), Some(meta)) => Edit::Dir(meta),
                (node, _) => Edit::Put(node),
            },
        };
        edits.insert(change.path, edit);
    }
    // Entries below a path that was removed, or replaced by a file, are removed with it.
    let tops: BTreeSet<_> = edits
        .iter()
        .filter(|(_, edit)| !matches!(edit, Edit::Dir(_)))
        .map(|(path, _)| path.clone())
        .collect();
    edits.retain(|path, _| !tops.iter().any(|top| top != path && top.contains(path)));
    edits
}

/// Lands the changes of the copy as the first run, on a separate fork.
pub fn land_run(stand: &Stand, started_at: Timestamp) -> LandedRun {
    let vault = &stand.vault;
    let (base, side) = (vault.fork(&main_fork()).unwrap().head, vault.fork(&fork("side")).unwrap().head);
    let edits = edits_between(vault, &base, &side);
    let name = fork("run-1");
    let life = Life::Ephemeral { expires_at: Timestamp(i64::MAX) };
    let run = RunLanding {
        landing: Landing::NewFork { name: &name, base, parent: &main_fork(), life },
        edited: Some(&support::landing::edited(vault, &base, &edits).unwrap()),
        message: "run",
        checkpoint_before: None,
        checkpoint_after: None,
        checkpoints_keep: KeepCount::DEFAULT,
        memo: None,
        kept: None,
        record: RunRecord { started_at, version_before: Some(base), ..runs::record(1, &name) },
        item: None,
        durability: Durability::Synced,
        texts: AuditTexts::default(),
    };
    vault.land_run(run, avfs_vault::Batch::new(vault).unwrap()).unwrap()
}

#[test]
fn applied_run_is_marked_as_applied() {
    let stand = Stand::new(everything, change_everything);
    let (vault, name) = (&stand.vault, fork("run-1"));
    let side = vault.fork(&fork("side")).unwrap().head;
    let landed = land_run(&stand, vault.now());
    let Landed::Advanced { version } = landed.landed else { panic!("{:?}", landed.landed) };
    let reader = vault.read().unwrap();
    let root = |id| reader.version(id).unwrap().unwrap().root;
    assert_eq!(root(&version), root(&side), "the capture differs from what the command wrote");
    drop(reader);
    let what = format!("run:{}", runs::run_id(1));
    apply_with(vault, &what, &stand.host(), &Filter::default(), Trial::Real).unwrap();
    assert_same(&stand.copy(), &stand.host());
    let run = vault.run(&RunPrefix::from(&runs::run_id(1))).unwrap();
    assert!(run.applied_at.is_some());
    // The fork continues from the applied version: the next apply writes only newer changes.
    vault.write_file(&name, &support::path("a/one"), &b"later"[..], None, "w").unwrap();
    let applied = apply_fork(vault, "run-1", &stand.host()).unwrap();
    assert!(applied.changes.len() < 4, "{:?}", applied.changes);
    assert_eq!(fs::read_to_string(stand.host().join("a/one")).unwrap(), "later");
    vault.discard(&ChangesOf::Fork(name)).unwrap();
    let refused = apply_with(vault, &what, &stand.host(), &Filter::default(), Trial::Real).unwrap_err();
    assert_eq!(refused.code(), "run.no_version");
}
