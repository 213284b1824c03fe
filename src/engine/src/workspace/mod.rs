//! Workspaces: the directory a vault is bound to, its path in the sandbox, and the base of a run.

pub mod binding;
pub(crate) mod fork_behind;
pub(crate) mod host_look;
pub(crate) mod run_base;
pub mod workspace_root;
pub(crate) mod workspace_service;
