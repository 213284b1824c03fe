//! Command lists: commands in a file, to be run together or repeated (docs/LISTS.md).
//!
//! A list is checked completely before its first command runs, and is never held in memory: only a few bytes
//! are kept per item, and the item is read again when it runs. Nothing here runs a command or accesses a vault.

mod check;
mod error;
mod file;
mod line;
mod needs;
mod write;

#[cfg(test)]
mod tests;

pub use error::ListError;
pub use file::{ListFile, STDIN};
pub use write::{ListWriter, request_json};
