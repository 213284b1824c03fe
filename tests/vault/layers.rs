//! Stacks of layers show their tree, regardless of how they were made, and are evicted like bases.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};

use avfs_hostfs::beneath;
use avfs_types::renamed::RenamedNames;
use avfs_types::secrets::Secrets;
use avfs_vault::capture::{CaptureOptions, UpperKind};
use avfs_vault::chunk::FILE_BYTES_MAX;
use avfs_vault::export::{ExportOptions, Overwrite};
use avfs_vault::gc::{Keep, Trial};
use avfs_vault::import::{ImportOptions, OnTrouble};
use avfs_vault::layers::{Distance, Footprint, HostBase, KeptUpper, LAYERS_MAX, Made, NotKept, Stack};
use avfs_vault::materialize::BaseCache;
use avfs_vault::meter::Meter;
use avfs_vault::page::DirRef;
use avfs_vault::set_ids::SetIds;
use avfs_vault::{Advance, Vault, When};

use crate::capture::any_step;
use crate::overlay::Step;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;
use crate::support::{Scratch, snapshot};
use crate::worker::Worker;
use crate::{overlay, support, worker};

/// A vault, its cache, and consecutive runs.
struct Bench {
    scratch: Scratch,
    vault: Vault,
    cache: BaseCache,
}

/// Enough files that a few changes are far less than half of them.
fn filler(dir: &Path) {
    for n in 0..60 {
        fs::create_dir_all(dir.join(format!("fill/{}", n % 6))).unwrap();
        fs::write(dir.join(format!("fill/{}/{n}", n % 6)), support::noise(n, 3000)).unwrap();
    }
}

impl Bench {
    fn new(setup: &str) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.dir("dir");
        filler(&dir);
        overlay::in_dir(&dir, setup);
        let vault = support::create_vault(&scratch.join("vault.db"));
        support::import(&vault, &dir);
        let cache = BaseCache::new(&scratch.join("cache"), "boot-1");
        Self { scratch, vault, cache }
    }

    fn head(&self) -> DirRef {
        support::root(&self.vault, "main")
    }

    fn stack(&self) -> Stack {
        self.vault.stack(&self.head(), &self.cache, &Meter::default()).unwrap()
    }

    /// The stack over the imported directory, as a scan finds it now.
    fn stack_over_host(&self) -> Stack {
        let dir = self.scratch.join("dir");
        let options = ImportOptions {
            on_trouble: OnTrouble::KeepGoing,
            stat_cache: None,
            exclude: &[],
            meter: &Meter::default(),
        };
        let (root, _, scanned) = self.vault.survey(&dir, &support::main_fork(), &options).unwrap();
        let found = HostBase::of(&dir, root.tree, &scanned).unwrap();
        let veil = self.scratch.join("veil");
        if veil.exists() {
            avfs_hostfs::remove::remove_tree(&veil).unwrap();
        }
        let (cache, meter) = (&self.cache, &Meter::default());
        self.vault.stack_over_host(&self.head(), &found, Distance::Any, cache, &veil, meter).unwrap().unwrap()
    }

    fn count(&self, kind: &str) -> usize {
        fs::read_dir(self.scratch.join("cache").join(kind)).map_or(0, Iterator::count)
    }

    /// Evicts everything. A process that another test is starting may share a lease until its exec.
    #[track_caller]
    fn evict_all(&self) {
        wait_for("an empty cache", || {
            self.cache.evict(0).unwrap();
            ["base", "layer", "stack"].iter().all(|kind| self.count(kind) == 0)
        });
    }

    /// Runs a script over a stack, captures and commits its changes, and keeps the upper.
    #[track_caller]
    fn run(&self, stack: &Stack, script: &str) -> KeptUpper {
        self.run_and(stack, script, |_| {})
    }

    fn run_and(&self, stack: &Stack, script: &str, before_capture: impl FnOnce(&Path)) -> KeptUpper {
        let upper = self.scratch.dir("upper");
        let fd = beneath::open_root(&upper).unwrap();
        self.vault.prepare_upper(fd.as_fd(), &self.head()).unwrap();
        overlay::overlay(&self.scratch, &stack.dirs, &upper, script, None).unwrap();
        before_capture(&upper);
        let options = CaptureOptions {
            kind: UpperKind::Layer,
            exclude: &[],
            hidden: &[],
            file_bytes_max: FILE_BYTES_MAX,
            secrets: &Secrets::default(),
            times: avfs_vault::capture::Times::AsWritten,
            since: avfs_types::clock::FileTime::default(),
            renamed: &RenamedNames::default(),
            modes_journal: &self.scratch.join("modes"),
            meter: &Meter::default(),
        };
        let captured = self.vault.capture(fd.as_fd(), &self.head(), &options).unwrap();
        let (left_out, size) = (captured.left_out.clone(), captured.footprint());
        let links = captured.written_links.clone();
        let head = self.vault.fork(&support::main_fork()).unwrap().head;
        let advance = Advance { action: "run.capture", message: "run", run: None, when: When::Changed };
        self.vault.commit_captured(&support::main_fork(), &head, captured, &advance).unwrap();
        let kept = self.cache.keep_upper(stack, &upper, (&left_out, &links), size, &self.head()).unwrap();
        match kept {
            KeptUpper::Layer => assert!(!upper.exists()),
            KeptUpper::Not(_) => avfs_hostfs::remove::remove_tree(&upper).unwrap(),
        }
        kept
    }

    /// Changes the head as an import does: without an upper to keep.
    fn change(&self, script: &str) {
        let dir = self.scratch.join("dir");
        overlay::in_dir(&dir, script);
        support::import(&self.vault, &dir);
    }

    /// Fails unless an overlay of this stack shows the head exactly.
    #[track_caller]
    fn assert_shows_head(&self, stack: &Stack) {
        let (out, shown) = (self.scratch.join("out"), self.scratch.join("shown"));
        let options = ExportOptions {
            overwrite: Overwrite::Refuse,
            paths: &[],
            set_ids: SetIds::Kept,
            meter: &Meter::default(),
            unwritten: None,
        };
        self.vault.export(&self.head(), &out, &options).unwrap();
        overlay::show(&self.scratch, &stack.dirs, &shown);
        let take = |dir: &Path| {
            let mut taken = snapshot::take(dir);
            // Hard links have different inodes in an overlay.
            taken.facts.values_mut().for_each(|fact| fact.linked_to = None);
            taken
        };
        let found = snapshot::differences(&take(&out), &take(&shown));
        assert!(found.is_empty(), "{:?} does not show the head: {found:#?}", stack.dirs);
        for dir in [out, shown] {
            avfs_hostfs::remove::remove_tree(&dir).unwrap();
        }
    }
}

const TREE: &str =
    "mkdir -p d/sub e; echo 1 >d/one; echo 2 >d/sub/two; echo 3 >e/three; echo 4 >four; ln -s four link";

#[test]
fn upper_without_all_hard_links_of_a_file_is_not_kept() {
    if !overlay::works("upper_without_all_hard_links_of_a_file_is_not_kept") {
        return;
    }
    let bench = Bench::new(TREE);
    assert_eq!(bench.run(&bench.stack(), "ln four hard; ln four d/hard"), KeptUpper::Layer);
    let kept = bench.run(&bench.stack(), "chmod 600 d/hard");
    assert_eq!(kept, KeptUpper::Not(NotKept::WrittenLinks));
    bench.assert_shows_head(&bench.stack());
    support::assert_clean(&bench.vault);
}

#[test]
fn consecutive_runs_reuse_kept_uppers() {
    if !overlay::works("consecutive_runs_reuse_kept_uppers") {
        return;
    }
    let bench = Bench::new(TREE);
    assert_eq!(bench.stack().made, Made::Materialized);
    let scripts = [
        "rm four; echo new >d/new",
        "rm -r d; mkdir d; echo again >d/one",
        "rm -r e; echo file >e; chmod 700 d",
        "rm e; mkdir e; echo 5 >e/five; rm link; mkdir link; mkfifo link/fifo",
        "rm -r d; ln -s e d",
        "rm d; mkdir -p d/sub; echo deep >d/sub/two; touch -d @77 fill; chmod 640 fill/0/0",
        "ln fill/1/1 hard; ln hard d/hard; rm -r fill/2; mkdir fill/2; echo only >fill/2/only",
        "rm -r fill/3; echo x >>d/sub/two; chmod 0 d/sub/two",
        "echo after >after; rm -r link",
        "echo more >>after",
        "rm after; rm -r fill/4",
        "mkdir fill/4; echo last >fill/4/last; touch -d @5 .",
    ];
    for (n, script) in scripts.iter().enumerate() {
        let stack = bench.stack();
        let over = n % (LAYERS_MAX + 1);
        if n == LAYERS_MAX + 1 {
            // One layer with the changes of eight layers and a run, over the same base.
            assert_eq!((stack.made, stack.dirs.len()), (Made::Layered, 2));
        } else {
            assert_eq!(stack.made, Made::Reused, "at run {n}");
        }
        let kept = bench.run(&stack, script);
        let expected =
            if over == LAYERS_MAX { KeptUpper::Not(NotKept::TooManyLayers) } else { KeptUpper::Layer };
        assert_eq!(kept, expected, "at run {n}");
        drop(stack);
        if over < LAYERS_MAX {
            let next = bench.stack();
            assert_eq!(next.made, Made::Reused);
            bench.assert_shows_head(&next);
        }
    }
    assert_eq!(bench.count("base"), 1);
    support::assert_clean(&bench.vault);
}

#[test]
fn each_version_of_a_chain_gets_a_layer_with_its_own_changes() {
    let bench = Bench::new(TREE);
    let mut stack = bench.stack();
    let mut heights = Vec::new();
    for n in 0..LAYERS_MAX + 3 {
        bench.change(&format!("echo {n} > new{n}; echo {n} >> d/one"));
        bench.vault.stack_over(&stack, &bench.head(), &bench.cache, &Meter::default()).unwrap();
        stack = bench.stack();
        assert_eq!(stack.made, Made::Reused);
        bench.assert_shows_head(&stack);
        let top = snapshot::take(&stack.dirs[0]).facts;
        let files = top.values().filter(|fact| matches!(fact.kind, snapshot::Kind::File { .. })).count();
        // One layer for all of them, after the maximum number.
        let expected = if n == LAYERS_MAX { n + 2 } else { 2 };
        assert_eq!(files, expected, "{n}: {:?}", top.keys());
        heights.push(stack.dirs.len());
    }
    let expected: Vec<usize> = (2..2 + LAYERS_MAX).chain(2..5).collect();
    assert_eq!(heights, expected);
}

#[test]
fn change_without_a_run_makes_a_layer_or_a_base() {
    if !overlay::works("change_without_a_run_makes_a_layer_or_a_base") {
        return;
    }
    let bench = Bench::new(TREE);
    assert_eq!(bench.stack().made, Made::Materialized);
    assert_eq!(bench.stack().made, Made::Reused);
    bench.change(
        "rm -r d; echo file >d; rm four; mkdir four; echo in >four/in; ln fill/0/0 hard; rm fill/1/1",
    );
    let stack = bench.stack();
    assert_eq!((stack.made, stack.dirs.len()), (Made::Layered, 2));
    bench.assert_shows_head(&stack);
    // A directory in place of a file is marked as overlayfs itself marks it.
    let mut value = [0; 2];
    let length = rustix::fs::getxattr(stack.dirs[0].join("four"), "user.overlay.opaque", &mut value).unwrap();
    assert_eq!(&value[..length], b"y");
    assert_eq!(bench.stack().made, Made::Reused);
    assert_eq!(bench.stack().dirs, stack.dirs);
    // Control: an existing layer is used, so a damaged layer is visible.
    fs::write(stack.dirs[0].join("stray"), "x").unwrap();
    assert!(
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.assert_shows_head(&stack))).is_err()
    );
    for dir in ["out", "shown"] {
        avfs_hostfs::remove::remove_tree(&bench.scratch.join(dir)).unwrap();
    }
    // More than half is new: a separate base.
    bench.change("for d in fill/*; do for f in $d/*; do echo other >>$f; done; done");
    let stack = bench.stack();
    assert_eq!((stack.made, stack.dirs.len()), (Made::Materialized, 1));
    bench.assert_shows_head(&stack);
}

/// Objects that no version needs may be damaged unnoticed: a run must not fail because of them.
#[test]
fn damaged_base_is_not_used_below_a_layer() {
    if !overlay::works("damaged_base_is_not_used_below_a_layer") {
        return;
    }
    let bench = Bench::new(TREE);
    let first = bench.head().tree;
    drop(bench.stack());
    bench.change("echo more >>fill/0/0");
    bench.vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    let hurt = "UPDATE tree SET data = zeroblob(length(data)) WHERE digest = ?1";
    assert_eq!(support::sql(&bench.scratch.join("vault.db")).execute(hurt, [first.as_bytes()]).unwrap(), 1);
    let stack = bench.stack();
    assert_eq!((stack.made, stack.dirs.len()), (Made::Materialized, 1));
    bench.assert_shows_head(&stack);
}

#[test]
fn left_out_paths_are_not_in_the_layer() {
    if !overlay::works("left_out_paths_are_not_in_the_layer") {
        return;
    }
    let bench = Bench::new(&format!("{TREE}; echo '*.log' >.avfsignore; echo 6 >e/gone"));
    let stack = bench.stack();
    let socket = |path: PathBuf| {
        rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::from_raw_mode(0o600), 0).unwrap();
    };
    let script =
        "echo log >a.log; mkdir -p d/sub/b.log/deep; chmod 0 d/sub/b.log; rm e/gone; mkdir e/gone; rm four
        rm -r d/sub; mkdir d/sub; mkdir d/sub/c.log; echo x >d/sub/kept; touch -d @9 d/sub; touch -d @8 e";
    let kept = bench.run_and(&stack, script, |upper| {
        // A socket in place of a file of the base, and a new socket.
        fs::remove_file(upper.join("four")).unwrap();
        socket(upper.join("four"));
        socket(upper.join("socket"));
    });
    assert_eq!(kept, KeptUpper::Layer);
    drop(stack);
    let stack = bench.stack();
    assert_eq!((stack.made, stack.dirs.len()), (Made::Reused, 2));
    bench.assert_shows_head(&stack);
}

#[test]
fn read_only_upper_is_kept() {
    if !overlay::works("read_only_upper_is_kept") {
        return;
    }
    let bench = Bench::new(TREE);
    let stack = bench.stack();
    assert_eq!(bench.run(&stack, "echo 1 >new; touch -d @5 .; chmod 511 ."), KeptUpper::Layer);
    drop(stack);
    let stack = bench.stack();
    assert_eq!(stack.made, Made::Reused);
    assert_eq!(fs::metadata(&stack.dirs[0]).unwrap().mode() & 0o7777, 0o511);
    assert_eq!(fs::metadata(&stack.dirs[0]).unwrap().mtime(), 5);
    bench.assert_shows_head(&stack);
    fs::set_permissions(&stack.dirs[0], fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn upper_on_another_file_system_is_not_kept() {
    let bench = Bench::new(TREE);
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        return support::skip("upper_on_another_file_system_is_not_kept", "there is no /dev/shm");
    };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(elsewhere.path()) == device(bench.scratch.path()) {
        return support::skip(
            "upper_on_another_file_system_is_not_kept",
            "/dev/shm is on the same file system",
        );
    }
    let upper = elsewhere.path().join("upper");
    fs::create_dir(&upper).unwrap();
    let stack = bench.stack();
    let keep = || {
        bench
            .cache
            .keep_upper(&stack, &upper, (&[], &Default::default()), Footprint::default(), &bench.head())
            .unwrap()
    };
    assert_eq!(keep(), KeptUpper::Not(NotKept::Unchanged));
    bench.change("echo x >y");
    assert_eq!(keep(), KeptUpper::Not(NotKept::OtherFileSystem));
    assert!(upper.exists());
    assert_eq!(bench.count("layer"), 0);
}

#[test]
fn eviction_spares_layers_in_use() {
    if !overlay::works("eviction_spares_layers_in_use") {
        return;
    }
    let bench = Bench::new(TREE);
    for script in ["echo 1 >a", "echo 2 >b"] {
        assert_eq!(bench.run(&bench.stack(), script), KeptUpper::Layer);
    }
    let stack = bench.stack();
    assert_eq!(stack.dirs.len(), 3);
    assert_eq!(bench.cache.evict(0).unwrap(), 0);
    bench.assert_shows_head(&stack);
    assert_eq!((bench.count("base"), bench.count("layer"), bench.count("stack")), (1, 2, 2));
    drop(stack);
    assert!(bench.cache.evict(u64::MAX).unwrap() == 0);
    bench.evict_all();
    let stack = bench.stack();
    assert_eq!(stack.made, Made::Materialized);
    bench.assert_shows_head(&stack);
}

#[test]
fn stack_with_a_missing_layer_is_not_used() {
    if !overlay::works("stack_with_a_missing_layer_is_not_used") {
        return;
    }
    let bench = Bench::new(TREE);
    for script in ["echo 1 >a", "echo 2 >b"] {
        assert_eq!(bench.run(&bench.stack(), script), KeptUpper::Layer);
    }
    let lowest = bench.stack().dirs[1].parent().unwrap().to_owned();
    fs::remove_dir_all(lowest).unwrap();
    let stack = bench.stack();
    assert_eq!((stack.made, stack.dirs.len()), (Made::Layered, 2));
    bench.assert_shows_head(&stack);
    // The layer above the removed one is unusable; the stack of the previous version is removed with it.
    bench.cache.evict(u64::MAX).unwrap();
    assert_eq!((bench.count("layer"), bench.count("stack")), (1, 1));
}

#[test]
fn layers_of_another_boot_are_not_trusted() {
    if !overlay::works("layers_of_another_boot_are_not_trusted") {
        return;
    }
    let bench = Bench::new(TREE);
    assert_eq!(bench.run(&bench.stack(), "echo 1 >a"), KeptUpper::Layer);
    let before = bench.stack().dirs;
    let rebooted = BaseCache::new(&bench.scratch.join("cache"), "boot-2");
    let bench = Bench { cache: rebooted, ..bench };
    let stack = bench.stack();
    assert_eq!(stack.made, Made::Materialized);
    assert!(!before.contains(&stack.dirs[0]));
    bench.assert_shows_head(&stack);
    bench.cache.evict(u64::MAX).unwrap();
    assert_eq!((bench.count("layer"), bench.count("stack")), (0, 0));
}

#[test]
fn leftovers_of_dead_builders_are_removed() {
    let bench = Bench::new(TREE);
    let stack = bench.stack();
    let layers = bench.scratch.join("cache/layer");
    // Killed while writing the layer, and killed after the rename of the layer and before writing its stack.
    fs::create_dir_all(layers.join(".new-1/root/d")).unwrap();
    fs::write(layers.join(".new-1/lease"), "").unwrap();
    fs::create_dir_all(layers.join("00/root")).unwrap();
    fs::write(layers.join("00/lease"), "").unwrap();
    fs::write(layers.join("00/sealed"), "avfs-layer 1\nboot boot-1\nentries 1\nbytes 1\n").unwrap();
    fs::create_dir_all(layers.join(".old-2")).unwrap();
    bench.cache.evict(u64::MAX).unwrap();
    assert_eq!((bench.count("base"), bench.count("layer")), (1, 0));
    drop(stack);
}

/// Four similar versions, each with its number in the file `changed`.
fn four_versions() -> Bench {
    let bench = Bench::new(TREE);
    for n in (0..4).rev() {
        bench.change(&format!("echo {n} >changed; for f in fill/{n}/*; do echo {n} >>$f; done"));
    }
    bench
}

#[test]
fn killed_builder_leaves_complete_stacks_or_none() {
    let bench = four_versions();
    let (path, cache) = (bench.scratch.join("vault.db"), bench.scratch.join("cache"));
    let settings = [("VAULT", path.to_str().unwrap()), ("CACHE", cache.to_str().unwrap()), ("ROUNDS", "4")];
    let most = support::usual_or_long(16, 200);
    let mut layered = 0;
    worker::kill_at_points(&bench.scratch, most, "stack", &settings, |moment| {
        let layers = fs::read_dir(cache.join("layer")).into_iter().flatten();
        for layer in layers.map(|layer| layer.unwrap().path()) {
            let hidden = layer.file_name().unwrap().to_string_lossy().starts_with('.');
            assert!(
                hidden || layer.join("sealed").is_file(),
                "{moment}: a layer is visible without its seal"
            );
            layered += 1;
        }
        for back in [0, 3] {
            let root = support::root(&bench.vault, &format!("main~{back}"));
            let stack = bench.vault.stack(&root, &bench.cache, &Meter::default()).unwrap();
            let text = stack.dirs.iter().find_map(|dir| fs::read(dir.join("changed")).ok());
            assert_eq!(text.unwrap(), format!("{back}\n").into_bytes(), "{moment}");
        }
        // Each starts with an empty cache.
        bench.evict_all();
    });
    assert!(layered > 2, "killed builders left only {layered} layers");
    if overlay::works("killed_builder_leaves_complete_stacks_or_none") {
        bench.assert_shows_head(&bench.stack());
    }
    bench.evict_all();
}

/// An eviction runs when a builder has made a layer and not yet renamed it, or renamed it and not yet written its
/// stack.
#[test]
fn eviction_spares_layers_being_built() {
    let bench = four_versions();
    let (path, cache) = (bench.scratch.join("vault.db"), bench.scratch.join("cache"));
    let settings = [("VAULT", path.to_str().unwrap()), ("CACHE", cache.to_str().unwrap()), ("ROUNDS", "2")];
    for point in ["publish", "stack"] {
        // The previous version is the base of the worker's first stack.
        let root = support::root(&bench.vault, "main~1");
        let base = bench.vault.stack(&root, &bench.cache, &Meter::default()).unwrap();
        let pauses = Pauses::new(bench.scratch.path());
        pauses.hold(point);
        let mut worker = Worker::paused(&pauses, "stack", &settings);
        pauses.wait(point, &mut worker.child);
        bench.cache.evict(0).unwrap();
        assert_eq!((bench.count("base"), bench.count("layer")), (1, 1), "{point}");
        pauses.release(point);
        assert_eq!(worker.finish().acks(), ["stacked", "stacked"], "{point}");
        drop(base);
        bench.evict_all();
    }
}

#[test]
fn concurrent_runs_share_one_cache() {
    if !overlay::works("concurrent_runs_share_one_cache") {
        return;
    }
    let bench = Bench::new(TREE);
    let roots: Vec<DirRef> = (0..4)
        .map(|n| {
            bench.change(&format!("echo {n} >changed; touch -d @{n} changed; touch -d @1 ."));
            bench.head()
        })
        .collect();
    assert_eq!(bench.stack().made, Made::Materialized);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_usize)
            .map(|worker| {
                let (bench, roots) = (&bench, &roots);
                scope.spawn(move || {
                    for round in 0..support::usual_or_long(8, 100) {
                        let at = (worker + round) % roots.len();
                        let stack = bench.vault.stack(&roots[at], &bench.cache, &Meter::default()).unwrap();
                        let text = stack.dirs.iter().find_map(|dir| fs::read(dir.join("changed")).ok());
                        assert_eq!(text.unwrap(), format!("{at}\n").into_bytes());
                        // A run from this version to the next.
                        let next = (at + 1) % roots.len();
                        let upper = bench.scratch.dir(&format!("upper-{worker}"));
                        fs::write(upper.join("changed"), format!("{next}\n")).unwrap();
                        let size = Footprint::default();
                        let kept = bench
                            .cache
                            .keep_upper(&stack, &upper, (&[], &Default::default()), size, &roots[next])
                            .unwrap();
                        if kept != KeptUpper::Layer {
                            assert_eq!(kept, KeptUpper::Not(NotKept::TooManyLayers));
                            fs::remove_dir_all(&upper).unwrap();
                        }
                        bench.cache.evict(0).unwrap();
                        for dir in &stack.dirs {
                            assert!(dir.is_dir(), "{} was removed while it was leased", dir.display());
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
    });
    bench.evict_all();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(1, 20),
        max_shrink_iters: 50,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_runs_are_shown_by_their_layers(
        setup in prop::collection::vec(any_step(), 0..30),
        runs in prop::collection::vec(prop::collection::vec(any_step(), 1..25), 12..13),
    ) {
        if !overlay::works("random_runs_are_shown_by_their_layers") {
            return Ok(());
        }
        let scratch = Scratch::new();
        let bench = Bench::new(&overlay::script_of(&scratch, &setup));
        for steps in runs {
            let stack = bench.stack();
            bench.run(&stack, &overlay::script_of(&bench.scratch, &steps));
            drop(stack);
            bench.assert_shows_head(&bench.stack());
        }
    }

    #[test]
    fn random_runs_are_shown_over_a_live_base(
        setup in prop::collection::vec(any_step(), 0..30),
        runs in prop::collection::vec(prop::collection::vec(any_step(), 1..25), 10..11),
    ) {
        if !overlay::works("random_runs_are_shown_over_a_live_base") {
            return Ok(());
        }
        let scratch = Scratch::new();
        let ignored = "echo '*.log' >.avfsignore; echo x >fill/0/a.log; mkdir -p fill/b.log/c; echo y >fill/b.log/c/d";
        let bench = Bench::new(&format!("{}\n{ignored}", overlay::script_of(&scratch, &setup)));
        bench.assert_shows_head(&bench.stack_over_host());
        for steps in runs {
            let stack = bench.stack_over_host();
            bench.run(&stack, &overlay::script_of(&bench.scratch, &steps));
            drop(stack);
            bench.assert_shows_head(&bench.stack_over_host());
        }
        assert_eq!(bench.count("base"), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: support::usual_or_long(2, 40),
        max_shrink_iters: 50,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_changes_are_shown_by_difference_layers(
        setup in prop::collection::vec(any_step(), 0..30),
        changes in prop::collection::vec(prop::collection::vec(any_step(), 1..25), 4..5),
    ) {
        if !overlay::works("random_changes_are_shown_by_difference_layers") {
            return Ok(());
        }
        let scratch = Scratch::new();
        let bench = Bench::new(&overlay::script_of(&scratch, &setup));
        drop(bench.stack());
        for steps in changes {
            let steps: Vec<Step> = steps;
            bench.change(&overlay::script_of(&bench.scratch, &steps));
            let stack = bench.stack();
            prop_assert!(stack.made != Made::Materialized);
            bench.assert_shows_head(&stack);
        }
    }
}
