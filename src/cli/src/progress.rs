//! Long operations: progress output, and a clean end on a signal.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;

use avfs_hostfs::machine;
use avfs_ops::{Cancellation, Meter, OpError, Progress, WorkplaceError};
use avfs_terminal::{Bar, LINE_AFTER, LINE_EVERY, error_line, progress_line, stderr_is_terminal};

use crate::signals::Watched;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Shows progress: on a terminal with a bar, elsewhere with a line from time to time.
pub struct Display;

/// A progress bar; dropping it removes it.
struct Shown(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Progress for Display {
    fn show(&self, label: &'static str, meter: &Arc<Meter>) -> Box<dyn Any> {
        let (done, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(meter));
        let ended = Arc::clone(&done);
        let show = if stderr_is_terminal() { draw } else { print_lines };
        let thread = std::thread::Builder::new().spawn(move || show(label, &seen, &ended));
        // The operation runs even if its progress cannot be shown.
        Box::new(Shown(thread.ok().map(|thread| (done, thread))))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some((done, thread)) = self.0.take() {
            done.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            // A failed progress bar must not hide the result of the operation.
            let _ = thread.join();
        }
    }
}

/// Ends an operation cleanly on a signal; a second signal ends it at once.
pub struct Signals;

/// Stops the signal handling when dropped.
struct Handled(Handle, Watched);

impl Cancellation for Signals {
    fn watch(&self, meter: &Arc<Meter>) -> Result<Box<dyn Any>, OpError> {
        let meter = Arc::clone(meter);
        let mut ends = vec![SIGINT, SIGTERM];
        // A process that ignores SIGHUP, such as one started by nohup, must outlive its terminal.
        ends.extend((!machine::ignores(SIGHUP)).then_some(SIGHUP));
        let watched = Watched::begin(&ends).map_err(WorkplaceError::Signals)?;
        let mut signals = signal_hook::iterator::Signals::new(ends).map_err(WorkplaceError::Signals)?;
        let handled = Handled(signals.handle(), watched);
        let watching = std::thread::Builder::new().spawn(move || {
            for signal in signals.forever() {
                if meter.stopped() {
                    // If the default action fails too, nothing is left to try.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                meter.stop();
            }
        });
        watching.map_err(WorkplaceError::Threads)?;
        Ok(Box::new(handled))
    }
}

impl Drop for Handled {
    fn drop(&mut self) {
        let Self(handle, _watched) = self;
        handle.close();
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
            error_line(format_args!("{}", progress_line(label, meter)));
        }
    }
}

fn draw(label: &'static str, meter: &Meter, done: &AtomicBool) {
    // An operation that ends within one interval needs no bar.
    std::thread::park_timeout(LOOK_EVERY);
    if done.load(Ordering::Relaxed) {
        return;
    }
    let Some(bar) = Bar::new("") else { return };
    while !done.load(Ordering::Relaxed) {
        bar.draw(label, "", meter);
        if meter.is_announcement_due() {
            bar.suspend(|| meter.announce_if_due());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}
