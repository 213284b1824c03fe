//! What a run or a fork changed: looked at, applied, dropped.

pub mod apply;
pub mod diff;
pub mod discard;
pub mod patch;
pub mod status;
pub mod sync;
pub mod unapply;
