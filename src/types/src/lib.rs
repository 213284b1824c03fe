//! Ids, units, words and other small values that every part of avfs shares.
//!
//! Values are parsed once, at the edge, into types that cannot hold anything invalid: a [`ids::ForkName`] is a valid
//! name, a [`path::TreePath`] never leaves its tree. Errors implement [`diagnose::Diagnose`], which gives them a stable
//! code.
//!
//! This crate depends on no other crate of avfs. It never opens a file or starts a process, and reads the machine's
//! clock only in [`clock::SystemClock`].
//!
//! ```
//! use avfs_types::Size;
//! use avfs_types::diagnose::Diagnose;
//! use avfs_types::ids::{ForkName, NameError};
//! use avfs_types::reference::Reference;
//!
//! assert_eq!("20MiB".parse(), Ok(Size(20 << 20)));
//!
//! let reference: Reference = "main~2".parse()?;
//! assert_eq!(reference.back, 2);
//! assert_eq!(reference.fork_name(), None, "it names an older version, not the fork");
//!
//! let error: NameError = ForkName::parse("a b").unwrap_err();
//! assert_eq!(error.code(), "name.invalid");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod base64;
pub mod clock;
pub mod command_line;
pub mod diagnose;
pub mod encode;
pub mod exit_code;
pub mod glob;
pub mod ids;
mod keep_count;
mod last_lines;
pub mod path;
pub mod pause;
mod places;
pub mod printable;
pub mod redact;
pub mod reference;
pub mod renamed;
pub mod secrets;
pub mod toml_source;
mod units;
mod value;
mod words;
mod zone;

pub use command_line::CommandLine;
pub use keep_count::KeepCount;
pub use last_lines::{LAST_LINES_BYTES_MAX, LAST_LINES_MAX, last_lines};
pub use places::{CONFIG_FILE, VAULT_DIR, VAULT_FILE};
pub use redact::redact;
pub use units::{Limit, Since, Size, Span, UnitError, show_bytes_size};
#[doc(hidden)]
pub use value::Amount;
pub use words::{Word, WordError};
pub use zone::Zone;
#[doc(hidden)]
pub mod external {
    //! Crates that the macros of this crate use where they are expanded.
    #[cfg(feature = "schema")]
    pub use schemars;
    pub use serde;
}
