//! What confines a command beside its namespaces: a seccomp filter, and Landlock's second look at files.
//!
//! Everything is decided before the clone; what is done after it neither allocates nor locks.

#[cfg(test)]
mod interpreter;
mod landlock;
mod numbers;
mod own_binary;
mod refused_calls;
mod seccomp;

pub use landlock::{Landlock, LandlockGap};
pub use own_binary::{Seal, seals};
pub use refused_calls::RefusedCalls;
pub use seccomp::{Filter, Told, UnixSockets, pin};
