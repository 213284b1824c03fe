//! Import and export: everything in a host directory round-trips exactly, or is named.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use avfs_vault::export::{ExportError, ExportOptions, Overwrite};
use avfs_vault::import::{ImportError, OnTrouble, Trouble, TroubleReason};
use avfs_vault::meter::Meter;
use avfs_vault::ops::Depth;
use avfs_vault::set_ids::SetIds;
use avfs_vault::{Vault, VaultError, transfer};

use crate::attributes::{mkfifo, set_mode, set_mtime, set_xattr};
use crate::support;
use crate::support::{Scratch, snapshot};

/// Imports, exports to a new directory and compares.
#[track_caller]
pub fn assert_round_trip(scratch: &Scratch, dir: &Path) -> Vault {
    let vault = support::create_vault(&scratch.join("vault.db"));
    let imported = support::import(&vault, dir);
    assert_eq!(imported.scanned.troubles, []);
    let out = scratch.join("out");
    support::export(&vault, "main", &out);
    snapshot::assert_same(dir, &out);
    support::assert_clean(&vault);
    vault
}

fn hostile_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        &b"new\nline"[..],
        b"\xff\xfe not utf-8",
        b".wh.x",
        b".wh..wh..opq",
        b"-rf",
        b"--",
        b" ",
        b"\x1b[31mred\x07",
        b"back\\slash",
        b"*?[a]",
        b"...",
        b"CON:",
        "é".as_bytes(),
        "e\u{301}".as_bytes(),
        b".avfs-not",
        b"#comment",
        b"!not",
    ]
    .iter()
    .map(|name| name.to_vec())
    .collect();
    names.push(vec![b'n'; 255]);
    names.push(vec![0xff; 255]);
    names
}

#[test]
fn hostile_names_round_trip() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for (n, name) in hostile_names().iter().enumerate() {
        fs::write(dir.join(OsStr::from_bytes(name)), format!("file {n}")).unwrap();
        let sub = dir.join("sub").join(OsStr::from_bytes(name));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join(OsStr::from_bytes(name)), "deeper").unwrap();
        symlink(OsStr::from_bytes(name), dir.join("sub").join(format!("link{n}"))).unwrap();
    }
    assert_round_trip(&scratch, &dir);
}

#[test]
fn modes_times_links_and_attributes_round_trip() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for mode in [0o400, 0o444, 0o600, 0o644, 0o755, 0o777, 0o1644, 0o2755, 0o4755, 0o6711, 0o7777] {
        let file = dir.join(format!("mode-{mode:o}"));
        fs::write(&file, "x").unwrap();
        set_xattr(&file, "user.kept", b"on a file nobody may write");
        set_mode(&file, mode);
    }
    for mode in [0o500, 0o700, 0o755, 0o1777, 0o2775, 0o555] {
        let sub = scratch.dir(&format!("dir/dir-{mode:o}"));
        fs::write(sub.join("inside"), "x").unwrap();
        set_xattr(&sub, "user.kept", b"on a directory");
        set_mode(&sub, mode);
    }
    let times: [(i64, i64); 7] = [
        (0, 0),
        (0, 1),
        (-1, 999_999_999),
        (-2_000_000_000, 5),
        (1, 123_456_789),
        (4_000_000_000, 999_999_999),
        (15_000_000_000, 7),
    ];
    for (n, (seconds, nanos)) in times.into_iter().enumerate() {
        let file = dir.join(format!("time-{n}"));
        fs::write(&file, "x").unwrap();
        set_mtime(&file, seconds, nanos);
        let link = dir.join(format!("time-link-{n}"));
        symlink("x", &link).unwrap();
        set_mtime(&link, seconds, nanos);
        let sub = scratch.dir(&format!("dir/time-dir-{n}"));
        set_mtime(&sub, seconds, nanos);
    }
    symlink("/absolute/nowhere", dir.join("dangling")).unwrap();
    symlink("../..", dir.join("upward")).unwrap();
    symlink(".", dir.join("itself")).unwrap();
    symlink("t".repeat(4095), dir.join("long-target")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\n"), dir.join("odd-target")).unwrap();
    mkfifo(&dir.join("fifo"));
    set_mtime(&dir.join("fifo"), 77, 88);
    scratch.dir("dir/empty/empty/empty");
    let file = dir.join("attributes");
    fs::write(&file, "x").unwrap();
    set_xattr(&file, "user.empty", b"");
    set_xattr(&file, "user.overlay.opaque", b"y");
    set_xattr(&file, "user.overlay.x", b"not overlayfs's");
    set_xattr(&file, &format!("user.{}", "n".repeat(200)), &support::noise(1, 3000));
    set_xattr(&dir.join("empty"), "user.overlay.opaque", b"y");
    set_mtime(&dir, 1_000_000_000, 1);
    assert_round_trip(&scratch, &dir);
}

#[test]
fn hard_links_stay_hard_links() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    scratch.dir("dir/a/b");
    scratch.dir("dir/z");
    fs::write(dir.join("a/b/first"), support::noise(1, 100)).unwrap();
    for other in ["a/second", "z/third", "0"] {
        fs::hard_link(dir.join("a/b/first"), dir.join(other)).unwrap();
    }
    fs::write(dir.join("large"), support::noise(2, 3 << 20)).unwrap();
    fs::hard_link(dir.join("large"), dir.join("z/large")).unwrap();
    // A symlink, a FIFO, and a file with a hard link outside.
    symlink("x", dir.join("link")).unwrap();
    fs::hard_link(dir.join("link"), dir.join("z/link")).unwrap();
    mkfifo(&dir.join("fifo"));
    fs::hard_link(dir.join("fifo"), dir.join("z/fifo")).unwrap();
    fs::write(dir.join("half"), "x").unwrap();
    fs::hard_link(dir.join("half"), scratch.join("outside")).unwrap();
    let vault = assert_round_trip(&scratch, &dir);

    // Writing to one hard link of a file in the vault changes all of them.
    support::write(&vault, "z/third", b"changed");
    let out = scratch.join("out-2");
    support::export(&vault, "main", &out);
    for name in ["a/b/first", "a/second", "z/third", "0"] {
        assert_eq!(fs::read(out.join(name)).unwrap(), b"changed", "{name}");
    }
    // The group that is left after removing links equals the group that an import of the same state makes.
    vault
        .remove(
            &support::main_fork(),
            &[support::path("0"), support::path("z")],
            avfs_vault::ops::Depth::Recursive,
            "rm",
        )
        .unwrap();
    support::export(&vault, "main", &scratch.join("out-3"));
    let again = support::create_vault(&scratch.join("again.db"));
    support::import(&again, &scratch.join("out-3"));
    assert_eq!(support::root(&again, "main").content, support::root(&vault, "main").content);
}

#[test]
fn sizes_around_every_boundary_round_trip() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    let (block, whole) = (64 << 10, 1 << 20);
    for (n, size) in [
        0,
        1,
        95,
        96,
        97,
        4095,
        4096,
        block - 1,
        block,
        block + 1,
        whole - 1,
        whole,
        whole + 1,
        2 * whole,
        5 * whole + 3,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(dir.join(format!("noise-{size}")), support::noise(n as u64, size)).unwrap();
        fs::write(dir.join(format!("zeros-{size}")), vec![0; size]).unwrap();
        fs::write(dir.join(format!("text-{size}")), "line of text\n".repeat(size / 13 + 1)).unwrap();
        let mut tail = support::noise(n as u64, size);
        tail.extend_from_slice(&vec![0; block]);
        fs::write(dir.join(format!("zero-tail-{size}")), &tail).unwrap();
        tail.rotate_right(block);
        fs::write(dir.join(format!("zero-head-{size}")), &tail).unwrap();
    }
    assert_round_trip(&scratch, &dir);
}

#[test]
fn sparse_files_stay_sparse() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    let make = |name: &str, length: u64, data: &[(u64, usize)]| {
        let file = File::create(dir.join(name)).unwrap();
        file.set_len(length).unwrap();
        for (at, size) in data {
            file.write_all_at(&support::noise(*at, *size), *at).unwrap();
        }
    };
    make("all-hole", 3 << 30, &[]);
    make("tiny-hole", 5000, &[]);
    make("head", 1 << 30, &[(0, 10)]);
    make("tail", (1 << 30) + 1, &[(1 << 30, 1)]);
    make("islands", 200 << 20, &[(70_000, 1), (50 << 20, 200_000), ((150 << 20) + 123, 3 << 20)]);
    let vault = assert_round_trip(&scratch, &dir);
    let used = vault.read().unwrap().usage().unwrap().file_bytes;
    assert!(used < 8 << 20, "holes take {used} bytes in the vault");
}

#[test]
fn directory_of_thousands_of_entries_round_trips() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for n in 0..support::usual_or_long(3000, 20_000) {
        symlink(format!("to-{n}"), dir.join(format!("entry-{n:05}"))).unwrap();
    }
    let vault = assert_round_trip(&scratch, &dir);
    let before = vault.read().unwrap().usage().unwrap().tree_bytes;
    support::write(&vault, "entry-02500", b"one changed");
    let grown = vault.read().unwrap().usage().unwrap().tree_bytes - before;
    assert!(grown < 80 << 10, "one change took {grown} bytes of pages");
}

/// A part of a generated tree.
#[derive(Clone, Debug)]
enum Part {
    File { size: usize, seed: u64, mode: u32 },
    Holes { length: u64, at: u64 },
    Dir { mode: u32 },
    Symlink(Vec<u8>),
    Fifo,
    LinkToFirst,
}

fn any_part() -> impl Strategy<Value = Part> {
    let mode = || prop::sample::select(vec![0o644, 0o600, 0o755, 0o444, 0o4755, 0o1666]);
    prop_oneof![
        6 => (0..3000_usize, any::<u64>(), mode()).prop_map(|(size, seed, mode)| Part::File { size, seed, mode }),
        1 => (60_000..1_200_000_usize, any::<u64>(), mode())
            .prop_map(|(size, seed, mode)| Part::File { size, seed, mode }),
        1 => (1..3_000_000_u64, 0..2_000_000_u64).prop_map(|(length, at)| Part::Holes { length, at }),
        3 => prop::sample::select(vec![0o755, 0o700, 0o555, 0o1777]).prop_map(|mode| Part::Dir { mode }),
        2 => prop::collection::vec(1..=255_u8, 1..60).prop_map(Part::Symlink),
        1 => Just(Part::Fifo),
        2 => Just(Part::LinkToFirst),
    ]
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 1..20).prop_map(|mut name| {
        name.iter_mut().filter(|b| **b == 0 || **b == b'/').for_each(|b| *b = b'_');
        name
    });
    prop_oneof![3 => bytes, 1 => prop::sample::select(hostile_names())]
        .prop_filter("names that the import treats specially", |name| {
            !matches!(name.as_slice(), b"." | b".." | b".avfs" | b".avfsignore")
        })
}

type Described = (Vec<u8>, Part, prop::sample::Index, (i64, i64), Option<Vec<u8>>);

fn build_tree(dir: &Path, parts: &[Described]) {
    let mut dirs = vec![dir.to_owned()];
    let mut first: Option<PathBuf> = None;
    let mut finish = Vec::new();
    for (name, part, place, time, xattr) in parts {
        let path = dirs[place.index(dirs.len())].join(OsStr::from_bytes(name));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match part {
            Part::File { size, seed, mode } => {
                fs::write(&path, support::noise(*seed, *size)).unwrap();
                first.get_or_insert_with(|| path.clone());
                finish.push((path.clone(), *mode));
            }
            Part::Holes { length, at } => {
                let file = File::create(&path).unwrap();
                file.set_len(length + at).unwrap();
                file.write_all_at(b"data in a hole", *at).unwrap();
            }
            Part::Dir { mode } => {
                fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
                finish.push((path.clone(), *mode));
            }
            Part::Symlink(target) => symlink(OsStr::from_bytes(target), &path).unwrap(),
            Part::Fifo => mkfifo(&path),
            Part::LinkToFirst => {
                let Some(first) = &first else { continue };
                fs::hard_link(first, &path).unwrap();
            }
        }
        if let (Some(value), Part::File { .. } | Part::Dir { .. }) = (xattr, part) {
            set_xattr(&path, "user.some", value);
        }
        set_mtime(&path, time.0, time.1);
    }
    // Last, and the deepest first: a read-only directory accepts no more files, and a new name changes the mtime.
    for (path, mode) in finish.iter().rev() {
        set_mode(path, *mode);
    }
    for (at, path) in dirs.iter().enumerate().rev() {
        set_mtime(path, i64::try_from(at).unwrap(), 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(10, 200),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_trees_round_trip(parts in prop::collection::vec(
        (any_name(), any_part(), any::<prop::sample::Index>(),
         (-5_000_000_000_i64..5_000_000_000, 0..1_000_000_000_i64),
         prop::option::of(prop::collection::vec(any::<u8>(), 0..500))),
        0..40,
    )) {
        // The earliest time of ext4 is in 1901.
        let parts: Vec<Described> = parts.into_iter().map(|mut part| { part.3.0 = part.3.0.max(-2_000_000_000); part }).collect();
        let scratch = Scratch::new();
        let dir = scratch.dir("dir");
        build_tree(&dir, &parts);
        let vault = assert_round_trip(&scratch, &dir);
        // The export is imported as exactly the same tree.
        let again = support::memory_vault();
        support::import(&again, &scratch.join("out"));
        prop_assert_eq!(support::root(&vault, "main"), support::root(&again, "main"));
    }
}

#[test]
fn ignored_files_are_left_out_and_unsupported_ones_are_named() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for file in
        ["keep.rs", "a.log", "sub/b.log", "sub/keep.log", "target/x", "sub/target/x", ".avfs/vault.db"]
    {
        fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        fs::write(dir.join(file), "x").unwrap();
    }
    fs::write(dir.join(".avfsignore"), "*.log\n/target/\n").unwrap();
    fs::write(dir.join("sub/.avfsignore"), "!keep.log\n").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let imported = support::import(&vault, &dir);
    let socket = Trouble { path: support::path("socket"), reason: TroubleReason::Special("socket") };
    assert_eq!(imported.scanned.troubles, [socket]);
    let out = scratch.join("out");
    support::export(&vault, "main", &out);
    let found: Vec<String> =
        snapshot::take(&out).facts.into_keys().map(|path| String::from_utf8(path).unwrap()).collect();
    let expected = [
        "",
        ".avfsignore",
        "keep.rs",
        "sub",
        "sub/.avfsignore",
        "sub/keep.log",
        "sub/target",
        "sub/target/x",
    ];
    assert_eq!(found, expected);
    // A bad pattern is an error, and not ignored.
    fs::write(dir.join(".avfsignore"), "a{b\n[z-a]\n").unwrap();
    let refused = support::try_import(&vault, &dir, None, OnTrouble::Fail);
    assert!(matches!(refused, Err(transfer::Error::Import(ImportError::BadIgnore { .. }))), "{refused:?}");
}

#[test]
fn modes_without_owner_access_round_trip() {
    if !support::is_root() {
        support::skip(
            "roundtrip::modes_without_owner_access_round_trip",
            "only root reads files of mode 000",
        );
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for mode in [0o000, 0o200, 0o111, 0o4000] {
        fs::write(dir.join(format!("f{mode:o}")), support::noise(u64::from(mode), 70_000)).unwrap();
        set_mode(&dir.join(format!("f{mode:o}")), mode);
        fs::write(scratch.dir(&format!("dir/d{mode:o}")).join("in"), "x").unwrap();
        set_mode(&dir.join(format!("d{mode:o}")), mode);
    }
    assert_round_trip(&scratch, &dir);
}

#[test]
fn export_refuses_to_overwrite_unless_requested() {
    let scratch = Scratch::new();
    let (dir, dest) = (scratch.dir("dir"), scratch.dir("dest"));
    fs::write(dir.join("same"), "new").unwrap();
    fs::write(scratch.dir("dir/sub").join("added"), "new").unwrap();
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    fs::write(dest.join("same"), "old").unwrap();
    fs::write(scratch.dir("dest/sub").join("own"), "own").unwrap();
    let before = snapshot::take(&dest);
    let refused = support::try_export(&vault, "main", &dest, Overwrite::Refuse);
    assert!(matches!(refused, Err(transfer::Error::Export(ExportError::Exists { .. }))), "{refused:?}");
    assert_eq!(snapshot::differences(&before, &snapshot::take(&dest)), [] as [String; 0]);
    // A directory in place of a file of the version is in the way even then, and nothing has changed.
    fs::create_dir(dest.join("blocked")).unwrap();
    support::write(&vault, "blocked", b"file");
    let before = snapshot::take(&dest);
    let refused = support::try_export(&vault, "main", &dest, Overwrite::Replace);
    assert!(matches!(refused, Err(transfer::Error::Export(ExportError::InTheWay { .. }))), "{refused:?}");
    let mut now = snapshot::take(&dest);
    // Creating and removing the staging directory changed the mtime of its parent.
    now.facts.get_mut(&b""[..]).unwrap().mtime = before.facts[&b""[..]].mtime;
    assert_eq!(snapshot::differences(&before, &now), [] as [String; 0]);
    fs::remove_dir(dest.join("blocked")).unwrap();
    support::try_export(&vault, "main", &dest, Overwrite::Replace).unwrap();
    assert_eq!(fs::read(dest.join("same")).unwrap(), b"new");
    assert_eq!(fs::read(dest.join("sub/own")).unwrap(), b"own");
    assert_eq!(fs::read(dest.join("sub/added")).unwrap(), b"new");
    let file = scratch.join("file");
    fs::write(&file, "x").unwrap();
    let refused = support::try_export(&vault, "main", &file, Overwrite::Replace);
    assert!(
        matches!(refused, Err(transfer::Error::Export(ExportError::NotADirectory { .. }))),
        "{refused:?}"
    );
}

#[test]
fn part_of_a_version_can_be_exported() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    support::many_files(&dir, 120);
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    let paths = [support::path("d001"), support::path("d000/f00003"), support::path("d001/f00041")];
    let options = ExportOptions {
        overwrite: Overwrite::Refuse,
        paths: &paths,
        set_ids: SetIds::Kept,
        meter: &Meter::default(),
        unwritten: None,
    };
    vault.export(&support::root(&vault, "main"), &scratch.join("out"), &options).unwrap();
    let found = snapshot::take(&scratch.join("out")).facts;
    assert_eq!(found.len(), 1 + 1 + 1 + 1 + 40);
    let missing = [support::path("nothing/here")];
    let options = ExportOptions { paths: &missing, ..options };
    let refused = vault.export(&support::root(&vault, "main"), &scratch.join("out-2"), &options);
    assert!(matches!(refused, Err(transfer::Error::Vault(VaultError::NoPath { .. }))), "{refused:?}");
    assert!(!scratch.join("out-2").exists());
}

/// After any edit of hard links the tree equals the one that an import of the same files makes.
#[test]
fn edits_of_hard_links_match_an_import() {
    let scratch = Scratch::new();
    let dir = scratch.dir("host");
    for name in ["a", "b", "c"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(dir.join("a/one"), "shared").unwrap();
    fs::hard_link(dir.join("a/one"), dir.join("b/two")).unwrap();
    fs::hard_link(dir.join("a/one"), dir.join("c/three")).unwrap();
    fs::write(dir.join("p"), "pair").unwrap();
    fs::hard_link(dir.join("p"), dir.join("q")).unwrap();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    let (fork, at) = (support::main_fork(), support::path);
    type Step<'s> = (&'s str, Box<dyn Fn() + 's>);
    let steps: Vec<Step<'_>> = vec![
        ("plain", Box::new(|| drop(support::write(&vault, "plain", b"plain")))),
        ("moved", Box::new(|| drop(vault.move_path(&fork, &at("b"), &at("moved"), "mv").unwrap()))),
        ("gone", Box::new(|| drop(vault.remove(&fork, &[at("c/three")], Depth::FilesOnly, "rm").unwrap()))),
        ("single", Box::new(|| drop(vault.remove(&fork, &[at("p")], Depth::FilesOnly, "rm").unwrap()))),
        ("written", Box::new(|| drop(support::write(&vault, "a/one", b"other")))),
        (
            "copied",
            Box::new(|| drop(vault.copy_path(&fork, &at("a"), &at("d"), Depth::Recursive, "cp").unwrap())),
        ),
        ("replaced", Box::new(|| drop(vault.move_path(&fork, &at("plain"), &at("a/one"), "mv").unwrap()))),
        ("emptied", Box::new(|| drop(vault.remove(&fork, &[at("moved")], Depth::Recursive, "rm").unwrap()))),
    ];
    for (name, step) in steps {
        step();
        let out = scratch.join(name);
        support::export(&vault, "main", &out);
        let other = support::memory_vault();
        support::import(&other, &out);
        assert_eq!(support::root(&other, "main").tree, support::root(&vault, "main").tree, "{name}");
    }
    support::assert_clean(&vault);
}
