//! This host and these commands: checks, settings, completions.

pub mod completions;
pub mod config;
pub mod doctor;
pub mod man;
pub mod proxy;
pub mod schema;
