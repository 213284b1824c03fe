//! Running a list of commands: order, starting points and reports. Pure: callers manage the processes.

pub mod junit;
pub mod markdown;
#[cfg(test)]
mod samples;
mod schedule;

pub use schedule::{Begins, Manner, OnFailure, Schedule, Standing};
