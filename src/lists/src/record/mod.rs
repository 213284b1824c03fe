//! Recorded runs as a command list: which runs to include, and the item for each.
//!
//! Only reads. The journal is read in batches, oldest first, so that memory use does not depend on its length.

mod export;
mod selection;

pub use export::{Exported, count, export};
pub use selection::{Selection, SelectionError};
