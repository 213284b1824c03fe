//! Maintenance of a vault: garbage collection, consistency checks, quotas.

pub mod fsck;
pub mod gc;
pub(crate) mod pace;
pub mod quota;
mod tally;
pub mod witness;
