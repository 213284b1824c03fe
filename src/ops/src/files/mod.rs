//! The verbs that list, read, edit, import and export the files of a version.
//!
//! A version and paths in it come in; entries, contents or a new version leave. A verb that reads opens one consistent
//! view of the version (`view.rs`), so that a concurrent prune cannot take files away in between. Lists and contents
//! go to a receiver, one at a time; the variants that collect are for answers in JSON. A verb that edits adds one
//! version to a fork (`edit.rs`) and never changes the bound directory, which it notes. `import` and `export` move
//! whole trees between a directory and the vault; both can be cancelled without a trace.
//!
//! Start reading with `entries.rs` for reading, and with `edit.rs` for writing.

mod cat;
mod edit;
mod entries;
mod export;
mod grep;
mod import;
mod materialize;

pub use avfs_vault::export::Overwrite;
pub use avfs_vault::materialize::Trust;
pub use avfs_vault::ops::{Depth, Parents};
pub use avfs_vault::set_ids::SetIds;

pub(crate) use edit::{edited, note_directory};

pub use cat::{CatQuery, Content, cat, each_content};
pub use edit::{EditTarget, cp, mkdir, mv, rm, write};
pub use entries::{EntriesQuery, Entry, EntryFilter, NamePattern, SizeTest, each_entry, entries};
pub use export::{ExportQuery, export};
pub use grep::{FileMatch, GrepQuery, MatchedLines, Pattern, PatternOptions, Searched, each_match, grep};
pub use import::{ImportQuery, import, import_for_runs};
pub use materialize::{MaterializeQuery, materialize};
