//! Applies while another user works in the directory: their changes are found and left alone.

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

fn conflicts(refused: ApplyError) -> Vec<(String, String)> {
    let ApplyError::Conflict { conflicts, .. } = refused else { panic!("{refused:?}") };
    conflicts.into_iter().map(|conflict| (conflict.path.to_string(), conflict.reason.into_owned())).collect()
}

/// Applies the fork in another process, and makes changes when it reaches a pause point.
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

/// New content is staged before the first rename.
#[test]
fn paths_changed_during_an_apply_are_conflicts() {
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
    // While the first file is staged, and when all files are staged.
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
        assert_eq!(fs::read_dir(&host).unwrap().count(), 4, "the staging directory is left");
    }
}

/// Paths are compared with the version one after the other; one of them is changed after it was compared.
#[test]
fn path_changed_after_it_was_compared_is_not_deleted() {
    let make = |dir: &Path| ["d/a", "d/b"].iter().for_each(|path| put(dir, path, "as it was"));
    let stand = Stand::new(make, |copy| fs::remove_dir_all(copy.join("d")).unwrap());
    let all =
        apply_with(&stand.vault, "side", &stand.host(), &Filter::default(), Trial::DryRun).unwrap().changes;
    assert_eq!(all.iter().last().unwrap().unwrap().path, support::path("d/b"));
    let last = format!("judge#{}", all.len());
    let refused = apply_changing(&stand, &last, |host| put(host, "d/a", "mine"));
    assert_eq!(refused, ["d/a: it changed during the apply"]);
    assert_eq!(fs::read_to_string(stand.host().join("d/a")).unwrap(), "mine");
    assert!(stand.host().join("d/b").exists());
}

/// A live directory is imported during the run: files that appear meanwhile are in the version even if the command
/// did not see them.
#[test]
fn directory_replaced_while_a_run_started_is_a_conflict() {
    let began = Cell::new(Timestamp(0));
    let make = |dir: &Path| {
        put(dir, "dir.new/f", "mine");
        put(dir, "quiet/f", "as it was");
        began.set(SystemClock.now());
        // File timestamps lag behind the clock.
        wait_for("a timestamp after the start", || {
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
    let reason = "a parent directory changed during the run";
    assert_eq!(conflicts(refused), [("dir/f".to_owned(), reason.to_owned())]);
    assert_eq!(fs::read_to_string(stand.host().join("dir/f")).unwrap(), "mine");
}
