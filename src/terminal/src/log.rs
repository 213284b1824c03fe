//! The log for developers: events of the programs on stderr, if `AVFS_LOG` is set.

use std::io::Write;

use avfs_types::printable;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::stream::error_line;

/// The variable with the filter: a level, or pairs such as `avfs_engine=debug`.
pub const LOG_VARIABLE: &str = "AVFS_LOG";

/// Prints the events that the filter selects. Without a filter nothing is installed, and events cost nothing. A part
/// of the filter that cannot be parsed selects nothing.
pub fn start_log(filter: Option<&str>) {
    let Some(filter) = filter else { return };
    let targets: Targets = match filter.parse() {
        Ok(targets) => targets,
        Err(error) => {
            error_line(format_args!("{LOG_VARIABLE}: {error}"));
            return;
        }
    };
    let events = tracing_subscriber::fmt::layer().with_writer(|| Event).with_ansi(false);
    // A second call in one process keeps the first filter.
    let _ = tracing_subscriber::registry().with(targets).with(events).try_init();
}

/// Each write is one event, printed as a line.
struct Event;

impl Write for Event {
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let text = printable::text_of(event);
        error_line(format_args!("{}", text.strip_suffix('\n').unwrap_or(&text)));
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
