//! A directory that changes while it is imported, or right after it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use avfs::vault::import::{ImportError, ImportOptions, OnTrouble, Trouble, TroubleReason};
use avfs::vault::meter::Meter;
use avfs::vault::version::root_of;
use avfs::vault::{VaultError, tree};

use crate::attributes::set_mtime;
use crate::support::{self, Rounds, Scratch};

#[test]
fn a_file_changed_right_after_an_import_is_noticed() {
    let scratch = Scratch::new();
    let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let file = dir.join("file");
    for round in 0..30_u8 {
        // Same size, same inode, same modification time: only what the importer refuses to trust tells.
        fs::write(&file, [b'a' + round % 2; 1000]).unwrap();
        set_mtime(&file, 1_000_000, 0);
        let imported = support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
        assert_eq!(imported.scanned.files_read, 1, "round {round}: a racy file was not read");
        assert!(imported.committed.changed(), "round {round}: the change went unnoticed");
        fs::write(&file, [b'A' + round % 2; 1000]).unwrap();
        set_mtime(&file, 1_000_000, 0);
        let imported = support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
        assert!(imported.committed.changed(), "round {round}: the second change went unnoticed");
    }
    support::settle();
    support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    let quiet = support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    assert_eq!(quiet.scanned.files_read, 0, "a file that has settled is still read");
}

/// A writer that never holds still: an import takes a state that was there, or says that it could not.
///
/// Each round writes the next letter from the front to the back, so the file is one letter, or a letter and
/// after it the one before. A reader that the writer overtakes sees something else.
#[test]
fn a_torn_read_is_never_taken_for_a_file() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    let sizes = [("small", 200_000_usize), ("large", 3 << 20)];
    // Without pauses for some rounds, then with some that a read fits into.
    let (done, calm) = (AtomicBool::new(false), AtomicBool::new(false));
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    for (name, size) in sizes {
        fs::write(dir.join(name), vec![b'a'; size]).unwrap();
    }
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let raise = support::RaiseOnDrop(&done);
        for (name, size) in sizes {
            let (file, done, calm) = (dir.join(name), &done, &calm);
            scope.spawn(move || {
                let file = File::options().write(true).open(file).unwrap();
                let mut round = 0_u8;
                while !done.load(Ordering::Relaxed) {
                    round = (round + 1) % 26;
                    for at in (0..size).step_by(20_000) {
                        let part = vec![b'a' + round; (size - at).min(20_000)];
                        file.write_all_at(&part, at as u64).unwrap();
                    }
                    if calm.load(Ordering::Relaxed) && round.is_multiple_of(8) {
                        std::thread::sleep(Duration::from_millis(40));
                    }
                }
            });
        }
        let mut rounds = Rounds::at_least(24);
        while let Some(round) = rounds.next(whole > 0 && refused > 0) {
            calm.store(round / 12 % 2 == 1, Ordering::Relaxed);
            let on_trouble = if round % 2 == 0 { OnTrouble::Fail } else { OnTrouble::KeepGoing };
            let imported = match support::try_import(&vault, &dir, None, on_trouble) {
                Ok(imported) => imported,
                Err(VaultError::Import(ImportError::Torn { .. })) if on_trouble == OnTrouble::Fail => {
                    refused += 1;
                    continue;
                }
                Err(other) => panic!("{other:?}"),
            };
            let out = scratch.join(&format!("out-{round}"));
            support::export(&vault, "main", &out);
            for (name, size) in sizes {
                let content = fs::read(out.join(name)).unwrap();
                let torn = Trouble { path: support::path(name), reason: TroubleReason::Torn };
                if imported.scanned.troubles.contains(&torn) {
                    refused += 1;
                    continue;
                }
                whole += 1;
                assert_eq!(content.len(), size);
                let runs: Vec<u8> = content.chunk_by(|a, b| a == b).map(|run| run[0]).collect();
                let was_there = match runs.as_slice() {
                    [_] => true,
                    [new, old] => (old - b'a' + 1) % 26 == new - b'a',
                    _ => false,
                };
                assert!(was_there, "round {round}: {name} never looked like {runs:?}");
            }
        }
        drop(raise);
    });
    assert!(whole > 0, "no file was ever whole ({refused} were refused)");
    assert!(refused > 0, "no read was ever torn: the test shows nothing ({whole} were whole)");
}

/// A directory that becomes a link to the outside while it is imported must not bring the outside in.
#[test]
fn a_directory_swapped_for_a_link_brings_nothing_from_outside() {
    let scratch = Scratch::new();
    let (dir, outside) = (scratch.dir("dir"), scratch.dir("outside"));
    for n in 0..20 {
        fs::write(outside.join(format!("f{n}")), "SECRET").unwrap();
        fs::write(outside.join(format!("only-outside-{n}")), "SECRET").unwrap();
    }
    fs::create_dir(outside.join("sub")).unwrap();
    fs::write(outside.join("sub/f"), "SECRET").unwrap();
    scratch.dir("dir/swap/sub");
    for n in 0..20 {
        fs::write(dir.join(format!("swap/f{n}")), "inside").unwrap();
    }
    fs::write(dir.join("swap/sub/f"), "inside").unwrap();
    fs::write(dir.join("file"), "inside").unwrap();
    let done = AtomicBool::new(false);
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let (mut taken, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let raise = support::RaiseOnDrop(&done);
        scope.spawn(|| {
            let (swap, aside, link) = (dir.join("swap"), scratch.join("aside"), scratch.join("link"));
            let (file, file_aside) = (dir.join("file"), scratch.join("file-aside"));
            symlink(&outside, &link).unwrap();
            symlink(outside.join("f0"), scratch.join("file-link")).unwrap();
            while !done.load(Ordering::Relaxed) {
                fs::rename(&swap, &aside).unwrap();
                fs::rename(&link, &swap).unwrap();
                fs::rename(&file, &file_aside).unwrap();
                fs::rename(scratch.join("file-link"), &file).unwrap();
                std::thread::sleep(Duration::from_micros(200));
                fs::rename(&swap, &link).unwrap();
                fs::rename(&aside, &swap).unwrap();
                fs::rename(&file, scratch.join("file-link")).unwrap();
                fs::rename(&file_aside, &file).unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let mut rounds = Rounds::at_least(150);
        while let Some(round) = rounds.next(taken > 0 && refused > 0) {
            let on_trouble = if round % 2 == 0 { OnTrouble::Fail } else { OnTrouble::KeepGoing };
            match support::try_import(&vault, &dir, None, on_trouble) {
                Ok(_) => taken += 1,
                Err(VaultError::Import(ImportError::Vanished { .. })) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        drop(raise);
    });
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused: the swap was never met");
    // Not in any version that was made, nor anywhere else in the vault.
    let secret = avfs::vault::content::id_of(b"SECRET");
    assert!(!vault.read().unwrap().has_blob(&secret).unwrap(), "a file from outside was imported");
    support::assert_clean(&vault);
}

#[test]
fn files_that_vanish_are_reported_or_refused() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    support::many_files(&dir, 400);
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let done = AtomicBool::new(false);
    let (mut refused, mut reported) = (0, 0);
    std::thread::scope(|scope| {
        let raise = support::RaiseOnDrop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for start in (0..400).step_by(40) {
                    let file = |n: usize| dir.join(format!("d{:03}/f{n:05}", n / 40));
                    (start..start + 40).for_each(|n| fs::remove_file(file(n)).unwrap());
                    (start..start + 40).for_each(|n| fs::write(file(n), "back").unwrap());
                }
                fs::rename(dir.join("d004"), dir.join("d004x")).unwrap();
                fs::rename(dir.join("d004x"), dir.join("d004")).unwrap();
            }
        });
        let mut rounds = Rounds::at_least(60);
        while rounds.next(refused > 0 && reported > 0).is_some() {
            match support::try_import(&vault, &dir, None, OnTrouble::Fail) {
                Ok(imported) => assert_eq!(imported.scanned.troubles, []),
                Err(VaultError::Import(ImportError::Vanished { .. } | ImportError::Torn { .. })) => {
                    refused += 1
                }
                Err(other) => panic!("{other:?}"),
            }
            let imported = support::try_import(&vault, &dir, None, OnTrouble::KeepGoing).unwrap();
            reported += imported.scanned.troubles.len();
        }
        drop(raise);
    });
    assert!(refused > 0 && reported > 0, "nothing ever vanished: {refused} refused, {reported} reported");
    support::assert_clean(&vault);
}

/// However the names of one file are looked at, one after the other, they tell the same.
#[test]
fn the_names_of_one_file_agree() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    for n in 0..30 {
        fs::create_dir(dir.join(format!("d{n:02}"))).unwrap();
        support::many_files(&dir.join(format!("d{n:02}")), 20);
    }
    let (one, other) = (dir.join("d00/name"), dir.join("d29/name"));
    fs::write(&one, "00000000").unwrap();
    fs::hard_link(&one, &other).unwrap();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let cache = scratch.join("cache");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let raise = support::RaiseOnDrop(&done);
        scope.spawn(|| {
            let file = File::options().write(true).open(&one).unwrap();
            let mut n = 0_u64;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                file.write_all_at(format!("{n:08}").as_bytes(), 0).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 0..40 {
            support::try_import(&vault, &dir, Some(&cache), OnTrouble::KeepGoing).unwrap();
            let root = support::root(&vault, "main");
            let reader = vault.read().unwrap();
            let pages: &dyn avfs::vault::tree::Pages = &&*reader;
            let node = |path: &str| avfs::vault::tree::require(pages, &root, &support::path(path)).unwrap();
            assert_eq!(node("d00/name"), node("d29/name"), "round {round}");
        }
        drop(raise);
    });
    support::assert_clean(&vault);
}

/// Whatever may be left out, a directory that is gone is no empty one.
#[test]
fn a_root_that_vanished_is_never_an_empty_version() {
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
        let told =
            matches!(&refused, Err(VaultError::Import(ImportError::Vanished { path })) if path.is_root());
        assert!(told, "{refused:?}");
        assert_eq!(support::root(&vault, "main"), before);
    }
}

/// An ignore file that is written anew is empty for a moment, in which everything would be kept.
#[test]
fn an_ignore_file_that_is_written_meanwhile_still_holds() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    let rules = dir.join(".avfsignore");
    fs::write(&rules, "secret\n").unwrap();
    fs::write(dir.join("secret"), "x").unwrap();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let (done, written) = (AtomicBool::new(false), AtomicU64::new(0));
    // A writer that is kept from going on longer than a stamp is fresh leaves an empty file like any other.
    let stuck = AtomicBool::new(false);
    let (mut wrong, mut kept_in) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let begun = Instant::now();
                fs::write(&rules, "secret\n").unwrap();
                stuck.fetch_or(begun.elapsed() > Duration::from_millis(20), Ordering::Relaxed);
                written.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 0..40 {
            fs::write(dir.join("other"), format!("{round}")).unwrap();
            let imported = support::try_import(&vault, &dir, None, OnTrouble::KeepGoing);
            if !matches!(imported, Ok(_) | Err(VaultError::Import(ImportError::Torn { .. }))) {
                wrong.push(format!("round {round}: {imported:?}"));
            }
            let root = support::root(&vault, "main");
            let kept = tree::lookup(&&*vault.read().unwrap(), &root, &support::path("secret")).unwrap();
            kept_in.extend(kept.map(|_| round));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong, [""; 0]);
    assert!(kept_in.is_empty() || stuck.load(Ordering::Relaxed), "{kept_in:?}");
    assert!(written.load(Ordering::Relaxed) > 10);
}

#[test]
fn an_ignore_file_that_was_just_made_holds_at_once() {
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

/// An import that began earlier and ends later has seen less: it must not undo what came since.
#[test]
fn a_slow_import_does_not_undo_what_came_meanwhile() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    let cache = scratch.join("cache");
    fs::write(dir.join("large"), support::noise(1, 48 << 20)).unwrap();
    support::settle();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let meter = Meter::default();
    let options =
        ImportOptions { on_trouble: OnTrouble::Fail, stat_cache: Some(&cache), exclude: &[], meter: &meter };
    let main = support::main_fork();
    let imported = std::thread::scope(|scope| {
        let slow = scope.spawn(|| vault.import(&dir, &main, "slow", &options).unwrap());
        // Its look at the directory is over when it reads the large file.
        while meter.bytes.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let late = "came meanwhile\n";
        fs::write(dir.join("late"), late).unwrap();
        vault.write_file(&main, &support::path("late"), late.as_bytes(), None, "quick").unwrap();
        assert!(!slow.is_finished(), "it should have gone on for longer");
        slow.join().unwrap()
    });
    assert_eq!(imported.scanned.files_read, 2, "what the first attempt read is known to the second");
    let reader = vault.read().unwrap();
    let root = root_of(&imported.committed.version).unwrap();
    assert!(tree::lookup(&&*reader, &root, &support::path("late")).unwrap().is_some());
    assert_eq!(vault.fork(&main).unwrap().head, imported.committed.version.id);
    drop(reader);
    support::settle();
    // The late file may have been too fresh to be trusted.
    for most in [1, 0] {
        let again = support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
        assert!(again.scanned.files_read <= most, "what the attempts read is known: {again:?}");
    }
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One write may last: its stamp is that of its beginning, and whoever writes may be stopped in the middle of it.
#[test]
fn a_write_that_goes_on_is_waited_for() {
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    fs::write(dir.join("f"), vec![1; 1_000_000]).unwrap();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(dir.join("f")).unwrap();
            let states: Vec<Vec<u8>> = (1..8).map(|byte| vec![byte; 1_000_000]).collect();
            for state in states.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                file.write_all_at(state, 0).unwrap();
            }
        });
        // Also where an assertion fails: the scope waits for the writer.
        let _ended = Ended(&stop);
        let mut kept = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            match support::try_import(&vault, &dir, Some(&scratch.join("cache")), OnTrouble::Fail) {
                Ok(_) => {
                    kept += 1;
                    let out = scratch.join(&format!("out{kept}"));
                    support::export(&vault, "main", &out);
                    let content = fs::read(out.join("f")).unwrap();
                    assert!(content.iter().all(|byte| *byte == content[0]), "it is torn");
                }
                Err(VaultError::Import(ImportError::Torn { .. })) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    support::import(&vault, &dir);
    support::assert_clean(&vault);
}
