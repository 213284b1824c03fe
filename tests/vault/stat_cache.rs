//! Importing a directory again: files known to the stat cache are not read, and the result is the same as if they were.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use avfs_vault::gc::{Keep, Trial};
use avfs_vault::import::OnTrouble;

use crate::attributes::{mkfifo, set_mode, set_mtime, set_xattr};
use crate::support;
use crate::support::{Scratch, snapshot};

#[test]
fn unchanged_directory_is_not_read_again() {
    let scratch = Scratch::new();
    let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
    support::many_files(&dir, 160);
    fs::write(dir.join("large"), support::noise(1, 2 << 20)).unwrap();
    symlink("x", dir.join("link")).unwrap();
    mkfifo(&dir.join("fifo"));
    fs::hard_link(dir.join("large"), dir.join("d000/large")).unwrap();
    set_xattr(&dir.join("large"), "user.a", b"1");
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    support::settle();
    let import = || support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    let first = import();
    assert_eq!(first.scanned.files_read, 162);
    let again = import();
    assert_eq!((again.scanned.files_read, again.scanned.bytes_read), (0, 0));
    assert!(!again.committed.changed());
    // Each kind of change is noticed, and only changed files are read.
    type Change<'a> = (&'static str, Box<dyn Fn() + 'a>, u64);
    let mut changes: Vec<Change<'_>> = Vec::new();
    changes.push(("content", Box::new(|| fs::write(dir.join("d001/f00050"), "new").unwrap()), 1));
    changes.push(("mode", Box::new(|| set_mode(&dir.join("d001/f00051"), 0o600)), 1));
    changes.push(("time", Box::new(|| set_mtime(&dir.join("d001/f00052"), 5, 5)), 1));
    changes.push(("attribute", Box::new(|| set_xattr(&dir.join("d001/f00053"), "user.b", b"2")), 1));
    changes.push((
        "rename",
        Box::new(|| fs::rename(dir.join("d001/f00054"), dir.join("d001/g")).unwrap()),
        1,
    ));
    changes.push(("removal", Box::new(|| fs::remove_file(dir.join("d001/f00055")).unwrap()), 0));
    changes.push(("directory's mode", Box::new(|| set_mode(&dir.join("d002"), 0o700)), 0));
    changes.push(("directory's attribute", Box::new(|| set_xattr(&dir.join("d002"), "user.c", b"3")), 0));
    changes.push(("empty directory", Box::new(|| fs::create_dir(dir.join("empty")).unwrap()), 0));
    changes.push((
        "renamed directory",
        Box::new(|| fs::rename(dir.join("d003"), dir.join("r003")).unwrap()),
        40,
    ));
    changes.push((
        "link",
        Box::new(|| {
            fs::remove_file(dir.join("link")).unwrap();
            symlink("y", dir.join("link")).unwrap();
        }),
        0,
    ));
    changes.push(("lost name", Box::new(|| fs::remove_file(dir.join("d000/large")).unwrap()), 1));
    changes.push((
        "directory becomes file",
        Box::new(|| {
            fs::remove_dir(dir.join("empty")).unwrap();
            fs::write(dir.join("empty"), "file").unwrap();
        }),
        1,
    ));
    changes.push(("fifo gone", Box::new(|| fs::remove_file(dir.join("fifo")).unwrap()), 0));
    for (name, change, reads_at_most) in changes {
        change();
        support::settle();
        let imported = import();
        assert!(imported.committed.changed(), "{name} was not noticed");
        let read = imported.scanned.files_read;
        assert!(read <= reads_at_most, "{name}: {read} files were read");
        let out = scratch.join(&format!("out-{}", name.replace(' ', "-")));
        support::export(&vault, "main", &out);
        snapshot::assert_same(&dir, &out);
        let idle = import();
        assert!(!idle.committed.changed() && idle.scanned.files_read == 0, "{name}: {:?}", idle.scanned);
    }
    // A cache of another vault, or a broken one, is ignored.
    fs::write(&cache, "rubbish").unwrap();
    assert_eq!(import().scanned.files_read, 161);
    let other = support::create_real_vault(&scratch.join("other.db"));
    support::try_import(&other, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    support::export(&other, "main", &scratch.join("out-other"));
    snapshot::assert_same(&dir, &scratch.join("out-other"));
}

#[test]
fn added_and_removed_directories_keep_the_rest_of_the_cache() {
    let scratch = Scratch::new();
    let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
    let put = |at: &str| {
        fs::create_dir_all(dir.join(at)).unwrap();
        fs::write(dir.join(at).join("file"), at).unwrap();
    };
    ["a/b/c", "a/b/d", "a/e", "f/g/h", "f/i", "j"].iter().for_each(|at| put(at));
    (0..60).for_each(|n| put(&format!("wide/{n}")));
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let import = || {
        support::settle();
        support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap()
    };
    import();
    let changes: [(&dyn Fn(), u64); 7] = [
        (&|| fs::write(dir.join("f/g/h/file"), "changed").unwrap(), 1),
        (&|| put("a/aa/deep"), 1),
        (&|| fs::remove_dir_all(dir.join("a/b")).unwrap(), 0),
        (&|| put("0/first"), 1),
        (&|| fs::remove_dir_all(dir.join("f")).unwrap(), 0),
        (&|| ["f/g", "f/new"].iter().for_each(|at| put(at)), 2),
        // Too many changes to append: the remaining entries are renumbered without gaps.
        (&|| (0..60).for_each(|n| fs::write(dir.join(format!("wide/{n}/file")), "other").unwrap()), 60),
    ];
    let (mut added, mut replaced) = (0, 0);
    for (number, (change, files_read)) in changes.iter().enumerate() {
        change();
        let before = fs::metadata(&cache).unwrap().ino();
        let changed = import();
        let place = if fs::metadata(&cache).unwrap().ino() == before { &mut added } else { &mut replaced };
        *place += 1;
        assert_eq!(changed.scanned.files_read, *files_read, "change {number}");
        let fresh = support::memory_vault();
        let all = support::try_import(&fresh, &dir, None, OnTrouble::Fail).unwrap();
        assert_eq!(changed.committed.version.root, all.committed.version.root, "change {number}");
        let known = fs::read(&cache).unwrap();
        assert_eq!(import().scanned.files_read, 0, "after change {number}");
        assert!(known == fs::read(&cache).unwrap(), "the cache was rewritten after change {number}");
    }
    assert!(added > 0 && replaced > 0, "{added} changes were added to the cache, {replaced} replaced it");
}

/// Any version with this tree will do.
#[test]
fn cache_stays_valid_after_its_version_is_pruned() {
    let scratch = Scratch::new();
    let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
    support::many_files(&dir, 50);
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    support::settle();
    let import = || support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    let prune = |last| vault.prune(&Keep { last: Some(last), since: None }, None, Trial::Real).unwrap();
    assert_eq!(import().scanned.files_read, 50);
    let mut known = fs::read(&cache).unwrap();
    for round in 0..3 {
        support::write(&vault, "other", format!("{round}").as_bytes());
        assert_eq!(import().scanned.files_read, 0, "round {round}");
        let renamed = fs::read(&cache).unwrap();
        assert!(renamed != known && import().scanned.files_read == 0, "round {round}");
        assert!(renamed == fs::read(&cache).unwrap(), "round {round}: the cache was rewritten needlessly");
        known = renamed;
        prune(1);
        vault.gc(&|_| {}).unwrap();
        assert_eq!(import().scanned.files_read, 0, "round {round}");
    }
    // It is used if the head has its tree, even if the version that it names is pruned.
    let before = vault.fork(&support::main_fork()).unwrap().head;
    support::write(&vault, "other", b"last");
    vault.restore(&support::main_fork(), &support::reference(&before.to_hex()), None).unwrap();
    prune(1);
    assert_eq!(import().scanned.files_read, 0);
}

/// A cache refers to blobs; if the vault has deleted them, the files must be read again.
#[test]
fn cache_is_not_used_after_its_objects_are_swept() {
    let scratch = Scratch::new();
    let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
    support::many_files(&dir, 50);
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    support::settle();
    support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    vault.restore(&support::main_fork(), &support::reference("main~1"), None).unwrap();
    vault.prune(&Keep { last: Some(1), since: None }, None, Trial::Real).unwrap();
    vault.gc(&|_| {}).unwrap();
    let again = support::try_import(&vault, &dir, Some(&cache), OnTrouble::Fail).unwrap();
    assert_eq!(again.scanned.files_read, 50);
    support::assert_clean(&vault);
    support::export(&vault, "main", &scratch.join("out"));
    snapshot::assert_same(&dir, &scratch.join("out"));
}
