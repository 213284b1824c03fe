//! avfs: a content-addressed, versioned workspace store in one SQLite file.
//!
//! The layers, each knowing only the ones to its right:
//! [`config`] → `runtime` → [`vault`] → [`backend`] → [`ids`]; [`hostfs`] is a leaf that only talks to the kernel.
//! The library never prints, never exits and never reads the environment: the two commands do.
#![forbid(unsafe_code)]

pub mod backend;
pub mod clock;
pub mod config;
pub mod diagnose;
pub mod exit_code;
pub mod hostfs;
pub mod ids;
pub mod pause;
pub mod printable;
pub mod runtime;
mod toml_source;
pub mod vault;
