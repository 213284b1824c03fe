//! Upkeep of a vault: sweeping, checking, limits.

pub mod fsck;
pub mod gc;
pub mod quota;
pub mod witness;
