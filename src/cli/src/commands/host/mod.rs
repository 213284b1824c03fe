//! Verbs about the host and the program: checks, settings, completions, manual pages.

pub mod completions;
pub mod config;
pub mod doctor;
pub mod man;
pub mod proxy;
pub mod schema;
