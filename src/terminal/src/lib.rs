//! The standard streams of both programs: the only place that writes to them.
//!
//! Text comes in from anywhere (names of files, output of commands, records of a vault) and leaves escaped: no control
//! or invisible character is printed, except line ends and tabs of contents. clippy.toml forbids the streams elsewhere.
//!
//! - `stream.rs` writes: lines, contents and JSON. What a command itself wrote is passed on unchanged.
//! - `painted.rs` has colours. Escape codes are recognized by their address, which text from outside cannot have.
//! - `progress.rs` shows the counters of a long operation: a bar on a terminal, a line from time to time elsewhere.
//! - `log.rs` prints the events of `AVFS_LOG`.
//!
//! A closed stderr is never an error: the exit status and stdout have the answer.
#![forbid(unsafe_code)]

mod log;
mod painted;
mod progress;
mod stream;

pub use log::{LOG_VARIABLE, start_log};
pub use painted::{Painted, Tone};
pub use progress::{Bar, LINE_AFTER, LINE_EVERY, progress_line};
pub use stream::{
    ErrorText, ask, error_line, error_lines, line, lines, pass_on, stderr, stderr_is_terminal, stdout,
    stdout_is_terminal,
};
