//! Code shared by the verbs that run the items of a list: the main loop, the progress view, and the versions
//! to start at.

mod joins;
mod show;
mod work;

use avfs_types::{CommandLine, redact};
use avfs_wire::ListItem;

pub use joins::{Beginning, beginning};
pub use work::{Items, Work, jobs, run};

/// The maximum length of a printed command.
const COMMAND_CHARS: usize = 500;

/// A command on one line, for people and reports.
pub fn shown_command(item: &ListItem) -> String {
    let shown = item.request.command_line().as_ref().map(CommandLine::shown).unwrap_or_default();
    let line: String =
        shown.chars().take(COMMAND_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    redact(&line).into_owned()
}
