//! The verbs that create, check and maintain vaults and the cache.
//!
//! Most take the [`Client`](crate::Client) and open the vault themselves: to create it, to delete it, to use its
//! reserve on a full disk, or because they work without one. Counts and paths leave as wire types. A check that finds
//! damage is an answer too, with the error that says so. Start reading with `gc.rs`.

pub mod audit;
mod clean;
mod compact;
mod du;
mod fsck;
mod gc;
mod init;
mod prune;
mod quota;
mod stats;
pub mod vault;

pub use clean::clean;
pub use compact::compact;
pub use du::du;
pub use fsck::{FsckAnswer, FsckQuery, HealFrom, fsck};
pub use gc::gc;
pub use init::init;
pub use prune::{PruneQuery, prune};
pub use quota::{QuotaChange, change_quota, quota};
pub use stats::stats;
