//! End-to-end tests of `avfs-run`: the real binaries, real commands, a real kernel.
//!
//! The host directory is compared before and after every run: see [`env::TestEnv::answer`].

#![expect(clippy::unwrap_used, reason = "a harness that cannot continue should fail its test at once")]

#[path = "../support/schema.rs"]
mod schema;
#[path = "../support/mod.rs"]
mod support;

mod applied;
mod batch;
mod batch_again;
mod batch_order;
mod batch_resume;
mod bisect;
mod boundary;
mod cache;
mod cache_reasons;
mod confinement;
mod contract;
mod discard_all;
mod disk_use;
mod doubts;
mod env;
mod evasions;
mod everyday;
mod exact_files;
mod faults;
mod fork_behind;
mod fork_names;
mod forks;
mod full_disks;
mod generated;
mod git;
mod hard_links;
mod host_base;
mod host_changed;
mod inherited;
mod injected;
mod kernel_facts;
mod kills;
mod large_directories;
mod limits;
mod lists;
mod looking;
mod messages;
mod network;
mod oracle;
mod output;
mod outside;
mod person;
mod power_loss;
mod presets;
mod race;
mod recordings;
mod remounted;
mod renames;
mod replay;
mod reproducible;
mod resources;
mod review;
mod sandboxes;
mod secrets;
mod shared;
mod signals;
mod snippets;
mod steps;
mod streams;
mod terminal;
mod touched;
mod variables;
