//! A damaged log, and an older copy of a vault: neither passes as the acknowledged state.

use std::fs;
use std::path::{Path, PathBuf};

use avfs_types::diagnose::Diagnose;
use avfs_vault::backend::BackendError;
use avfs_vault::backend::sqlite::{OnClose, OpenOptions, sibling};
use avfs_vault::{Vault, VaultError};

use crate::support;
use crate::support::Scratch;

/// Closing leaves the log unchanged.
const LEAVING: OpenOptions = OpenOptions {
    patience: std::time::Duration::from_secs(60),
    on_close: OnClose::LeaveLog,
    mapped: avfs_vault::backend::sqlite::Mapped::Yes,
};

fn open(path: &Path) -> Result<Vault, VaultError> {
    Vault::open(path, LEAVING, support::real_context())
}

/// A vault with several commits in its log, and the length of the log after each of them.
fn with_log(scratch: &Scratch) -> (PathBuf, Vec<u64>) {
    let path = scratch.join("vault.db");
    drop(support::create_real_vault(&path));
    let vault = open(&path).unwrap();
    let lengths = (0..5).map(|number| {
        support::write(&vault, &format!("f{number}"), format!("{number}").as_bytes());
        fs::metadata(sibling(&path, "-wal")).unwrap().len()
    });
    let lengths = lengths.collect();
    drop(vault);
    (path, lengths)
}

fn flip(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_log_does_not_pass_as_an_earlier_commit() {
    let scratch = Scratch::new();
    let (path, lengths) = with_log(&scratch);
    let log = sibling(&path, "-wal");
    let whole = fs::read(&log).unwrap();
    // In a frame of the fourth commit, of the second, and in the header, without which the log is not a log.
    for (at, lost) in [(lengths[2] + 100, 2), (lengths[0] + 100, 4), (17, 5), (0, 5)] {
        fs::write(&log, &whole).unwrap();
        let _ = fs::remove_file(sibling(&path, "-shm"));
        flip(&log, at);
        let damaged = fs::read(&log).unwrap();
        for _ in 0..2 {
            let error = open(&path).err().unwrap();
            assert_eq!(error.code(), "vault.rolled_back", "{at}: {error}");
            let VaultError::Backend(BackendError::RolledBack { rollback, .. }) = &error else {
                panic!("{error}")
            };
            assert_eq!(
                (rollback.rows, rollback.lost.len()),
                (lost, usize::try_from(lost).unwrap()),
                "{at}: {error}"
            );
            assert!(rollback.lost.iter().all(|commit| commit.subject.starts_with("main")), "{error}");
            assert!(fs::read(&log).unwrap() == damaged, "{at}: the damaged log was changed");
        }
        // Also with options that checkpoint the log on close.
        let settling = OpenOptions { on_close: OnClose::Settle, ..LEAVING };
        assert!(Vault::open(&path, settling, support::real_context()).is_err());
        assert!(fs::read(&log).unwrap() == damaged, "{at}");
    }
    // With the original log the vault is complete.
    fs::write(&log, &whole).unwrap();
    let _ = fs::remove_file(sibling(&path, "-shm"));
    let vault = open(&path).unwrap();
    assert!(vault.older_copy().is_none());
    support::assert_clean(&vault);
    drop(vault);
    // Without the `-head` file the loss cannot be detected, as the hint says.
    flip(&log, lengths[2] + 100);
    let _ = fs::remove_file(sibling(&path, "-shm"));
    fs::remove_file(sibling(&path, "-head")).unwrap();
    support::assert_clean(&open(&path).unwrap());
}

#[test]
fn older_copy_opens_and_is_reported_once() {
    let scratch = Scratch::new();
    let path = scratch.join("vault.db");
    let vault = support::create_real_vault(&path);
    support::write(&vault, "early", b"1");
    vault.backend().settle().unwrap();
    drop(vault);
    let backup = fs::read(&path).unwrap();
    let settling = OpenOptions { on_close: OnClose::Settle, ..LEAVING };
    for leaves in [settling, LEAVING] {
        let vault = Vault::open(&path, leaves, support::real_context()).unwrap();
        assert!(vault.older_copy().is_none());
        support::write(&vault, "late", b"2");
        support::write(&vault, "later", b"3");
        drop(vault);
        // Restored in place, without a log.
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(sibling(&path, suffix));
        }
        fs::write(&path, &backup).unwrap();
        let vault = open(&path).unwrap();
        let rollback = vault.older_copy().unwrap();
        assert_eq!((rollback.is_damaged, rollback.rows, rollback.lost.len()), (false, 2, 2), "{rollback}");
        assert!(rollback.to_string().contains("2 entries of the audit log"), "{rollback}");
        drop(vault);
        let vault = open(&path).unwrap();
        assert!(vault.older_copy().is_none());
        support::write(&vault, "after", b"4");
        support::assert_clean(&vault);
        drop(vault);
        for suffix in ["-wal", "-shm", "-head"] {
            let _ = fs::remove_file(sibling(&path, suffix));
        }
        fs::write(&path, &backup).unwrap();
    }
}
