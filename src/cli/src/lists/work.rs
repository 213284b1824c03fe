//! The items of a list while they are run: those that can begin are given to workers and what comes of them is taken,
//! until nothing is left to do or somebody asks to end.

use std::ffi::OsString;
use std::thread::available_parallelism;

use avfs_lists::batch::Schedule;
use avfs_vault::Vault;

use super::show::Show;
use crate::error::EdgeError;
use crate::signals::Asked;
use crate::ui::{Failure, Ui};
use crate::worker_pool::{Done, LOOK_EVERY, WorkerPool};

pub struct Work {
    pub schedule: Schedule,
    pub pool: WorkerPool<u32>,
    pub show: Show,
    /// Why nothing more is begun, where nothing that could be would fare better.
    pub stopped: Option<String>,
}

impl Work {
    /// At most `jobs` items at once; `options` are avfs-run's, for all of them.
    pub fn new(
        ui: &Ui,
        vault: &Vault,
        schedule: Schedule,
        items: usize,
        jobs: usize,
        options: &[OsString],
    ) -> Result<Self, EdgeError> {
        let path = vault.path().unwrap_or(std::path::Path::new(""));
        let pool = WorkerPool::hire(jobs.min(items), &ui.avfs, path, options)?;
        Ok(Self { schedule, pool, show: Show::start(ui, items as u64, jobs), stopped: None })
    }

    /// Nothing that could be done next would fare better.
    pub fn stop(&mut self, why: String) {
        self.schedule.stop();
        self.stopped.get_or_insert(why);
    }
}

/// As many as were asked for, else as many as there are processors.
pub fn jobs(asked: Option<u16>) -> usize {
    asked.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from)
}

/// What is done with each item.
pub trait Items {
    fn work(&mut self) -> &mut Work;
    fn begin(&mut self, item: u32) -> Result<(), Failure>;
    /// An item is over; `killed` if workers were, so that it may have come to nothing for that reason.
    fn ended(&mut self, done: Done<u32>, killed: bool) -> Result<(), Failure>;
    /// Nothing has ended for a moment, or everything has.
    fn pause(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Runs all of them. True if somebody asked to end: the first time what runs is finished, the second time it is killed.
pub fn run(items: &mut impl Items, asked: &Asked) -> Result<bool, Failure> {
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
