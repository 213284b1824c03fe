//! Command lists: commands in a file, to be run together or again (docs/LISTS.md).
//!
//! A list is checked whole before its first command is run, and never held whole: of each item a few bytes are kept, and
//! it is read again when its turn comes. Nothing here runs anything or knows of a vault.

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
