//! Threads with a fallback: at the process limit, work runs on the calling thread or fails with an error.

use std::sync::OnceLock;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use avfs_hostfs::threads::shielded;

use crate::error::{Result, VaultError};

/// Spawns a scoped thread.
pub(super) fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    shielded(|| Builder::new().spawn_scoped(scope, work)).map_err(VaultError::Threads)
}

/// Joins a thread and returns its result. Propagates a panic of the thread to the caller.
pub(super) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A pool with one thread per core.
pub(super) fn pool() -> Result<ThreadPool> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let built = shielded(|| ThreadPoolBuilder::new().num_threads(threads).build());
    built.map_err(|error| VaultError::Threads(std::io::Error::other(error)))
}

/// Runs both closures, in parallel if a pool is available.
pub(super) fn both<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    if can_share() { rayon::join(a, b) } else { (a(), b()) }
}

/// Maps all items, in parallel if a pool is available. Keeps their order.
pub(super) fn map<A: Send, B: Send>(all: Vec<A>, work: impl Fn(A) -> B + Sync + Send) -> Vec<B> {
    if can_share() { all.into_par_iter().map(work).collect() } else { all.into_iter().map(work).collect() }
}

/// True on a thread of a pool, or if the global pool could be created.
fn can_share() -> bool {
    static MADE: OnceLock<bool> = OnceLock::new();
    rayon::current_thread_index().is_some()
        || *MADE.get_or_init(|| shielded(|| ThreadPoolBuilder::new().build_global().is_ok()))
}
