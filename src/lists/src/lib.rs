//! Command lists: read, run in order or beside each other, recorded, replayed and searched.
#![forbid(unsafe_code)]

pub mod batch;
pub mod bisect;
pub mod list;
pub mod race;
pub mod record;
pub mod replay;
