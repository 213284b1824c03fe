//! Workspaces: the directory a vault is bound to, where a run sees it, and what a run stands on.

pub mod binding;
pub(crate) mod host_look;
pub mod workspace_root;
pub mod workspace_service;
