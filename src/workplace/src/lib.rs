//! What every verb works with, opened once: the client that calls, and its vault with the settings that apply to it.
//!
//! - [`Client`] comes in: where the caller is, which vault it names, who it is, and who observes it.
//! - [`Workplace`] leaves: an open vault that was checked (its place, its owner, that no older copy replaced it), and
//!   everything that is found from it, such as the cache and the settings of its directory.
//! - [`Observer`] has the three ways in which a long operation reaches the caller: progress, cancellation and notices.
//!   A library that has no person before it passes [`Observer::silent`].
//! - [`OpError`] is how a verb ends early.
//!
//! Nothing here prints, ends the process, or reads the environment: [`Client`] is made by the program, which knows its
//! own working directory and variables. A vault is created only by [`Client::open_or_make`], after the policy was
//! asked. Start reading with `client.rs`.
#![forbid(unsafe_code)]

mod client;
mod error;
mod observer;
mod run;
mod run_error;
mod settings;
mod workplace;

pub use avfs_vault::Context;
pub use avfs_vault::meter::{Announcement, Meter};
pub use client::Client;
pub use error::{OpError, WorkplaceError};
pub use observer::{Cancellation, Notices, Observer, Operation, Progress};
pub use run::{RunContext, arguments_bytes_max, policy, read_config};
pub use run_error::RunError;
pub use workplace::Workplace;
