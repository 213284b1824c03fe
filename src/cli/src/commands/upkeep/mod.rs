//! The vault itself: made, checked, kept small.

pub mod audit;
pub mod compact;
pub mod fsck;
pub mod gc;
pub mod init;
pub mod prune;
pub mod quota;
pub mod stats;
pub mod vault;
