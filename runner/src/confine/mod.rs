//! Confinement of a command in addition to its namespaces: a seccomp filter, and Landlock as a second check on files.
//!
//! All decisions are made before the clone; the code that runs after it neither allocates nor locks.

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
pub use seccomp::{Filter, Notified, UnixSockets, pin};
