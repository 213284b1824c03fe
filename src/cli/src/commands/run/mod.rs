//! Runs: what was asked for and allowed, what was kept of them, what is remembered.

pub mod approvals;
pub mod cache;
pub mod execute;
pub mod kept_output;
pub mod policy;
pub mod recover;
pub mod runs;
