//! Verbs about runs: requests, policy, approvals, journal, cached results.

pub mod approvals;
pub mod cache;
pub mod execute;
pub mod kept_output;
pub mod policy;
pub mod recover;
mod run_approval;
pub mod runs;
