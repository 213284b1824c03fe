//! Unreadable files: refused or named, and never treated as deleted.

use std::fs;
use std::os::unix::fs::MetadataExt;

use avfs_vault::import::{ImportError, OnTrouble, TroubleReason};
use avfs_vault::transfer;

use crate::attributes::set_mode;
use crate::support;
use crate::support::Scratch;

/// A directory that can be listed but not entered has only names. The tree without its entries belongs to no version.
#[test]
fn entries_of_a_directory_that_cannot_be_entered_are_kept() {
    if support::is_root() {
        let name = "unreadable::entries_of_a_directory_that_cannot_be_entered_are_kept";
        return support::skip(name, "root ignores modes");
    }
    for ignored in [false, true] {
        let scratch = Scratch::new();
        let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
        scratch.dir("dir/a");
        fs::write(dir.join("a/x"), "one").unwrap();
        fs::write(dir.join("k"), "keep").unwrap();
        support::settle();
        let vault = support::create_real_vault(&scratch.join("vault.db"));
        let import = || support::try_import(&vault, &dir, Some(&cache), OnTrouble::KeepGoing).unwrap();
        import();
        set_mode(&dir.join("a"), 0o444);
        assert_eq!(import().scanned.troubles.len(), 1);
        if ignored {
            fs::write(dir.join(".avfsignore"), "/a/x\n").unwrap();
        } else {
            let time = fs::metadata(dir.join("a")).unwrap().modified().unwrap();
            set_mode(&dir.join("a"), 0o755);
            fs::remove_file(dir.join("a/x")).unwrap();
            fs::File::open(dir.join("a")).unwrap().set_modified(time).unwrap();
            set_mode(&dir.join("a"), 0o444);
        }
        vault.gc(&|_| {}).unwrap();
        assert_eq!(import().scanned.troubles, []);
        support::assert_clean(&vault);
        set_mode(&dir.join("a"), 0o755);
        import();
        support::assert_clean(&vault);
    }
}

#[test]
fn unreadable_files_are_refused_or_named() {
    if support::is_root() {
        support::skip("unreadable::unreadable_files_are_refused_or_named", "root ignores modes");
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    fs::write(dir.join("closed"), "x").unwrap();
    set_mode(&dir.join("closed"), 0o000);
    fs::write(scratch.dir("dir/closed-dir").join("f"), "x").unwrap();
    set_mode(&dir.join("closed-dir"), 0o000);
    fs::write(dir.join("open"), "x").unwrap();
    let vault = support::create_vault(&scratch.join("vault.db"));
    let refused = support::try_import(&vault, &dir, None, OnTrouble::Fail);
    assert!(matches!(refused, Err(transfer::Error::Import(ImportError::NoPermission { .. }))), "{refused:?}");
    let imported = support::try_import(&vault, &dir, None, OnTrouble::KeepGoing).unwrap();
    let named: Vec<_> =
        imported.scanned.troubles.iter().map(|trouble| (trouble.path.to_string(), trouble.reason)).collect();
    let expected = ["closed", "closed-dir"].map(|path| (path.to_owned(), TroubleReason::NoPermission));
    assert_eq!(named, expected);
    support::export(&vault, "main", &scratch.join("out"));
    assert_eq!(fs::read_dir(scratch.join("out")).unwrap().count(), 1);
}

/// An unreadable file is not deleted: its version in the fork stays, with and without a stat cache.
#[test]
fn files_that_became_unreadable_keep_their_version() {
    if support::is_root() {
        let name = "unreadable::files_that_became_unreadable_keep_their_version";
        return support::skip(name, "root ignores modes");
    }
    let scratch = Scratch::new();
    let (dir, cache) = (scratch.dir("dir"), scratch.join("cache"));
    scratch.dir("dir/closed-dir");
    for name in ["closed", "closed-dir/one", "open"] {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::hard_link(dir.join("closed-dir/one"), dir.join("closed-dir/two")).unwrap();
    fs::hard_link(dir.join("closed-dir/one"), dir.join("three")).unwrap();
    let vault = support::create_real_vault(&scratch.join("vault.db"));
    let import =
        || support::try_import(&vault, &dir, Some(&cache), OnTrouble::KeepGoing).unwrap().committed.changed();
    assert!(import());
    for name in ["closed", "closed-dir"] {
        set_mode(&dir.join(name), 0o000);
    }
    fs::write(dir.join("open"), "changed").unwrap();
    assert!(import());
    for _ in 0..2 {
        assert!(!import(), "nothing changed");
    }
    support::assert_clean(&vault);
    let out = scratch.join("out");
    support::export(&vault, "main", &out);
    for (name, text) in [("closed", "closed"), ("closed-dir/two", "closed-dir/one"), ("open", "changed")] {
        assert_eq!(fs::read_to_string(out.join(name)).unwrap(), text, "{name}");
    }
    assert_eq!(fs::metadata(out.join("closed-dir/two")).unwrap().nlink(), 2);
    set_mode(&dir.join("closed-dir"), 0o755);
}

/// Unreadable rules are not treated as empty: files that they exclude would be imported.
#[test]
fn unreadable_ignore_file_fails_every_import() {
    if support::is_root() {
        let name = "unreadable::unreadable_ignore_file_fails_every_import";
        return support::skip(name, "root ignores modes");
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("dir");
    fs::write(dir.join(".avfsignore"), "secret\n").unwrap();
    fs::write(dir.join("secret"), "x").unwrap();
    set_mode(&dir.join(".avfsignore"), 0o000);
    let vault = support::create_vault(&scratch.join("vault.db"));
    for on_trouble in [OnTrouble::Fail, OnTrouble::KeepGoing] {
        let refused = support::try_import(&vault, &dir, None, on_trouble);
        assert!(
            matches!(refused, Err(transfer::Error::Import(ImportError::NoPermission { .. }))),
            "{refused:?}"
        );
    }
}

/// A file too large for a vault is named; everything else is imported.
#[test]
fn too_large_file_is_named() {
    let scratch = Scratch::new();
    // A tmpfs allows files larger than most disk file systems do.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        let name = "unreadable::too_large_file_is_named";
        return support::skip(name, "no file system for files beyond 16 TiB");
    };
    fs::write(dir.path().join("huge"), "small yet").unwrap();
    fs::write(dir.path().join("other"), "1").unwrap();
    let vault = support::create_vault(&scratch.join("vault.db"));
    support::import(&vault, dir.path());
    let huge = fs::File::options().write(true).open(dir.path().join("huge")).unwrap();
    huge.set_len((16 << 40) + 1).unwrap();
    fs::write(dir.path().join("other"), "2").unwrap();
    let refused = support::try_import(&vault, dir.path(), None, OnTrouble::Fail);
    let message = refused.as_ref().map_err(ToString::to_string);
    assert!(
        matches!(&message, Err(message) if message.starts_with("huge is 17592186044417 bytes long")),
        "{message:?}"
    );
    let imported = support::try_import(&vault, dir.path(), None, OnTrouble::KeepGoing).unwrap();
    let [trouble] = &imported.scanned.troubles[..] else { panic!("{imported:?}") };
    assert_eq!((trouble.path.to_string(), trouble.reason), ("huge".to_owned(), TroubleReason::TooLarge));
    support::export(&vault, "main", &scratch.join("out"));
    assert_eq!(fs::read(scratch.join("out/huge")).unwrap(), b"small yet");
    assert_eq!(fs::read(scratch.join("out/other")).unwrap(), b"2");
}
