//! Ids, units, words and other small values that every part of avfs shares. Depends on no other crate of avfs.
#![forbid(unsafe_code)]

pub mod base64;
pub mod clock;
pub mod command_line;
pub mod diagnose;
pub mod encode;
pub mod exit_code;
pub mod glob;
pub mod ids;
mod keep_count;
pub mod path;
pub mod pause;
mod places;
pub mod printable;
pub mod redact;
pub mod reference;
pub mod secrets;
pub mod toml_source;
mod units;
mod words;
mod zone;

pub use command_line::CommandLine;
pub use keep_count::KeepCount;
pub use places::{CONFIG_FILE, VAULT_DIR, VAULT_FILE};
pub use redact::redact;
pub use units::{Limit, Since, Size, Span, UnitError, show_bytes_size};
pub use words::WordError;
pub use zone::Zone;
