//! Recorded runs as a command list: which runs are meant, and what a list says of each.
//!
//! Only reads. The journal is gone through in batches, oldest first, so that memory is flat whatever its length.

mod export;
mod selection;

pub use export::{Exported, count, export};
pub use selection::{Selection, SelectionError};
