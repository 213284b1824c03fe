//! Converts the results of the other crates to their printed form: one function for each wire type, and a
//! hint for each error.
//!
//! The wire types are in `avfs-wire`, which does not depend on vaults and runs. Nothing here prints.
//!
//! ```
//! use avfs_request::{EnforcedLimit, LimitKind, Mechanism};
//!
//! let held = EnforcedLimit { kind: LimitKind::Memory, value: 1 << 30, mechanism: Mechanism::Cgroup2 };
//! let json = serde_json::to_value(avfs_present::limit(&held))?;
//! assert_eq!(json, serde_json::json!({ "limit": "memory", "value": 1 << 30, "mechanism": "cgroup2" }));
//! # Ok::<(), serde_json::Error>(())
//! ```
#![forbid(unsafe_code)]

mod approvals;
mod batch;
mod cache;
mod compact;
mod enforcement;
mod entry;
mod execution;
mod hints;
mod policy;
mod recordings;
mod records;
mod replay;
mod result;
mod results;
mod runs;
mod work_item;

pub use approvals::{approval, approval_shown, approval_state};
pub use batch::batch;
pub use cache::{cache_explained_of_look, cache_explained_of_run, cache_use_of_run, found, memo};
pub use compact::compact_line;
pub use enforcement::{enforcement, limit};
pub use entry::{change, change_kind, change_list, change_totals, entry, node_kind};
pub use execution::{
    approval_body, approve_command, command_to_approve, decision_before_the_request, denial_body, execution,
    execution_planned,
};
pub use hints::{Avfs, DISK_FULL, Hint, error_body, merge_commits, usage_lines};
pub use policy::{
    policy_cap, policy_check, policy_command, policy_decision, policy_explain, policy_failure, policy_said,
    policy_verdict,
};
pub use recordings::recording;
pub use records::{audit_line, audit_row, checkpoint, fork, run, run_state, version};
pub use replay::difference;
pub use result::{change_report, note_text, result, runs_on_host, stream};
pub use results::{diff_tree_line, edited, file_stat, fork_use, import, left_out, trouble};
pub use runs::{
    applied, apply, apply_refused, base_kind_of_run, command_of, conflicts, denial, discard, in_effect,
    inherited, path_texts, redo, run_shown, undo, unsettled_run,
};
pub use work_item::inspection;
