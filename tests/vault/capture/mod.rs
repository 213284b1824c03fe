//! The changes of a command in an overlay become the same version as in a plain directory.

mod left_out;
mod scale;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::fs::Mode;

use avfs_hostfs::beneath;
use avfs_types::diagnose::Diagnose;
use avfs_types::path::TreePath;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::capture::{CaptureOptions, Captured, LeftOut, LeftOutReason, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::edit::{Edit, Edits};
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::materialize::{BaseCache, Trust};
use avfs_vault::meter::Meter;
use avfs_vault::page::{DirRef, Node};
use avfs_vault::set_ids::SetIds;
use avfs_vault::write_out::FreshPages;
use avfs_vault::{Advance, Committed, Vault, When};

use crate::overlay::Step;
use crate::support::{Scratch, path, snapshot};
use crate::{overlay, support};

/// A vault with a base, and an upper over it.
struct Case {
    scratch: Scratch,
    vault: Vault,
    base: DirRef,
    lower: PathBuf,
    upper: PathBuf,
    /// Opened before the run, because a command may remove access to the directory.
    upper_fd: OwnedFd,
    journal: PathBuf,
}

impl Case {
    /// A base made by a script in an empty directory.
    fn new(setup: &str) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.dir("dir");
        overlay::in_dir(&dir, setup);
        Self::with(support::memory_vault(), scratch, &dir)
    }

    /// Uses a vault on disk.
    fn over(scratch: Scratch, dir: &Path) -> Self {
        Self::with(support::create_vault(&scratch.join("vault.db")), scratch, dir)
    }

    fn with(vault: Vault, scratch: Scratch, dir: &Path) -> Self {
        support::import(&vault, dir);
        let base = support::root(&vault, "main");
        let cache = BaseCache::new(&scratch.join("cache"), "boot");
        let lower = vault.materialize(&base, &cache, Trust::Seal, &Meter::default()).unwrap().root;
        let upper = scratch.dir("upper");
        let upper_fd = beneath::open_root(&upper).unwrap();
        vault.prepare_upper(upper_fd.as_fd(), &base).unwrap();
        let journal = scratch.join("modes");
        Self { scratch, vault, base, lower, upper, upper_fd, journal }
    }

    /// Runs a script in the overlay; the resulting merged directory is copied to `merged`.
    #[track_caller]
    fn run(&self, script: &str) {
        let merged = self.scratch.join("merged");
        let lowers = [self.lower.clone()];
        overlay::overlay(&self.scratch, &lowers, &self.upper, script, Some(&merged)).unwrap();
    }

    fn try_capture(&self, exclude: &[&str], hidden: &[&str]) -> avfs_vault::transfer::Result<Captured<'_>> {
        let exclude: Vec<String> = exclude.iter().map(|text| (*text).to_owned()).collect();
        let hidden: Vec<TreePath> = hidden.iter().map(|text| path(text)).collect();
        let options = CaptureOptions {
            kind: UpperKind::Layer,
            exclude: &exclude,
            hidden: &hidden,
            file_bytes_max: FILE_BYTES_MAX,
            secrets: &Secrets::default(),
            times: avfs_vault::capture::Times::AsWritten,
            since: avfs_types::clock::FileTime::default(),
            renamed: &RenamedNames::default(),
            modes_journal: &self.journal,
            meter: &Meter::default(),
        };
        self.vault.capture(self.upper_fd.as_fd(), &self.base, &options)
    }

    #[track_caller]
    fn capture(&self) -> Captured<'_> {
        self.try_capture(&[], &[]).unwrap()
    }

    fn commit(&self, captured: Captured<'_>) -> Committed {
        let head = self.vault.fork(&support::main_fork()).unwrap().head;
        let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
        self.vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap()
    }

    /// Captures, commits, and compares with the merged directory and with `plain`, where the same steps ran without an
    /// overlay.
    #[track_caller]
    fn assert_same_as(&self, plain: &Path) {
        let captured = self.capture();
        let edits = format!("{:#?}", edits(self, &captured));
        self.commit(captured);
        support::assert_clean(&self.vault);
        let root = support::root(&self.vault, "main");
        let out = self.export("out");
        let other = support::memory_vault();
        support::import(&other, plain);
        let without = |dir: &Path, times: bool| {
            let mut taken = snapshot::take(dir);
            for fact in taken.facts.values_mut() {
                if times {
                    // Hard links have different inodes in an overlay.
                    fact.linked_to = None;
                } else {
                    fact.mtime = (0, 0);
                }
            }
            taken
        };
        let found = snapshot::differences(&without(plain, false), &without(&out, false));
        assert!(found.is_empty(), "the capture differs from a plain directory: {found:#?}\n{edits}");
        let found = snapshot::differences(&without(&self.scratch.join("merged"), true), &without(&out, true));
        assert!(found.is_empty(), "the capture differs from the overlay: {found:#?}\n{edits}");
        assert_eq!(root.content, support::root(&other, "main").content);
        // The tree equals that of an import exactly, including times.
        let again = support::memory_vault();
        support::import(&again, &out);
        assert_eq!(root, support::root(&again, "main"));
    }

    fn export(&self, name: &str) -> PathBuf {
        let out = self.scratch.join(name);
        let options = ExportOptions {
            overwrite: Overwrite::Refuse,
            paths: &[],
            set_ids: SetIds::Kept,
            meter: &Meter::default(),
            unwritten: None,
        };
        self.vault.export(&support::root(&self.vault, "main"), &out, &options).unwrap();
        out
    }
}

/// Does the same in an overlay and in a plain directory, and compares the results.
#[track_caller]
fn check(setup: &str, script: &str) {
    let case = Case::new(setup);
    let plain = case.scratch.join("dir");
    case.run(script);
    overlay::in_dir(&plain, script);
    case.assert_same_as(&plain);
}

fn left_out(captured: &Captured<'_>) -> Vec<(String, LeftOutReason, bool)> {
    let row = |left: &LeftOut| (left.path.to_string(), left.reason.clone(), left.base_is_gone);
    captured.left_out.iter().map(row).collect()
}

fn edits(case: &Case, captured: &Captured<'_>) -> Edits {
    captured.edited.edits(&FreshPages::new(&case.vault)).unwrap()
}

fn edited(case: &Case, captured: &Captured<'_>) -> Vec<String> {
    edits(case, captured).keys().map(ToString::to_string).collect()
}

const TREE: &str =
    "mkdir -p d/sub/deep e/f; echo 1 >d/one; echo 2 >d/two; echo 3 >d/sub/three; echo 4 >d/sub/deep/four
    echo 5 >e/f/five; echo 6 >six; ln -s six link; mkfifo fifo; echo 7 >e/seven; chmod 640 six; mkdir empty";

#[test]
fn everything_a_command_does_is_captured() {
    if !overlay::works("everything_a_command_does_is_captured") {
        return;
    }
    for script in [
        "rm six",
        "rm -r d",
        "rm -r d; mkdir d",
        "rm -r d; mkdir d; echo new >d/two; mkdir d/sub; echo x >d/sub/other",
        "rm -r d; echo file >d",
        "rm -r d; ln -s e d",
        "rm six; mkdir six; echo in >six/in",
        "rm six; ln -s nowhere six",
        "rm link; echo file >link",
        "rm fifo; mkdir fifo; mkfifo fifo/fifo",
        "mv six seven; mv e/f/five five",
        "mkdir new; mkdir new/a; mv new/a new/b; mv new newer",
        "mv d moved",
        "rm -r d; mkdir -p d/sub/deep; rm -r d",
        "rm -r d/sub; mkdir d/sub; rm -r d; mkdir d; mkdir d/sub",
        "chmod 600 six; chmod 700 d; chmod 0 e/seven; chmod 644 e/seven",
        "touch -d @5 six; touch -d @6 d; touch -h -d @7 link; touch -d @8 fifo",
        "echo more >>six; : >e/seven",
        "ln six other; ln six d/third; echo changed >other",
        "echo a >a; ln a b; ln a e/c; rm a",
        "ln link link2; ln fifo fifo2",
        "chmod 1777 empty; chmod 2755 e; chmod 4755 six",
        "mkdir -p x/y/z; rmdir x/y/z; touch .wh.x .wh..wh..opq",
        "chmod 700 .; touch -d @9 .",
        "truncate -s 300000 sparse; printf end >>sparse; truncate -s 2000000 six",
        "rm -r *; echo only >only",
        "rm -rf d e; mkdir -p e/d; mv six e/d/six",
    ] {
        check(TREE, script);
    }
}

#[test]
fn reverted_changes_produce_no_edit() {
    if !overlay::works("reverted_changes_produce_no_edit") {
        return;
    }
    for script in [
        "true",
        // Each file is copied up, and not changed.
        "for f in six d/one e/f/five; do : >>$f; done",
        "chmod 600 six; chmod 640 six; chmod 700 d; chmod 755 d",
        "touch -r six ref 2>/dev/null; rm ref; touch -r d/one -d @0 d/one; touch -d \"$T\" d/one",
        "cp -p six $A.six; echo x >six; cat $A.six >six; touch -r $A.six six",
    ] {
        let case = Case::new(&format!("{TREE}; touch -d @1000 d/one"));
        // Restores the mtime of a directory in which a name was created and removed.
        let aside = case.scratch.join("aside");
        case.run(&format!("A={}; T=@1000; touch -r . $A; {script}; touch -r $A .", aside.display()));
        let captured = case.capture();
        assert_eq!(edited(&case, &captured), [""; 0], "after {script}");
        assert_eq!(left_out(&captured), []);
        assert!(!case.commit(captured).changed());
    }
}

#[test]
fn metadata_change_keeps_the_blob() {
    if !overlay::works("metadata_change_keeps_the_blob") {
        return;
    }
    let case = Case::new(TREE);
    case.run("chmod 600 six");
    let captured = case.capture();
    let reader = case.vault.read().unwrap();
    let was = avfs_vault::tree::require(&&*reader, &case.base, &path("six")).unwrap();
    let Node::File(was) = was else { panic!("{was:?}") };
    assert_eq!(edits(&case, &captured).keys().cloned().collect::<Vec<_>>(), [path("six")]);
    let Edit::Put(Node::File(now)) = &edits(&case, &captured)[&path("six")] else { panic!() };
    assert_eq!((now.content, now.mtime, now.mode), (was.content, was.mtime, 0o600));
    assert_eq!(captured.files_read, 1);
}

#[test]
fn change_with_equal_size_and_time_is_captured() {
    if !overlay::works("change_with_equal_size_and_time_is_captured") {
        return;
    }
    let case = Case::new("echo aaaa >f; touch -d @1000 f");
    case.run("echo bbbb >f; touch -d @1000 f");
    assert_eq!(edited(&case, &case.capture()), ["f"]);
}

#[test]
fn writing_to_a_hard_link_of_the_base_breaks_it() {
    if !overlay::works("writing_to_a_hard_link_of_the_base_breaks_it") {
        return;
    }
    let case = Case::new("echo 1 >a; ln a b; ln a c; ln a d");
    // overlayfs breaks the links of a file that it copies up. Without the start time of the command (`since`), nothing
    // shows that `a` is a copy: it leaves the group.
    case.run("echo 2 >>a; ln b e");
    case.commit(case.capture());
    let out = case.export("out");
    let inode = |name: &str| fs::metadata(out.join(name)).unwrap().ino();
    assert_eq!(fs::read(out.join("a")).unwrap(), b"1\n2\n");
    assert_eq!(fs::read(out.join("b")).unwrap(), b"1\n");
    assert_eq!(fs::metadata(out.join("a")).unwrap().nlink(), 1);
    // `b` was copied up to be linked, and has the old content: it is still linked with `c` and `d`.
    assert_eq!(inode("b"), inode("e"));
    assert_eq!(inode("c"), inode("d"));
    assert_eq!(inode("b"), inode("c"));
    let again = support::memory_vault();
    support::import(&again, &out);
    assert_eq!(support::root(&again, "main"), support::root(&case.vault, "main"));
}

#[test]
fn overlayfs_attributes_are_unescaped_by_one_level() {
    if !overlay::works("overlayfs_attributes_are_unescaped_by_one_level") {
        return;
    }
    let set = |path: &str, name: &str| Step::Xattr(path.to_owned(), name.to_owned(), 1);
    let case = Case::new("echo 1 >f; echo 2 >g; mkdir d; echo 3 >d/x");
    let steps = [
        set("f", "user.plain"),
        set("f", "user.overlay.opaque"),
        set("f", "user.overlay.overlay.metacopy"),
        set("d", "user.overlay.opaque"),
        set("d", "user.overlay.whiteout"),
        set(".", "user.on-the-root"),
        Step::Mkdir("new".to_owned()),
        set("new", "user.overlay.redirect"),
    ];
    let script = overlay::script_of(&case.scratch, &steps);
    case.run(&script);
    let plain = case.scratch.join("dir");
    overlay::in_dir(&plain, &script);
    case.assert_same_as(&plain);
    // And again over a base that has such attributes, removing some.
    let root = support::root(&case.vault, "main");
    let cache = BaseCache::new(&case.scratch.join("cache"), "boot");
    let lower = case.vault.materialize(&root, &cache, Trust::Seal, &Meter::default()).unwrap().root;
    let upper = case.scratch.dir("upper-2");
    let upper_fd = beneath::open_root(&upper).unwrap();
    case.vault.prepare_upper(upper_fd.as_fd(), &root).unwrap();
    fs::remove_dir_all(case.scratch.join("merged")).unwrap();
    let next = Case { base: root, lower, upper, upper_fd, ..case };
    let script = overlay::script_of(
        &next.scratch,
        &[Step::Unxattr("f".to_owned(), "user.overlay.opaque".to_owned()), Step::Touch("g".to_owned())],
    );
    next.run(&script);
    let captured = next.capture();
    assert_eq!(edited(&next, &captured), ["f"]);
}

#[test]
fn hostile_names_and_deep_trees_are_captured() {
    if !overlay::works("hostile_names_and_deep_trees_are_captured") {
        return;
    }
    let case = Case::new("mkdir d; echo 1 >d/x");
    let names: Vec<Vec<u8>> = vec![
        b"new\nline".to_vec(),
        b"\xff\xfe".to_vec(),
        b".wh.x".to_vec(),
        b"-rf".to_vec(),
        vec![b'n'; 255],
        vec![0xff; 255],
    ];
    for name in &names {
        fs::write(case.upper.join(OsStr::from_bytes(name)), name).unwrap();
    }
    // More levels than the limit on open files, and a path longer than PATH_MAX; a shell is too slow for it.
    let levels = support::usual_or_long(1100, 3000);
    let mut at = beneath::open_root(&case.upper).unwrap();
    for level in 0..levels {
        let name = if level % 60 == 0 { "l".repeat(100) } else { format!("{:04}", level % 7) };
        rustix::fs::mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o755)).unwrap();
        at = beneath::open(at.as_fd(), name.as_bytes(), beneath::DIR).unwrap();
    }
    drop(
        rustix::fs::openat(
            &at,
            "bottom",
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
            0o644.into(),
        )
        .unwrap(),
    );
    let captured = case.capture();
    assert_eq!(edits(&case, &captured).len(), 1 + names.len() + levels + 1);
    assert!(edits(&case, &captured).keys().any(|path| path.as_bytes().len() > 5000));
    case.commit(captured);
    let out = case.export("out");
    for name in &names {
        assert_eq!(&fs::read(out.join(OsStr::from_bytes(name))).unwrap(), name);
    }
    assert_eq!(snapshot::take(&out).facts.len(), 1 + names.len() + levels + 1 + 2);
}

#[test]
fn inaccessible_files_are_captured_and_keep_their_modes() {
    if !overlay::works("inaccessible_files_are_captured_and_keep_their_modes") {
        return;
    }
    let case = Case::new("echo 1 >f; mkdir d; echo 2 >d/in");
    case.run(
        "chmod 0 f; echo secret >new; ln new link; chmod 0 new; mkdir -p c/sub; echo deep >c/sub/deep
         chmod 44 c/sub/deep; chmod 300 c/sub; chmod 0 c; chmod 400 d; touch d/x; ln -s x d/l; chmod 11 .",
    );
    let modes = || {
        let listed = std::process::Command::new("unshare")
            .args(["-Ur", "find"])
            .arg(&case.upper)
            .args(["-printf", "%P %m\n"])
            .output()
            .unwrap();
        let mut lines: Vec<String> =
            String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = modes();
    let captured = case.capture();
    assert_eq!(left_out(&captured), []);
    assert_eq!(modes(), before);
    assert!(!case.journal.exists());
    let expected =
        [".", "c", "c/sub", "c/sub/deep", "d", "d/l", "d/x", "f", "link", "new"].map(str::to_owned);
    assert_eq!(edited(&case, &captured), expected);
    let mode = |at: &str| match &edits(&case, &captured)[&path(at)] {
        Edit::Put(Node::File(file)) => file.mode,
        Edit::Dir(meta) => meta.mode,
        Edit::Put(node) => panic!("{node:?}"),
        Edit::Remove => panic!("{at} was removed"),
    };
    let found = ["", "c", "c/sub", "c/sub/deep", "d", "f", "link", "new"].map(mode);
    assert_eq!(found, [0o11, 0, 0o300, 0o44, 0o400, 0, 0, 0]);
    case.commit(captured);
    support::assert_clean(&case.vault);
    fs::set_permissions(&case.upper, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn capture_can_be_repeated_after_a_kill() {
    if !overlay::works("capture_can_be_repeated_after_a_kill") {
        return;
    }
    let case = Case::new("true");
    case.run("mkdir c; echo 1 >c/f; chmod 0 c/f; chmod 0 c");
    // Killed between adding access and restoring the modes: the journal has the original modes, the disk has others.
    let record =
        |path: &str, mode: u8| [&[mode, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat();
    fs::write(&case.journal, [record("c", 0), record("c/f", 0)].concat()).unwrap();
    fs::set_permissions(case.upper.join("c"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::set_permissions(case.upper.join("c/f"), fs::Permissions::from_mode(0o400)).unwrap();
    let captured = case.capture();
    let Edit::Put(Node::File(file)) = &edits(&case, &captured)[&path("c/f")] else { panic!() };
    let Edit::Dir(dir) = &edits(&case, &captured)[&path("c")] else { panic!() };
    assert_eq!((file.mode, dir.mode), (0, 0));
    assert!(!case.journal.exists());
    assert_eq!(fs::metadata(case.upper.join("c")).unwrap().mode() & 0o7777, 0);
}

#[test]
fn renamed_upper_is_captured() {
    if !overlay::works("renamed_upper_is_captured") {
        return;
    }
    let case = Case::new(TREE);
    case.run("echo 1 >new; rm -r d");
    fs::rename(&case.upper, case.scratch.join("elsewhere")).unwrap();
    let captured = case.capture();
    assert_eq!(edited(&case, &captured), [".", "d", "new"]);
}

#[test]
fn unwritable_journal_fails_the_capture() {
    let case = Case::new(TREE);
    fs::write(case.upper.join("new"), "x").unwrap();
    fs::set_permissions(case.upper.join("new"), fs::Permissions::from_mode(0o000)).unwrap();
    let case = Case { journal: case.scratch.join("nowhere/modes"), ..case };
    let error = case.try_capture(&[], &[]).err().unwrap();
    assert_eq!(error.code(), "capture.io");
    assert_eq!(fs::metadata(case.upper.join("new")).unwrap().mode() & 0o7777, 0);
}

#[test]
fn capture_is_not_committed_to_a_fork_that_moved() {
    let case = Case::new(TREE);
    fs::write(case.upper.join("new"), "x").unwrap();
    let head = case.vault.fork(&support::main_fork()).unwrap().head;
    let captured = case.capture();
    support::write(&case.vault, "other", b"y");
    let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
    let error = case.vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap_err();
    assert_eq!(error.code(), "fork.moved");
}

pub fn any_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

pub fn any_step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![0o644, 0o600, 0o755, 0o4755, 0o700]);
    let xattr = prop::sample::select(vec!["user.x", "user.overlay.opaque", "user.overlay.overlay.y"]);
    prop_oneof![
        4 => (any_path(), 0..4_u64, 0..200_usize).prop_map(|(path, seed, length)| Step::Write(path, seed, length)),
        1 => (any_path(), 0..4_u64).prop_map(|(path, seed)| Step::Append(path, seed)),
        1 => (any_path(), 0..300_u64).prop_map(|(path, length)| Step::Truncate(path, length)),
        1 => (any_path(), mode).prop_map(|(path, mode)| Step::Chmod(path, mode)),
        4 => any_path().prop_map(Step::Mkdir),
        3 => any_path().prop_map(Step::Remove),
        2 => (any_path(), any_path()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (any_path(), any_path()).prop_map(|(path, target)| Step::Symlink(path, target)),
        1 => (any_path(), any_path()).prop_map(|(from, to)| Step::Link(from, to)),
        1 => any_path().prop_map(Step::Fifo),
        1 => (any_path(), xattr.clone(), 0..3_u64).prop_map(|(path, name, seed)| Step::Xattr(path, name.to_owned(), seed)),
        1 => (any_path(), xattr).prop_map(|(path, name)| Step::Unxattr(path, name.to_owned())),
        1 => (any_path(), 0..5_i64).prop_map(|(path, seconds)| Step::Time(path, seconds)),
        1 => any_path().prop_map(Step::Touch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(6, 100),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_steps_are_captured(
        setup in prop::collection::vec(any_step(), 0..30),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        if !overlay::works("random_steps_are_captured") {
            return Ok(());
        }
        let scratch = Scratch::new();
        let dir = scratch.dir("dir");
        // Hard links of the base are broken by writes, which a plain directory cannot show.
        let setup: Vec<Step> = setup.into_iter().filter(|step| !matches!(step, Step::Link(..))).collect();
        overlay::in_dir(&dir, &overlay::script_of(&scratch, &setup));
        let case = Case::over(scratch, &dir);
        let script = overlay::script_of(&case.scratch, &steps);
        case.run(&script);
        overlay::in_dir(&dir, &script);
        case.assert_same_as(&dir);
    }
}
