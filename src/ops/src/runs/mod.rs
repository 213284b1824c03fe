//! The verbs about runs: the journal, approvals, cached results, recovery, and the policy that decides.
//!
//! The id of a run or an approval comes in, or a request to evaluate; records leave as wire types, with what the text
//! for people needs beyond them as plain values. The journal keeps texts, which may be of another version: a part that
//! cannot be read is noted, and never fails a list. A run that is not in the journal yet is found by its scratch, so
//! `show.rs` answers with a settled or an unsettled run. Nothing here executes a command; `recover.rs` finishes the
//! capture of one that was executed.
//!
//! Start reading with `list.rs`, then `show.rs`.

mod approvals;
mod cache;
mod list;
mod output;
mod policy;
mod recover;
mod show;

pub use avfs_engine::Doubt;
pub use avfs_vault::application::InDirectory;

pub use approvals::{
    AlwaysAllow, AnsweredApproval, ApprovalsQuery, ShownApproval, approval, approve, deny, each_approval,
};
pub use cache::{cached_results, explain_cache, forget_results};
pub use list::{RunRow, RunsQuery, each_run, unsettled_runs};
pub use output::KeptOutput;
pub use policy::{PolicyQuery, check_policy, explain_policy, test_policies};
pub use recover::{RecoverAction, RecoverQuery, finish, recover};
pub use show::{FoundRun, RunApproval, RunDetail, SettledRun, kept_output, show_run};
