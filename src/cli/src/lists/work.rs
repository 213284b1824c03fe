//! The main loop over the items of a list: gives ready items to workers and takes their results, until
//! nothing is left to do or a termination signal arrives.

use std::ffi::OsString;
use std::thread::available_parallelism;

use avfs_lists::batch::Schedule;
use avfs_ops::{OpError, WorkplaceError};
use avfs_vault::Vault;

use super::show::Show;
use crate::signals::Asked;
use crate::ui::Ui;
use crate::worker_pool::{Done, LOOK_EVERY, WorkerPool};

pub struct Work {
    pub schedule: Schedule,
    pub pool: WorkerPool<u32>,
    pub show: Show,
    /// Why no further items are started, if they would fail too.
    pub stopped: Option<String>,
}

impl Work {
    /// At most `jobs` items run at once; `options` are options of avfs-run for all items.
    pub fn new(
        ui: &Ui,
        vault: &Vault,
        schedule: Schedule,
        items: usize,
        jobs: usize,
        options: &[OsString],
    ) -> Result<Self, WorkplaceError> {
        let path = vault.path().unwrap_or(std::path::Path::new(""));
        let pool = WorkerPool::hire(jobs.min(items), &ui.avfs, path, options)?;
        Ok(Self { schedule, pool, show: Show::start(ui, items as u64, jobs), stopped: None })
    }

    /// Stops, because all further items would fail too.
    pub fn stop(&mut self, why: String) {
        self.schedule.stop();
        self.stopped.get_or_insert(why);
    }
}

/// The requested number, or the number of processors.
pub fn jobs(asked: Option<u16>) -> usize {
    asked.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from)
}

/// The operations of a verb on its items.
pub trait Items {
    fn work(&mut self) -> &mut Work;
    fn begin(&mut self, item: u32) -> Result<(), OpError>;
    /// Called when an item has ended. `killed` is true if the workers were killed, which may be why it
    /// failed.
    fn ended(&mut self, done: Done<u32>, killed: bool) -> Result<(), OpError>;
    /// Called when no item has ended for a moment, or when all have.
    fn pause(&mut self) -> Result<(), OpError> {
        Ok(())
    }
}

/// Runs all items. Returns true after a termination signal: the first lets running items finish, the second
/// kills them.
pub fn run(items: &mut impl Items, asked: &Asked) -> Result<bool, OpError> {
    let mut killed = false;
    loop {
        let work = items.work();
        if asked.times() > 0 {
            work.schedule.stop();
            work.show.ending(work.schedule.running());
        }
        if asked.times() > 1 && !killed {
            killed = true;
            work.pool.kill();
        }
        while items.work().pool.idle() > 0
            && let Some(item) = items.work().schedule.begin()
        {
            items.begin(item)?;
        }
        let work = items.work();
        if work.schedule.is_over() {
            items.pause()?;
            return Ok(asked.times() > 0);
        }
        match work.pool.next(LOOK_EVERY) {
            Some(done) => items.ended(done, killed)?,
            None => items.pause()?,
        }
        items.work().show.look();
    }
}
