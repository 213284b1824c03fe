//! The text forms of the parts of an answer.

use avfs_types::Zone;
use avfs_types::clock::{FileTime, Timestamp, parse_time};
use avfs_types::ids::SHORT_HEX_DIGITS;
use avfs_types::path::Shown;

pub use avfs_ops::text::{command_line, first_line, message_line, plural};

/// The target of a symlink, to print after its name.
pub fn arrow(target: Option<&[u8]>) -> String {
    target.map(|target| format!(" -> {}", Shown(target))).unwrap_or_default()
}

/// A time in the local time zone.
pub fn local_time(at: Timestamp) -> String {
    Zone::system().show(at)
}

/// A time of an answer in the local time zone; a time outside of the calendar stays unchanged.
pub fn local_time_of(at: &str) -> String {
    parse_time(at).map_or_else(|| at.to_owned(), local_time)
}

pub fn local_file_time(time: FileTime) -> String {
    Zone::system().show_file_time(time)
}

/// The first digits of the id of a version, for people.
pub fn short(id: &str) -> &str {
    id.get(..SHORT_HEX_DIGITS).unwrap_or(id)
}
