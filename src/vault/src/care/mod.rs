//! Maintenance of a vault: garbage collection, consistency checks, quotas.

pub mod fsck;
pub mod gc;
pub mod quota;
pub mod witness;
