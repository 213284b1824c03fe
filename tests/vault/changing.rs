//! A directory that changes while it is imported, or right after.

use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use avfs_types::clock::{SteppingClock, Timestamp};
use avfs_vault::backend::sqlite::OpenOptions;
use avfs_vault::import::{ImportError, OnTrouble};
use avfs_vault::{Context, Vault, transfer, tree};

use crate::attributes::set_mtime;
use crate::support;
use crate::support::Scratch;
use crate::support::pause::Pauses;
use crate::support::wait::wait_for;
use crate::worker::{Said, Worker};

/// An import with this clock considers every file just changed.
const BEFORE_ALL: &str = "1700000000000000000";
/// An import with this clock considers no file recently changed: each is read once.
const AFTER_ALL: &str = "4000000000000000000";

/// A vault, and a directory that another process imports.
struct Bench {
    scratch: Scratch,
    vault: Vault,
    dir: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let scratch = Scratch::new();
        let vault = support::create_real_vault(&scratch.join("vault.db"));
        let dir = scratch.dir("dir");
        Self { scratch, vault, dir }
    }

    fn pauses(&self) -> Pauses {
        Pauses::new(self.scratch.path())
    }

    /// Starts an import.
    fn import(&self, pauses: &Pauses, settings: &[(&str, &str)]) -> Worker {
        let vault = self.scratch.join("vault.db");
        let common = [("VAULT", vault.to_str().unwrap()), ("DIR", self.dir.to_str().unwrap())];
        Worker::paused(pauses, "scan", &[&common, settings].concat())
    }

    /// Imports, and makes a change at each of these pause points.
    #[track_caller]
    fn import_changing(
        &self,
        settings: &[(&str, &str)],
        points: &[&str],
        mut change: impl FnMut(usize),
    ) -> Said {
        let pauses = self.pauses();
        points.iter().for_each(|point| {
            pauses.hold(point);
        });
        let mut worker = self.import(&pauses, settings);
        for (n, point) in points.iter().enumerate() {
            pauses.wait(point, &mut worker.child);
            change(n);
            pauses.release(point);
        }
        worker.finish()
    }

    /// The content of a file in the last version.
    fn content(&self, path: &str) -> Vec<u8> {
        let out = tempfile::tempdir_in(self.scratch.path()).unwrap();
        support::export(&self.vault, "main", &out.path().join("out"));
        fs::read(out.path().join("out").join(path)).unwrap()
    }
}

/// The clock of the import is set manually, from the timestamp of the file.
#[test]
fn change_right_after_an_import_is_noticed() {
    let bench = Bench::new();
    let (file, cache) = (bench.dir.join("file"), bench.scratch.join("cache"));
    let import = |later_ms: i64| {
        let meta = fs::metadata(&file).unwrap();
        let now = meta.ctime() * 1_000_000_000 + meta.ctime_nsec() + later_ms * 1_000_000;
        let clock = Arc::new(SteppingClock::starting_at(Timestamp(now)));
        let context = Context { clock, ..support::real_context() };
        let vault = Vault::open(&bench.scratch.join("vault.db"), OpenOptions::default(), context).unwrap();
        support::try_import(&vault, &bench.dir, Some(&cache), OnTrouble::Fail).unwrap()
    };
    let (fresh, settled) = (49, 51);
    for content in [b'a', b'b', b'c'] {
        // Same size, same inode, same mtime, and possibly the same ctime.
        fs::write(&file, [content; 1000]).unwrap();
        set_mtime(&file, 1_000_000, 1);
        let imported = import(fresh);
        assert_eq!(imported.scanned.files_read, 1);
        assert!(imported.committed.changed(), "the change was not noticed");
        let again = import(fresh);
        assert_eq!(again.scanned.files_read, 1, "a timestamp that a later change may share was trusted");
        assert!(!again.committed.changed());
    }
    assert_eq!(import(settled).scanned.files_read, 1);
    assert_eq!(import(settled).scanned.files_read, 0, "a file that has settled is still read");
}

#[test]
fn file_written_while_it_is_read_is_read_again() {
    let bench = Bench::new();
    let write = |name: &str, size: usize, letter: usize| {
        fs::write(bench.dir.join(name), vec![b'a' + u8::try_from(letter).unwrap(); size]).unwrap();
    };
    // The second file is read in blocks; the first point of that kind belongs to the directory.
    let small = ["file-read#1", "file-read#2", "file-read#3", "file-read#4"];
    let blocks = 3 << 19 >> 16;
    let in_block = |attempt: usize| format!("work#{}", 4 + attempt * blocks);
    let large: Vec<String> = (0..4).map(in_block).collect();
    let large: Vec<&str> = large.iter().map(String::as_str).collect();
    for (name, size, points) in [("small", 200_000, &small[..]), ("large", 3 << 19, &large)] {
        write(name, size, 0);
        let said = bench.import_changing(&[("NOW", BEFORE_ALL)], &points[..1], |n| write(name, size, n + 1));
        assert_eq!(said.acks(), ["read=1"], "{said:?}");
        assert_eq!(bench.content(name), vec![b'b'; size], "{name}");
        // Written during each attempt.
        let said = bench.import_changing(&[("NOW", BEFORE_ALL)], points, |n| write(name, size, n + 2));
        assert_eq!(said.refused(), [format!("import.torn_read: {name} kept changing while it was read")]);
        let settings = [("NOW", BEFORE_ALL), ("KEEP_GOING", "yes")];
        let said = bench.import_changing(&settings, points, |n| write(name, size, n + 2));
        assert_eq!(said.troubles(), [format!("{name} Torn")]);
        // With a trusted timestamp that is kept for the next import.
        let cache = bench.scratch.join("cache");
        let settings = [("NOW", AFTER_ALL), ("CACHE", cache.to_str().unwrap())];
        let said = bench.import_changing(&settings, &points[..1], |_| {
            support::wait_for_new_stamp(&bench.scratch, &bench.dir.join(name));
            write(name, size, 9);
        });
        assert_eq!(said.acks(), ["read=1"]);
        assert_eq!(bench.import_changing(&settings, &[], |_| {}).acks(), ["read=0"]);
        assert_eq!(bench.content(name), vec![b'j'; size], "{name}");
        fs::remove_file(bench.dir.join(name)).unwrap();
    }
    support::assert_clean(&bench.vault);
}

/// Another process that maps a file, and fills it with a letter on request.
struct Mapper(Child);

impl Mapper {
    fn new(file: &std::path::Path) -> Self {
        let script = "import mmap, sys
file = open(sys.argv[1], 'r+b')
mapped = mmap.mmap(file.fileno(), 0)
for line in sys.stdin:
    mapped[:] = line[:1].encode() * len(mapped)
    print('done', flush=True)";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn fill(&mut self, letter: char) {
        self.0.stdin.as_mut().unwrap().write_all(format!("{letter}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Only the first write through a mapping changes the timestamps.
#[test]
fn half_written_mapped_file_is_never_imported() {
    let bench = Bench::new();
    let size = 3 << 19;
    fs::write(bench.dir.join("file"), vec![b'-'; size]).unwrap();
    let mut mapper = Mapper::new(&bench.dir.join("file"));
    mapper.fill('a');
    let said = bench.import_changing(&[("NOW", BEFORE_ALL)], &["work#4"], |_| mapper.fill('b'));
    assert_eq!(said.acks(), ["read=1"], "{said:?}");
    assert!(bench.content("file") == vec![b'b'; size], "a half-written file was imported");
    // At a different offset in each attempt.
    let points = ["work#4", "work#30", "work#60", "work#90"];
    let mut letters = 'c'..;
    let said =
        bench.import_changing(&[("NOW", BEFORE_ALL)], &points, |_| mapper.fill(letters.next().unwrap()));
    assert_eq!(said.refused(), ["import.torn_read: file kept changing while it was read"]);
}

/// A directory that is replaced by a symlink to the outside during the import must not import files from outside.
#[test]
fn directory_swapped_for_a_symlink_imports_nothing_from_outside() {
    let bench = Bench::new();
    let outside = bench.scratch.dir("outside");
    for (dir, text) in [(bench.scratch.dir("dir/swap"), "inside"), (outside.clone(), "SECRET")] {
        fs::create_dir(dir.join("sub")).unwrap();
        ["f0", "f1", "sub/f"].iter().for_each(|name| fs::write(dir.join(name), text).unwrap());
    }
    fs::write(outside.join("only-outside"), "SECRET").unwrap();
    fs::write(bench.dir.join("file"), "inside").unwrap();
    let aside = |name: &str| bench.scratch.join(&format!("{name}-aside"));
    symlink(&outside, aside("swap")).unwrap();
    symlink(outside.join("f0"), aside("file")).unwrap();
    let swap = || {
        for name in ["swap", "file"] {
            let (there, spare) = (bench.dir.join(name), bench.scratch.join("spare"));
            fs::rename(&there, &spare).unwrap();
            fs::rename(aside(name), &there).unwrap();
            fs::rename(&spare, aside(name)).unwrap();
        }
    };
    let pauses = bench.pauses();
    bench.import(&pauses, &[("NOW", AFTER_ALL)]).finish();
    let passed = pauses.reached();
    let count = |name: &str| passed.iter().filter(|point| *point == name).count();
    assert_eq!((count("scan-dir"), count("open-file")), (3, 4));
    let points = (1..=3).map(|n| format!("scan-dir#{n}")).chain((1..=4).map(|n| format!("open-file#{n}")));
    let mut refused = 0;
    for point in points {
        for keep_going in [&[][..], &[("KEEP_GOING", "yes")]] {
            let settings = [&[("NOW", AFTER_ALL)], keep_going].concat();
            let said = bench.import_changing(&settings, &[&point], |_| swap());
            swap();
            let reasons = said.refused();
            assert!(reasons.is_empty() || keep_going.is_empty(), "{point}: {said:?}");
            assert!(
                reasons.iter().all(|reason| reason.starts_with("import.vanished: ")),
                "{point}: {said:?}"
            );
            refused += reasons.len();
        }
    }
    assert!(refused >= 2, "the swap was noticed only {refused} times");
    // Neither in a version nor elsewhere in the vault.
    let secret = avfs_vault::content::id_of(b"SECRET");
    assert!(!bench.vault.read().unwrap().has_blob(&secret).unwrap(), "a file from outside was imported");
    support::assert_clean(&bench.vault);
}

#[test]
fn vanished_files_are_reported_or_fail_the_import() {
    let bench = Bench::new();
    let dir = bench.dir.join("d");
    let make = || {
        fs::create_dir_all(&dir).unwrap();
        ["a", "b"].iter().for_each(|name| fs::write(dir.join(name), *name).unwrap());
    };
    let files_go = || ["a", "b"].iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
    let dir_goes = || fs::remove_dir_all(&dir).unwrap();
    type Case<'a> = (&'static str, &'a dyn Fn(), &'static str, &'static [&'static str]);
    let cases: [Case<'_>; 2] = [
        ("open-file#1", &files_go, "d/a", &["d/a Vanished", "d/b Vanished"]),
        ("scan-dir#2", &dir_goes, "d", &["d Vanished"]),
    ];
    for (point, vanish, first, all) in cases {
        make();
        let said = bench.import_changing(&[("NOW", AFTER_ALL)], &[point], |_| vanish());
        assert_eq!(said.refused(), [format!("import.vanished: {first} vanished during the import")]);
        make();
        let settings = [("NOW", AFTER_ALL), ("KEEP_GOING", "yes")];
        let said = bench.import_changing(&settings, &[point], |_| vanish());
        assert_eq!(said.troubles(), all);
    }
    // If a file was replaced, its new content is imported.
    make();
    let said = bench.import_changing(&[("NOW", AFTER_ALL)], &["open-file#1"], |_| {
        fs::remove_file(dir.join("a")).unwrap();
        fs::write(dir.join("a"), "back").unwrap();
    });
    assert_eq!((said.acks().len(), bench.content("d/a")), (1, b"back".to_vec()));
    support::assert_clean(&bench.vault);
}

/// The hard links of a file are read one after the other; the file changes in between.
#[test]
fn hard_links_of_a_changing_file_get_the_same_content() {
    let bench = Bench::new();
    for name in ["d0", "d1"] {
        fs::create_dir(bench.dir.join(name)).unwrap();
    }
    let (one, other) = (bench.dir.join("d0/name"), bench.dir.join("d1/name"));
    fs::write(&one, "00000000").unwrap();
    fs::hard_link(&one, &other).unwrap();
    let cache = bench.scratch.join("cache");
    let settings = [("NOW", AFTER_ALL), ("CACHE", cache.to_str().unwrap())];
    let agree = |content: &str| {
        let root = support::root(&bench.vault, "main");
        let reader = bench.vault.read().unwrap();
        let node = |path: &str| tree::require(&&*reader, &root, &support::path(path)).unwrap();
        assert_eq!(node("d0/name"), node("d1/name"));
        assert_eq!(bench.content("d0/name"), content.as_bytes());
    };
    let change = |content: &str| {
        support::wait_for_new_stamp(&bench.scratch, &one);
        File::options().write(true).open(&one).unwrap().write_all_at(content.as_bytes(), 0).unwrap();
    };
    // First case: one link is read, the other is not. Second case: one link is in the stat cache, the other is not
    // read yet.
    for (content, point, works) in [("11111111", "open-file#2", 4), ("22222222", "scan-dir#3", 2)] {
        let pauses = bench.pauses();
        pauses.hold(point);
        let mut worker = bench.import(&pauses, &settings);
        pauses.wait(point, &mut worker.child);
        let worked = || pauses.reached().iter().filter(|point| *point == "work").count();
        wait_for("the first link", || worked() >= works);
        change(content);
        pauses.release(point);
        assert_eq!(worker.finish().acks().len(), 1);
        agree(content);
    }
    support::assert_clean(&bench.vault);
}

/// A directory that vanished is never imported as an empty one, whichever paths may be left out.
#[test]
fn vanished_root_is_never_imported_as_an_empty_version() {
    use std::os::fd::AsRawFd;
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    fs::write(dir.join("file"), "kept").unwrap();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    support::import(&vault, &dir);
    let before = support::root(&vault, "main");
    let held = File::open(&dir).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let gone = format!("/proc/self/fd/{}", held.as_raw_fd());
    for on_trouble in [OnTrouble::Fail, OnTrouble::KeepGoing] {
        let refused = support::try_import(&vault, gone.as_ref(), None, on_trouble);
        let is_vanished = matches!(&refused, Err(transfer::Error::Import(ImportError::Vanished { path })) if path.is_root());
        assert!(is_vanished, "{refused:?}");
        assert_eq!(support::root(&vault, "main"), before);
    }
}

/// An ignore file that is being rewritten is empty for a moment, in which nothing would be ignored.
#[test]
fn ignore_file_rewritten_during_an_import_still_applies() {
    let bench = Bench::new();
    let rules = bench.dir.join(".avfsignore");
    fs::write(bench.dir.join("secret"), "x").unwrap();
    let (empty, full) = ("", "secret\n");
    // The content that the importer finds at each read.
    for texts in [&[empty, full][..], &[full, empty, full], &[empty, full, empty, full]] {
        let points: Vec<String> = (1..texts.len()).map(|n| format!("ignore-file#{n}")).collect();
        fs::write(&rules, texts[0]).unwrap();
        let pauses = bench.pauses();
        points.iter().for_each(|point| {
            pauses.hold(point);
        });
        let mut worker = bench.import(&pauses, &[("NOW", BEFORE_ALL), ("KEEP_GOING", "yes")]);
        for (point, text) in points.iter().zip(&texts[1..]) {
            pauses.wait(point, &mut worker.child);
            fs::write(&rules, text).unwrap();
            pauses.release(point);
        }
        assert_eq!(worker.finish().acks().len(), 1, "{texts:?}");
        let root = support::root(&bench.vault, "main");
        let kept = tree::lookup(&&*bench.vault.read().unwrap(), &root, &support::path("secret")).unwrap();
        assert_eq!(kept, None, "{texts:?}");
    }
}

#[test]
fn new_ignore_file_applies_immediately() {
    let scratch = Scratch::new();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    for (name, text, left) in [("empty", "", 2), ("full", "secret\n", 1)] {
        let dir = scratch.dir(name);
        fs::write(dir.join("secret"), "x").unwrap();
        fs::write(dir.join(".avfsignore"), text).unwrap();
        support::import(&vault, &dir);
        assert_eq!(support::root(&vault, "main").totals.entries, left, "{name}");
    }
}

/// An import that started earlier and ends later has seen an older state: it must not undo newer changes.
#[test]
fn slow_import_does_not_undo_newer_changes() {
    let bench = Bench::new();
    let cache = bench.scratch.join("cache");
    fs::write(bench.dir.join("large"), support::noise(1, 3 << 19)).unwrap();
    support::settle();
    let main = support::main_fork();
    // The directory listing is complete when the large file is read.
    let settings = [("CACHE", cache.to_str().unwrap())];
    let said = bench.import_changing(&settings, &["work#2"], |_| {
        let late = "came meanwhile\n";
        fs::write(bench.dir.join("late"), late).unwrap();
        bench.vault.write_file(&main, &support::path("late"), late.as_bytes(), None, "quick").unwrap();
    });
    assert_eq!(said.acks(), ["read=2"], "the second attempt does not know what the first one read");
    let head = bench.vault.fork(&main).unwrap().head;
    let message = bench.vault.read().unwrap().version(&head).unwrap().unwrap().message;
    assert_eq!((message.as_str(), bench.content("late")), ("import", b"came meanwhile\n".to_vec()));
    assert_eq!(bench.content("large"), support::noise(1, 3 << 19));
    support::settle();
    // The late file may have been too recent to be trusted.
    for most in [1, 0] {
        let again = support::try_import(&bench.vault, &bench.dir, Some(&cache), OnTrouble::Fail).unwrap();
        assert!(again.scanned.files_read <= most, "files of the attempts were read again: {again:?}");
    }
}

/// The same content with a later timestamp may come from two writes that both stopped at the same byte.
#[test]
fn second_read_confirms_the_first_only_with_equal_timestamps() {
    for size in [1000, 3 << 19] {
        let bench = Bench::new();
        let content = support::noise(1, size);
        fs::write(bench.dir.join("f"), &content).unwrap();
        let rewrite = |_| fs::write(bench.dir.join("f"), &content).unwrap();
        // A large file is opened once more, to find out that it is large.
        let first = if size > 1 << 20 { 2 } else { 1 };
        let points: Vec<String> = (first + 1..first + 3).map(|n| format!("open-file#{n}")).collect();
        let points: Vec<&str> = points.iter().map(String::as_str).collect();
        let said = bench.import_changing(&[("NOW", BEFORE_ALL)], &points, rewrite);
        assert_eq!(said.acks(), ["read=1"]);
        assert_eq!(bench.content("f"), content);
    }
}

/// A write sets the timestamp when it starts, and the writer may be stopped in the middle of it.
#[test]
fn import_waits_for_a_write_in_progress() {
    let bench = Bench::new();
    fs::write(bench.dir.join("f"), vec![1; 1_000_000]).unwrap();
    // The kernel answers SEEK_DATA only after a write in progress has ended.
    let (vault, trace) = (bench.scratch.join("vault.db"), bench.scratch.join("trace"));
    let mut traced = Command::new("strace");
    traced.args(["-f", "-e", "trace=openat2,lseek,fstat,newfstatat,?statx,pread64", "-o"]).arg(&trace);
    traced.arg(std::env::current_exe().unwrap());
    let settings = [("VAULT", vault.to_str().unwrap()), ("DIR", bench.dir.to_str().unwrap())];
    let mut worker = Worker::start_as(traced, "scan", &settings);
    worker.go();
    assert_eq!(worker.finish().acks(), ["read=1"]);
    let trace = fs::read_to_string(&trace).unwrap();
    let mut lines = trace.lines().skip_while(|line| !line.contains("openat2(") || !line.contains("\"f\""));
    let thread = lines.next().unwrap().split(' ').next().unwrap();
    let next = lines.find(|line| line.starts_with(thread)).unwrap();
    assert!(next.contains("lseek(") && next.contains("SEEK_DATA"), "{next} follows the open");
    // And with a writer that never pauses.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(bench.dir.join("f")).unwrap();
            let states: Vec<Vec<u8>> = (1..8).map(|byte| vec![byte; 1_000_000]).collect();
            for state in states.iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
                file.write_all_at(state, 0).unwrap();
            }
        });
        // Also if an assertion fails: the scope waits for the writer.
        let _ended = support::RaiseOnDrop(&stop);
        for _ in 0..support::usual_or_long(15, 300) {
            match support::try_import(&bench.vault, &bench.dir, None, OnTrouble::Fail) {
                Ok(_) => {
                    let content = bench.content("f");
                    assert!(content.iter().all(|byte| *byte == content[0]), "torn read");
                }
                Err(transfer::Error::Import(ImportError::Torn { .. })) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    support::import(&bench.vault, &bench.dir);
    support::assert_clean(&bench.vault);
}
