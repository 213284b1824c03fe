//! Progress display and interruption of long operations of avfs-run itself, before the command starts or after it has
//! ended.
//!
//! Signals are blocked during the operation and read by the threads that do the work, so no thread is started for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use avfs_terminal::{Bar, LINE_AFTER, LINE_EVERY, error_line, progress_line};
use avfs_vault::meter::{Meter, Onlooker};

use crate::command::render;
use crate::signals;
use crate::sys::{self, SignalFd, SignalSet};

/// The interval at which signals and progress are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// An operation shorter than this shows no progress bar.
const BAR_AFTER: Duration = Duration::from_millis(300);

/// Where progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Nobody,
    Terminal,
    /// A file or a pipe, such as the log of a CI job.
    Log,
}

/// Shows the progress of long operations and lets a signal stop them.
#[derive(Debug)]
pub struct Waiting {
    audience: Audience,
    state: Mutex<Option<Wait>>,
    is_waited_for: AtomicBool,
}

struct Wait {
    begun: Instant,
    next_look: Instant,
    next_line: Duration,
    bar: Option<Bar>,
    /// The descriptor for the blocked signals, and the signal mask before.
    signals: Option<(SignalFd, SignalSet)>,
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Waiting {
    #[must_use]
    pub fn new(audience: Audience) -> Self {
        Self { audience, state: Mutex::new(None), is_waited_for: AtomicBool::new(false) }
    }
}

/// Blocks the signals that end the process. If that fails, they have their default effect.
fn hold_signals() -> Option<(SignalFd, SignalSet)> {
    // A process started with nohup does not end with its terminal.
    let ends = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter();
    let set = SignalSet::of(&ends.filter(|signal| !sys::is_ignored_by_caller(*signal)).collect::<Vec<_>>());
    let before = sys::block_also(&set).ok()?;
    match SignalFd::new(&set) {
        Ok(signals) => Some((signals, before)),
        Err(_) => {
            let _ = sys::set_blocked(&before);
            None
        }
    }
}

impl Onlooker for Waiting {
    fn wait_begins(&self) {
        let now = Instant::now();
        let wait = Wait {
            begun: now,
            next_look: now + LOOK_EVERY,
            next_line: LINE_AFTER,
            bar: None,
            signals: hold_signals(),
        };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait);
        self.is_waited_for.store(true, Ordering::Release);
    }

    fn looks(&self, meter: &Meter) {
        if !self.is_waited_for.load(Ordering::Acquire) {
            return;
        }
        // Another thread is checking.
        let Ok(mut state) = self.state.try_lock() else { return };
        let Some(wait) = state.as_mut() else { return };
        let now = Instant::now();
        if now < wait.next_look {
            return;
        }
        wait.next_look = now + LOOK_EVERY;
        take_signal(wait, meter);
        match self.audience {
            Audience::Nobody => {}
            Audience::Terminal if now - wait.begun >= BAR_AFTER => draw(wait, meter),
            Audience::Terminal => {}
            Audience::Log if now - wait.begun >= wait.next_line => {
                wait.next_line += LINE_EVERY;
                error_line(format_args!("avfs-run: {}", progress_line(what(meter), meter)));
            }
            Audience::Log => {}
        }
        drop(state);
        meter.announce_if_due();
    }

    fn checks(&self, meter: &Meter) {
        if self.is_waited_for.load(Ordering::Acquire)
            && let Ok(mut state) = self.state.try_lock()
            && let Some(wait) = state.as_mut()
        {
            take_signal(wait, meter);
        }
        if let Some(signal) = signals::asked_to_end() {
            meter.stop_for(signal);
        }
        self.looks(meter);
    }

    fn wait_ends(&self, meter: &Meter) {
        self.is_waited_for.store(false, Ordering::Release);
        let wait = self.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut wait) = wait else { return };
        // Removes it from the terminal.
        wait.bar = None;
        take_signal(&mut wait, meter);
        if let Some((signals, before)) = wait.signals {
            drop(signals);
            if let Err(errno) = sys::set_blocked(&before) {
                tracing::warn!(%errno, "cannot restore the signal mask; signals stay blocked");
            }
        }
    }

    fn announces(&self, lines: &[String]) {
        match self.audience {
            Audience::Nobody => {}
            Audience::Terminal | Audience::Log => {
                let say = || render::say(lines.iter().map(|line| format!("avfs-run: {line}")));
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                match state.as_ref().and_then(|wait| wait.bar.as_ref()) {
                    Some(bar) => bar.suspend(say),
                    None => say(),
                }
            }
        }
    }
}

fn take_signal(wait: &mut Wait, meter: &Meter) {
    let Some((signals, _)) = &wait.signals else { return };
    if let Ok(Some(signal)) = signals.read() {
        if meter.stopped_by().is_some() {
            // The second one does not wait for a clean end.
            sys::end_by(signal);
        }
        meter.stop_for(signal);
    }
}

fn what(meter: &Meter) -> &'static str {
    if meter.files_total.load(Ordering::Relaxed) > 0 { "writing out" } else { "importing" }
}

fn draw(wait: &mut Wait, meter: &Meter) {
    if wait.bar.is_none() {
        wait.bar = Bar::new("avfs-run: ");
    }
    if let Some(bar) = &wait.bar {
        bar.draw(what(meter), " (^C to stop)", meter);
    }
}
