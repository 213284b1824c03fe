//! Forks, checkpoints and versions.

pub mod checkpoint;
pub mod fork;
pub mod log;
pub mod redo;
pub mod restore;
pub mod show;
pub mod undo;
