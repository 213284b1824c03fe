//! Maintenance of a vault: garbage collection, consistency checks, quotas.

pub mod fsck;
pub mod gc;
pub mod quota;
mod tally;
pub mod witness;
