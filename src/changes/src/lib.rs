//! The changes of a run: counting, displaying, and applying them to the directory they were made for.
//!
//! This crate never runs a command, and writes to the host directory only in [`apply`].
//!
//! ```
//! use avfs_changes::{HostUse, runs_on_host};
//! use avfs_types::clock::FileTime;
//! use avfs_types::path::TreePath;
//! use avfs_vault::page::{Node, SymlinkNode};
//!
//! // A hook that git would execute once it is applied.
//! let hook = TreePath::parse(b".git/hooks/pre-commit")?;
//! let node = Node::Symlink(SymlinkNode {
//!     mtime: FileTime::default(),
//!     target: b"../../hook.sh".to_vec(),
//!     link: None,
//! });
//! assert!(matches!(runs_on_host(&hook, &node), Some((HostUse::Executed, _))));
//! # Ok::<(), avfs_types::path::PathError>(())
//! ```
#![forbid(unsafe_code)]

mod apply;
mod bare_repository;
pub mod bookkeeping;
mod change_report;
mod change_summary;
mod change_view;
mod git_ignored;
pub mod git_index;
mod git_patch;
mod host_executed;
mod host_files;
mod line_diff;
mod linked_paths;
pub mod read_only_check;
mod repository;

pub use apply::Filter;
pub use apply::{
    Applied, ApplyError, ApplyOptions, Choice, Conflict, EarlierApply, Inherited, InheritedRemedy, Standing,
    Subject, apply, changes_to_apply, inherited_changes, unapply,
};
pub use change_report::{ChangeReport, ChangeSummaryService};
pub use change_summary::{
    ChangeCounts, ChangeSummary, LineStat, Shown, TextChange, each_line, is_binary, lines,
};
pub use change_view::{
    CHANGES_SHOWN_MAX, Extent, StatView, TreeLine, TreeView, beside_content, file_sizes, is_dir, kind_words,
    stat_view, tree_view,
};
pub use git_ignored::{FOLDED_CHANGES_MAX, FoldedChanges, GitIgnored};
pub use git_patch::{PatchLeftOff, PatchLimits, PatchUse, patch_view};
pub use host_executed::{HostUse, RunsOnHost, called_out, places_of_host, runs_on_host};
pub use repository::{BlockedRepository, RepositoryChange, is_repository_state};
