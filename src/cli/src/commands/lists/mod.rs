//! Lists of commands: run, recorded, replayed, searched.

pub mod batch;
pub mod bisect;
pub mod race;
pub mod record;
pub mod replay;
