//! Trees deeper, and paths longer, than a system call accepts.

use std::fs;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use avfs_types::diagnose::Diagnose;
use avfs_vault::import::OnTrouble;

use crate::attributes::set_mode;
use crate::roundtrip::assert_round_trip;
use crate::support;
use crate::support::Scratch;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;
use crate::worker::Worker;

fn open_dir(at: &OwnedFd, name: &str) -> OwnedFd {
    rustix::fs::openat(at, name, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// A chain of directories with a file at its end; returns the path of the last directory.
fn deep(dir: &Path, name: &str, levels: usize) -> Vec<u8> {
    let mut at = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)).unwrap();
        at = open_dir(&at, name);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at.as_fd(), "bottom", flags, Mode::from_raw_mode(0o644)).unwrap();
    File::from(file).write_all_at(b"deep down", 0).unwrap();
    vec![name; levels].join("/").into_bytes()
}

#[test]
fn tree_deeper_than_the_open_files_limit_round_trips() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    let levels = support::usual_or_long(1100, 3000);
    deep(&dir, "d", levels);
    let vault = assert_round_trip(&scratch, &dir);
    // They can be edited, compared and swept.
    let bottom = format!("{}/bottom", vec!["d"; levels].join("/"));
    support::write(&vault, &bottom, b"changed");
    let (before, after) = (support::root(&vault, "main~1"), support::root(&vault, "main"));
    let reader = vault.read().unwrap();
    let changes = avfs_vault::diff::diff(&&*reader, &before, &after).unwrap();
    assert_eq!(changes.iter().filter(|change| change.path == support::path(&bottom)).count(), 1);
    drop(reader);
    vault.gc(&|_| {}).unwrap();
    support::assert_clean(&vault);
}

#[test]
fn paths_of_twelve_thousand_bytes_round_trip() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    assert!(deep(&dir, &"x".repeat(250), 50).len() > 12_000);
    assert_round_trip(&scratch, &dir);
}

/// An interrupted export cleans up even with a low limit on open files, or a tree that its owner cannot access.
#[test]
fn interrupted_export_of_a_deep_tree_leaves_nothing() {
    let scratch = Scratch::new();
    let (dir, dest) = (scratch.dir("dir"), scratch.dir("dest"));
    deep(&dir, &"x".repeat(100), 300);
    fs::write(dir.join("large"), support::noise(3, 3 << 19)).unwrap();
    let (path, stop) = (scratch.join("vault.db"), scratch.join("stop"));
    let vault = support::create_vault(&path);
    support::import(&vault, &dir);
    let settings = [
        ("VAULT", path.to_str().unwrap()),
        ("DEST", dest.to_str().unwrap()),
        ("STOP", stop.to_str().unwrap()),
    ];
    let pauses = Pauses::new(scratch.path());
    pauses.hold("work#1");
    let mut worker = Worker::paused(&pauses, "export", &settings);
    pauses.wait("work#1", &mut worker.child);
    // Directories are created meanwhile: as many as a path can name.
    let staging = fs::read_dir(&dest).unwrap().next().unwrap().unwrap().path();
    let below: Vec<String> = vec!["x".repeat(100); 30];
    wait_for("directories", || staging.join(below.join("/")).exists());
    fs::write(&stop, "").unwrap();
    wait_for("the interrupt", || pauses.reached().iter().any(|point| point == "stopped"));
    pauses.release("work#1");
    assert_eq!(worker.finish().refused(), ["interrupted"]);
    assert_eq!(fs::read_dir(&dest).unwrap().count(), 0, "an interrupted export left files");
}

/// A tree deeper than the limit on open files, and not accessible to its owner, can be removed.
#[test]
fn deep_and_inaccessible_tree_can_be_removed() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    deep(&dir, "d", support::usual_or_long(1100, 3000));
    set_mode(&dir.join("d/d/d"), 0o000);
    avfs_hostfs::remove::remove_tree(&dir).unwrap();
    assert!(!dir.exists());
}

/// The total length of paths grows with the square of the depth, so path length is bounded too.
#[test]
fn path_beyond_the_limit_is_refused_and_named() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    assert!(deep(&dir, &"x".repeat(250), 131).len() > 32 << 10);
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let refused = support::try_import(&vault, &dir, None, OnTrouble::Fail).err().unwrap();
    assert_eq!(refused.code(), "import.too_deep");
    let text = refused.to_string();
    assert!(text.contains("131 levels deep and has 32880 bytes") && text.len() < 500, "{text}");
}
