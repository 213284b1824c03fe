//! Measures the disk usage of the cache directory.

use avfs_vault::evict::CacheItemKind;

use super::measure::disk_bytes;
use super::{CacheCareError, CacheKeeper, Result, abandoned, dirs, scratches, stat_caches};
use crate::fork_dirs::ForkDirs;
use crate::orphans::RunLife;

/// A number of items and their disk usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub count: u64,
    pub bytes: u64,
}

impl Part {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The contents of a cache directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    pub bases: Part,
    pub layers: Part,
    /// Directories of `cache.dirs`.
    pub dirs: Part,
    /// Directories that forks keep between runs: `--home persistent` and `--keep-tmp`.
    pub fork_dirs: Part,
    pub stat_caches: Part,
    /// Work in progress, or left over, of builders and evictions.
    pub unfinished: Part,
    /// Scratches of live runs.
    pub running: Part,
    /// Scratches that `avfs recover` can finish.
    pub recoverable: Part,
    /// Those of them whose vault is gone.
    pub orphaned: Part,
    /// Scratches of runs that were killed with their command.
    pub dead: Part,
    /// Everything, including data not listed above.
    pub total_bytes: u64,
}

impl CacheKeeper {
    /// Measures the cache. Reads every entry in it.
    pub fn usage(&self) -> Result<CacheUsage> {
        let mut usage = CacheUsage { total_bytes: disk_bytes(&self.dir), ..CacheUsage::default() };
        for item in self.layers.items()? {
            match item.kind {
                CacheItemKind::Base => usage.bases.count += 1,
                CacheItemKind::Layer => usage.layers.count += 1,
            }
        }
        let shelf = |name: &str| disk_bytes(&self.dir.join(name));
        usage.bases.bytes = shelf("base");
        usage.layers.bytes = shelf("layer").saturating_add(shelf("stack"));
        for path in self.layers.unfinished()? {
            let bytes = disk_bytes(&path);
            usage.unfinished.add(bytes);
            let shelf =
                if path.starts_with(self.dir.join("base")) { &mut usage.bases } else { &mut usage.layers };
            shelf.bytes = shelf.bytes.saturating_sub(bytes);
        }
        let dirs_place = self.dir.join("dirs");
        let list = |error| CacheCareError::host("list", &dirs_place)(error);
        for dir in dirs::list(&self.dir).map_err(list)? {
            usage.dirs.add(dir.bytes);
        }
        let mut left = dirs::unfinished(&self.dir).map_err(CacheCareError::host("list", &dirs_place))?;
        left.extend(abandoned(&self.dir).map_err(CacheCareError::host("list", &self.dir))?);
        for path in left {
            usage.unfinished.add(disk_bytes(&path));
        }
        let place = self.dir.join("forks");
        for dir in ForkDirs::list(&self.dir).map_err(CacheCareError::host("list", &place))? {
            usage.fork_dirs.add(disk_bytes(&dir));
        }
        let place = self.dir.join("stat");
        for cache in stat_caches(&place).map_err(CacheCareError::host("list", &place))? {
            usage.stat_caches.add(cache.bytes());
        }
        for (life, orphan, bytes) in scratches::list(&self.scratch())? {
            match life {
                RunLife::Running => usage.running.add(bytes),
                RunLife::Dead => usage.dead.add(bytes),
                RunLife::Recoverable => {
                    usage.recoverable.add(bytes);
                    if orphan {
                        usage.orphaned.add(bytes);
                    }
                }
            }
        }
        Ok(usage)
    }
}
