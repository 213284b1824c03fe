//! Verbs about lists of commands: run, record, replay and search them.

pub mod batch;
pub mod bisect;
pub mod race;
pub mod record;
pub mod replay;
