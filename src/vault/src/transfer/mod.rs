//! Transfers between the vault and directories of the host: import, capture, export, materialize.

pub mod account;
pub mod capture;
mod error;
pub mod evict;
pub mod export;
pub mod ignore;
pub mod import;
pub mod layers;
pub mod materialize;
pub mod merge;
pub mod own;
mod scan;
pub mod set_ids;
pub mod shelf;
pub mod spill;
pub mod stat_cache;
pub mod unfinished;
pub mod write_out;

pub use error::{Error, Result};
