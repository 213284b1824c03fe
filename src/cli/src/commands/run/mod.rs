//! Verbs about runs: requests, policy, approvals, journal, cached results.

pub mod approvals;
pub mod cache;
pub mod execute;
pub mod policy;
pub mod recover;
pub mod runs;
