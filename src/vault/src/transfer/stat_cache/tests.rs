use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use avfs_types::clock::FileTime;
use avfs_types::ids::{BlobId, LinkId};

use super::new_cache::unfinished;
use super::*;
use crate::page::FileContent;

const VERSION: Option<VersionId> = Some(VersionId([6; 32]));

fn sample() -> CachedDir<'static> {
    let time = FileTime { seconds: 5, nanos: 7 };
    let stamp = Stamp { mode: 0o644, size: 3, mtime: time, ctime: time, inode: 99 };
    let entry = |name, kind| CachedEntry { name, stamp, settled: true, link: None, kind };
    CachedDir {
        mode: 0o755,
        mtime: time,
        xattrs: Some(BlobId([9; 32])),
        complete: true,
        dir: DirRef { tree: TreeId([1; 32]), content: ContentId([2; 32]), totals: Totals::default() },
        entries: vec![
            entry(b"a", CachedKind::File { content: FileContent::Whole(BlobId([3; 32])), xattrs: None }),
            entry(b"b", CachedKind::Symlink { target: b"a" }),
            CachedEntry { link: Some(LinkId([4; 16])), settled: false, ..entry(b"c", CachedKind::Fifo) },
            entry(b"d", CachedKind::Dir(1)),
        ],
    }
}

fn save(path: &Path, dirs: &[CachedDir<'_>]) {
    let mut new = NewDirs::default();
    (0..).zip(dirs).for_each(|(number, dir)| new.push(number, dir));
    NewCache::after(None, new).save(path, "v1", VERSION, Foreign::default()).unwrap();
}

/// The directories of a cache, with these changes.
fn changed<'c>(old: &'c StatCache, dirs: &[(u32, CachedDir<'_>)]) -> NewCache<'c> {
    let mut new = NewDirs::default();
    (0..old.numbers()).for_each(|number| assert!(new.claim(number)));
    dirs.iter().for_each(|(number, dir)| new.push(*number, dir));
    NewCache::after(Some(old), new)
}

fn load(path: &Path) -> Option<StatCache> {
    StatCache::load(path, "v1")
}

fn of_mode(mode: u32) -> CachedDir<'static> {
    CachedDir { mode, xattrs: None, complete: mode.is_multiple_of(2), ..sample() }
}

fn modes(cache: &StatCache) -> Vec<u32> {
    (0..).map_while(|number| cache.head(number)).map(|dir| dir.mode).collect()
}

#[test]
fn a_cache_round_trips_and_is_bound_to_its_vault() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/cache");
    save(&path, &[sample(), sample()]);
    let cache = load(&path).unwrap();
    assert_eq!(decode_dir(&cache.encoded(1).unwrap()).unwrap(), sample());
    assert_eq!(cache.version(), VERSION);
    assert!(cache.encoded(2).is_none());
    let before = std::fs::read(&path).unwrap();
    let unwritable = StatCache { can_write: false, ..cache };
    NewCache::again(&unwritable).save(&path, "v1", VERSION, Foreign::default()).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // With other versions its content stays the same, and it does not grow.
    for name in 1..100 {
        let version = Some(VersionId([name; 32]));
        NewCache::again(&load(&path).unwrap()).save(&path, "v1", version, Foreign::default()).unwrap();
        let renamed = load(&path).unwrap();
        for number in 0..2 {
            assert_eq!(decode_dir(&renamed.encoded(number).unwrap()).unwrap(), sample());
        }
        assert_eq!(renamed.version(), version);
        assert!(std::fs::metadata(&path).unwrap().len() < before.len() as u64 * 3 / 2);
    }
    assert!(StatCache::load(&path, "v2").is_none());
}

#[test]
fn a_cache_is_readable_only_by_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stat/cache");
    save(&path, &[sample(), sample()]);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    // An existing cache with a wider mode is restricted when it is written again.
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let cache = load(&path).unwrap();
    NewCache::again(&cache).save(&path, "v1", None, Foreign::default()).unwrap();
    assert_eq!(load(&path).unwrap().version(), None);
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn foreign_files_are_recorded_in_the_head() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    assert_eq!(Foreign::last_seen(&path), Foreign::default());
    save(&path, &[sample(), sample()]);
    assert_eq!(Foreign::last_seen(&path), Foreign::default());
    for (owners, lists) in [(true, false), (true, true), (false, true), (false, false)] {
        let foreign = Foreign { owners, lists };
        NewCache::again(&load(&path).unwrap()).save(&path, "v1", VERSION, foreign).unwrap();
        assert_eq!((Foreign::last_seen(&path), load(&path).unwrap().foreign()), (foreign, foreign));
        let whole = NewCache::after(None, NewDirs::default());
        whole.save(&dir.path().join("whole"), "v1", VERSION, foreign).unwrap();
        assert_eq!(Foreign::last_seen(&dir.path().join("whole")), foreign);
    }
    std::fs::write(&path, b"avfsstat\x04\x03").unwrap();
    assert_eq!(Foreign::last_seen(&path), Foreign::default());
}

#[test]
fn changes_are_appended_until_they_are_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let mut now: Vec<u32> = (0..8).collect();
    save(&path, &now.iter().copied().map(of_mode).collect::<Vec<_>>());
    let whole = std::fs::read(&path).unwrap();
    for mode in 100.. {
        let cache = load(&path).unwrap();
        let new = changed(&cache, &[(3, of_mode(mode)), (cache.numbers(), of_mode(mode + 100))]);
        if new.onto().is_none() {
            break;
        }
        let version = VersionId([u8::try_from(mode).unwrap(); 32]);
        new.save(&path, "v1", Some(version), Foreign::default()).unwrap();
        assert_eq!(load(&path).unwrap().version(), Some(version));
        now[3] = mode;
        now.push(mode + 100);
        assert_eq!(modes(&load(&path).unwrap()), now);
    }
    assert!(now.len() > 8, "nothing was added");
    let grown = std::fs::read(&path).unwrap();
    assert!(grown.starts_with(&whole) && grown.len() < whole.len() * 3 / 2);
}

#[test]
fn a_damaged_part_is_ignored_and_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    save(&path, &[0, 1, 2, 3, 4, 5].map(of_mode));
    let before = std::fs::read(&path).unwrap();
    let first = load(&path).unwrap();
    let add = |to: &StatCache, mode| {
        let new = changed(to, &[(1, of_mode(mode))]);
        assert!(new.onto().is_some());
        new.save(&path, "v1", VERSION, Foreign::default()).unwrap();
    };
    add(&first, 11);
    let added = std::fs::read(&path).unwrap();
    assert!(added.starts_with(&before));
    for at in (before.len()..added.len()).step_by(7) {
        let mut data = added.clone();
        data[at] ^= 1;
        for torn in [&data, &added[..at]] {
            std::fs::write(&path, torn).unwrap();
            assert_eq!(modes(&load(&path).unwrap()), [0, 1, 2, 3, 4, 5], "at {at}");
        }
        add(&load(&path).unwrap(), 12);
        assert_eq!(modes(&load(&path).unwrap()), [0, 12, 2, 3, 4, 5], "at {at}");
    }
    // Of two writers that started from the same cache the later one wins, and parts after the earlier one are ignored.
    std::fs::write(&path, &before).unwrap();
    let (one, other) = (load(&path).unwrap(), load(&path).unwrap());
    add(&one, 21);
    add(&load(&path).unwrap(), 22);
    add(&other, 23);
    assert_eq!(modes(&load(&path).unwrap()), [0, 23, 2, 3, 4, 5]);
}

#[test]
fn leftovers_of_dead_processes_are_swept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    // No process can have this pid.
    std::fs::write(unfinished(&path, "4194305"), "half").unwrap();
    std::fs::write(unfinished(&path, "1"), "alive").unwrap();
    save(&path, &[sample(), sample()]);
    assert!(!unfinished(&path, "4194305").exists());
    assert!(unfinished(&path, "1").exists());
}

#[test]
fn a_damaged_cache_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    save(&path, &[sample(), sample()]);
    let whole = std::fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut data = whole.clone();
        data[at] ^= 1;
        std::fs::write(&path, &data).unwrap();
        assert!(StatCache::load(&path, "v1").is_none(), "byte {at} went unnoticed");
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(StatCache::load(&path, "v1").is_none(), "a cut at {at} went unnoticed");
    }
}

/// The first part of a large cache is not held in memory.
#[test]
fn a_large_cache_is_read_one_directory_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let names: Vec<Vec<u8>> = (0..40).map(|n| format!("{n:0>100}").into_bytes()).collect();
    let child = |number| {
        let with_dir = CachedKind::Dir(number);
        let mut made = of_mode(number);
        made.entries = names.iter().map(|name| CachedEntry { name, ..sample().entries[0] }).collect();
        made.entries.push(CachedEntry { name: b"zz", kind: with_dir, ..sample().entries[3] });
        made
    };
    // Each directory contains the next.
    let mut all: Vec<CachedDir<'_>> = (1..=400).map(child).collect();
    all[399].entries.pop();
    save(&path, &all);
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.len() as u64 > HELD_BYTES_MAX);
    let mut new = NewDirs::default();
    (0..400).for_each(|number| assert!(new.claim(number) && !new.claim(number)));
    let cache = load(&path).unwrap();
    assert!(cache.held.is_empty() && cache.numbers() == 400);
    assert_eq!(decode_dir(&cache.encoded(399).unwrap()).unwrap(), all[399]);
    let last = CachedDir { entries: Vec::new(), ..of_mode(7) };
    new.push(399, &last);
    NewCache::after(Some(&cache), new).save(&path, "v1", VERSION, Foreign::default()).unwrap();
    let grown = std::fs::read(&path).unwrap();
    assert!(grown.starts_with(&whole));
    let cache = load(&path).unwrap();
    assert!(!cache.held.is_empty());
    assert_eq!(decode_dir(&cache.encoded(398).unwrap()).unwrap(), all[398]);
    assert_eq!(decode_dir(&cache.encoded(399).unwrap()).unwrap(), last);
    // Some directories are gone, and the changes are too large to append: the others are renumbered.
    let mut new = NewDirs::default();
    (0..400).filter(|number| *number < 2 || *number >= 200).for_each(|number| assert!(new.claim(number)));
    let skips = |to| {
        let mut dir = child(500);
        dir.entries.iter_mut().for_each(|entry| {
            if let CachedKind::Dir(number) = &mut entry.kind {
                *number = to;
            }
        });
        dir
    };
    new.push(1, &skips(200));
    (200..400).rev().for_each(|number| new.push(number, &skips(399)));
    let new = NewCache::after(Some(&cache), new);
    assert!(new.onto().is_none());
    new.save(&path, "v1", None, Foreign::default()).unwrap();
    let cache = load(&path).unwrap();
    assert_eq!((cache.numbers(), cache.version()), (202, None));
    let leads_to = |number| {
        let encoded = cache.encoded(number).unwrap();
        let dir = decode_dir(&encoded).unwrap();
        let CachedKind::Dir(number) = dir.entries.last().unwrap().kind else { panic!("no directory") };
        number
    };
    assert_eq!([0, 1, 2, 51, 201].map(leads_to), [1, 2, 201, 201, 201]);
    // Damage is detected as in a small cache.
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        let mut data = whole.clone();
        data[at] ^= 1;
        std::fs::write(&path, &data).unwrap();
        assert!(load(&path).is_none(), "byte {at} went unnoticed");
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(load(&path).is_none(), "a cut at {at} went unnoticed");
    }
}

/// The directories of a large first import arrive children first and are written once: the file that they are spilled
/// to becomes the cache.
#[test]
fn spilled_directories_become_the_cache() {
    const VAULT: &str = "0123456789abcdef0123456789abcdef";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let names: Vec<Vec<u8>> = (0..100).map(|n| format!("{n:0>200}").into_bytes()).collect();
    let with_names = |number| {
        let mut made = of_mode(number);
        made.entries = names.iter().map(|name| CachedEntry { name, ..sample().entries[0] }).collect();
        made
    };
    let first_number = || {
        let mut number = [0; NUMBER_BYTES];
        File::open(&path).unwrap().read_exact_at(&mut number, new_cache::FIRST_DIR_AT).unwrap();
        u32::from_le_bytes(number)
    };
    let save = |new| NewCache::after(None, new).save(&path, VAULT, VERSION, Foreign::default()).unwrap();
    let load = || StatCache::load(&path, VAULT).unwrap();
    let all: Vec<u32> = (0..400).collect();

    let mut new = NewDirs::new(&[dir.path().to_owned()]);
    all.iter().rev().for_each(|number| new.push(*number, &with_names(*number)));
    std::fs::write(unfinished(&path, &std::process::id().to_string()), "of a process with the same id")
        .unwrap();
    save(new);
    assert_eq!(first_number(), 399);
    let (cache, status) = (load(), std::fs::metadata(&path).unwrap());
    assert_eq!((modes(&cache), cache.version(), status.mode() & 0o777), (all, VERSION, 0o600));
    assert_eq!(decode_dir(&cache.encoded(7).unwrap()).unwrap(), with_names(7));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let mut damaged = std::fs::read(&path).unwrap();
    for at in (0..damaged.len()).step_by(damaged.len() / 50) {
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(StatCache::load(&path, VAULT).is_none(), "byte {at} went unnoticed");
        damaged[at] ^= 1;
    }

    // Without a directory that vanished during the scan the others are renumbered, in their order.
    let mut new = NewDirs::new(&[dir.path().to_owned()]);
    (0..400).rev().for_each(|number| new.push(number, &with_names(number)));
    new.disclaim(5);
    save(new);
    assert_eq!((first_number(), modes(&load())[4..6].to_vec()), (0, vec![4, 6]));
}

/// A manipulated number neither takes memory for the directories before it nor leaves gaps.
#[test]
fn a_cache_without_all_its_directories_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    save(&path, &[sample(), sample()]);
    let whole = std::fs::read(&path).unwrap();
    let body_end = whole.len() - size_of::<Checksum>();
    let head_end = FOREIGN_AT + 2 + "v1".len();
    let first = head_end + PART_HEAD_BYTES;
    for (number, is_cache) in [(0, true), (2, false), (u32::MAX, false)] {
        let mut data = whole[..body_end].to_vec();
        data[first..first + NUMBER_BYTES].copy_from_slice(&u32::to_le_bytes(number));
        data.extend(checksum_of(&head_checksum(&data[..head_end]), &data[head_end + PART_BYTES..]));
        std::fs::write(&path, &data).unwrap();
        assert_eq!(load(&path).is_some(), is_cache, "{number}");
    }
}
