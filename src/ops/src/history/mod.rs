//! The verbs about the versions of a fork: what happened, and one step back or forward.

mod log;

pub use log::{LogPage, LogQuery, log};
