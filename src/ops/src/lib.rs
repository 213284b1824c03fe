//! The verbs of avfs as functions.
//!
//! Each verb is a module with one function, or a few: typed parameters and a [`Workplace`] come in, a type of
//! `avfs-wire` leaves. A function prints nothing, has no exit status, and reads neither arguments nor the
//! environment; what a person should know goes to the observer of the client. Lists that can be long take a receiver
//! of rows instead of being collected.
//!
//! The command line turns arguments into parameters and answers into text. Other front ends (a server, a page) call
//! the same functions. Start reading with `history/undo.rs`, which uses every part.
#![forbid(unsafe_code)]

mod changes;
mod error;
pub mod files;
mod given_path;
pub mod history;
mod labels;
mod named_run;
pub use named_run::{command_text, note_fork, quoted};
pub mod review;
pub mod runs;
pub mod text;
pub mod upkeep;
mod view;

pub use avfs_changes::CHANGES_SHOWN_MAX;
pub use avfs_vault::discard::ChangesOf;
pub use avfs_workplace::{
    Announcement, Cancellation, Client, Context, Meter, Notices, Observer, OpError, Operation, Progress,
    Workplace, WorkplaceError,
};
pub use changes::{ChangeLine, ChangeLines};
pub use error::{RepositoryConflict, SideChoice, VerbError, of_copy};
pub use files::*;
pub use given_path::{GivenPath, within};
pub use history::*;
pub use labels::{Labels, labels};
