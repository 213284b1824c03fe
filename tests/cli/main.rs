//! The `avfs` command as people and scripts use it: the real binary in a clean environment.

#![expect(clippy::unwrap_used, reason = "a harness that cannot continue should fail its test at once")]

#[path = "../support/schema.rs"]
mod schema;
#[path = "../support/mod.rs"]
mod support;

mod answers;
mod apply_owner;
mod arguments;
mod audit;
mod bad_input;
mod config;
mod damage;
mod diff_views;
mod documents;
mod env;
mod envelopes;
mod file_systems;
mod git_patch;
mod help;
mod hints;
mod in_effect;
mod injected;
mod json;
mod leftovers;
mod lists;
mod memory;
mod merging;
mod own_place;
mod policy;
mod processes;
mod record;
mod runs;
mod streams;
mod times;
mod tour;
mod vaults;
mod verbs;
