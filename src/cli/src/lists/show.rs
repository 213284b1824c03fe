//! The progress of a batch: a live view on a terminal, plain lines elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use avfs_terminal::{error_line, stderr_is_terminal};
use avfs_types::{last_lines, printable};
use avfs_wire::{BatchItemResult, ItemState};

use crate::ui::{Format, Ui};

/// The number of characters of a command that fit on a progress line.
const COMMAND_CHARS: usize = 60;
/// The number of characters of an output line that are shown.
const OUTPUT_CHARS: usize = 200;
/// The maximum number of running items with their own line.
const LINES_MAX: usize = 8;
const TICK: Duration = Duration::from_millis(200);

pub struct Show {
    view: View,
    total: u64,
    settled: u64,
    unsuccessful: u64,
    ending_shown: bool,
}

enum View {
    Live { all: MultiProgress, bar: ProgressBar, running: HashMap<u32, ProgressBar> },
    Lines,
    Nothing,
}

impl Show {
    pub fn start(ui: &Ui, total: u64, jobs: usize) -> Self {
        let view = match (ui.format, stderr_is_terminal()) {
            (Format::Json, _) => View::Nothing,
            (Format::Human, false) => View::Lines,
            (Format::Human, true) => {
                let all = MultiProgress::new();
                let bar = all.add(ProgressBar::new(total));
                // If the template cannot be parsed, the bar only looks plainer.
                if let Ok(style) =
                    ProgressStyle::with_template("[{bar:30}] {pos}/{len}{msg}  {elapsed}, {eta} left")
                {
                    bar.set_style(style);
                }
                bar.enable_steady_tick(TICK);
                View::Live { all, bar, running: HashMap::with_capacity(jobs) }
            }
        };
        Self { view, total, settled: 0, unsuccessful: 0, ending_shown: false }
    }

    /// Sets the number of items that were completed before.
    pub fn begin_at(&mut self, settled: u64) {
        self.settled = settled;
        if let View::Live { bar, .. } = &self.view {
            bar.set_position(settled);
        } else if settled > 0 {
            self.line(&format!("{settled} of {} were completed before", self.total));
        }
    }

    pub fn begun(&mut self, item: u32, id: &str, command: &str) {
        let View::Live { all, running, .. } = &mut self.view else { return };
        if running.len() >= LINES_MAX {
            return;
        }
        let line = all.add(ProgressBar::new_spinner());
        let command: String = command.chars().take(COMMAND_CHARS).collect();
        set_message(&line, &format!("{id}: {command}"));
        line.enable_steady_tick(TICK);
        running.insert(item, line);
    }

    pub fn ended(&mut self, item: u32) {
        let View::Live { all, running, .. } = &mut self.view else { return };
        if let Some(line) = running.remove(&item) {
            line.finish_and_clear();
            all.remove(&line);
        }
    }

    pub fn again(&self, id: &str, ending: &str, attempts: u32, tries: u32) {
        self.line(&format!("{id}  {ending}; retrying ({attempts} of {tries})"));
    }

    pub fn settled(&mut self, result: &BatchItemResult) {
        let well = result.state == ItemState::Succeeded;
        let ending = if well && !result.cached { "ok".to_owned() } else { result.ending() };
        self.item_ended(well, &result.id, &ending, result.duration_ms, &result.command);
        if !well {
            self.last_lines("stdout", result.stdout.as_deref());
            self.last_lines("stderr", result.stderr.as_deref());
        }
    }

    /// The last lines of an item's output.
    fn last_lines(&self, stream: &str, text: Option<&str>) {
        for line in last_lines(text.unwrap_or_default()).lines() {
            let shown: String = line.chars().take(OUTPUT_CHARS).collect();
            let more = if shown.len() < line.len() { "…" } else { "" };
            self.line(&format!("  {stream}: {shown}{more}"));
        }
    }

    /// Shows that an item has ended, successfully or not.
    pub fn item_ended(&mut self, well: bool, id: &str, ending: &str, duration_ms: f64, command: &str) {
        self.settled += 1;
        self.unsuccessful += u64::from(!well);
        if let View::Live { bar, .. } = &self.view {
            bar.set_position(self.settled);
            if self.unsuccessful > 0 {
                set_message(bar, &format!(", {} unsuccessful", self.unsuccessful));
            }
            if well {
                return;
            }
        }
        let command: String = command.chars().take(COMMAND_CHARS).collect();
        let (settled, total, seconds) = (self.settled, self.total, duration_ms / 1e3);
        self.line(&format!("[{settled}/{total}] {id}  {ending}  {seconds:.2} s  {command}"));
    }

    /// Shows that the batch is ending after a termination signal.
    pub fn ending(&mut self, running: usize) {
        if !std::mem::replace(&mut self.ending_shown, true) && running > 0 {
            self.line(&format!("ending: {running} running; press ^C again to kill"));
        }
    }

    pub fn look(&self) {
        if let View::Live { bar, .. } = &self.view {
            bar.tick();
        }
    }

    pub fn finish(&mut self) {
        if let View::Live { all, bar, running } = &mut self.view {
            running.drain().for_each(|(_, line)| line.finish_and_clear());
            bar.finish_and_clear();
            // If the terminal cannot be cleared, only some lines stay.
            let _ = all.clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.view {
            View::Live { bar, .. } => print_over(bar, text),
            View::Lines => error_line(format_args!("{text}")),
            View::Nothing => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the text is escaped here")]
fn print_over(bar: &ProgressBar, text: &str) {
    bar.println(printable::line(text));
}

#[expect(clippy::disallowed_methods, reason = "the text is escaped here")]
fn set_message(bar: &ProgressBar, text: &str) {
    bar.set_message(printable::line(text).into_owned());
}
