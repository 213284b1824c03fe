//! The storage layer as a whole: real SQLite files, a real kernel, real processes that are killed.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should fail immediately")]

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod apply_beside;
mod apply_runs;
mod approvals;
mod attributes;
mod bases;
mod capture;
mod changing;
mod concurrency;
mod crash;
mod damage;
mod deep_paths;
mod directory_looks;
mod faults;
mod fork_use;
mod format;
mod golden;
mod hostile;
mod ignoring;
mod joining;
mod journal;
mod layers;
mod looks;
mod memos;
mod model;
mod objects;
mod overlay;
mod rebasing;
mod rollback;
mod roundtrip;
mod run_forks;
mod runs;
mod secrets;
mod stat_cache;
mod sweeping;
mod sync;
mod syncs;
mod unapply;
mod undo;
mod unreadable;
mod worker;
