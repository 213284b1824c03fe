//! Lists of commands that are run: in which order, from what, and what is told of it. Pure: the processes are
//! somebody else's.

pub mod junit;
pub mod markdown;
#[cfg(test)]
mod samples;
mod schedule;

pub use schedule::{Begins, Manner, OnFailure, Schedule, Standing};
