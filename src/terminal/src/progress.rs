//! The counters of a long operation, as a bar or as a line.

use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use avfs_types::show_bytes_size;
use avfs_vault::meter::Meter;

/// Without a terminal: when to print the first line, and the interval after that. Logs need no line about short
/// operations.
pub const LINE_AFTER: Duration = Duration::from_secs(5);
pub const LINE_EVERY: Duration = Duration::from_secs(10);

/// A line for logs: `importing: 10 of 200 files, 3.1 MiB so far`.
#[must_use]
pub fn progress_line(label: &str, meter: &Meter) -> String {
    let (files, total) = (meter.files.load(Ordering::Relaxed), meter.files_total.load(Ordering::Relaxed));
    let of = if total > 0 { format!(" of {total}") } else { String::new() };
    format!("{label}: {files}{of} files, {} so far", show_bytes_size(meter.bytes.load(Ordering::Relaxed)))
}

/// A progress bar on a terminal. Dropping it removes it.
pub struct Bar {
    bar: ProgressBar,
    styles: [ProgressStyle; 2],
}

impl Bar {
    /// `None` if the bar cannot be drawn.
    #[must_use]
    pub fn new(prefix: &str) -> Option<Self> {
        let known = ProgressStyle::with_template(&format!(
            "{prefix}{{prefix}} [{{bar:30}}] {{pos}}/{{len}} files, {{msg}}"
        ));
        let unknown =
            ProgressStyle::with_template(&format!("{prefix}{{prefix}} {{spinner}} {{pos}} files, {{msg}}"));
        Some(Self { bar: ProgressBar::new(0), styles: [known.ok()?, unknown.ok()?] })
    }

    #[expect(clippy::disallowed_methods, reason = "only numbers and our own words are shown")]
    pub fn draw(&self, label: &'static str, remark: &'static str, meter: &Meter) {
        let total = meter.files_total.load(Ordering::Relaxed);
        let [known, unknown] = &self.styles;
        self.bar.set_style(if total > 0 { known.clone() } else { unknown.clone() });
        self.bar.set_prefix(label);
        self.bar.set_length(total);
        self.bar.set_position(meter.files.load(Ordering::Relaxed));
        self.bar.set_message(format!("{}{remark}", HumanBytes(meter.bytes.load(Ordering::Relaxed))));
        self.bar.tick();
    }

    /// Prints something above the bar.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl std::fmt::Debug for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bar").finish_non_exhaustive()
    }
}
