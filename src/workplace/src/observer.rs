//! How a long operation reaches its caller: progress, cancellation and notices.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use avfs_vault::meter::{Announcement, Meter, Onlooker};

use crate::error::OpError;

/// Shows how far an operation is.
pub trait Progress: Send + Sync {
    /// Shows the counters of the meter under this label until the returned value is dropped.
    fn show(&self, label: &'static str, meter: &Arc<Meter>) -> Box<dyn Any>;
}

/// Ends an operation that the caller no longer wants.
pub trait Cancellation: Send + Sync {
    /// Calls [`Meter::stop`] if the operation shall end, until the returned value is dropped.
    fn watch(&self, meter: &Arc<Meter>) -> Result<Box<dyn Any>, OpError>;
}

/// Receives what a person should know. The answer of the verb has the same facts.
pub trait Notices: Send + Sync + fmt::Debug {
    fn note(&self, text: fmt::Arguments<'_>);
    /// About the state of the vault: it concerns scripts too, and is not in the answer.
    fn warn(&self, text: fmt::Arguments<'_>);
}

/// The observers of one client.
#[derive(Clone)]
pub struct Observer {
    pub progress: Arc<dyn Progress>,
    pub cancellation: Arc<dyn Cancellation>,
    pub notices: Arc<dyn Notices>,
}

/// Shows nothing, and never cancels.
#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn show(&self, _: &'static str, _: &Arc<Meter>) -> Box<dyn Any> {
        Box::new(())
    }
}

impl Cancellation for Silent {
    fn watch(&self, _: &Arc<Meter>) -> Result<Box<dyn Any>, OpError> {
        Ok(Box::new(()))
    }
}

impl Notices for Silent {
    fn note(&self, _: fmt::Arguments<'_>) {}

    fn warn(&self, _: fmt::Arguments<'_>) {}
}

/// A long operation: its meter, and what watches it until this is dropped.
pub struct Operation {
    pub meter: Arc<Meter>,
    /// Dropped in this order: cancellation ends before the display is removed.
    _watched: [Box<dyn Any>; 2],
}

impl Observer {
    /// An observer for callers that only want the answer.
    #[must_use]
    pub fn silent() -> Self {
        Self { progress: Arc::new(Silent), cancellation: Arc::new(Silent), notices: Arc::new(Silent) }
    }

    /// An operation that shows its progress and can be cancelled.
    pub fn operation(&self, label: &'static str) -> Result<Operation, OpError> {
        let meter = Arc::default();
        let shown = self.progress.show(label, &meter);
        Ok(Operation { _watched: [self.cancellation.watch(&meter)?, shown], meter })
    }

    /// An operation that can be cancelled, without a display.
    pub fn unshown_operation(&self) -> Result<Operation, OpError> {
        let meter = Arc::default();
        Ok(Operation { _watched: [self.cancellation.watch(&meter)?, Box::new(())], meter })
    }

    /// An operation that shows its progress and must not be cancelled.
    #[must_use]
    pub fn whole_operation(&self, label: &'static str) -> Operation {
        let meter = Arc::default();
        Operation { _watched: [Box::new(()), self.progress.show(label, &meter)], meter }
    }

    /// Like [`Self::operation`], with an announcement as soon as its size is known to need it.
    pub fn announced_operation(
        &self,
        label: &'static str,
        announcement: Option<Announcement>,
    ) -> Result<Operation, OpError> {
        let meter = Arc::new(Meter::watched(Box::new(Announcer(Arc::clone(&self.notices)))));
        if let Some(announcement) = announcement {
            meter.announce_when_due(announcement);
            meter.announce_if_due();
        }
        let shown = self.progress.show(label, &meter);
        Ok(Operation { _watched: [self.cancellation.watch(&meter)?, shown], meter })
    }
}

/// Passes the announcement of an operation to the caller.
#[derive(Debug)]
struct Announcer(Arc<dyn Notices>);

impl Onlooker for Announcer {
    fn wait_begins(&self) {}

    fn looks(&self, _: &Meter) {}

    fn wait_ends(&self, _: &Meter) {}

    fn announces(&self, lines: &[String]) {
        lines.iter().for_each(|line| self.0.note(format_args!("{line}")));
    }
}
