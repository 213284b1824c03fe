//! Verbs that review, apply and discard the changes of a run or a fork.

pub mod apply;
pub mod diff;
pub mod discard;
pub mod patch;
pub mod status;
pub mod sync;
pub mod unapply;
