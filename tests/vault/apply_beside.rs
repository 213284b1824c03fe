//! Applying beside somebody who works in the directory: what is theirs is found and left alone.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use avfs_changes::{ApplyError, Filter};
use avfs_types::clock::{Clock as _, SystemClock, Timestamp};
use avfs_vault::gc::Trial;

use crate::apply::{Stand, apply_with, put};
use crate::apply_runs::land_run;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;
use crate::worker::Worker;
use crate::{runs, support};

fn conflicts(refused: ApplyError) -> Vec<(String, &'static str)> {
    let ApplyError::Conflict { conflicts, .. } = refused else { panic!("{refused:?}") };
    conflicts.into_iter().map(|conflict| (conflict.path.to_string(), conflict.reason)).collect()
}

/// Applies the fork in another process, and makes changes when it is at a point.
fn apply_changing(stand: &Stand, point: &str, change: impl FnOnce(&Path)) -> Vec<String> {
    let pauses = Pauses::new(stand.scratch.path());
    pauses.hold(point);
    let (vault, host) = (stand.scratch.join("vault.db"), stand.host());
    let settings = [("VAULT", vault.to_str().unwrap()), ("DIR", host.to_str().unwrap()), ("FORK", "side")];
    let mut worker = Worker::paused(&pauses, "apply", &settings);
    pauses.wait(point, &mut worker.child);
    change(&host);
    pauses.release(point);
    worker.finish().refused()
}

/// What is new is written before the first name changes.
#[test]
fn what_somebody_changes_during_an_apply_is_left_alone() {
    let make = |dir: &Path| {
        for path in ["dir/old", "edited", "other", "removed"] {
            put(dir, path, "as it was");
        }
    };
    let changed = |copy: &Path| {
        for path in ["edited", "new", "other"] {
            put(copy, path, "by the run");
        }
        fs::remove_dir_all(copy.join("dir")).unwrap();
        put(copy, "dir", "a file now");
        fs::remove_file(copy.join("removed")).unwrap();
    };
    // While the first file is staged, and when all are.
    for point in ["work#1", "check-again"] {
        let stand = Stand::new(make, changed);
        let refused = apply_changing(&stand, point, |host| {
            put(host, "dir/precious", "mine");
            put(host, "edited", "mine");
            put(host, "removed", "mine");
        });
        let reason = |path: &str| format!("{path}: it changed during the apply");
        assert_eq!(refused, ["dir", "edited", "removed"].map(reason));
        let host = stand.host();
        for (path, content) in
            [("dir/precious", "mine"), ("edited", "mine"), ("removed", "mine"), ("other", "as it was")]
        {
            assert_eq!(fs::read_to_string(host.join(path)).unwrap(), content, "{path}");
        }
        assert!(!host.join("new").exists());
        assert_eq!(fs::read_dir(&host).unwrap().count(), 4, "the staging is gone");
    }
}

/// Each path is compared with the version in turn, and one is changed after its turn.
#[test]
fn what_somebody_changes_while_others_are_looked_at_is_not_deleted() {
    let make = |dir: &Path| ["d/a", "d/b"].iter().for_each(|path| put(dir, path, "as it was"));
    let stand = Stand::new(make, |copy| fs::remove_dir_all(copy.join("d")).unwrap());
    let all =
        apply_with(&stand.vault, "side", &stand.host(), &Filter::default(), Trial::DryRun).unwrap().changes;
    assert_eq!(all.last().unwrap().path, support::path("d/b"));
    let last = format!("judge#{}", all.len());
    let refused = apply_changing(&stand, &last, |host| put(host, "d/a", "mine"));
    assert_eq!(refused, ["d/a: it changed during the apply"]);
    assert_eq!(fs::read_to_string(stand.host().join("d/a")).unwrap(), "mine");
    assert!(stand.host().join("d/b").exists());
}

/// A live directory is imported beside the run: what came into it meanwhile is in the version, whatever the command saw.
#[test]
fn a_directory_that_was_put_in_place_while_a_run_began_is_left_alone() {
    let began = Cell::new(Timestamp(0));
    let make = |dir: &Path| {
        put(dir, "dir.new/f", "mine");
        put(dir, "quiet/f", "as it was");
        began.set(SystemClock.now());
        // The clock of files is behind.
        wait_for("a stamp after the beginning", || {
            put(dir, "probe", "x");
            let meta = fs::metadata(dir.join("probe")).unwrap();
            meta.ctime() * Timestamp::NANOS_PER_SECOND + meta.ctime_nsec() > began.get().0
        });
        fs::rename(dir.join("dir.new"), dir.join("dir")).unwrap();
        put(dir, "quiet/other", "comes and is no reason");
    };
    let stand = Stand::new(make, |copy| {
        put(copy, "dir/f", "by the run");
        put(copy, "quiet/f", "by the run");
    });
    land_run(&stand, began.get());
    let what = format!("run:{}", runs::run_id(1));
    let refused =
        apply_with(&stand.vault, &what, &stand.host(), &Filter::default(), Trial::Real).unwrap_err();
    assert_eq!(
        conflicts(refused),
        [("dir/f".to_owned(), "a parent directory changed while the run was starting")]
    );
    assert_eq!(fs::read_to_string(stand.host().join("dir/f")).unwrap(), "mine");
}
