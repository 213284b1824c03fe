//! Applying beside somebody who works in the directory: what is theirs is found and left alone.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use avfs::clock::{Clock as _, SystemClock, Timestamp};
use avfs::runtime::{ApplyError, Filter};
use avfs::vault::gc::Trial;

use crate::apply::{Stand, apply_with, put};
use crate::apply_runs::land_run;
use crate::runs;
use crate::support;

fn conflicts(refused: ApplyError) -> Vec<(String, &'static str)> {
    let ApplyError::Conflict { conflicts, .. } = refused else { panic!("{refused:?}") };
    conflicts.into_iter().map(|conflict| (conflict.path.to_string(), conflict.reason)).collect()
}

/// What is new is written before the first name changes, which takes a while.
#[test]
fn what_somebody_changes_during_an_apply_is_left_alone() {
    let make = |dir: &Path| {
        for path in ["dir/old", "edited", "other", "removed"] {
            put(dir, path, "as it was");
        }
    };
    let stand = Stand::new(make, |copy| {
        fs::write(copy.join("big"), support::noise(1, 64 << 20)).unwrap();
        for path in ["edited", "other"] {
            put(copy, path, "by the run");
        }
        fs::remove_dir_all(copy.join("dir")).unwrap();
        put(copy, "dir", "a file now");
        fs::remove_file(copy.join("removed")).unwrap();
    });
    let host = stand.host();
    let refused = std::thread::scope(|scope| {
        let applying = scope.spawn(|| stand.apply());
        let staged = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".avfs-export");
        while !applying.is_finished() && !fs::read_dir(&host).unwrap().flatten().any(|entry| staged(&entry)) {
            std::thread::yield_now();
        }
        put(&host, "dir/precious", "mine");
        put(&host, "edited", "mine");
        put(&host, "removed", "mine");
        applying.join().unwrap().unwrap_err()
    });
    let ApplyError::Conflict { conflicts, .. } = refused else { panic!("{refused:?}") };
    let told: Vec<String> = conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
    assert_eq!(told, ["dir", "edited", "removed"]);
    for (path, content) in
        [("dir/precious", "mine"), ("edited", "mine"), ("removed", "mine"), ("other", "as it was")]
    {
        assert_eq!(fs::read_to_string(host.join(path)).unwrap(), content, "{path}");
    }
    assert!(!host.join("big").exists());
    assert_eq!(fs::read_dir(&host).unwrap().count(), 4, "the staging is gone");
}

/// Whether what goes is what the run saw takes a while to find out, if it is much.
#[test]
fn what_somebody_changes_while_others_are_looked_at_is_not_deleted() {
    let make = |dir: &Path| {
        put(dir, "d/a", "as it was");
        fs::write(dir.join("d/big"), support::noise(1, 64 << 20)).unwrap();
    };
    let stand = Stand::new(make, |copy| fs::remove_dir_all(copy.join("d")).unwrap());
    let host = stand.host();
    let big = host.join("d/big");
    let refused = std::thread::scope(|scope| {
        let applying = scope.spawn(|| stand.apply());
        let is_open = || {
            let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
            fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|file| file == big)
        };
        while !applying.is_finished() && !is_open() {
            std::thread::yield_now();
        }
        put(&host, "d/a", "mine");
        applying.join().unwrap().unwrap_err()
    });
    assert_eq!(conflicts(refused), [("d/a".to_owned(), "it was changed during the apply")]);
    assert_eq!(fs::read_to_string(host.join("d/a")).unwrap(), "mine");
    assert!(big.exists());
}

/// A live directory is imported beside the run: what came into it meanwhile is in the version, whatever the command saw.
#[test]
fn a_directory_that_was_put_in_place_while_a_run_began_is_left_alone() {
    let began = Cell::new(Timestamp(0));
    let make = |dir: &Path| {
        put(dir, "dir.new/f", "mine");
        put(dir, "quiet/f", "as it was");
        let pause = || std::thread::sleep(Duration::from_millis(50));
        pause();
        began.set(SystemClock.now());
        // The clock of files is behind.
        pause();
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
        [("dir/f".to_owned(), "a directory above it was changed while the run began")]
    );
    assert_eq!(fs::read_to_string(stand.host().join("dir/f")).unwrap(), "mine");
}
