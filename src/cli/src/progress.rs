//! Long operations: progress output, and a clean end on a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use avfs_hostfs::machine;
use avfs_types::show_bytes_size;
use avfs_vault::meter::{Announcement, Meter, Onlooker};

use crate::error::EdgeError;
use crate::signals::Watched;
use crate::ui::{Format, error_line, stderr_is_terminal};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Without a terminal: when to print the first progress line, and the interval after that.
const LINE_AFTER: Duration = Duration::from_secs(5);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// An operation with a meter. Dropping it removes the progress bar.
pub struct Progress {
    pub meter: Arc<Meter>,
    shown: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    /// Stops the signal handling when closed.
    signals: Option<(Handle, Watched)>,
}

impl Progress {
    /// Shows progress: on a terminal at once, elsewhere with a line from time to time.
    pub fn start(label: &'static str) -> Self {
        Self::with(label, Meter::default())
    }

    fn with(label: &'static str, meter: Meter) -> Self {
        let meter = Arc::new(meter);
        let drawn = || {
            let (done, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(&meter));
            let ended = Arc::clone(&done);
            let show = if stderr_is_terminal() { draw } else { print_lines };
            let thread = std::thread::Builder::new().spawn(move || show(label, &seen, &ended));
            // The operation runs even if its progress cannot be shown.
            Some((done, thread.ok()?))
        };
        let shown = drawn();
        Self { meter, shown, signals: None }
    }

    /// Like [`Self::start`], for an operation that a signal ends cleanly; a second signal ends it at once.
    pub fn interruptible(label: &'static str) -> Result<Self, EdgeError> {
        Self::start(label).ended_by_signals()
    }

    /// Like [`Self::interruptible`], for an operation that may have an announcement.
    pub fn announcing(
        label: &'static str,
        announcement: Option<Announcement>,
        format: Format,
    ) -> Result<Self, EdgeError> {
        let meter = Meter::watched(Box::new(Announcer(format)));
        if let Some(announcement) = announcement {
            meter.announce_when_due(announcement);
            meter.announce_if_due();
        }
        Self::with(label, meter).ended_by_signals()
    }

    /// Like [`Self::interruptible`], without any output.
    pub fn unshown() -> Result<Self, EdgeError> {
        Self { meter: Arc::default(), shown: None, signals: None }.ended_by_signals()
    }

    fn ended_by_signals(self) -> Result<Self, EdgeError> {
        let mut progress = self;
        let meter = Arc::clone(&progress.meter);
        let mut ends = vec![SIGINT, SIGTERM];
        // A process that ignores SIGHUP, such as one started by nohup, must outlive its terminal.
        ends.extend((!machine::ignores(SIGHUP)).then_some(SIGHUP));
        let watched = Watched::begin(&ends).map_err(EdgeError::Signals)?;
        let mut signals = Signals::new(ends).map_err(EdgeError::Signals)?;
        progress.signals = Some((signals.handle(), watched));
        let watching = std::thread::Builder::new().spawn(move || {
            for signal in signals.forever() {
                if meter.stopped() {
                    // If the default action fails too, nothing is left to try.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                meter.stop();
            }
        });
        watching.map_err(EdgeError::Threads)?;
        Ok(progress)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((signals, _watched)) = self.signals.take() {
            signals.close();
        }
        if let Some((done, thread)) = self.shown.take() {
            done.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            // A failed progress bar must not hide the result of the operation.
            let _ = thread.join();
        }
    }
}

/// Prints the announcement of an operation for people.
#[derive(Debug)]
struct Announcer(Format);

impl Onlooker for Announcer {
    fn wait_begins(&self) {}

    fn looks(&self, _: &Meter) {}

    fn wait_ends(&self, _: &Meter) {}

    fn announces(&self, lines: &[String]) {
        match self.0 {
            Format::Human => lines.iter().for_each(|line| error_line(format_args!("{line}"))),
            // The answer has it.
            Format::Json => {}
        }
    }
}

/// Progress lines for logs; prints nothing about short operations.
fn print_lines(label: &'static str, meter: &Meter, done: &AtomicBool) {
    let (begun, mut next_line) = (Instant::now(), LINE_AFTER);
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(next_line.saturating_sub(begun.elapsed()).min(LOOK_EVERY));
        meter.announce_if_due();
        if begun.elapsed() >= next_line && !done.load(Ordering::Relaxed) {
            next_line += LINE_EVERY;
            let (files, total) =
                (meter.files.load(Ordering::Relaxed), meter.files_total.load(Ordering::Relaxed));
            let of = if total > 0 { format!(" of {total}") } else { String::new() };
            let bytes = show_bytes_size(meter.bytes.load(Ordering::Relaxed));
            error_line(format_args!("{label}: {files}{of} files, {bytes} so far"));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "only numbers are shown")]
fn draw(label: &'static str, meter: &Meter, done: &AtomicBool) {
    // An operation that ends within one interval needs no bar.
    std::thread::park_timeout(LOOK_EVERY);
    if done.load(Ordering::Relaxed) {
        return;
    }
    let known = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} files, {msg}");
    let unknown = ProgressStyle::with_template("{prefix} {spinner} {pos} files, {msg}");
    let (Ok(known), Ok(unknown)) = (known, unknown) else { return };
    let bar = ProgressBar::new(0).with_style(unknown.clone()).with_prefix(label);
    while !done.load(Ordering::Relaxed) {
        let total = meter.files_total.load(Ordering::Relaxed);
        bar.set_style(if total > 0 { known.clone() } else { unknown.clone() });
        bar.set_length(total);
        bar.set_position(meter.files.load(Ordering::Relaxed));
        bar.set_message(HumanBytes(meter.bytes.load(Ordering::Relaxed)).to_string());
        bar.tick();
        if meter.is_announcement_due() {
            bar.suspend(|| meter.announce_if_due());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    bar.finish_and_clear();
}
