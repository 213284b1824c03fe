//! Applies changes to the host directory: exactly, all or nothing, and never over another user's work.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};

use avfs_changes::{Applied, ApplyError, ApplyOptions, Filter, Subject, apply};
use avfs_types::clock::{Clock as _, SteppingClock, SystemClock, Timestamp};
use avfs_types::diagnose::Diagnose;
use avfs_vault::backend::Life;
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::discard::ChangesOf;
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::gc::Trial;
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::meter::Meter;
use avfs_vault::page::Node;
use avfs_vault::set_ids::SetIds;
use avfs_vault::{Context, Vault};

use crate::attributes::{set_mode, set_mtime};
use crate::support;
use crate::support::pause::Pauses;
use crate::support::snapshot::assert_same;
use crate::support::{Dice, Scratch, fork, reference, snapshot};
use crate::unapply::take_back;
use crate::worker::{Worker, moments};

/// A host directory, a vault with it on `main`, and a changed copy of it on the fork `side`.
pub struct Stand {
    pub scratch: Scratch,
    pub vault: Vault,
}

impl Stand {
    /// `make` fills the directory, `change` changes the copy.
    pub fn new(make: impl Fn(&Path), change: impl Fn(&Path)) -> Self {
        Self::in_vault(support::create_real_vault, make, change)
    }

    /// Uses a vault in memory.
    pub fn in_memory(make: impl Fn(&Path), change: impl Fn(&Path)) -> Self {
        Self::in_vault(|_| support::memory_vault(), make, change)
    }

    fn in_vault(create: impl Fn(&Path) -> Vault, make: impl Fn(&Path), change: impl Fn(&Path)) -> Self {
        let scratch = Scratch::new();
        let (host, copy) = (scratch.dir("host"), scratch.join("copy"));
        make(&host);
        copy_dir(&host, &copy);
        let vault = create(&scratch.join("vault.db"));
        support::import(&vault, &host);
        vault.create_fork(&fork("side"), &reference("main"), Life::Persistent).unwrap();
        change(&copy);
        let stand = Self { scratch, vault };
        stand.take_copy();
        stand
    }

    /// Makes the contents of the copy the head of the fork.
    pub fn take_copy(&self) {
        let options = ImportOptions {
            on_trouble: OnTrouble::Fail,
            stat_cache: None,
            exclude: &[],
            meter: &Meter::default(),
        };
        self.vault.import(&self.copy(), &fork("side"), "copy", &options).unwrap();
    }

    pub fn host(&self) -> PathBuf {
        self.scratch.join("host")
    }

    pub fn copy(&self) -> PathBuf {
        self.scratch.join("copy")
    }

    pub fn apply(&self) -> Result<Applied, ApplyError> {
        apply_fork(&self.vault, "side", &self.host())
    }

    /// The conflicting paths.
    #[track_caller]
    fn conflicts(&self) -> Vec<String> {
        let before = snapshot::take(&self.host());
        let refused = self.apply().unwrap_err();
        assert_eq!(refused.code(), "apply.conflict", "{refused}");
        let ApplyError::Conflict { conflicts, .. } = refused else { panic!("{refused:?}") };
        let found = snapshot::differences(&before, &snapshot::take(&self.host()));
        assert!(found.is_empty(), "a refused apply wrote: {found:?}");
        conflicts.iter().map(|conflict| conflict.path.to_string()).collect()
    }
}

pub fn apply_fork(vault: &Vault, name: &str, dir: &Path) -> Result<Applied, ApplyError> {
    apply_with(vault, name, dir, &Filter::default(), Trial::Real)
}

pub fn apply_with(
    vault: &Vault,
    what: &str,
    dir: &Path,
    filter: &Filter,
    trial: Trial,
) -> Result<Applied, ApplyError> {
    let what: ChangesOf = what.parse().unwrap();
    let subject = Subject::of(vault, &what)?;
    apply(
        vault,
        &subject,
        dir,
        &ApplyOptions { filter, keep_seconds: 1000, set_ids: SetIds::Kept, trial, meter: &Meter::default() },
    )
}

fn copy_dir(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

pub fn put(dir: &Path, path: &str, content: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Fills a directory with entries of every kind.
pub fn everything(dir: &Path) {
    for n in 0..50 {
        put(dir, &format!("many/f{n:02}"), &format!("file {n}"));
    }
    put(dir, "a/one", "one");
    put(dir, "a/two", "two");
    put(dir, "b/deep/er/file", "deep");
    put(dir, "gone/x", "x");
    put(dir, "gone/sub/y", "y");
    put(dir, "turns/into/file", "1");
    put(dir, "plain", "plain");
    put(dir, "linked", "linked");
    fs::hard_link(dir.join("linked"), dir.join("a/linked")).unwrap();
    symlink("a/one", dir.join("symlink")).unwrap();
    fifo(&dir.join("fifo"));
    fs::write(dir.join("large"), support::noise(1, 3 << 20)).unwrap();
}

pub fn change_everything(dir: &Path) {
    put(dir, "a/one", "one, changed");
    set_mode(&dir.join("a/two"), 0o755);
    fs::remove_dir_all(dir.join("gone")).unwrap();
    fs::remove_dir_all(dir.join("turns")).unwrap();
    put(dir, "turns", "a file now");
    fs::remove_file(dir.join("plain")).unwrap();
    put(dir, "plain/is/a/directory", "now");
    // Another hard link of a linked file, and a new pair of hard links, one of them in a new directory.
    fs::hard_link(dir.join("linked"), dir.join("b/linked")).unwrap();
    put(dir, "new/dir/file", "new");
    fs::hard_link(dir.join("new/dir/file"), dir.join("new-link")).unwrap();
    fs::hard_link(dir.join("new/dir/file"), dir.join("new/dir/second")).unwrap();
    fs::create_dir(dir.join("new/empty")).unwrap();
    set_mode(&dir.join("new/empty"), 0o555);
    fs::remove_file(dir.join("symlink")).unwrap();
    symlink("elsewhere", dir.join("symlink")).unwrap();
    fs::remove_file(dir.join("fifo")).unwrap();
    put(dir, "fifo", "no fifo");
    fifo(&dir.join("new/fifo"));
    let mut large = support::noise(1, 3 << 20);
    large[1 << 20..2 << 20].fill(0);
    fs::write(dir.join("large"), &large).unwrap();
    rustix::fs::setxattr(dir.join("many/f07"), "user.note", b"seven", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(dir.join("a"), "user.note", b"a", XattrFlags::empty()).unwrap();
    set_mode(&dir.join("b/deep"), 0o700);
    set_mtime(&dir.join("many/f08"), 1_000_000_000, 123_456_789);
    set_mtime(&dir.join("b/deep/er"), 1_000_000_001, 123_456_789);
    set_mtime(&dir.join("symlink"), 1_000_000_002, 123_456_789);
    fs::remove_file(dir.join("many/f09")).unwrap();
    set_mtime(dir, 1_000_000_003, 123_456_789);
}

#[test]
fn every_kind_of_change_is_applied_exactly() {
    let stand = Stand::new(everything, change_everything);
    let applied = stand.apply().unwrap();
    assert_same(&stand.copy(), &stand.host());
    assert_eq!((applied.already, applied.left_out, applied.kept_dirs.len()), (0, 0, 0));
    // Applying again finds everything in place.
    let again = stand.apply().unwrap();
    assert_same(&stand.copy(), &stand.host());
    let is_listed = |c: &avfs_vault::diff::Change| c.kind != avfs_vault::diff::ChangeKind::Time;
    let listed = again.changes.iter().filter(|c| c.as_ref().is_ok_and(|c| is_listed(c))).count() as u64;
    assert!(again.already >= listed, "{} of {listed} changes were in place", again.already);
    support::assert_clean(&stand.vault);
}

/// Makes random changes to a directory.
pub fn mix(dir: &Path, seed: u64, steps: u64) {
    let dice = &mut Dice::seeded(seed);
    let names = ["a", "b", "c", "d/a", "d/b", "d/e/a", "f", "f/a", "g/a/b", "g/a/c"];
    for step in 0..steps {
        let name = names[usize::try_from(dice.below(names.len() as u64)).unwrap()];
        let path = dir.join(name);
        if path.ancestors().skip(1).any(|above| above.symlink_metadata().is_ok_and(|m| !m.is_dir())) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match (dice.below(7), path.symlink_metadata().ok()) {
            (0, Some(meta)) if meta.is_dir() => fs::remove_dir_all(&path).unwrap(),
            (0, Some(_)) => fs::remove_file(&path).unwrap(),
            (1, None) => fs::create_dir(&path).unwrap(),
            (2, None) => symlink(format!("to{step}"), &path).unwrap(),
            (3, None) if dir.join("a").is_file() => fs::hard_link(dir.join("a"), &path).unwrap(),
            (4, Some(meta)) if !meta.is_symlink() => set_mode(&path, 0o700 + u32::from(step % 2 == 0)),
            (5, Some(_)) => set_mtime(&path, i64::try_from(step).unwrap(), 123_456_789),
            (_, Some(meta)) if meta.is_file() => fs::write(&path, format!("{seed} {step}")).unwrap(),
            (_, None) => fs::write(&path, format!("{seed} new {step}")).unwrap(),
            (_, Some(_)) => {}
        }
    }
}

#[test]
fn random_changes_are_applied_exactly() {
    for seed in 0..support::usual_or_long(25, 300) {
        let stand = Stand::in_memory(|dir| mix(dir, seed, 25), |dir| mix(dir, seed + 1000, 12));
        let original = snapshot::take(&stand.host());
        stand.apply().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let found = snapshot::differences(&snapshot::take(&stand.copy()), &snapshot::take(&stand.host()));
        assert!(found.is_empty(), "seed {seed}: {found:#?}");
        // Unapplying restores the directory exactly, if there was anything to apply.
        match take_back(&stand) {
            Ok(_) | Err(ApplyError::NotApplied { .. }) => {}
            Err(error) => panic!("seed {seed}: {error:?}"),
        }
        let found = snapshot::differences(&original, &snapshot::take(&stand.host()));
        assert!(found.is_empty(), "unapplied, seed {seed}: {found:#?}");
    }
}

#[test]
fn paths_changed_on_the_host_are_conflicts_and_stay_unchanged() {
    let change = |dir: &Path| {
        put(dir, "a/one", "mine");
        fs::remove_file(dir.join("a/two")).unwrap();
        fs::remove_dir_all(dir.join("gone")).unwrap();
        put(dir, "new", "mine");
        put(dir, "newdir/x", "mine");
        set_mode(&dir.join("b/deep"), 0o700);
        put(dir, "many/f00", "mine");
        fs::remove_file(dir.join("symlink")).unwrap();
    };
    type Case = (&'static str, fn(&Path), &'static [&'static str]);
    let cases: &[Case] = &[
        ("content", |dir| put(dir, "a/one", "yours"), &["a/one"]),
        ("a deleted file", |dir| put(dir, "a/two", "yours"), &["a/two"]),
        ("a mode", |dir| set_mode(&dir.join("a/one"), 0o600), &["a/one"]),
        ("a deletion", |dir| fs::remove_file(dir.join("a/one")).unwrap(), &["a/one"]),
        ("a new file", |dir| put(dir, "new", "yours"), &["new"]),
        ("a file in place of a new directory", |dir| put(dir, "newdir", "yours"), &["newdir"]),
        ("a directory with another mode", |dir| set_mode(&dir.join("b/deep"), 0o711), &["b/deep"]),
        ("a file in a deleted directory", |dir| put(dir, "gone/x", "yours"), &["gone/x"]),
        (
            "a symlink in place of a directory",
            |dir| {
                fs::rename(dir.join("many"), dir.join("elsewhere")).unwrap();
                symlink("elsewhere", dir.join("many")).unwrap();
            },
            &["many/f00"],
        ),
        (
            "another target",
            |dir| {
                fs::remove_file(dir.join("symlink")).unwrap();
                symlink("yours", dir.join("symlink")).unwrap();
            },
            &["symlink"],
        ),
        (
            "the same size and time",
            |dir| {
                let meta = fs::metadata(dir.join("a/one")).unwrap();
                put(dir, "a/one", "eno");
                let time = Timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(rustix::fs::CWD, dir.join("a/one"), &times, AtFlags::empty()).unwrap();
            },
            &["a/one"],
        ),
        (
            "an attribute",
            |dir| {
                rustix::fs::setxattr(dir.join("a/one"), "user.x", b"yours", XattrFlags::empty()).unwrap();
            },
            &["a/one"],
        ),
        (
            "several",
            |dir| {
                put(dir, "a/one", "yours");
                put(dir, "many/f00", "yours");
                put(dir, "new", "yours");
            },
            &["a/one", "many/f00", "new"],
        ),
    ];
    for (what, theirs, expected) in cases {
        let stand = Stand::in_memory(everything, change);
        theirs(&stand.host());
        assert_eq!(stand.conflicts(), *expected, "{what}");
    }
    // The same change, or a change of another path, is not a conflict.
    let stand = Stand::new(everything, change);
    put(&stand.host(), "a/one", "mine");
    put(&stand.host(), "plain", "yours");
    put(&stand.host(), "untracked", "yours");
    fs::remove_file(stand.host().join("a/two")).unwrap();
    stand.apply().unwrap();
    assert_eq!(fs::read_to_string(stand.host().join("plain")).unwrap(), "yours");
    assert_eq!(fs::read_to_string(stand.host().join("untracked")).unwrap(), "yours");
    assert_eq!(fs::read_to_string(stand.host().join("newdir/x")).unwrap(), "mine");
}

/// A timestamp proves little: clocks are set back, and a write through a mapping may not update it for a while.
#[test]
fn changes_that_keep_the_timestamp_are_conflicts() {
    let ahead = |path: &Path| {
        let start = Timestamp(SystemClock.now().0 + 3_600_000_000_000);
        let clock = Arc::new(SteppingClock::starting_at(start));
        let context = Context { clock, actor: "tester".to_owned() };
        Vault::create(path, None, OpenOptions::default(), context).unwrap()
    };
    let make = |dir: &Path| ["changed", "deleted"].iter().for_each(|name| put(dir, name, "old"));
    let change = |dir: &Path| {
        put(dir, "changed", "run");
        fs::remove_file(dir.join("deleted")).unwrap();
    };
    let stand = Stand::in_vault(ahead, make, change);
    for name in ["changed", "deleted"] {
        let path = stand.host().join(name);
        let stamp = fs::metadata(&path).unwrap().modified().unwrap();
        put(&stand.host(), name, "own");
        fs::File::options().write(true).open(&path).unwrap().set_modified(stamp).unwrap();
    }
    assert_eq!(stand.conflicts(), ["changed", "deleted"]);
    assert_eq!(fs::read_to_string(stand.host().join("changed")).unwrap(), "own");
}

#[test]
fn directories_with_unversioned_files_are_kept() {
    let stand = Stand::new(everything, |dir| {
        fs::remove_dir_all(dir.join("gone")).unwrap();
    });
    put(&stand.host(), "gone/sub/ignored.o", "object");
    let applied = stand.apply().unwrap();
    let kept: Vec<String> = applied.kept_dirs.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["gone", "gone/sub"]);
    assert!(stand.host().join("gone/sub/ignored.o").exists());
    assert!(!stand.host().join("gone/x").exists() && !stand.host().join("gone/sub/y").exists());
    // A directory that becomes a file cannot stay: the apply is refused.
    let stand = Stand::new(everything, |dir| {
        fs::remove_dir_all(dir.join("turns")).unwrap();
        put(dir, "turns", "a file");
    });
    put(&stand.host(), "turns/into/ignored.o", "object");
    assert_eq!(stand.conflicts(), ["turns"]);
}

#[test]
fn filtered_apply_leaves_the_rest_for_a_later_apply() {
    let stand = Stand::new(everything, change_everything);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let filter = Filter::new(&words(&["new/dir/file", "many"]), &words(&["*8"])).unwrap();
    let taken = apply_with(&stand.vault, "side", &stand.host(), &filter, Trial::Real).unwrap();
    assert!(taken.left_out > 10, "{}", taken.left_out);
    let host = stand.host();
    assert!(host.join("new/dir/file").exists() && !host.join("new/dir/second").exists());
    assert!(!host.join("many/f09").exists());
    assert_ne!(fs::metadata(host.join("many/f08")).unwrap().mtime(), 1_000_000_000);
    assert_eq!(fs::read_to_string(host.join("a/one")).unwrap(), "one");
    stand.apply().unwrap();
    assert_same(&stand.copy(), &stand.host());
}

#[test]
fn file_times_do_not_count_as_left_out() {
    let before = |dir: &Path| ["a", "b"].into_iter().for_each(|at| put(dir, at, "old"));
    let stand = Stand::new(before, |dir| {
        put(dir, "a", "new");
        let other = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(dir.join("b")).unwrap().set_modified(other).unwrap();
    });
    let filter = Filter::new(&["a".to_owned()], &[]).unwrap();
    let applied = apply_with(&stand.vault, "side", &stand.host(), &filter, Trial::Real).unwrap();
    assert_eq!((applied.changes.len(), applied.left_out), (1, 0));
}

#[test]
fn directory_times_do_not_count_as_left_out() {
    let before = |dir: &Path| ["a", "tests/x"].into_iter().for_each(|at| put(dir, at, "old"));
    let stand = Stand::new(before, |dir| ["a", "tests/q"].into_iter().for_each(|at| put(dir, at, "new")));
    let left_out = |exclude: &str| {
        let filter = Filter::new(&[], &[exclude.to_owned()]).unwrap();
        apply_with(&stand.vault, "side", &stand.host(), &filter, Trial::DryRun).unwrap().left_out
    };
    assert_eq!((left_out("tests"), left_out("a"), left_out("nothing")), (1, 1, 0));
}

#[test]
fn dry_run_writes_nothing() {
    let stand = Stand::new(everything, change_everything);
    let before = snapshot::take(&stand.host());
    let rows = stand.vault.read().unwrap().usage().unwrap().audit_rows;
    let planned = apply_with(&stand.vault, "side", &stand.host(), &Filter::default(), Trial::DryRun).unwrap();
    assert!(planned.changes.len() > 20);
    assert_eq!(snapshot::differences(&before, &snapshot::take(&stand.host())), Vec::<String>::new());
    assert_eq!(stand.vault.read().unwrap().usage().unwrap().audit_rows, rows);
}

#[test]
fn apply_never_writes_to_the_vaults_directory() {
    let stand = Stand::new(|dir| put(dir, "a", "a"), |dir| put(dir, "b", "b"));
    let own = stand.host().join(".avfs");
    fs::create_dir(&own).unwrap();
    put(&own, "vault.db", "precious");
    let at = support::path(".avfs/vault.db");
    // Not made with a verb: verbs refuse edits there.
    let content = b"overwritten".to_vec();
    let id = avfs_vault::content::id_of(&content);
    let file = avfs_vault::page::FileNode {
        mode: 0o644,
        mtime: Default::default(),
        size: content.len() as u64,
        content: avfs_vault::page::FileContent::Whole(id),
        xattrs: None,
        link: None,
    };
    let edits = Edits::from([
        (support::path(".avfs"), Edit::Dir(Default::default())),
        (at, Edit::Put(Node::File(file))),
    ]);
    let advance = avfs_vault::Advance {
        action: "fork.write",
        message: "w",
        run: None,
        when: avfs_vault::When::Changed,
    };
    let blobs = [avfs_vault::content::encode(id, content)];
    stand.vault.commit_edits(&fork("side"), &edits, &blobs, &advance).unwrap();
    let applied = stand.apply().unwrap();
    assert_eq!(applied.left_out, 2);
    assert_eq!(fs::read_to_string(own.join("vault.db")).unwrap(), "precious");
    assert_eq!(fs::read_to_string(stand.host().join("b")).unwrap(), "b");
    // Nothing is left of the staging directory, which is inside it.
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
}

#[test]
fn unwritable_directories_are_found_before_anything_is_written() {
    if support::is_root() {
        let name = "apply::unwritable_directories_are_found_before_anything_is_written";
        return support::skip(name, "root ignores modes");
    }
    let stand = Stand::new(everything, |dir| {
        put(dir, "a/one", "changed");
        put(dir, "many/f00", "changed");
    });
    set_mode(&stand.host().join("many"), 0o555);
    let refused = stand.apply().unwrap_err();
    assert_eq!(refused.code(), "apply.no_permission");
    assert_eq!(fs::read_to_string(stand.host().join("a/one")).unwrap(), "one");
}

#[test]
fn killed_apply_leaves_every_file_old_or_new_and_can_be_finished() {
    let make = |dir: &Path| {
        support::many_files(dir, 24);
        put(dir, "turns/x", "x");
    };
    let change = |dir: &Path| {
        for n in (0..24).step_by(2) {
            put(dir, &format!("d000/f{n:05}"), &format!("changed {n}\n").repeat(200));
        }
        for n in (1..24).step_by(6) {
            fs::remove_file(dir.join(format!("d000/f{n:05}"))).unwrap();
        }
        for n in 0..3 {
            put(dir, &format!("new{n}/a"), "a");
            set_mode(&dir.join(format!("new{n}")), 0o555);
        }
        fs::remove_dir_all(dir.join("turns")).unwrap();
        put(dir, "turns", "file");
    };
    let start = |stand: &Stand, moment: Option<&str>| {
        let pauses = Pauses::new(stand.scratch.path());
        moment.iter().for_each(|moment| {
            pauses.hold(moment);
        });
        let (vault, dir) = (stand.scratch.join("vault.db"), stand.host());
        let settings = [("VAULT", vault.to_str().unwrap()), ("DIR", dir.to_str().unwrap()), ("FORK", "side")];
        (Worker::paused(&pauses, "apply", &settings), pauses)
    };
    let whole = Stand::new(make, change);
    let (worker, pauses) = start(&whole, None);
    assert_eq!(worker.finish().acks(), ["applied"]);
    let mut killed_in_between = 0;
    for moment in moments(&pauses.reached(), support::usual_or_long(20, 200)) {
        let stand = Stand::new(make, change);
        let (old, new) = (snapshot::take(&stand.host()), snapshot::take(&stand.copy()));
        let (mut worker, pauses) = start(&stand, Some(&moment));
        pauses.wait(&moment, &mut worker.child);
        assert_eq!(worker.kill().acks(), [""; 0]);
        let left = snapshot::take(&stand.host());
        let mut changed = 0;
        for (path, fact) in &left.facts {
            let known = [&old, &new].map(|side| side.facts.get(path).map(|fact| &fact.kind));
            let staged = path.starts_with(b".avfs-export-");
            assert!(staged || known.contains(&Some(&fact.kind)), "{:?}", path.escape_ascii().to_string());
            changed += usize::from(!staged && known[0] != Some(&fact.kind));
        }
        killed_in_between += usize::from(changed > 0);
        // Ignores the mtime of directories: the killed process would have restored those that no version changes.
        let timeless = |mut taken: snapshot::Snapshot| {
            taken.facts.retain(|path, _| !path.starts_with(b".avfs-export-"));
            let dirs = taken.facts.values_mut().filter(|fact| fact.kind == snapshot::Kind::Dir);
            dirs.for_each(|fact| fact.mtime = (0, 0));
            taken
        };
        // An interrupted apply can be undone as far as it got, if it had been journaled.
        match take_back(&stand) {
            Ok(_) | Err(ApplyError::NotApplied { .. }) => {}
            Err(error) => panic!("killed at {moment}, {changed} changed: {error:?}"),
        }
        let found = snapshot::differences(&timeless(old.clone()), &timeless(snapshot::take(&stand.host())));
        assert!(found.is_empty(), "killed at {moment} and unapplied: {found:#?}");
        stand.apply().unwrap_or_else(|error| panic!("killed at {moment}, {changed} changed: {error:?}"));
        let found = snapshot::differences(
            &timeless(snapshot::take(&stand.copy())),
            &timeless(snapshot::take(&stand.host())),
        );
        assert!(found.is_empty(), "killed at {moment}: {found:#?}");
    }
    assert!(
        killed_in_between > 4,
        "only {killed_in_between} were killed between the first change and the last"
    );
}
